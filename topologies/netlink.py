"""rtnetlink in batches: requests are bytes, encoded by pyroute2's message classes, and many go out in one send.

Stock tools cost a process, or a pty round trip, per link. Here a socket takes a window of requests in one system call
and gives back one acknowledgement for each; an error names the item that failed. A socket belongs to the namespace of
the thread that made it, so everything here works in the caller's namespace (`topologies.namespaces` enters others).
pyroute2's own request loop is not used: since 0.9 it runs an event loop per call, and it encodes a message in
0.1-0.5 ms, so the messages of equal shapes are encoded once and differ only in the interface index.
"""

import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from pyroute2.netlink import nlmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg
from pyroute2.netlink.rtnl.tcmsg import cls_u32, plugins, sched_pfifo, tcmsg

from topologies.errors import EmulationError
from topologies.shaping import Held, Shape

# linux/netlink.h, linux/rtnetlink.h
_REQUEST, _ACK, _ECHO, _REPLACE, _EXCL, _CREATE, _DUMP = 0x1, 0x4, 0x8, 0x100, 0x200, 0x400, 0x300
_NEW = _CREATE | _EXCL
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_RTM_NEWLINK, _RTM_DELLINK = 16, 17
_RTM_NEWADDR, _RTM_NEWROUTE, _RTM_NEWNEIGH = 20, 24, 28
_RTM_NEWQDISC, _RTM_GETQDISC, _RTM_NEWTCLASS, _RTM_GETTCLASS, _RTM_NEWTFILTER, _RTM_GETSTATS = 36, 38, 40, 42, 44, 94
_IFF_UP = 1
_NUD_PERMANENT = 0x80
_RTNH_F_ONLINK = 4
_RT_SCOPE_LINK = 253
_TC_ROOT = 0xFFFFFFFF
_ETHERNET = 1  # TC_LINKLAYER_ETHERNET: the kernel then needs no rate table
_HTB, _CLASS, _FIFO, _NETEM = 0x50000, 0x50001, 0x500000, 0xA0000
_CLSACT, _CLSACT_HANDLE, _CLSACT_INGRESS = 0xFFFFFFF1, 0xFFFF0000, 0xFFFFFFF2
_FIRST_PRIORITY, _ETH_P_ALL = 1 << 16, 3
_MAX_U32 = 2**32 - 1
# linux/socket.h, linux/netlink.h
_SOL_NETLINK, _CAP_ACK, _EXT_ACK, _GET_STRICT = 270, 10, 11, 12
_RECEIVE_BUFFER = 4 << 20
# One acknowledgement takes about 1 kB of the receive buffer.
_WINDOW = 256

# pyroute2 knows pfifo; bfifo's only option is the same struct, counted in bytes.
plugins["bfifo"] = sched_pfifo


class Request(NamedTuple):
    """One encoded request, and what it is about for the error text."""

    data: bytes
    what: str


class End(NamedTuple):
    """One end of a cable to make. mac: None = the kernel's choice; netns_fd: the namespace it goes to (None = here);
    group: a number to delete it by."""

    name: str
    mac: str | None
    mtu: int
    netns_fd: int | None = None
    group: int = 0


class Counters(NamedTuple):
    """64-bit counters of one interface since it was made."""

    rx_bytes: int
    rx_packets: int
    tx_bytes: int
    tx_packets: int
    rx_dropped: int
    tx_dropped: int


# -- requests ---------------------------------------------------------------------------------------------------------


