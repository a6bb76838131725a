"""Arrays for the model: what a schedule's sends are on the wire, and which links their connections cross.

CSR: row i of a table of lists is items[start[i]:start[i + 1]].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Fabric, Port
from topologies.shaping import shapes
from traffic.depths import depths
from traffic.framing import Framing
from traffic.ranges import ranges
from traffic.rocev2.striping import ALIGN_BYTES as STRIPE_ALIGN_BYTES
from traffic.schedule import Connection

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Sends:
    """A schedule with sizes. connections: those in use; connection: (sends,) index into them, -1 for local operations;
    n_bytes: (sends,); dep_start (sends + 1,), deps: CSR, indices of others, which must have arrived, or left, where
    `waits_to_leave` (deps,) says so; calc_s: (sends,) what local operations take, emulated; framing: of the transport."""

    connections: Sequence[Connection]
    connection: Ints
    n_bytes: Ints
    dep_start: Ints
    deps: Ints
    waits_to_leave: NDArray[np.bool_]
    calc_s: Floats
    framing: Framing

    def __len__(self) -> int:
        return len(self.n_bytes)


def queue_pair_connection(connection: Connection, qp: int, qps: int) -> Connection:
    """What the model takes a queue pair for."""
    src, dst, channel = connection
    return src, dst, channel * qps + qp


def over_queue_pairs(sends: Sends, qps: int) -> Sends:
    """The same with each connection's messages divided among its queue pairs, each of them a connection. What waited for a
    message waits for all its parts: for an operation without duration that does."""
    if qps == 1:
        return sends
    n, remote = len(sends), sends.connection >= 0
    counts = np.where(remote, qps + 1, 1)
    first = np.cumsum(counts) - counts
    owner = np.repeat(np.arange(n), counts)
    place = np.arange(len(owner)) - first[owner]
    joins = remote[owner] & (place == qps)
    parts = remote[owner] & ~joins
    stripe = -(-sends.n_bytes // (qps * STRIPE_ALIGN_BYTES)) * STRIPE_ALIGN_BYTES
    # Edge by edge of the new operations: which operations it stands for. One that joins has one, to its parts.
    n_edges = np.where(joins, 1, np.diff(sends.dep_start)[owner])
    user = np.repeat(np.arange(len(owner)), n_edges)
    joining = joins[user]
    old = np.zeros(len(user), dtype=np.int64)
    old[~joining] = ranges(sends.dep_start[owner[~joins]], np.diff(sends.dep_start)[owner[~joins]])
    dep = np.where(joining, owner[user], sends.deps[old] if len(sends.deps) else 0)
    leaves = ~joining & (sends.waits_to_leave[old] if len(sends.deps) else False)
    to_parts = remote[dep] & (joining | leaves)
    low = np.where(to_parts, first[dep], first[dep] + counts[dep] - 1)
    high = np.where(to_parts, low + qps, low + 1)
    n_deps = np.bincount(user, high - low, len(owner)).astype(np.int64)
    return Sends(
        connections=[queue_pair_connection(c, i, qps) for c in sends.connections for i in range(qps)],
        connection=np.where(parts, sends.connection[owner] * qps + place, -1).astype(np.int64),
        n_bytes=np.where(parts, np.clip(sends.n_bytes[owner] - place * stripe[owner], 0, stripe[owner]), 0),
        dep_start=np.concatenate(([0], np.cumsum(n_deps))),
        deps=ranges(low, high - low),
        waits_to_leave=np.repeat(leaves, high - low),
        calc_s=np.where(remote[owner], 0.0, sends.calc_s[owner]),
        framing=sends.framing,
    )


def levels(dep_start: Ints, deps: Ints) -> list[Ints]:
    """The sends by dependency depth: level k's sends depend only on lower levels, on at least one of level k - 1.

    Raises ValueError on a cycle.
    """
    n = len(dep_start) - 1
    depth = depths(deps, np.repeat(np.arange(n), np.diff(dep_start)), n)
    if (depth < 0).any():
        raise ValueError("the schedule's dependencies form a cycle")
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.cumsum(np.bincount(depth))[:-1]) if n else []


def transpose(users: Ints, items: Ints, n: int) -> tuple[Ints, Ints]:
    """CSR of each item's users: (users, start). Edge i: users[i] uses items[i] of n."""
    order = np.argsort(items, kind="stable")
    return users[order], np.concatenate(([0], np.cumsum(np.bincount(items, minlength=n))))


