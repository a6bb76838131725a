"""Recursive doubling: in each of log2 n steps all ranks exchange whole buffers with the rank at distance 1, 2, 4, ..

T = log2(n) (alpha + S/B): the fewest steps, for messages so small that bytes do not count. Ranks beyond a power of two are
folded as in halving_doubling.py: two steps and S each way more.

A rank cannot know when its peer has what it sent, so no step overwrites what another one sends: the buffer is kept in
log2(n) + 1 versions beside the data.
"""

import numpy as np

from traffic.collectives.halving_doubling import fold_to_power_of_two
from traffic.columns import ColumnBuilder
from traffic.schedule import Schedule


def recursive_doubling_all_reduce(n_ranks: int) -> Schedule:
    """Chunk 0 is the data, chunk 1 + k what a rank has the sum of before step k."""
    fold = fold_to_power_of_two(n_ranks)
    members, hosts = fold.members, fold.members[: len(fold.extra)]
    n_steps = len(members).bit_length() - 1
    columns = ColumnBuilder(
        "all_reduce", "recursive-doubling", n_ranks, n_steps + 2, n_data_chunks=1, n_blocks=n_steps + 2
    )
    given = columns.sends(fold.extra, hosts, 0, reduce=True)
    whole = fold.received([given])
    if n_steps:
        version = columns.sends(members, members, 0, dst_chunk=1, reduce=False, after=whole)
        for step in range(n_steps):
            peer = np.arange(len(members)) ^ (1 << step)
            sent = columns.sends(
                members, members[peer], step + 1, dst_chunk=step + 2, reduce=False, after=version[:, None]
            )
            both = np.column_stack((sent[peer], version))
            version = columns.sends(members, members, step + 1, dst_chunk=step + 2, reduce=True, after=both)
        whole = columns.sends(members, members, n_steps + 1, dst_chunk=0, reduce=False, after=version[:, None])[:, None]
    columns.sends(hosts, fold.extra, 0, reduce=False, after=whole[: len(hosts)])
    return columns.build()
