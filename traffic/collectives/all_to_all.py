"""All-to-all: a block of S/n from every rank straight to every other; one's own is copied.

(n-1)/n S sent and received by each rank. pairwise: in step t to the rank t further, when the block of step t - 1 has come, so
that by plan every receiver has one sender at a time: T = (n-1)(alpha + S/(n B)). pairwise-xor: in step t with the rank whose
number differs in the bits of t, both ways, for powers of two. direct (NCCL): all n-1 at once.
"""

import numpy as np

from traffic.columns import ColumnBuilder, Numbers
from traffic.conventions import ELEMENT_BYTES
from traffic.errors import TrafficError
from traffic.layout import Layout
from traffic.schedule import Schedule


def pairwise_all_to_all(n_ranks: int) -> Schedule:
    return _exchange("all_to_all", "pairwise", _further(n_ranks), in_turn=True)


def xor_all_to_all(n_ranks: int) -> Schedule:
    """Raises TrafficError unless n_ranks is a power of two."""
    if n_ranks & (n_ranks - 1):
        raise TrafficError(f"pairwise-xor pairs 2, 4, 8, ... ranks, not {n_ranks}: use pairwise")
    ranks = np.arange(n_ranks)
    return _exchange("all_to_all", "pairwise-xor", ranks[:, None] ^ ranks, in_turn=True)


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
    """peers: (n, n) whom each rank sends to in each step, in step 0 itself. Chunk d is for rank d, chunk n + s from rank s."""
    n, ranks = len(peers), np.arange(len(peers))
    columns = ColumnBuilder(collective, algorithm, n, 2 * n, n_blocks=2 * n, chunk_elements=sizes)
    received = np.empty(n, dtype=np.int64)
    for step, peer in enumerate(peers):
        # Step 1 waits for nothing: one's own block is in nobody's way.
        after = received[:, None] if in_turn and step > 1 else None
        received[peer] = columns.sends(ranks, peer, peer, dst_chunk=n + ranks, reduce=False, after=after)
    return columns.build()


def _elements(layout: Layout) -> Numbers | None:
    """(n, 2n) of each rank, the elements for and from every other."""
    if layout.matrix is None:
        return None
    sent = -(-np.array(layout.matrix, dtype=np.int64) // ELEMENT_BYTES)
    return np.hstack((sent, sent.T))
