"""All-to-all: a block of S/n from every rank straight to every other; one's own is copied.

(n-1)/n S sent and received by each rank. pairwise: in step t to the rank t further, when the blocks of step t - 1 have
come and gone, so that by plan every receiver has one sender at a time: T = (n-1)(alpha + S/(n B)). pairwise-xor: in step t
with the rank whose number differs in the bits of t, both ways; as many steps as the next power of two has, less one, and in
some of them ranks without a partner. direct (NCCL): all n-1 at once.
"""

import numpy as np

from traffic.columns import NONE, ColumnBuilder, Numbers
from traffic.conventions import ELEMENT_BYTES
from traffic.layout import Layout
from traffic.schedule import Schedule


def pairwise_all_to_all(n_ranks: int) -> Schedule:
    return _exchange("all_to_all", "pairwise", _further(n_ranks), in_turn=True)


def xor_all_to_all(n_ranks: int) -> Schedule:
    n_steps = 1 << (n_ranks - 1).bit_length()
    return _exchange("all_to_all", "pairwise-xor", np.arange(n_steps)[:, None] ^ np.arange(n_ranks), in_turn=True)


def direct_all_to_all(n_ranks: int) -> Schedule:
    return _exchange("all_to_all", "direct", _further(n_ranks), in_turn=False)


def pairwise_all_to_all_v(layout: Layout) -> Schedule:
    return _exchange("all_to_all_v", "pairwise", _further(layout.n_ranks), in_turn=True, sizes=_elements(layout))


def direct_all_to_all_v(layout: Layout) -> Schedule:
    """Blocks as large as layout.matrix says, in whole elements rounded up; without a matrix all alike."""
    return _exchange("all_to_all_v", "direct", _further(layout.n_ranks), in_turn=False, sizes=_elements(layout))


def _further(n: int) -> Numbers:
    """(n, n) in step t rank r sends to r + t."""
    ranks = np.arange(n)
    return (ranks[:, None] + ranks) % n


def _exchange(
    collective: str, algorithm: str, peers: Numbers, *, in_turn: bool, sizes: Numbers | None = None
) -> Schedule:
    """peers: (steps, n) whom each rank sends to in each step, in step 0 itself; n and more: nobody. Chunk d is for rank d, chunk
    n + s from rank s."""
    n = peers.shape[1]
    columns = ColumnBuilder(collective, algorithm, n, 2 * n, n_blocks=2 * n, chunk_elements=sizes)
    # Of each rank, what came and what went last.
    before = np.full((n, 2), NONE)
    for step, peer in enumerate(peers):
        ranks = np.flatnonzero(peer < n)
        to = peer[ranks]
        sent = columns.sends(ranks, to, to, dst_chunk=n + ranks, reduce=False, after=before[ranks] if in_turn else None)
        # One's own block is in nobody's way.
        if step:
            before[to, 0] = before[ranks, 1] = sent
    return columns.build()


def _elements(layout: Layout) -> Numbers | None:
    """(n, 2n) of each rank, the elements for and from every other."""
    if layout.matrix is None:
        return None
    sent = -(-np.array(layout.matrix, dtype=np.int64) // ELEMENT_BYTES)
    return np.hstack((sent, sent.T))
