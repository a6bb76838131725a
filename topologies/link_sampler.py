"""Reads what a fabric's links have carried and what waits for them, many times a second for little; in the switches' namespace.

One RTM_GETSTATS dump with only the 64-bit counters tells of every link: a host's end is its switch port seen in the mirror. All
messages of that dump have one length, so numpy reads them as one table.
"""

import socket
import struct
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Fabric
from topologies.netlink import CLSACT_HANDLE, TC_ROOT, dump, open_socket

_RTM_GETQDISC, _RTM_GETSTATS = 38, 94
_STATS_64 = 1
# TCA_STATS2; TCA_STATS_BASIC: struct gnet_stats_basic is bytes (64 bits), packets; TCA_STATS_QUEUE: struct gnet_stats_queue is
# qlen, backlog, drops, ...
_STATS2, _STATS_BASIC, _STATS_QUEUE = 7, 1, 3
# What `queues` gives, and where it stands: (column, attribute, bytes into it).
_COLUMNS = WAITING_BYTES, WAITING, DROPPED, FILTERED, DEQUEUED = range(5)
_QUEUE = (
    (WAITING_BYTES, _STATS_QUEUE, 4), (WAITING, _STATS_QUEUE, 0), (DROPPED, _STATS_QUEUE, 8), (DEQUEUED, _STATS_BASIC, 8),
)  # fmt: skip
_FILTER = ((FILTERED, _STATS_BASIC, 8),)
# nlmsghdr and tcmsg, in 32-bit words
_LENGTH, _INTERFACE, _HANDLE, _PARENT = 0, 5, 6, 7
_ATTRIBUTES_AT = 36
# struct rtnl_link_stats64: rx and tx packets, rx and tx bytes, ...
_TX_PACKETS, _TX_BYTES, _RX_PACKETS, _RX_BYTES = 1, 3, 0, 2


class LinkSampler:
    """intfs: the egress interface of each direction of each link, in the fabric's order; `read` and `queues` keep it."""

    def __init__(self, fabric: Fabric) -> None:
        self._ports = [(port, peer) for link in fabric.links for port, peer in (link.ports, link.ports[::-1])]
        self.intfs = tuple(port.intf for port, _ in self._ports)
        self._find()
        self._counters, self._queues = open_socket(), open_socket()
        self._layouts: list[_Layout] = []
        # Of interfaces that were taken away and made anew: what the former ones had sent.
        self._before: NDArray[np.int64] = np.zeros((len(self.intfs), 2), np.int64)
        self._last = self._before
        self._lock = Lock()

    def _find(self) -> None:
        here = {name: number for number, name in socket.if_nameindex()}
        self._own = np.array([port.intf in here for port, _ in self._ports])
        self._numbers = np.array([here.get(port.intf, here.get(peer.intf, 0)) for port, peer in self._ports])
        self._queued = {here[port.intf]: i for i, (port, _) in enumerate(self._ports) if port.intf in here}

    def close(self) -> None:
        self._counters.close()
        self._queues.close()

    def read(self) -> NDArray[np.int64]:
        """(interfaces, 2): bytes and frames sent; they never fall, whatever happens to an interface."""
        with self._lock:
            now = self._table()
            self._before = self._before + np.where(now < self._last, self._last, 0)
            self._last = now
            return self._before + now

    def _table(self) -> NDArray[np.int64]:
        question = struct.pack("=BBHII", 0, 0, 0, 0, _STATS_64)
        parts = [data for data in dump(self._counters, _RTM_GETSTATS, question) if data]
        whole = np.concatenate([np.frombuffer(d, _message_type(struct.unpack_from("=I", d)[0])) for d in parts])
        if not np.isin(self._numbers, whole["number"]).all():
            self._find()
        place = np.zeros(max(whole["number"].max(), self._numbers.max()) + 1, np.int64)
        place[whole["number"]] = np.arange(1, len(whole) + 1)
        stats = np.vstack([np.zeros(8, np.int64), whole["stats"].astype(np.int64)])[place[self._numbers]]
        n_bytes = np.where(self._own, stats[:, _TX_BYTES], stats[:, _RX_BYTES])
        frames = np.where(self._own, stats[:, _TX_PACKETS], stats[:, _RX_PACKETS])
        return np.stack((n_bytes, frames), axis=1)

    def queues(self) -> NDArray[np.int64]:
        """(interfaces, 5): bytes that wait now, frames that do, frames dropped since the queue was made, frames that came to
        programs at the interface, frames that left the queue; -1 where there is none, or it is not seen from here, as a
        host's own."""
        found = np.full((len(self.intfs), len(_COLUMNS)), -1, np.int64)
        with self._lock:
            for n, data in enumerate(dump(self._queues, _RTM_GETQDISC, bytes(20))):
                words = np.frombuffer(data, np.uint32)
                if n == len(self._layouts):
                    self._layouts.append(_layout(data, self._queued))
                elif not self._layouts[n].fits(words):
                    self._layouts[n] = _layout(data, self._queued)
                known = self._layouts[n]
                found[known.place, known.column] = words[known.value_at]
        return found


