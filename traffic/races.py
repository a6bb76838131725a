"""What a schedule leaves to chance: accesses to a chunk that are in no order, whatever the network does.

Send i is two events: S(i), its sender reads the chunks; R(i), its receiver has written them. What happens before what:

    S(i) -> R(i)                    bytes arrive after they were sent
    R(d) -> S(i)                    i waits for d, which its sender receives
    S(d) -> S(i)                    i waits for d, a send of its own sender
    S(i) -> S(j), R(i) -> R(j)      j comes after i on the same connection (a local operation is on none)

An arrow leaves an event that is over and enters one that has not begun. Two accesses to one chunk at one rank conflict
unless both read or both add, and then must be in order. Only neighbours in a topological order are compared: order is
transitive.

Most questions are answered by walking back from the later access along each send's first dependency, as in a ring. The
others are read off vector clocks (Fidge, Mattern 1988) with a column per connection: how many of its sends have arrived,
or, for reads that must be over, have left. As they do so in order, one number says which. Only connections about which
there is still a question get a column.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traffic.depths import depths
from traffic.errors import TrafficError
from traffic.ranges import ranges
from traffic.schedule import Ints, Schedule

Longs = NDArray[np.int64]
# Memory for clocks; columns beyond it are done in further passes.
_CLOCK_BYTES = 128 << 20
_READ, _ADD, _COPY = 0, 1, 2
_VERBS = {_READ: "sends it", _ADD: "adds to it", _COPY: "overwrites it"}


@dataclass(frozen=True)
class Order:
    """by_level: (m,) the sends in a topological order; start: where each level starts in it, and the end of the last.
    A level's sends wait for earlier levels only. connection: (m,) number of each send's connection; turn: (m,) its
    place there, from 1; before: (m,) the send before it there, m if none."""

    by_level: Longs
    start: Longs
    connection: Longs
    turn: Longs
    before: Longs


@dataclass(frozen=True)
class _Questions:
    """Columns: must `earlier` be over when `later` begins? place: rank * n_chunks + chunk; the kinds of both accesses."""

    earlier: Longs
    later: Longs
    place: Longs
    earlier_kind: Longs
    later_kind: Longs

    def __getitem__(self, chosen: NDArray[np.bool_]) -> "_Questions":
        columns = (self.earlier, self.later, self.place, self.earlier_kind, self.later_kind)
        return _Questions(*(c[chosen] for c in columns))


def order(schedule: Schedule) -> Order:
    """Raises TrafficError naming the sends of a cycle."""
    m = len(schedule)
    connection, is_local = schedule.connection, schedule.is_local
    # Each alone, as on a connection of its own.
    connection[is_local] = connection.max(initial=-1) + 1 + np.arange(np.count_nonzero(is_local))
    by_connection = np.argsort(connection, kind="stable")
    is_first = np.diff(connection[by_connection], prepend=-1) != 0
    turn, before = np.empty(m, dtype=np.int64), np.full(m, m)
    turn[by_connection] = np.arange(1, m + 1) - np.maximum.accumulate(np.where(is_first, np.arange(m), 0))
    before[by_connection[~is_first]] = by_connection[:-1][~is_first[1:]]
    follows = np.flatnonzero(before < m)
    level = _levels(
        schedule, np.concatenate((schedule.deps, before[follows])), np.concatenate((schedule.waiting, follows))
    )
    by_level = np.argsort(level, kind="stable")
    start = np.concatenate(([0], np.cumsum(np.bincount(level))))
    return Order(by_level, start, connection, turn, before)


def check_races(schedule: Schedule, order: Order) -> None:
    """Raises TrafficError for two accesses to one chunk that are in no order."""
    asked = _questions(schedule, order)
    # What stands in the schedule itself costs no clock; the cheapest question first.
    asked = asked[order.connection[asked.earlier] != order.connection[asked.later]]
    asked = asked[~_is_waited_for(schedule, asked.earlier, asked.later)]
    if len(asked.later):
        asked = asked[~_stands_in_dependencies(schedule, asked)]
    # Only a wait for one's own send tells a send that has left from one that has arrived.
    has_left = (asked.earlier_kind == _READ) & schedule.waits_to_leave.any()
    for leaving in (False, True):
        kind = asked[has_left == leaving]
        for columns, at_send, at_arrival in _clocks(
            schedule, order, np.unique(order.connection[kind.earlier]), leaving
        ):
            here = kind[np.isin(order.connection[kind.earlier], columns)]
            column = np.searchsorted(columns, order.connection[here.earlier])
            known = np.where(here.later_kind == _READ, at_send[here.later, column], at_arrival[here.later, column])
            racing = known < order.turn[here.earlier]
            if racing.any():
                _refuse(schedule, here[racing])


def _is_waited_for(schedule: Schedule, earlier: Longs, later: Longs) -> NDArray[np.bool_]:
    """Whether `earlier` is the first dependency of `later`, or that of its first dependency, and so on, none of them a send of
    the rank's own: it has arrived then before `later` is sent. Pointer jumping: the k-th step back is a sum of powers of two."""
    m = len(schedule)
    # back: the send that is 1, 2, 4, ... steps back; m = beyond the first. depth: steps back to the first.
    back = _first_arrival(schedule)
    jumps, depth = [back], (back < m).astype(np.int64)
    while (jumps[-1] < m).any():
        depth += depth[jumps[-1]]
        jumps.append(jumps[-1][jumps[-1]])
    at, steps = later.copy(), np.maximum(depth[later] - depth[earlier], 0)
    for i, jump in enumerate(jumps):
        goes = np.flatnonzero(steps >> i & 1)
        at[goes] = jump[at[goes]]
    found: NDArray[np.bool_] = (steps > 0) & (at == earlier)
    return found