# How a connection's packets go: all along one path, as the egress port of every hop, or by port the share that leaves by it.
Way = Sequence[Port] | Mapping[Port, float]


def shares(way: Way) -> list[tuple[Port, float]]:
    """Egress ports, with the share of the connection's bytes that leaves by each."""
    return list(way.items()) if isinstance(way, Mapping) else [(port, 1.0) for port in way]


class Crossed(NamedTuple):
    """Links that connections cross: link; flow: the connection's place in the question; share: of its bytes."""

    link: Ints
    flow: Ints
    share: Floats


@dataclass(frozen=True)
class Ways:
    """CSR by connection: the directed links that it crosses, with which share of its bytes."""

    start: Ints
    link: Ints
    share: Floats

    def of(self, connections: Ints) -> Crossed:
        """One connection after the other."""
        lengths = np.diff(self.start)[connections]
        at = ranges(self.start[connections], lengths)
        return Crossed(self.link[at], np.repeat(np.arange(len(connections)), lengths), self.share[at])

    def rows(self, ports: Sequence[Port]) -> list[Way]:
        """By connection; ports: of each link its egress."""
        whole = bool((self.share == 1).all())
        each, part = [ports[i] for i in self.link.tolist()], self.share.tolist()
        ends = pairwise(self.start.tolist())
        return [each[a:b] if whole else dict(zip(each[a:b], part[a:b], strict=True)) for a, b in ends]


@dataclass(frozen=True)
class Paths:
    """forth: the connections' ways; back: those of their acknowledgements; intfs, ports: of each link its egress."""

    forth: Ways
    back: Ways
    intfs: tuple[str, ...]
    ports: tuple[Port, ...]

    @staticmethod
    def of(
        connections: Sequence[Connection], paths: Mapping[Connection, Way], back_paths: Mapping[Connection, Way]
    ) -> "Paths":
        number: dict[str, int] = {}
        ports: list[Port] = []

        def place(port: Port) -> int:
            if port.intf not in number:
                number[port.intf] = len(ports)
                ports.append(port)
            return number[port.intf]

        def ways(of: Mapping[Connection, Way]) -> Ways:
            rows = [shares(of[c]) for c in connections]
            start = np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)
            link = np.array([place(port) for row in rows for port, _ in row], dtype=np.int64)
            return Ways(start, link, np.array([share for row in rows for _, share in row], dtype=np.float64))

        forth = ways(paths)
        return Paths(forth, ways(back_paths), tuple(number), tuple(ports))


def totals(places: Ints, values: Floats, n: int) -> Floats:
    """(n,) the sum of the values at each place."""
    return np.bincount(places, values, n).astype(np.float64, copy=False)


class Wire:
    """What the model reckons with, headers included.

    rate_bytes_s (inf where nothing shapes), burst_bytes, delay_s, carried (bytes of one iteration): (links,); send_bytes,
    last_frame_bytes, ack_bytes: (sends,); ack_share: (connections,) bytes of acknowledgements per byte sent.
    """

    def __init__(self, fabric: Fabric, sends: Sends, paths: Paths, mtu: int) -> None:
        shaped = shapes(fabric, mtu)
        # An optical switch's own egress is not shaped: light passes.
        self.rate_bytes_s = np.array([float(shaped[i].rate_bytes_s) if i in shaped else np.inf for i in paths.intfs])
        self.burst_bytes = np.array([float(shaped[i].burst_bytes) if i in shaped else np.inf for i in paths.intfs])
        self.delay_s = np.array([fabric.link_of(intf).delay_us for intf in paths.intfs]) * 1e-6
        f = sends.framing
        frames = -(-sends.n_bytes // f.payload_bytes)
        self.send_bytes: Floats = sends.n_bytes + frames * float(f.header_bytes) + (frames > 0) * f.first_header_bytes
        self.last_frame_bytes = np.minimum(self.send_bytes, f.frame_bytes)
        links = len(paths.intfs)
        n = len(sends.connections)
        real = sends.connection >= 0
        on = sends.connection[real]
        data = totals(on, self.send_bytes[real], n)
        self.ack_bytes = np.ceil(frames / f.frames_per_ack) * f.ack_bytes
        acks = totals(on, self.ack_bytes[real], n)
        self.ack_share = np.divide(acks, data, out=np.zeros(n), where=data > 0)
        self.carried: Floats = sum(
            (
                totals(ways.link, np.repeat(n_bytes, np.diff(ways.start)) * ways.share, links)
                for ways, n_bytes in ((paths.forth, data), (paths.back, acks))
            ),
            np.zeros(links),
        )
