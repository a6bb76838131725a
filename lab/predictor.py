"""What a collective should take: a roofline without a network in it, and a prediction with one.

The prediction walks the schedule's sends in order of dependency depth ("level"), all sends of a level at once:

* a message is cut into segments of MSS bytes; each is a frame with its headers; every second frame is acknowledged by a
  frame in the opposite direction, as TCP does (RFC 1122 section 4.2.3.2);
* every directed link is a token bucket, as it is shaped: after a pause it owes its burst, then it runs at its rate. The
  sends of a level that share a link share its rate and end together;
* a message has arrived when its last frame has crossed the last link, plus the constant time that a hop's software takes.

A send starts when the sends it depends on have arrived. What is not in it: losses, TCP's start, the CPU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Fabric, Port
from topologies.shaping import shapes
from traffic.schedule import Connection

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Ethernet 14 (tc counts no CRC, preamble or gap), IPv4 20, TCP 20 with the 12 bytes of timestamps (RFC 7323).
ETHERNET_BYTES = 14
TCP_IP_BYTES = 20 + 20 + 12
ACK_BYTES = ETHERNET_BYTES + TCP_IP_BYTES
FRAMES_PER_ACK = 2


@dataclass(frozen=True)
class Latency:
    """Constants of the emulator's software, calibrated on two hosts only, where nothing is shared.

    An all-reduce of 1 KiB, which the token buckets let pass at once, is two steps: 0.46 ms over one switch, 0.60 ms over
    three (lower quartiles of 300 each, two busy cores), so 2 hops + end = 0.23 ms and 4 hops + end = 0.30 ms.

    per_hop_s: a frame through a veth and the switch; end_s: from the last frame in the receiver's kernel to the next send
    in the sender's.
    """

    per_hop_s: float = 35e-6
    end_s: float = 160e-6


DEFAULT_LATENCY = Latency()


@dataclass(frozen=True)
class Sends:
    """A schedule with sizes. connections: those in use; connection: (sends,) index into them, -1 for local operations;
    n_bytes: (sends,); dep_start (sends + 1,), deps: CSR, indices of earlier sends. calc_s: (sends,) emulated time that local
    operations take, None = none; waits_to_leave: (deps,) whether that send must have left only, None = it must have arrived."""

    connections: Sequence[Connection]
    connection: Ints
    n_bytes: Ints
    dep_start: Ints
    deps: Ints
    calc_s: Floats | None = None
    waits_to_leave: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.n_bytes)


@dataclass(frozen=True)
class Prediction:
    """seconds: emulated; bottleneck: the busiest link, as 'leaf1->spine2'; bytes_by_intf: wire bytes, acknowledgements
    included, of one iteration per egress interface."""

    seconds: float
    bottleneck: str
    bytes_by_intf: Mapping[str, float]


def roofline_s(size_bytes: float, algo_factor: float, b_acc_mbps: float) -> float:
    """The BMWG draft's 8 S x algo_factor / B_acc: no latency, no headers. algo_factor belongs to the collective, e.g.
    2(n-1)/n for all-reduce; b_acc_mbps: sum of one accelerator's NIC rates (Mbit/s)."""
    return 8 * size_bytes * algo_factor / (b_acc_mbps * 1e6)


def mss_bytes(mtu: int) -> int:
    """Payload of a full TCP segment."""
    return mtu - TCP_IP_BYTES


# -- levels ---------------------------------------------------------------------------------------------------------


def levels(dep_start: Ints, deps: Ints) -> list[Ints]:
    """The sends by dependency depth: level k's sends depend only on lower levels, on at least one of level k - 1.

    Raises ValueError on a cycle.
    """
    n = len(dep_start) - 1
    waiting = np.diff(dep_start)
    user_of, user_start = _transpose(dep_start, deps, n)
    ready = np.flatnonzero(waiting == 0)
    result: list[Ints] = []
    waiting = waiting.copy()
    while len(ready):
        result.append(ready)
        users = user_of[_ranges(user_start[ready], user_start[ready + 1])]
        np.subtract.at(waiting, users, 1)
        users = np.unique(users)
        ready = users[waiting[users] == 0]
    if sum(len(x) for x in result) != n:
        raise ValueError("the schedule's dependencies form a cycle")
    return result