class _Layout(NamedTuple):
    """Where a datagram of a dump has what of the root queues, in 32-bit words: a dump looks like the one before, and to look at
    each of thousands of messages would take longer than the kernel does."""

    n_words: int
    at: NDArray[np.int64]
    heads: NDArray[np.uint32]
    place: NDArray[np.int64]
    column: NDArray[np.int64]
    value_at: NDArray[np.int64]

    def fits(self, words: NDArray[np.uint32]) -> bool:
        return len(words) == self.n_words and np.array_equal(_heads(words, self.at), self.heads)


def _heads(words: NDArray[np.uint32], at: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Length, interface, handle and parent of the messages that begin at `at`."""
    return np.stack([words[at + word] for word in (_LENGTH, _INTERFACE, _HANDLE, _PARENT)])


def _layout(data: bytes, queued: dict[int, int]) -> _Layout:
    starts, values = [], []
    at, words = 0, np.frombuffer(data, np.uint32)
    while at < len(data):
        length, number, handle, parent = (
            int(words[at // 4 + word]) for word in (_LENGTH, _INTERFACE, _HANDLE, _PARENT)
        )
        if number in queued and (parent == TC_ROOT or handle == CLSACT_HANDLE):
            starts.append(at // 4)
            columns = _FILTER if handle == CLSACT_HANDLE else _QUEUE
            values += [
                (queued[number], column, at // 4 + word) for column, word in _places(data[at : at + length], columns)
            ]
        at += (length + 3) & ~3
    of = np.array(starts, np.int64)
    place, column, value_at = np.array(values, np.int64).reshape(-1, 3).T
    return _Layout(len(words), of, _heads(words, of), place, column, value_at)


def _places(message: bytes, columns: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Column, and the 32-bit word of the message that has its value."""
    stats = _starts(message, _ATTRIBUTES_AT, len(message))[_STATS2]
    of = _starts(message, *stats)
    for column, kind, offset in columns:
        yield column, (of[kind][0] + offset) // 4


def _starts(message: bytes, at: int, end: int) -> dict[int, tuple[int, int]]:
    """Attribute -> where its value begins and ends in the message."""
    found = {}
    while at + 4 <= end:
        length, kind = struct.unpack_from("=HH", message, at)
        found[kind & 0x3FFF] = (at + 4, at + length)
        at += (length + 3) & ~3
    return found


def _message_type(length: int) -> "np.dtype[np.void]":
    """nlmsghdr; if_stats_msg: family, padding, ifindex, mask; nlattr; rtnl_link_stats64, of which newer kernels have more."""
    return np.dtype(
        {"names": ["number", "stats"], "formats": ["=i4", ("=u8", 8)], "offsets": [20, 32], "itemsize": length}
    )
