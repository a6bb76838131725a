"""What the kernel holds of links and queues, read over rtnetlink, in the caller's namespace."""

import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from topologies import tbf
from topologies.inspected import LinkEnd
from topologies.netlink import (
    CLASS,
    CLSACT_EGRESS,
    CLSACT_HANDLE,
    CLSACT_INGRESS,
    ECHO,
    HTB,
    NETEM,
    REQUEST,
    TC_ROOT,
    WINDOW,
    attributes,
    dump,
    indexes,
    messages,
    open_socket,
)
from topologies.shaping import Held

# linux/rtnetlink.h
_RTM_GETLINK, _RTM_GETQDISC, _RTM_NEWTCLASS, _RTM_GETTCLASS, _RTM_GETTFILTER, _RTM_GETSTATS = 18, 38, 40, 42, 46, 94
# linux/if_link.h; RTEXT_FILTER_SKIP_STATS: counters are most of a link's message.
_IFLA_IFNAME, _IFLA_LINK, _IFLA_EXT_MASK, _IFLA_CARRIER, _SKIP_STATS = 3, 5, 29, 33, 8


class Counters(NamedTuple):
    """64-bit counters of one interface since it was made."""

    rx_bytes: int
    rx_packets: int
    tx_bytes: int
    tx_packets: int
    rx_dropped: int
    tx_dropped: int


class LinkReader:
    """Reads counters of all interfaces of one namespace, ten times a second for little: the one it was made in.

    RTM_GETSTATS with only the 64-bit link counters costs an eighth of a full RTM_GETLINK dump.
    """

    # nlmsghdr; if_stats_msg: family, padding, ifindex, mask; nlattr; rtnl_link_stats64: rx and tx packets, bytes,
    # errors, drops; the newer kernels' further counters follow.
    _HEADER = "=16x4xi4x4x"
    _STATS_64 = 1

    def __init__(self) -> None:
        self._link = open_socket()
        self._names: dict[int, str] = {}

    def close(self) -> None:
        self._link.close()

    def read(self) -> dict[str, Counters]:
        found: dict[str, Counters] = {}
        body = struct.pack("=BBHII", 0, 0, 0, 0, self._STATS_64)
        for data in dump(self._link, _RTM_GETSTATS, body):
            found.update(self._parse(data))
        return found

    def _parse(self, data: bytes) -> Iterator[tuple[str, Counters]]:
        """All messages of a dump have one length, so one struct reads them all."""
        if not data:
            return
        length = struct.unpack_from("=I", data)[0]
        row = struct.Struct(f"{self._HEADER}8Q{length - 28 - 4 - 64}x")
        for index, rx_n, tx_n, rx, tx, _, _, rx_drop, tx_drop in row.iter_unpack(data):
            if index not in self._names:
                self._names = dict(socket.if_nameindex())
            yield self._names.get(index, str(index)), Counters(rx, rx_n, tx, tx_n, rx_drop, tx_drop)


def link_counters() -> dict[str, Counters]:
    """One reading of every interface of the caller's namespace; keep a `LinkReader` to read often."""
    reader = LinkReader()
    try:
        return reader.read()
    finally:
        reader.close()


def link_ends() -> dict[str, LinkEnd]:
    """Every interface of the caller's namespace."""
    found = {}
    body = struct.pack("=16xHHI", 8, _IFLA_EXT_MASK, _SKIP_STATS)
    with open_socket() as link:
        for data in dump(link, _RTM_GETLINK, body):
            for _, _, payload in messages(data):
                of = dict(attributes(payload[16:]))
                index = struct.unpack_from("=4xi", payload)[0]
                peer = struct.unpack("=I", of[_IFLA_LINK])[0] if _IFLA_LINK in of else 0
                found[_text(of[_IFLA_IFNAME])] = LinkEnd(index, peer, of.get(_IFLA_CARRIER, b"\1") == b"\1")
    return found