def _transpose(start: Ints, items: Ints, n: int) -> tuple[Ints, Ints]:
    """CSR of the reversed edges: (users, start)."""
    owner = np.repeat(np.arange(n), np.diff(start))
    order = np.argsort(items, kind="stable")
    return owner[order], np.concatenate(([0], np.cumsum(np.bincount(items, minlength=n))))


def _ranges(starts: Ints, ends: Ints) -> Ints:
    """The concatenation of arange(start, end) over all pairs."""
    lengths = ends - starts
    if not lengths.sum():
        return np.zeros(0, dtype=np.int64)
    return np.repeat(starts - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths) + np.arange(lengths.sum())


# -- paths as arrays ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Paths:
    """The connections' paths, and after them an empty one for what stays at its rank. start, link: CSR of directed links by
    connection; back_start, back_link: the same of the ways that acknowledgements take."""

    start: Ints
    link: Ints
    back_start: Ints
    back_link: Ints
    intfs: tuple[str, ...]
    ports: tuple[Port, ...]


def _index_paths(
    connections: Sequence[Connection],
    paths: Mapping[Connection, Sequence[Port]],
    back_paths: Mapping[Connection, Sequence[Port]],
) -> _Paths:
    number: dict[str, int] = {}
    ports: list[Port] = []

    def place(port: Port) -> int:
        if port.intf not in number:
            number[port.intf] = len(ports)
            ports.append(port)
        return number[port.intf]

    forth = [[place(p) for p in paths[c]] for c in connections]
    back = [[place(p) for p in back_paths[c]] for c in connections]
    start, link = _csr([*forth, []])
    back_start, back_link = _csr([*back, []])
    return _Paths(start, link, back_start, back_link, tuple(number), tuple(ports))


def _csr(lists: list[list[int]]) -> tuple[Ints, Ints]:
    start = np.concatenate(([0], np.cumsum([len(x) for x in lists]))).astype(np.int64)
    return start, np.array([x for row in lists for x in row], dtype=np.int64)


def predict(
    fabric: Fabric,
    sends: Sends,
    paths: Mapping[Connection, Sequence[Port]],
    mtu: int,
    *,
    ack_paths: Mapping[Connection, Sequence[Port]] | None = None,
    latency: Latency = DEFAULT_LATENCY,
) -> Prediction:
    """One iteration of the collective on the emulated fabric.

    paths: connection -> the egress port of every hop; ack_paths: connection -> the way back, by default the opposite
    connection's path, or the same links. An empty path (one host) costs nothing.
    """
    if len(sends) == 0:
        return Prediction(0.0, "", {})
    back = _ways_back(fabric, paths) if ack_paths is None else ack_paths
    return _Walk(fabric, sends, _index_paths(sends.connections, paths, back), mtu, latency).run()


def _ways_back(fabric: Fabric, paths: Mapping[Connection, Sequence[Port]]) -> dict[Connection, Sequence[Port]]:
    def back(src: int, dst: int, channel: int) -> Sequence[Port]:
        same_links = [fabric.peer(port) for port in reversed(paths[src, dst, channel])]
        return paths.get((dst, src, channel), same_links)

    return {connection: back(*connection) for connection in paths}


