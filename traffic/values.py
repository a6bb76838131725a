"""What ranks hold before a collective and must hold after it. Small integers in float32, so that sums are exact.

Rank r's element i is (7 i + 13 r) mod 64: neighbours and ranks differ, and 64 values repeat, so the expected sum of any
number of ranks is a pattern of 64 numbers. 2^24 / 63 ranks is where float32 would begin to round. Of a traffic pattern's
flow, element i is (7 i + 13 r + 29 c) mod 64, c its chunk: flows of one rank differ too.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from topologies import unknown
from traffic.errors import TrafficError
from traffic.pattern_check import RULES
from traffic.schedule import Schedule, chunk_bounds

Values = NDArray[np.float32]
_COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")
_PERIOD = 64


def fill(buffer: Values, schedule: Schedule, rank: int) -> None:
    """A rank's input, in place: the whole buffer, or for all_gather its own part and zeros elsewhere. Of a pattern's buffer
    only what the rank's flows send, and zeros where it receives: nothing else is touched, so it takes no memory.

    Raises TrafficError for a collective that is not known here.
    """
    _require(schedule.collective)
    if schedule.collective in RULES:
        for flow, part in _flows(buffer, schedule, schedule.src == rank):
            part[:] = _flow_values(schedule, flow, len(part))
        for _, part in _flows(buffer, schedule, schedule.dst == rank):
            part[:] = 0
    elif schedule.collective == "all_gather":
        first, last = chunk_bounds(len(buffer), schedule.n_ranks)[rank : rank + 2]
        buffer[:] = 0
        buffer[first:last] = _repeat(_pattern(rank), int(first), int(last))
    else:
        buffer[:] = _repeat(_pattern(rank), 0, len(buffer))


def wrong(buffer: Values, schedule: Schedule, rank: int) -> int:
    """Elements of a rank's output that differ from what the collective must give; 0 is right.

    Raises TrafficError for a collective that is not known here.
    """
    _require(schedule.collective)
    collective, n_ranks = schedule.collective, schedule.n_ranks
    if collective in RULES:
        received = _flows(buffer, schedule, schedule.dst == rank)
        return sum(int(np.count_nonzero(part != _flow_values(schedule, i, len(part)))) for i, part in received)
    bounds = chunk_bounds(len(buffer), n_ranks).tolist()
    if collective == "all_gather":
        return sum(_differ(buffer, _pattern(r), a, b) for r, (a, b) in enumerate(pairwise(bounds)))
    total = np.zeros(_PERIOD, dtype=np.float32)
    for r in range(n_ranks):
        total += _pattern(r)
    first, last = (bounds[rank], bounds[rank + 1]) if collective == "reduce_scatter" else (0, len(buffer))
    return _differ(buffer, total, first, last)


def _require(collective: str) -> None:
    known = (*_COLLECTIVES, *RULES)
    if collective not in known:
        raise TrafficError(unknown("collective", collective, known))


def _flows(buffer: Values, schedule: Schedule, chosen: NDArray[np.bool_]) -> Iterator[tuple[int, Values]]:
    """The chosen flows and their parts of the buffer."""
    bounds = chunk_bounds(len(buffer), schedule.n_chunks)
    for flow in np.flatnonzero(chosen).tolist():
        chunk = schedule.first_chunk[flow]
        yield flow, buffer[bounds[chunk] : bounds[chunk + 1]]


def _flow_values(schedule: Schedule, flow: int, length: int) -> Values:
    """What the flow's sender holds of its chunk."""
    return _repeat(_pattern(int(schedule.src[flow]), int(schedule.first_chunk[flow])), 0, length)


def _pattern(rank: int, chunk: int = 0) -> Values:
    return ((7 * np.arange(_PERIOD) + 13 * rank + 29 * chunk) % _PERIOD).astype(np.float32)


def _repeat(pattern: Values, start: int, end: int) -> Values:
    """The pattern's elements start..end."""
    shift = start % _PERIOD
    times = -(-(end - start) // _PERIOD)
    return np.tile(np.roll(pattern, -shift), times)[: end - start]


def _differ(buffer: Values, pattern: Values, start: int, end: int) -> int:
    return int(np.count_nonzero(buffer[start:end] != _repeat(pattern, start, end)))
