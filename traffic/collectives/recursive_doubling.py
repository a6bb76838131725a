"""Recursive doubling: in each of log2 n steps all ranks exchange whole buffers with the rank at distance 1, 2, 4, ..

T = log2(n) (alpha + S/B): the fewest steps, for messages so small that bytes do not count. Ranks beyond a power of two are
folded as in halving_doubling.py: two steps and S each way more.

What comes lands beside the data, in a place of its own for each step, for a rank's next peer cannot know what it has added;
it is added when the rank's own send of that step has left.
"""

import numpy as np

from traffic.collectives.halving_doubling import fold_to_power_of_two
from traffic.columns import ColumnBuilder
from traffic.schedule import Schedule


def recursive_doubling_all_reduce(n_ranks: int) -> Schedule:
    """Chunk 0 is the data, chunk 1 + k what comes in step k."""
    fold = fold_to_power_of_two(n_ranks)
    members, hosts = fold.members, fold.members[: len(fold.extra)]
    n_steps = len(members).bit_length() - 1
    n_blocks = 1 + n_steps
    columns = ColumnBuilder("all_reduce", "recursive-doubling", n_ranks, n_blocks, n_data_chunks=1, n_blocks=n_blocks)
    given = columns.sends(fold.extra, hosts, 0, reduce=True)
    whole = fold.received([given])
    for step in range(n_steps):
        peer = np.arange(len(members)) ^ (1 << step)
        sent = columns.sends(members, members[peer], 0, dst_chunk=1 + step, reduce=False, after=whole)
        come_and_gone = np.column_stack((sent[peer], sent))
        whole = columns.sends(members, members, 1 + step, dst_chunk=0, reduce=True, after=come_and_gone)[:, None]
    columns.sends(hosts, fold.extra, 0, reduce=False, after=whole[: len(hosts)])
    return columns.build()
