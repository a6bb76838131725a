"""The double binary tree: half of the buffer is reduced up and broadcast down each of NCCL's two complementary trees.

A rank that has children in one tree is a leaf in the other, so all send at most 2 S, in about 2 log2 n steps and as many
more as there are chunks in a half: 4 (n-1) sends of each (Sanders, Speck and Träff, 2009; NCCL since 2.4).
"""

import numpy as np

from traffic.collectives.defaults import PIPELINE_CHUNKS
from traffic.columns import ColumnBuilder
from traffic.schedule import Schedule
from traffic.trees import all_reduce_along, double_binary


def double_binary_tree_all_reduce(n_ranks: int, n_chunks: int = PIPELINE_CHUNKS) -> Schedule:
    """n_chunks: of each half. The trees have a channel each: neither waits behind the other where both join two ranks."""
    columns = ColumnBuilder("all_reduce", "double-binary-tree", n_ranks, 2 * n_chunks)
    for tree, parents in enumerate(double_binary(n_ranks)):
        chunks = np.arange(tree * n_chunks, (tree + 1) * n_chunks)
        all_reduce_along(columns, parents, chunks, channel=tree)
    return columns.build()