class _Walk:
    """The state of a prediction: when each link's bucket will be full again, when each send arrived."""

    def __init__(self, fabric: Fabric, sends: Sends, paths: _Paths, mtu: int, latency: Latency) -> None:
        self._fabric, self._sends, self._paths, self._latency = fabric, sends, paths, latency
        links = [fabric.link_of(intf) for intf in paths.intfs]
        shaped = shapes(fabric, mtu)
        # An optical switch's own egress is not shaped: light passes.
        self._byte_s = np.array([1 / shaped[i].rate_bytes_s if i in shaped else 0.0 for i in paths.intfs])
        self._burst_s = np.array([shaped[i].burst_bytes if i in shaped else 0 for i in paths.intfs]) * self._byte_s
        self._delay_s = np.array([link.delay_us for link in links]) * 1e-6 + latency.per_hop_s
        frames = -(-sends.n_bytes // mss_bytes(mtu))
        self._wire: Floats = sends.n_bytes + frames * float(ETHERNET_BYTES + TCP_IP_BYTES)
        self._acks = np.ceil(frames / FRAMES_PER_ACK) * ACK_BYTES
        self._last_frame = np.minimum(self._wire, mtu + ETHERNET_BYTES)
        # A link's `paid` is the time at which its bucket, filling at the link's rate, is back at zero.
        self._paid = np.full(len(links), -np.inf)
        self._arrived, self._gone = np.zeros(len(sends)), np.zeros(len(sends))
        is_local = sends.connection < 0
        self._connection = np.where(is_local, len(sends.connections), sends.connection)
        self._end_s = np.where(is_local, 0.0 if sends.calc_s is None else sends.calc_s, latency.end_s)
        self._carried = np.zeros(len(links))

    def run(self) -> Prediction:
        for level in levels(self._sends.dep_start, self._sends.deps):
            self._step(level)
        busy = self._carried * self._byte_s
        worst = int(np.argmax(busy)) if len(busy) else -1
        # Sends of different levels that meet on a link at one time are not seen to share it: its bytes are a lower bound.
        seconds = max(float(self._arrived.max()), float(busy[worst] - self._burst_s[worst]) if worst >= 0 else 0.0)
        return Prediction(
            seconds=seconds,
            bottleneck=self._fabric.direction(self._paths.ports[worst]) if worst >= 0 else "",
            bytes_by_intf=dict(zip(self._paths.intfs, self._carried.tolist(), strict=True)),
        )

    def _step(self, level: Ints) -> None:
        start = self._start_of(level)
        p = self._paths
        on = self._connection[level]
        hops = p.start[on + 1] - p.start[on]
        link = p.link[_ranges(p.start[on], p.start[on + 1])]
        send = np.repeat(np.arange(len(level)), hops)
        self._load(link, self._wire[level][send], start[send])
        back = _ranges(p.back_start[on], p.back_start[on + 1])
        back_send = np.repeat(np.arange(len(level)), p.back_start[on + 1] - p.back_start[on])
        self._load(p.back_link[back], self._acks[level][back_send], start[back_send], acks=True)
        # The last frame leaves a link when the bucket is back at zero, less what the frame itself takes from it.
        left = self._paid[link] - self._last_frame[level][send] * self._byte_s[link]
        sent = start.copy()
        np.maximum.at(sent, send, left)
        self._arrived[level] = sent + np.bincount(send, self._delay_s[link], len(level)) + self._end_s[level]
        self._gone[level] = start
        self._gone[level[hops > 0]] = left[(np.cumsum(hops) - hops)[hops > 0]]

    def _start_of(self, level: Ints) -> Floats:
        s = self._sends
        first, last = s.dep_start[level], s.dep_start[level + 1]
        start = np.zeros(len(level))
        owner = np.repeat(np.arange(len(level)), last - first)
        waits = _ranges(first, last)
        over = self._arrived[s.deps[waits]]
        if s.waits_to_leave is not None:
            over = np.where(s.waits_to_leave[waits], self._gone[s.deps[waits]], over)
        np.maximum.at(start, owner, over)
        return start

    def _load(self, link: Ints, n_bytes: Floats, start: Floats, acks: bool = False) -> None:
        """Pay for a level's bytes on each link, from when the first of them can be there."""
        n = len(self._paid)
        self._carried += np.bincount(link, n_bytes, n)
        taken = np.bincount(link, n_bytes, n) * self._byte_s
        used = np.unique(link)
        if acks:
            # Acknowledgements trickle among the data: they cost their bytes and never wait for the level's start.
            self._paid[used] += taken[used]
            return
        first = np.full(n, np.inf)
        np.minimum.at(first, link, start)
        self._paid[used] = np.maximum(self._paid[used], first[used] - self._burst_s[used]) + taken[used]