def veth(a: End, b: End) -> Request:
    """A cable, both ends down: the kernel opens neither before it knows its peer."""
    peer = {"attrs": _link_attrs(b)}
    info = [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", {"attrs": [("VETH_INFO_PEER", peer)]})]
    attrs = [*_link_attrs(a), ("IFLA_LINKINFO", {"attrs": info})]
    return _request(ifinfmsg, _RTM_NEWLINK, _NEW, {}, attrs, f"link {a.name} to {b.name}")


def set_link(index: int, intf: str, *, up: bool) -> Request:
    return Request(_at_index(_up_or_down(up), index), f"{intf} {'up' if up else 'down'}")


@lru_cache
def _up_or_down(up: bool) -> bytes:
    return _encode(ifinfmsg, _RTM_NEWLINK, 0, {"flags": _IFF_UP if up else 0, "change": _IFF_UP}, ())


def delete_group(group: int) -> Request:
    """Every link whose end here is in the group, together: one by one each would wait for the kernel's readers."""
    return _request(ifinfmsg, _RTM_DELLINK, 0, {}, [("IFLA_GROUP", group)], f"removing the links of group {group:#x}")


def address(index: int, ip: str, prefix_length: int) -> Request:
    fields = {"family": socket.AF_INET, "index": index, "prefixlen": prefix_length}
    return _request(ifaddrmsg, _RTM_NEWADDR, _NEW, fields, [("IFA_LOCAL", ip), ("IFA_ADDRESS", ip)], f"address {ip}")


def route(index: int, network: str, via: str | None, congestion_control: str | None = None) -> Request:
    """network: '198.18.0.0/15'. via: a gateway on this interface, whatever its own address; None = on the link.
    congestion_control: of every TCP connection that takes the route."""
    destination, _, length = network.partition("/")
    fields = {"family": socket.AF_INET, "dst_len": int(length), "table": 254, "proto": 4, "type": 1}
    attrs: list[tuple[str, Any]] = [("RTA_DST", destination), ("RTA_OIF", index)]
    if via is None:
        fields["scope"] = _RT_SCOPE_LINK
    else:
        fields["flags"] = _RTNH_F_ONLINK
        attrs.append(("RTA_GATEWAY", via))
    if congestion_control is not None:
        attrs.append(("RTA_METRICS", {"attrs": [("RTAX_CC_ALGO", congestion_control)]}))
    return _request(rtmsg, _RTM_NEWROUTE, _CREATE | _REPLACE, fields, attrs, f"route to {network}")


def neighbour(index: int, ip: str, mac: str) -> Request:
    """A permanent entry: never asked for, never forgotten, and exempt from the kernel's table limits."""
    fields = {"family": socket.AF_INET, "ifindex": index, "state": _NUD_PERMANENT}
    attrs = [("NDA_DST", ip), ("NDA_LLADDR", mac)]
    return _request(ndmsg, _RTM_NEWNEIGH, _CREATE | _REPLACE, fields, attrs, f"neighbour {ip}")


def shaping(index: int, intf: str, shape: Shape) -> list[Request]:
    """HTB, its class and the queue, on an interface that has no qdisc of its own."""
    templates = _shaping_templates(shape)
    parts = (("htb", templates[0]), ("class", templates[1]), ("bfifo", templates[2]))
    return [Request(_at_index(data, index), f"{part} on {intf}") for part, data in parts]


def netem(index: int, intf: str, delay_ticks: int, limit_frames: int) -> Request:
    """A delay line for all that leaves the interface. delay: in 64 ns ticks; limit: the frames that may be in it."""
    options = {"delay": delay_ticks, "limit": limit_frames}
    fields = {"index": index, "handle": _NETEM, "parent": _TC_ROOT}
    attrs = [("TCA_KIND", "netem"), ("TCA_OPTIONS", options)]
    return _request(tcmsg, _RTM_NEWQDISC, _NEW, fields, attrs, f"netem on {intf}")


def pass_on(index: int, to: int, intf: str) -> list[Request]:
    """Hand every frame that arrives at an interface to another's egress. Matched by u32: not every kernel has matchall."""
    clsact = {"index": index, "handle": _CLSACT_HANDLE, "parent": _CLSACT}
    action = {"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": to}
    options = cls_u32.get_parameters({"action": action, "target": 0, "keys": ["0x0/0x0+0"]})
    every_frame = {"index": index, "parent": _CLSACT_INGRESS, "info": _FIRST_PRIORITY | socket.htons(_ETH_P_ALL)}
    attrs = [("TCA_KIND", "u32"), ("TCA_OPTIONS", options)]
    return [
        _request(tcmsg, _RTM_NEWQDISC, _NEW, clsact, [("TCA_KIND", "clsact")], f"clsact on {intf}"),
        _request(tcmsg, _RTM_NEWTFILTER, _NEW, every_frame, attrs, f"redirection on {intf}"),
    ]


def reshaping(index: int, intf: str, shape: Shape) -> list[Request]:
    """Another rate and limit for a shaped interface, in place: deleting would drop the queue and open the link."""
    what = f"rate {shape.rate_mbps:g} Mbit/s on {intf}"
    return [Request(_at_index(data, index), what) for data in (_class(shape, 0), _fifo(shape, 0))]


@lru_cache(maxsize=1024)
def _shaping_templates(shape: Shape) -> tuple[bytes, bytes, bytes]:
    return _htb(), _class(shape, _NEW), _fifo(shape, _NEW)


def _htb() -> bytes:
    default = {"version": 3, "rate2quantum": 10, "defcls": 1}
    options = {"attrs": [("TCA_HTB_INIT", default)]}
    fields = {"handle": _HTB, "parent": _TC_ROOT}
    return _encode(tcmsg, _RTM_NEWQDISC, _NEW, fields, [("TCA_KIND", "htb"), ("TCA_OPTIONS", options)])


def _class(shape: Shape, flags: int) -> bytes:
    rate = min(shape.rate_bytes_s, _MAX_U32)
    parameters = {"rate": rate, "ceil": rate, "buffer": shape.burst_ticks, "cbuffer": shape.burst_ticks}
    parameters |= {f"{x}_{key}": value for x in ("rate", "ceil") for key, value in _RATE_SPEC.items()}
    attrs: list[tuple[str, Any]] = [("TCA_HTB_PARMS", parameters | {"quantum": shape.quantum, "level": 0, "prio": 0})]
    if shape.rate_bytes_s > _MAX_U32:
        attrs += [("TCA_HTB_RATE64", shape.rate_bytes_s), ("TCA_HTB_CEIL64", shape.rate_bytes_s)]
    fields = {"handle": _CLASS, "parent": _HTB}
    return _encode(tcmsg, _RTM_NEWTCLASS, flags, fields, [("TCA_KIND", "htb"), ("TCA_OPTIONS", {"attrs": attrs})])


# struct tc_ratespec; pyroute2 calls its link layer byte __reserved, as old headers did.
_RATE_SPEC = {"cell_log": 0, "__reserved": _ETHERNET, "overhead": 0, "cell_align": 0, "mpu": 0}


def _fifo(shape: Shape, flags: int) -> bytes:
    fields = {"handle": _FIFO, "parent": _CLASS}
    options = {"limit": shape.limit_bytes}
    return _encode(tcmsg, _RTM_NEWQDISC, flags, fields, [("TCA_KIND", "bfifo"), ("TCA_OPTIONS", options)])


def _at_index(template: bytes, index: int) -> bytes:
    """struct tcmsg and ifinfomsg: the index is the 32-bit word after nlmsghdr (16 bytes) and family and padding (4)."""
    return template[:20] + struct.pack("=i", index) + template[24:]


def _link_attrs(end: End) -> list[tuple[str, Any]]:
    attrs: list[tuple[str, Any]] = [("IFLA_IFNAME", end.name), ("IFLA_MTU", end.mtu), ("IFLA_GROUP", end.group)]
    if end.mac is not None:
        attrs.append(("IFLA_ADDRESS", end.mac))
    return attrs if end.netns_fd is None else [*attrs, ("IFLA_NET_NS_FD", end.netns_fd)]


def _request(cls: type[Any], kind: int, flags: int, fields: dict[str, Any], attrs: Iterable[Any], what: str) -> Request:
    return Request(_encode(cls, kind, flags, fields, attrs), what)


def _encode(cls: type[nlmsg], kind: int, flags: int, fields: dict[str, Any], attrs: Iterable[Any]) -> bytes:
    message = cls()
    message["header"].update(type=kind, flags=_REQUEST | _ACK | flags, sequence_number=0)
    message.update(fields)
    message["attrs"] = list(attrs)
    message.encode()
    return bytes(message.data)


# -- sending and asking -----------------------------------------------------------------------------------------------


def apply(requests: Sequence[Request]) -> None:
    """Carry out all requests in order; raises EmulationError naming the first that the kernel refused."""
    with _socket() as link:
        for start in range(0, len(requests), _WINDOW):
            window = requests[start : start + _WINDOW]
            link.send(b"".join(_numbered(request.data, i) for i, request in enumerate(window)))
            _read_acknowledgements(link, window)


def _numbered(data: bytes, sequence: int) -> bytes:
    """nlmsghdr: the sequence number is the third 32-bit word; the answer repeats it."""
    return data[:8] + struct.pack("=I", sequence) + data[12:]


def _read_acknowledgements(link: socket.socket, window: Sequence[Request]) -> None:
    seen = 0
    while seen < len(window):
        for _, sequence, payload in _messages(link.recv(1 << 16)):
            seen += 1
            code = struct.unpack_from("=i", payload)[0]
            if code:
                raise EmulationError(f"{window[sequence].what}: {_error_text(-code, payload)}")


def _error_text(errno: int, payload: bytes) -> str:
    """NLMSGERR_ATTR_MSG (1) is the kernel's own sentence, after the code and the header it repeats (20 bytes)."""
    for kind, value in _attributes(payload[20:]):
        if kind == 1:
            return f"{os.strerror(errno)} ({value.rstrip(bytes(1)).decode()})"
    return os.strerror(errno)


def _socket() -> socket.socket:
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    link.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), _RECEIVE_BUFFER)
    for option in (_CAP_ACK, _EXT_ACK, _GET_STRICT):
        link.setsockopt(_SOL_NETLINK, option, 1)
    return link


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(type, sequence number, payload) of each message of a datagram."""
    at = 0
    while at < len(data):
        length, kind, _, sequence = struct.unpack_from("=IHHI", data, at)
        yield kind, sequence, data[at + 16 : at + length]
        at += (length + 3) & ~3


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        yield kind & 0x3FFF, data[at + 4 : at + length]
        at += (length + 3) & ~3


def _dump(link: socket.socket, kind: int, body: bytes) -> Iterator[bytes]:
    """The datagrams of a dump, without the closing message."""
    link.send(struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | _DUMP, 0, 0) + body)
    while True:
        data = link.recv(1 << 18)
        end = _find_end(data)
        yield data[:end]
        if end < len(data):
            return


def _find_end(data: bytes) -> int:
    """Where NLMSG_DONE starts; an error ends a dump by an exception."""
    at = 0
    while at < len(data):
        length, kind = struct.unpack_from("=IH", data, at)
        if kind == _NLMSG_DONE:
            return at
        if kind == _NLMSG_ERROR:
            raise EmulationError(f"netlink dump: {os.strerror(-struct.unpack_from('=i', data, at + 16)[0])}")
        at += (length + 3) & ~3
    return at


def index_of(intf: str) -> int:
    """Interface index in the caller's namespace."""
    try:
        return socket.if_nametoindex(intf)
    except OSError:
        raise EmulationError(f"interface {intf} is gone") from None


