"""Direct: every part goes straight from the rank that has it to the one that wants it, all at once, in one step.

(n-1)/n S sent and received by each rank, as by the ring, in n(n-1) messages, and n-1 senders at every receiver at a time.
"""

import numpy as np

from traffic.columns import ColumnBuilder, Numbers
from traffic.schedule import Schedule


def direct_reduce_scatter(n_ranks: int) -> Schedule:
    """Rank r gets everybody's part r, and adds them."""
    src, dst = pairs(n_ranks)
    columns = ColumnBuilder("reduce_scatter", "direct", n_ranks, n_ranks)
    columns.sends(src, dst, dst, reduce=True)
    return columns.build()


def direct_all_gather(n_ranks: int) -> Schedule:
    """Rank r sends its part r to everybody."""
    src, dst = pairs(n_ranks)
    columns = ColumnBuilder("all_gather", "direct", n_ranks, n_ranks)
    columns.sends(src, dst, src, reduce=False)
    return columns.build()


def pairs(n_ranks: int) -> tuple[Numbers, Numbers]:
    """Sources and destinations of all pairs of two ranks; a rank's own go to its right neighbours first, so that not all
    start with the same receiver."""
    shift, src = np.divmod(np.arange(n_ranks * (n_ranks - 1)), n_ranks)
    return src, (src + shift + 1) % n_ranks