# -- traffic control, as the kernel holds it ---------------------------------------------------------------------------

# TCA_KIND, TCA_OPTIONS, TCA_STATS2; TCA_STATS_QUEUE; struct gnet_stats_queue: qlen, backlog, drops, ...
_KIND, _OPTIONS, _STATS2, _STATS_QUEUE = 1, 2, 7, 3
_TCMSG = struct.Struct("=4xiIII")
# TCA_BPF_NAME.
_BPF_NAME = 7


def qdisc_drops() -> dict[str, int]:
    """Frames dropped by the root qdisc and below it, of every interface of the caller's namespace that has one."""
    return {intf: counts.dropped for intf, counts in queue_counts().items()}


def tbf_options() -> dict[str, bytes]:
    """As the kernel holds them, of every interface of the caller's namespace whose root is TBF."""
    names = dict(socket.if_nameindex())
    roots = ((names[i], dict(attributes(data))) for i, _, parent, data in _qdiscs() if parent == TC_ROOT and i in names)
    return {intf: found[_OPTIONS] for intf, found in roots if _text(found[_KIND]) == "tbf"}


class QueueCounts(NamedTuple):
    """Of one interface's root queue and what is below it: frames that wait now, frames dropped since it was made."""

    waiting: int
    dropped: int


def queue_counts() -> dict[str, QueueCounts]:
    """Of every interface of the caller's namespace that has a root queue."""
    names = dict(socket.if_nameindex())
    found = {}
    for index, _, parent, data in _qdiscs():
        if parent == TC_ROOT and index in names:
            found[names[index]] = QueueCounts(*struct.unpack_from("=I4xI", _stats(data)[_STATS_QUEUE]))
    return found


def filter_drops() -> dict[str, int]:
    """Frames dropped by filters, of every interface of the caller's namespace on which some may hang."""
    names = dict(socket.if_nameindex())
    return {
        names[index]: struct.unpack_from("=8xI", _stats(data)[_STATS_QUEUE])[0]
        for index, handle, _, data in _qdiscs()
        if handle == CLSACT_HANDLE and index in names
    }


def _stats(data: bytes) -> dict[int, bytes]:
    return dict(attributes(dict(attributes(data))[_STATS2]))


def read_shaping(intfs: Sequence[str]) -> dict[str, Held]:
    """What tc holds for each of the interfaces, all of the caller's namespace: one dump and one batch of questions."""
    index_by_name = indexes()
    qdiscs = {(index, parent): (handle, data) for index, handle, parent, data in _qdiscs()}
    at_root = {index: data for (index, parent), (handle, data) in qdiscs.items() if (handle, parent) == (HTB, TC_ROOT)}
    with_class = {index for index, data in at_root.items() if _text(dict(attributes(data))[_KIND]) == "htb"}
    shaped = [i for n in intfs if (i := index_by_name.get(n, 0)) in with_class]
    classes = dict(zip(shaped, _classes(shaped), strict=True))
    return {name: _shaping(index_by_name.get(name, 0), qdiscs, classes) for name in intfs}


def read_netem() -> dict[str, int]:
    """Interface -> netem's delay in 64 ns ticks, of every interface of the caller's namespace that has one."""
    names = dict(socket.if_nameindex())
    found = {}
    for index, handle, _, data in _qdiscs():
        if handle == NETEM:
            # struct tc_netem_qopt begins with the latency.
            found[names[index]] = int(struct.unpack_from("=I", dict(attributes(data))[_OPTIONS])[0])
    return found


def programs(intfs: Iterable[str]) -> frozenset[tuple[str, str]]:
    """(interface, program's name) of every eBPF program on what arrives at or leaves those interfaces that the caller's namespace
    has."""
    index_by_name = indexes()
    found = set()
    with open_socket() as link:
        for name in index_by_name.keys() & intfs:
            for parent in (CLSACT_INGRESS, CLSACT_EGRESS):
                body = _TCMSG.pack(index_by_name[name], 0, parent, 0)
                for data in dump(link, _RTM_GETTFILTER, body):
                    for _, _, payload in messages(data):
                        if program := _program_name(dict(attributes(payload[20:]))):
                            found.add((name, program))
    return frozenset(found)


