"""sendrecv, as nccl-tests means it: every rank sends its buffer to the next one, all at once, and keeps its own."""

import numpy as np

from traffic.columns import ColumnBuilder
from traffic.schedule import Schedule


def direct_sendrecv(n_ranks: int) -> Schedule:
    """Chunk 0 is what a rank sends, chunk 1 what it receives."""
    ranks = np.arange(n_ranks)
    columns = ColumnBuilder("sendrecv", "direct", n_ranks, 2, n_blocks=2)
    columns.sends(ranks, (ranks + 1) % n_ranks, 0, dst_chunk=1, reduce=False)
    return columns.build()
