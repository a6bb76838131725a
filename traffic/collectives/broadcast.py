"""Broadcast: the root's buffer goes down a tree of ranks, (n-1) S in all.

ring: down a chain in chunks, (n - 2 + chunks) steps of S/chunks, so nearly S/B. binomial: whole buffers, to one child
after the other, the one with most below it first: ceil(log2 n) rounds of S.
direct: the root sends whole buffers to all.
"""

import numpy as np

from traffic.collectives.defaults import PIPELINE_CHUNKS
from traffic.columns import ColumnBuilder, Numbers
from traffic.schedule import Schedule
from traffic.trees import binomial, broadcast_down, chain, root_of, star


def ring_broadcast(n_ranks: int, root: int = 0, n_chunks: int = PIPELINE_CHUNKS) -> Schedule:
    return _broadcast("ring", chain(n_ranks, root), n_chunks)


def binomial_broadcast(n_ranks: int, root: int = 0) -> Schedule:
    return _broadcast("binomial", binomial(n_ranks, root), n_chunks=1, in_turn=True)


def direct_broadcast(n_ranks: int, root: int = 0) -> Schedule:
    return _broadcast("direct", star(n_ranks, root), n_chunks=1)


def _broadcast(algorithm: str, parents: Numbers, n_chunks: int, *, in_turn: bool = False) -> Schedule:
    columns = ColumnBuilder("broadcast", algorithm, len(parents), n_chunks, root=root_of(parents))
    broadcast_down(columns, parents, np.arange(n_chunks), in_turn=in_turn)
    return columns.build()
