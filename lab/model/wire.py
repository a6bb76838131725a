"""Arrays for the model: what a schedule's sends are on the wire, and which links their connections cross.

CSR: row i of a table of lists is items[start[i]:start[i + 1]].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Fabric, Port
from topologies.shaping import shapes
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
    waiting = np.diff(dep_start)
    user_of, user_start = transpose(np.repeat(np.arange(n), waiting), deps, n)
    ready = np.flatnonzero(waiting == 0)
    result: list[Ints] = []
    waiting = waiting.copy()
    while len(ready):
        result.append(ready)
        users = user_of[ranges(user_start[ready], np.diff(user_start)[ready])]
        np.subtract.at(waiting, users, 1)
        users = np.unique(users)
        ready = users[waiting[users] == 0]
    if sum(len(x) for x in result) != n:
        raise ValueError("the schedule's dependencies form a cycle")
    return result


def transpose(users: Ints, items: Ints, n: int) -> tuple[Ints, Ints]:
    """CSR of each item's users: (users, start). Edge i: users[i] uses items[i] of n."""
    order = np.argsort(items, kind="stable")
    return users[order], np.concatenate(([0], np.cumsum(np.bincount(items, minlength=n))))


@dataclass(frozen=True)
class Paths:
    """The connections' paths, in the connections' order. start, link: CSR of directed links; back_start, back_link: the same of
    the ways that acknowledgements take; ports: of each link its egress."""

    start: Ints
    link: Ints
    back_start: Ints
    back_link: Ints
    ports: tuple[Port, ...]

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def intfs(self) -> tuple[str, ...]:
        return tuple(port.intf for port in self.ports)

    def links_of(self, connections: Ints) -> tuple[Ints, Ints]:
        """Their links, one connection after the other, and each link's place in `connections`."""
        return _rows(self.start, self.link, connections)

    def ways_back_of(self, connections: Ints) -> tuple[Ints, Ints]:
        """The same of their acknowledgements' ways."""
        return _rows(self.back_start, self.back_link, connections)

    def forth(self) -> list[list[Port]]:
        return _as_ports(self.start, self.link, self.ports)

    def back(self) -> list[list[Port]]:
        return _as_ports(self.back_start, self.back_link, self.ports)

    @staticmethod
    def of(forth: Sequence[Sequence[Port]], back: Sequence[Sequence[Port]]) -> "Paths":
        """forth, back: of every connection the egress port of every hop."""
        number: dict[str, int] = {}
        ports: list[Port] = []

        def place(port: Port) -> int:
            if port.intf not in number:
                number[port.intf] = len(ports)
                ports.append(port)
            return number[port.intf]

        rows = [[[place(p) for p in path] for path in paths] for paths in (forth, back)]
        return Paths(*_csr(rows[0]), *_csr(rows[1]), tuple(ports))


def _as_ports(start: Ints, link: Ints, ports: Sequence[Port]) -> list[list[Port]]:
    each = [ports[i] for i in link.tolist()]
    return [each[a:b] for a, b in pairwise(start.tolist())]


def _rows(start: Ints, items: Ints, rows: Ints) -> tuple[Ints, Ints]:
    lengths = start[rows + 1] - start[rows]
    return items[ranges(start[rows], lengths)], np.repeat(np.arange(len(rows)), lengths)


def _csr(lists: list[list[int]]) -> tuple[Ints, Ints]:
    start = np.concatenate(([0], np.cumsum([len(x) for x in lists]))).astype(np.int64)
    return start, np.array([x for row in lists for x in row], dtype=np.int64)


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
        n, links = len(paths.start) - 1, len(paths.intfs)
        real = sends.connection >= 0
        on = sends.connection[real]
        data = totals(on, self.send_bytes[real], n)
        self.ack_bytes = np.ceil(frames / f.frames_per_ack) * f.ack_bytes
        acks = totals(on, self.ack_bytes[real], n)
        self.ack_share = np.divide(acks, data, out=np.zeros(n), where=data > 0)
        forth, back = np.repeat(data, np.diff(paths.start)), np.repeat(acks, np.diff(paths.back_start))
        self.carried = totals(paths.link, forth, links) + totals(paths.back_link, back, links)