def indexes() -> dict[str, int]:
    """Interface name -> index, of all in the caller's namespace."""
    return {name: index for index, name in socket.if_nameindex()}


class LinkReader:
    """Reads counters of all interfaces of one namespace, ten times a second for little: the one it was made in.

    RTM_GETSTATS with only the 64-bit link counters costs an eighth of a full RTM_GETLINK dump.
    """

    # nlmsghdr; if_stats_msg: family, padding, ifindex, mask; nlattr; rtnl_link_stats64: rx and tx packets, bytes,
    # errors, drops; the newer kernels' further counters follow.
    _HEADER = "=16x4xi4x4x"
    _STATS_64 = 1

    def __init__(self) -> None:
        self._link = _socket()
        self._names: dict[int, str] = {}

    def close(self) -> None:
        self._link.close()

    def read(self) -> dict[str, Counters]:
        found: dict[str, Counters] = {}
        body = struct.pack("=BBHII", 0, 0, 0, 0, self._STATS_64)
        for data in _dump(self._link, _RTM_GETSTATS, body):
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


# -- traffic control, as the kernel holds it ---------------------------------------------------------------------------

# TCA_KIND, TCA_OPTIONS, TCA_STATS2; TCA_STATS_QUEUE; struct gnet_stats_queue: qlen, backlog, drops, ...
_KIND, _OPTIONS, _STATS2, _STATS_QUEUE = 1, 2, 7, 3
_TCMSG = struct.Struct("=4xiIII")


