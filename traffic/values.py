"""What ranks hold before a collective and must hold after it. Small integers in float32, so that sums are exact.

Rank r's element i is (7 i + 13 r) mod 64: neighbours and ranks differ, and 64 values repeat, so the expected sum of any
number of ranks is a pattern of 64 numbers. 2^24 / 63 ranks is where float32 would begin to round.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from topologies import unknown
from traffic.errors import TrafficError
from traffic.schedule import chunk_bounds

Values = NDArray[np.float32]
_COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")
_PERIOD = 64


def fill(buffer: Values, collective: str, rank: int, n_ranks: int) -> None:
    """A rank's input, in place: the whole buffer, or for all_gather its own part and zeros elsewhere.

    Raises TrafficError for a collective that is not known here.
    """
    _require(collective)
    if collective == "all_gather":
        first, last = chunk_bounds(len(buffer), n_ranks)[rank : rank + 2]
        buffer[:] = 0
        buffer[first:last] = _repeat(_pattern(rank), int(first), int(last))
        return
    buffer[:] = _repeat(_pattern(rank), 0, len(buffer))


def wrong(buffer: Values, collective: str, rank: int, n_ranks: int) -> int:
    """Elements of a rank's output that differ from what the collective must give; 0 is right.

    Raises TrafficError for a collective that is not known here.
    """
    _require(collective)
    bounds = chunk_bounds(len(buffer), n_ranks).tolist()
    if collective == "all_gather":
        return sum(_differ(buffer, _pattern(r), a, b) for r, (a, b) in enumerate(pairwise(bounds)))
    total = np.zeros(_PERIOD, dtype=np.float32)
    for r in range(n_ranks):
        total += _pattern(r)
    first, last = (bounds[rank], bounds[rank + 1]) if collective == "reduce_scatter" else (0, len(buffer))
    return _differ(buffer, total, first, last)


def _require(collective: str) -> None:
    if collective not in _COLLECTIVES:
        raise TrafficError(unknown("collective", collective, _COLLECTIVES))


def _pattern(rank: int) -> Values:
    return ((7 * np.arange(_PERIOD) + 13 * rank) % _PERIOD).astype(np.float32)


def _repeat(pattern: Values, start: int, end: int) -> Values:
    """The pattern's elements start..end."""
    shift = start % _PERIOD
    times = -(-(end - start) // _PERIOD)
    return np.tile(np.roll(pattern, -shift), times)[: end - start]


def _differ(buffer: Values, pattern: Values, start: int, end: int) -> int:
    return int(np.count_nonzero(buffer[start:end] != _repeat(pattern, start, end)))
