"""Reduce: the sum of all buffers goes up a tree of ranks to the root, (n-1) S in all: broadcast, run backwards.

ring: up a chain in chunks, (n - 2 + chunks) steps of S/chunks. binomial: whole buffers, floor(log2 n) deep. direct: all send
whole buffers to the root.
"""

import numpy as np

from traffic.collectives.defaults import PIPELINE_CHUNKS
from traffic.columns import ColumnBuilder, Numbers
from traffic.schedule import Schedule
from traffic.trees import binomial, chain, reduce_up, root_of, star


def ring_reduce(n_ranks: int, root: int = 0, n_chunks: int = PIPELINE_CHUNKS) -> Schedule:
    return _reduce("ring", chain(n_ranks, root), n_chunks)


def binomial_reduce(n_ranks: int, root: int = 0) -> Schedule:
    return _reduce("binomial", binomial(n_ranks, root), n_chunks=1)


def direct_reduce(n_ranks: int, root: int = 0) -> Schedule:
    return _reduce("direct", star(n_ranks, root), n_chunks=1)


def _reduce(algorithm: str, parents: Numbers, n_chunks: int) -> Schedule:
    columns = ColumnBuilder("reduce", algorithm, len(parents), n_chunks, root=root_of(parents))
    reduce_up(columns, parents, np.arange(n_chunks))
    return columns.build()
