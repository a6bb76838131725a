"""The ring algorithms: every rank sends to its right neighbour only, one chunk of S/n a step.

Reduce-scatter, step t = 0..n-2: rank r sends chunk (r - t) mod n to r + 1, which adds it; from t = 1 on, that is the chunk
it received in the step before. Afterwards rank r holds the sum of chunk (r + 1) mod n. All-gather passes finished chunks on
in the same way, and as rank r starts it with chunk r + 1, all-reduce is one formula for both halves.
Bandwidth-optimal: 2(n-1)/n S sent per rank (Patarasuk and Yuan, 2009).
"""

import numpy as np

from traffic.columns import ColumnBuilder
from traffic.rings import pass_around
from traffic.schedule import Schedule


def ring_all_reduce(n_ranks: int) -> Schedule:
    """2(n-1) steps, 2n(n-1) sends; the first half reduces."""
    return _ring("all_reduce", n_ranks, steps=2 * (n_ranks - 1), reducing=n_ranks - 1)


def ring_reduce_scatter(n_ranks: int) -> Schedule:
    """n-1 steps; shifted by one against the all-reduce's first half, so that rank r ends with the sum of chunk r."""
    return _ring("reduce_scatter", n_ranks, steps=n_ranks - 1, reducing=n_ranks - 1, first_block=-1)


def ring_all_gather(n_ranks: int) -> Schedule:
    """n-1 steps; rank r starts with chunk r."""
    return _ring("all_gather", n_ranks, steps=n_ranks - 1, reducing=0)


def _ring(collective: str, n_ranks: int, *, steps: int, reducing: int, first_block: int = 0) -> Schedule:
    columns = ColumnBuilder(collective, "ring", n_ranks, n_ranks)
    pass_around(columns, np.arange(n_ranks)[None], steps=steps, reducing=reducing, first_block=first_block)
    return columns.build()