def _stands_in_dependencies(schedule: Schedule, asked: _Questions) -> NDArray[np.bool_]:
    """Whether `later` waits for `earlier`, or for one operation that joins it with others: then it has arrived. Of one's own
    send only the reading is over."""
    m = len(schedule)
    waits, arrives = schedule.waiting * m + schedule.deps, ~schedule.waits_to_leave
    direct = asked.later * m + asked.earlier
    joined = _first_arrival(schedule)[asked.later] * m + asked.earlier
    read = (asked.earlier_kind == _READ) & np.isin(direct, waits[~arrives])
    found: NDArray[np.bool_] = np.isin(direct, waits[arrives]) | np.isin(joined, waits[arrives]) | read
    return found


def _first_arrival(schedule: Schedule) -> Longs:
    """(m + 1,) the first dependency of each send; m if it has none or that is its rank's own send, and for m."""
    m = len(schedule)
    before, has_dep = np.full(m + 1, m), np.flatnonzero(np.diff(schedule.dep_start))
    first = schedule.dep_start[has_dep]
    before[has_dep] = np.where(schedule.waits_to_leave[first], m, schedule.deps[first])
    return before


def _levels(schedule: Schedule, before: Longs, after: Longs) -> Longs:
    """(m,) the longest way to each send along the edges before[k] -> after[k]."""
    level = depths(before, after, len(schedule))
    if (level < 0).any():
        _refuse_cycle(schedule, before, after, level < 0)
    return level


def _refuse_cycle(schedule: Schedule, before: Longs, after: Longs, stuck: NDArray[np.bool_]) -> None:
    """Every stuck send waits for another stuck one: walk back until one comes again."""
    inside = stuck[before] & stuck[after]
    waits_for = dict(zip(after[inside].tolist(), before[inside].tolist(), strict=True))
    walk = [next(iter(waits_for))]
    while (following := waits_for[walk[-1]]) not in walk:
        walk.append(following)
    cycle = walk[walk.index(following) :]
    names = ", ".join(schedule.name_of(i) for i in sorted(cycle)[:6])
    raise TrafficError(f"{len(cycle)} sends wait for each other (dependencies and the order on a connection): {names}")