def qdisc_drops() -> dict[str, int]:
    """Frames dropped by the root qdisc and below it, of every interface of the caller's namespace that has one."""
    names = dict(socket.if_nameindex())
    found = {}
    for index, _, parent, data in _qdiscs():
        if parent == _TC_ROOT and index in names:
            queue = dict(_attributes(dict(_attributes(data))[_STATS2]))[_STATS_QUEUE]
            found[names[index]] = struct.unpack_from("=8xI", queue)[0]
    return found


def read_shaping(intfs: Sequence[str]) -> dict[str, Held]:
    """What tc holds for each of the interfaces, all of the caller's namespace: one dump and one batch of questions."""
    index_by_name = indexes()
    qdiscs = {(index, parent): (handle, data) for index, handle, parent, data in _qdiscs()}
    shaped = [i for n in intfs if (i := index_by_name.get(n, 0)) and qdiscs.get((i, _TC_ROOT), (0,))[0] == _HTB]
    classes = dict(zip(shaped, _classes(shaped), strict=True))
    return {name: _shaping(index_by_name.get(name, 0), qdiscs, classes) for name in intfs}


def read_netem() -> dict[str, int]:
    """Interface -> netem's delay in 64 ns ticks, of every interface of the caller's namespace that has one."""
    names = dict(socket.if_nameindex())
    found = {}
    for index, handle, _, data in _qdiscs():
        if handle == _NETEM:
            # struct tc_netem_qopt begins with the latency.
            found[names[index]] = int(struct.unpack_from("=I", dict(_attributes(data))[_OPTIONS])[0])
    return found


