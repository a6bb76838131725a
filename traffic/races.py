"""Which accesses to a chunk a schedule leaves in no order, whatever the network does.

Send i is two events: S(i), its sender reads the chunks, and R(i), its receiver has written them. What happens before what:

    S(i) -> R(i)                    bytes arrive after they were sent
    R(d) -> S(i)                    i waits for d
    S(i) -> S(j), R(i) -> R(j)      j comes after i on the same pair

Each arrow leaves an event that is over and enters one that has not begun. Two accesses to one chunk at one rank conflict
unless both read or both add; conflicting ones must be in order. Per (rank, chunk) only neighbours in a topological order are
compared: order is transitive.

Order is read off vector clocks (Fidge, Mattern 1988) with a column per pair: how many of the pair's sends have arrived. As a
pair's sends arrive in order, one number tells which. Columns are needed only for pairs about which there is a question.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traffic.errors import TrafficError
from traffic.schedule import Schedule

Longs = NDArray[np.int64]
# Memory for clocks; more columns than fit are done in several passes.
_CLOCK_BYTES = 128 << 20
_READ, _ADD, _COPY = 0, 1, 2
_VERBS = {_READ: "sends it", _ADD: "adds to it", _COPY: "overwrites it"}


@dataclass(frozen=True)
class Order:
    """level: (m,) steps before each send, counted along what it waits for; by_level: the sends sorted by level and number;
    start: where each level starts in by_level, and its end; pair: (m,) number of each send's pair; turn: (m,) its place on
    the pair, from 1."""

    level: Longs
    by_level: Longs
    start: Longs
    pair: Longs
    turn: Longs


def order(schedule: Schedule) -> Order:
    """A topological order. Raises TrafficError naming a cycle's sends."""
    m = len(schedule)
    _, pair = np.unique(schedule.src.astype(np.int64) * schedule.n_ranks + schedule.dst, return_inverse=True)
    by_pair = np.argsort(pair, kind="stable")
    first = np.flatnonzero(np.diff(pair[by_pair], prepend=-1))
    turn = np.empty(m, dtype=np.int64)
    turn[by_pair] = np.arange(1, m + 1) - np.repeat(first, np.diff(first, append=m))
    follows = by_pair[1:][np.diff(pair[by_pair]) == 0]
    before = by_pair[:-1][np.diff(pair[by_pair]) == 0]
    level = _levels(schedule, np.concatenate((schedule.deps, before)), np.concatenate((_waiting(schedule), follows)))
    by_level = np.argsort(level, kind="stable")
    n_levels = int(level.max(initial=-1)) + 1
    return Order(level, by_level, np.searchsorted(level[by_level], np.arange(n_levels + 1)), pair, turn)


def check_races(schedule: Schedule, order: Order) -> None:
    """Raises TrafficError for the first two accesses to one chunk that are in no order."""
    earlier, later, place, kinds = _questions(schedule, order)
    # An answer that stands in the schedule itself costs no clock.
    m = len(schedule)
    direct = np.isin(later * m + earlier, _waiting(schedule) * m + schedule.deps)
    open_ = ~(direct & (kinds[1] == _READ)) & (order.pair[earlier] != order.pair[later])
    earlier, later, place, kinds = earlier[open_], later[open_], place[open_], kinds[:, open_]
    for columns, clocks in _clocks(schedule, order, np.unique(order.pair[earlier])):
        asked = np.flatnonzero(np.isin(order.pair[earlier], columns))
        column = np.searchsorted(columns, order.pair[earlier[asked]])
        clock = np.where(kinds[1, asked] == _READ, *(c[later[asked], column] for c in clocks))
        if len(bad := asked[clock < order.turn[earlier[asked]]]):
            _refuse(schedule, earlier[bad[0]], later[bad[0]], place[bad[0]], kinds[:, bad[0]])