def _questions(schedule: Schedule, order: Order) -> _Questions:
    """Each access against those next to it at its place: a run of reads, a run of additions, or one copy."""
    m, k = len(schedule), schedule.n_chunks
    send = np.repeat(np.arange(m), schedule.n_chunks_sent)
    read, written = (
        ranges(rank.astype(np.int64) * k + first, schedule.n_chunks_sent)
        for rank, first in ((schedule.src, schedule.first_chunk), (schedule.dst, schedule.dst_chunk))
    )
    place = np.concatenate((read, written))
    kind = np.concatenate((np.full(len(send), _READ), np.where(schedule.reduce[send], _ADD, _COPY)))
    position = np.empty(m, dtype=np.int64)
    position[order.by_level] = np.arange(m)
    send = np.concatenate((send, send))
    sequence = np.argsort(place * max(m, 1) + position[send])
    send, place, kind = send[sequence], place[sequence], kind[sequence]

    new_place = np.diff(place, prepend=-1) != 0
    run_start = np.flatnonzero(new_place | (np.diff(kind, prepend=-1) != 0) | (kind == _COPY))
    run_length = np.diff(run_start, append=len(send))
    # The run after each one; of length 0 where that is at another place, or none.
    next_start = np.append(run_start, len(send))[1:]
    next_length = np.append(run_length, 0)[1:] * ~np.append(new_place, True)[next_start]
    counts, starts = np.repeat(next_length, run_length), np.repeat(next_start, run_length)
    earlier = np.repeat(np.arange(len(send)), counts)
    later = ranges(starts, counts)
    return _Questions(send[earlier], send[later], place[earlier], kind[earlier], kind[later])


def _clocks(schedule: Schedule, order: Order, connections: Longs, leaving: bool) -> Iterator[tuple[Longs, Ints, Ints]]:
    """For `connections`, some at a time: those, and how many sends of each have arrived for certain (m + 1, connections)
    when each send is sent, and when each has arrived; if `leaving`, how many have left. Row m is zeros."""
    m = len(schedule)
    at_once = max(1, _CLOCK_BYTES // (8 * (m + 1)))
    n_deps = np.diff(schedule.dep_start)[order.by_level]
    by_send = ranges(schedule.dep_start[:-1][order.by_level], n_deps)
    deps, to_leave = schedule.deps[by_send], schedule.waits_to_leave[by_send]
    dep_start = np.concatenate(([0], np.cumsum(n_deps)))
    for some in range(0, len(connections), at_once):
        columns = connections[some : some + at_once]
        sent = np.zeros((m + 1, len(columns)), dtype=np.int32)
        arrived = np.zeros_like(sent)
        column = np.where(np.isin(order.connection, columns), np.searchsorted(columns, order.connection), -1)
        for a, b in zip(order.start[:-1].tolist(), order.start[1:].tolist(), strict=True):
            sends, before = order.by_level[a:b], order.before[order.by_level[a:b]]
            clock = sent[before]
            waits = np.flatnonzero(n_deps[a:b])
            if len(waits):
                here = slice(dep_start[a], dep_start[b])
                heard = arrived[deps[here]]
                heard[to_leave[here]] = sent[deps[here][to_leave[here]]]
                clock[waits] = np.maximum(
                    clock[waits], np.maximum.reduceat(heard, dep_start[a:b][waits] - dep_start[a])
                )
            own = np.flatnonzero(column[sends] >= 0)
            if leaving:
                clock[own, column[sends[own]]] = order.turn[sends[own]]
            sent[sends] = clock
            np.maximum(clock, arrived[before], out=clock)
            clock[own, column[sends[own]]] = order.turn[sends[own]]
            arrived[sends] = clock
        yield columns, sent, arrived


def _refuse(schedule: Schedule, racing: _Questions) -> None:
    first = int(np.argmin(np.maximum(racing.earlier, racing.later)))
    rank, chunk = divmod(int(racing.place[first]), schedule.n_chunks)
    earlier, later = int(racing.earlier[first]), int(racing.later[first])
    raise TrafficError(
        f"chunk {chunk} at rank {rank} is left to chance: send {schedule.name_of(earlier)} "
        f"{_VERBS[int(racing.earlier_kind[first])]}, send {schedule.name_of(later)} "
        f"{_VERBS[int(racing.later_kind[first])]}, and neither waits for the other"
    )