def _shaping(index: int, qdiscs: dict[tuple[int, int], tuple[int, bytes]], classes: dict[int, bytes | None]) -> Held:
    root = qdiscs.get((index, _TC_ROOT))
    kind = _text(dict(_attributes(root[1]))[_KIND]) if root else None
    found = classes.get(index)
    rate, ceil, burst, cburst = _class_rates(found) if found else (None, None, None, None)
    fifo = qdiscs.get((index, _CLASS))
    return Held(kind, rate, ceil, burst, cburst, _fifo_limit(fifo[1]) if fifo else None)


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode()


def _fifo_limit(data: bytes) -> int | None:
    attributes = dict(_attributes(data))
    is_bytes = _text(attributes[_KIND]) == "bfifo"
    return int(struct.unpack_from("=I", attributes[_OPTIONS])[0]) if is_bytes else None


def _class_rates(data: bytes) -> tuple[int, int, int, int]:
    """struct tc_htb_opt: two tc_ratespecs of 12 bytes, which end with the rate, buffer, cbuffer; 64-bit rates apart."""
    options = dict(_attributes(dict(_attributes(data))[_OPTIONS]))
    rate, ceil, buffer, cbuffer = struct.unpack_from("=8xI8xIII", options[1])
    return _rate_64(options.get(6), rate), _rate_64(options.get(7), ceil), buffer, cbuffer


def _rate_64(attribute: bytes | None, low: int) -> int:
    return low if attribute is None else int(struct.unpack("=Q", attribute)[0])


def _qdiscs() -> Iterator[tuple[int, int, int, bytes]]:
    """(interface index, handle, parent, attributes) of every qdisc."""
    with _socket() as link:
        for data in _dump(link, _RTM_GETQDISC, bytes(20)):
            for _, _, payload in _messages(data):
                index, handle, parent, _ = _TCMSG.unpack_from(payload)
                yield index, handle, parent, payload[20:]


def _classes(indexes: Sequence[int]) -> Iterator[bytes | None]:
    """The attributes of class 5:1 of each interface, None where there is none."""
    with _socket() as link:
        for start in range(0, len(indexes), _WINDOW):
            window = indexes[start : start + _WINDOW]
            link.send(b"".join(_class_question(index, i) for i, index in enumerate(window)))
            yield from _answers(link, len(window))


def _class_question(index: int, sequence: int) -> bytes:
    """RTM_GETTCLASS answers by way of a notification, which comes to the asker only with NLM_F_ECHO."""
    return struct.pack("=IHHII4xiIII", 36, _RTM_GETTCLASS, _REQUEST | _ECHO, sequence, 0, index, _CLASS, _HTB, 0)


def _answers(link: socket.socket, n: int) -> list[bytes | None]:
    answers: list[bytes | None] = [None] * n
    seen = 0
    while seen < n:
        for kind, sequence, payload in _messages(link.recv(1 << 18)):
            seen += 1
            answers[sequence] = payload[20:] if kind == _RTM_NEWTCLASS else None
    return answers
