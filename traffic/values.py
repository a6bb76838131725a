"""What ranks hold before a collective and must hold after it. Small integers in float32, so that sums are exact.

Element i of member r's input to a schedule's collective p is (7 i + 13 r + 29 p) mod 61: neighbours, ranks and collectives
differ, and 61 values repeat, so the expected sum of any number of members is a pattern of 61 numbers. A prime: chunks of a
power of two of elements differ too, so one taken from a wrong place is noticed. 2^24 / 60 members is where float32 would
begin to round. Of a pattern or of messages, r is the sending rank and i counts from the start of its buffer.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from topologies import unknown
from traffic.contracts import ALL, ANYTHING, CONTRACTS, Terms, terms
from traffic.errors import TrafficError
from traffic.pattern_check import FLOWS
from traffic.schedule import Schedule

Values = NDArray[np.float32]
Longs = NDArray[np.int64]
_PERIOD = 61


def fill(buffer: Values, schedule: Schedule, rank: int) -> None:
    """A rank's input, in place: what the contracts say that it holds, and zeros elsewhere. Of a pattern's buffer only what the
    rank's flows send, and zeros where it receives: nothing else is touched, so it takes no memory.

    Raises TrafficError for a collective that is not known here.
    """
    bounds = schedule.bounds(len(buffer))
    if schedule.collective in FLOWS:
        for flow, part in _flows(buffer, schedule, _row(bounds, rank), schedule.src == rank):
            part[:] = _flow_values(schedule, bounds, flow)
        for _, part in _flows(buffer, schedule, _row(bounds, rank), schedule.dst == rank):
            part[:] = 0
        return
    at = _row(bounds, rank)
    buffer[: at[-1]] = 0
    for t, member in _terms_of(schedule, rank):
        held, first = t.before(member), t.part.first_chunk
        for a, b in _runs(np.diff(held) != 0):
            if held[a]:
                start, end = int(at[first + a]), int(at[first + b])
                buffer[start:end] = _repeat(_one(member, t.number), start - int(at[first]), end - start)


def wrong(buffer: Values, schedule: Schedule, rank: int) -> int:
    """Elements of a rank's output that differ from what the collectives must give; 0 is right.

    Raises TrafficError for a collective that is not known here.
    """
    bounds = schedule.bounds(len(buffer))
    if schedule.collective in FLOWS:
        received = _flows(buffer, schedule, _row(bounds, rank), schedule.dst == rank)
        return sum(int(np.count_nonzero(part != _flow_values(schedule, bounds, i))) for i, part in received)
    return sum(_wrong(buffer, bounds, t, member) for t, member in _terms_of(schedule, rank))


def _wrong(buffer: Values, bounds: Longs, t: Terms, member: int) -> int:
    n_wrong, first, at = 0, t.part.first_chunk, _row(bounds, t.part.ranks[member])
    wanted, chunk = t.after(member)
    # Chunks that come one after the other from one place are compared at once.
    for a, b in _runs((np.diff(wanted) != 0) | (np.diff(chunk) != 1)):
        origin = int(wanted[a])
        if origin == ANYTHING:
            continue
        values = _sum(t.shape.n, t.number) if origin == ALL else _one(origin, t.number)
        there = _row(bounds, t.part.ranks[member if origin == ALL else origin])
        got = buffer[at[first + a] : at[first + b]]
        start = int(there[first + chunk[a]] - there[first])
        n_wrong += int(np.count_nonzero(got != _repeat(values, start, len(got))))
    return n_wrong


def _terms_of(schedule: Schedule, rank: int) -> Iterator[tuple[Terms, int]]:
    """The contracts that a rank takes part in, and its place among their members."""
    if not schedule.composed_of and schedule.collective not in CONTRACTS:
        raise TrafficError(unknown("collective", schedule.collective, (*CONTRACTS, *FLOWS)))
    return ((t, t.part.ranks.index(rank)) for t in terms(schedule) if rank in t.part.ranks)


def _row(bounds: Longs, rank: int) -> Longs:
    row: Longs = bounds[rank if len(bounds) > 1 else 0]
    return row


def _runs(breaks: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Start and end of the runs of len(breaks) + 1 things, cut where breaks says that the next differs."""
    starts = np.concatenate(([0], np.flatnonzero(breaks) + 1, [len(breaks) + 1])).tolist()
    return pairwise(starts)


def _flows(
    buffer: Values, schedule: Schedule, bounds: Longs, chosen: NDArray[np.bool_]
) -> Iterator[tuple[int, Values]]:
    """The chosen flows and their parts of the buffer. bounds: the rank's own."""
    for flow in np.flatnonzero(chosen & ~schedule.is_local).tolist():
        chunk = schedule.first_chunk[flow]
        yield flow, buffer[bounds[chunk] : bounds[chunk + 1]]


def _flow_values(schedule: Schedule, bounds: Longs, flow: int) -> Values:
    """What the flow's sender holds of its chunk."""
    sender = int(schedule.src[flow])
    start, end = _row(bounds, sender)[schedule.first_chunk[flow] :][:2].tolist()
    return _repeat(_one(sender, 0), start, end - start)


def _one(member: int, number: int) -> Values:
    return ((7 * np.arange(_PERIOD) + 13 * member + 29 * number) % _PERIOD).astype(np.float32)


@lru_cache(maxsize=1024)
def _sum(n_members: int, number: int) -> Values:
    """The sum of all members' values."""
    total = np.zeros(_PERIOD, dtype=np.float32)
    for member in range(n_members):
        total += _one(member, number)
    return total


def _repeat(pattern: Values, start: int, length: int) -> Values:
    """`length` of the pattern's elements, from `start` on."""
    shift = start % _PERIOD
    return np.tile(np.roll(pattern, -shift), -(-length // _PERIOD))[:length]
