"""What ranks hold before a collective and must hold after it. Small integers in float32, so that sums are exact.

Rank r's element i is (7 i + 13 r) mod 64: neighbours and ranks differ, and 64 values repeat, so the expected sum of any
number of ranks is a pattern of 64 numbers. 2^24 / 63 ranks is where float32 would begin to round.
"""

import numpy as np
from numpy.typing import NDArray

from traffic.schedule import chunk_bounds

Values = NDArray[np.float32]
_PERIOD = 64


def _pattern(rank: int) -> Values:
    return ((7 * np.arange(_PERIOD) + 13 * rank) % _PERIOD).astype(np.float32)


def _repeat(pattern: Values, start: int, end: int) -> Values:
    """The pattern's elements start..end."""
    shift = start % _PERIOD
    times = -(-(end - start) // _PERIOD)
    return np.tile(np.roll(pattern, -shift), times)[: end - start]


def fill(buffer: Values, collective: str, rank: int, n_ranks: int) -> None:
    """A rank's input, in place: the whole buffer, or for all_gather its own chunk and zeros elsewhere."""
    if collective == "all_gather":
        first, last = chunk_bounds(len(buffer), n_ranks)[rank : rank + 2]
        buffer[:] = 0
        buffer[first:last] = _repeat(_pattern(rank), int(first), int(last))
        return
    buffer[:] = _repeat(_pattern(rank), 0, len(buffer))


def wrong(buffer: Values, collective: str, rank: int, n_ranks: int) -> int:
    """Elements of a rank's output that differ from what the collective must give; 0 is right."""
    count = len(buffer)
    bounds = chunk_bounds(count, n_ranks)
    if collective == "all_gather":
        chunks = zip(bounds, bounds[1:], strict=False)
        return sum(
            int(np.count_nonzero(buffer[a:b] != _repeat(_pattern(r), int(a), int(b)))) for r, (a, b) in enumerate(chunks)
        )
    total = np.sum([_pattern(r) for r in range(n_ranks)], axis=0, dtype=np.float32)
    first, last = (bounds[rank], bounds[rank + 1]) if collective == "reduce_scatter" else (0, count)
    return int(np.count_nonzero(buffer[first:last] != _repeat(total, int(first), int(last))))
