"""Gather and scatter: every rank's part goes up a tree of ranks to the root, or down from it.

direct: one message of S/n for each rank, all at once. binomial: a rank passes on all that is below it in one message, in
ceil(log2 n) rounds; a part travels as many times as its rank's distance from the root has bits set.
"""

import numpy as np

from traffic.columns import NONE, ColumnBuilder, Numbers
from traffic.schedule import Schedule
from traffic.trees import (
    binomial,
    levels,
    most_children,
    place_among_siblings,
    root_of,
    siblings_in_turn,
    star,
    subtree_sizes,
)


def direct_gather(n_ranks: int, root: int = 0) -> Schedule:
    return _gather("direct", star(n_ranks, root))


def binomial_gather(n_ranks: int, root: int = 0) -> Schedule:
    return _gather("binomial", binomial(n_ranks, root))


def direct_scatter(n_ranks: int, root: int = 0) -> Schedule:
    return _scatter("direct", star(n_ranks, root), in_turn=False)


def binomial_scatter(n_ranks: int, root: int = 0) -> Schedule:
    return _scatter("binomial", binomial(n_ranks, root), in_turn=True)


def _gather(algorithm: str, parents: Numbers) -> Schedule:
    """A rank sends when it has received the parts of all ranks below it."""
    n = len(parents)
    columns = ColumnBuilder("gather", algorithm, n, n, root=root_of(parents))
    below = subtree_sizes(parents)
    received = np.full((n, most_children(parents)), NONE)
    child_place = place_among_siblings(parents)
    for ranks in levels(parents)[:0:-1]:
        up = parents[ranks]
        received[up, child_place[ranks]] = _send_parts(columns, ranks, up, ranks, below[ranks], received[ranks])
    return columns.build()


def _scatter(algorithm: str, parents: Numbers, *, in_turn: bool) -> Schedule:
    """A rank passes on what it has received for the ranks below it.

    in_turn: to one child after the other, most first.
    """
    n = len(parents)
    columns = ColumnBuilder("scatter", algorithm, n, n, root=root_of(parents))
    below = subtree_sizes(parents)
    # Of each rank, what came, and what it sent last.
    before = np.full((n, 2), NONE)
    for ranks in siblings_in_turn(parents):
        up = parents[ranks]
        sent = _send_parts(columns, up, ranks, ranks, below[ranks], before[up])
        before[ranks, 0] = sent
        if in_turn:
            before[up, 1] = sent
    return columns.build()


def _send_parts(
    columns: ColumnBuilder, src: Numbers, dst: Numbers, first: Numbers, length: Numbers, after: Numbers
) -> Numbers:
    """The `length` parts from `first` on, part 0 after the last: in two messages where they go round, which arrive in order.
    Returns the number of the last message of each."""
    to_end = np.minimum(length, columns.n_chunks - first)
    last = columns.sends(src, dst, first, n_chunks=to_end, reduce=False, after=after)
    round_ = length > to_end
    last[round_] = columns.sends(
        src[round_], dst[round_], 0, n_chunks=(length - to_end)[round_], reduce=False, after=after[round_]
    )
    return last