def _program_name(filter_: dict[int, bytes]) -> str | None:
    """None of the message that describes the chain before its filters, and of filters that are no program."""
    if _KIND not in filter_ or _text(filter_[_KIND]) != "bpf" or _OPTIONS not in filter_:
        return None
    options = dict(attributes(filter_[_OPTIONS]))
    return _text(options[_BPF_NAME]) if _BPF_NAME in options else None


def _shaping(index: int, qdiscs: dict[tuple[int, int], tuple[int, bytes]], classes: dict[int, bytes | None]) -> Held:
    root = qdiscs.get((index, TC_ROOT))
    kind = _text(dict(attributes(root[1]))[_KIND]) if root else None
    if root and kind == "tbf":
        only_rate, only_burst, limit = tbf.parse(dict(attributes(root[1]))[_OPTIONS])
        return Held(kind, only_rate, only_rate, only_burst, only_burst, limit)
    found = classes.get(index)
    rate, ceil, burst, cburst = _class_rates(found) if found else (None, None, None, None)
    fifo = qdiscs.get((index, CLASS))
    return Held(kind, rate, ceil, burst, cburst, _fifo_limit(fifo[1]) if fifo else None)


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode()


def _fifo_limit(data: bytes) -> int | None:
    found = dict(attributes(data))
    is_bytes = _text(found[_KIND]) == "bfifo"
    return int(struct.unpack_from("=I", found[_OPTIONS])[0]) if is_bytes else None


def _class_rates(data: bytes) -> tuple[int, int, int, int]:
    """struct tc_htb_opt: two tc_ratespecs of 12 bytes, which end with the rate, buffer, cbuffer; 64-bit rates apart."""
    options = dict(attributes(dict(attributes(data))[_OPTIONS]))
    rate, ceil, buffer, cbuffer = struct.unpack_from("=8xI8xIII", options[1])
    return _rate_64(options.get(6), rate), _rate_64(options.get(7), ceil), buffer, cbuffer


def _rate_64(attribute: bytes | None, low: int) -> int:
    return low if attribute is None else int(struct.unpack("=Q", attribute)[0])


def _qdiscs() -> Iterator[tuple[int, int, int, bytes]]:
    """(interface index, handle, parent, attributes) of every qdisc."""
    with open_socket() as link:
        for data in dump(link, _RTM_GETQDISC, bytes(20)):
            for _, _, payload in messages(data):
                index, handle, parent, _ = _TCMSG.unpack_from(payload)
                yield index, handle, parent, payload[20:]


def _classes(numbers: Sequence[int]) -> Iterator[bytes | None]:
    """The attributes of class 5:1 of each interface, None where there is none."""
    with open_socket() as link:
        for start in range(0, len(numbers), WINDOW):
            window = numbers[start : start + WINDOW]
            link.send(b"".join(_class_question(index, i) for i, index in enumerate(window)))
            yield from _answers(link, len(window))


def _class_question(index: int, sequence: int) -> bytes:
    """RTM_GETTCLASS answers by way of a notification, which comes to the asker only with NLM_F_ECHO."""
    return struct.pack("=IHHII4xiIII", 36, _RTM_GETTCLASS, REQUEST | ECHO, sequence, 0, index, CLASS, HTB, 0)


def _answers(link: socket.socket, n: int) -> list[bytes | None]:
    answers: list[bytes | None] = [None] * n
    seen = 0
    while seen < n:
        for kind, sequence, payload in messages(link.recv(1 << 18)):
            seen += 1
            answers[sequence] = payload[20:] if kind == _RTM_NEWTCLASS else None
    return answers
