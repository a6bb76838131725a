"""Trees of ranks, and the two things that are done along them: reduce to the root, broadcast from it.

A tree is (n_ranks,) parents: the parent of each rank, ROOT at the root, OUTSIDE for ranks that are not in it. A buffer goes
through it in chunks, one behind the other: a rank passes a chunk on as soon as it has it, while the next one comes.
"""

from collections.abc import Iterator

import numpy as np

from traffic.columns import NONE, ColumnBuilder, Numbers
from traffic.errors import TrafficError

ROOT, OUTSIDE = -1, -2


def chain(n_ranks: int, root: int = 0) -> Numbers:
    """root, root + 1, .., each below the one before it."""
    return _from(np.arange(n_ranks) - 1, root)


def star(n_ranks: int, root: int = 0) -> Numbers:
    """All directly below the root."""
    return _from(np.where(np.arange(n_ranks) == 0, ROOT, 0), root)


def binomial(n_ranks: int, root: int = 0) -> Numbers:
    """At distance v from the root, the parent is at v without its lowest bit: below v stand v .. v + lowest bit - 1."""
    v = np.arange(n_ranks)
    return _from(np.where(v == 0, ROOT, v & (v - 1)), root)


def double_binary(n_ranks: int) -> tuple[Numbers, Numbers]:
    """NCCL's two trees (its src/graph/trees.cc): whoever has children in one is a leaf in the other, but for one rank where
    n_ranks is odd."""
    first, n = _binary(n_ranks), n_ranks
    # The second is the first with the ranks mirrored, or moved on by one.
    back = n - 1 - np.arange(n) if n % 2 == 0 else (np.arange(n) - 1) % n
    forth = np.argsort(back)
    parents = first[back]
    return first, np.where(parents == ROOT, ROOT, forth[parents])


def _binary(n: int) -> Numbers:
    """An in-order binary tree: rank 0 on top, below it the largest power of two, ranks with lower bits further down."""
    v = np.arange(n)
    bit = v & -v
    up = (v ^ bit) | (bit << 1)
    return np.where(v == 0, ROOT, np.where(up < n, up, v ^ bit))


def _from(parents: Numbers, root: int) -> Numbers:
    """The tree of distances from the root, as one of ranks."""
    n = len(parents)
    moved = np.where(parents < 0, parents, (parents + root) % max(n, 1))
    return np.roll(moved, root)


def root_of(parents: Numbers) -> int:
    return int(np.flatnonzero(parents == ROOT)[0])


def levels(parents: Numbers) -> list[Numbers]:
    """The ranks at each depth, from the root down. Raises TrafficError unless there is one root and all else is below it."""
    inside = np.flatnonzero(parents != OUTSIDE)
    found = [np.flatnonzero(parents == ROOT)]
    while len(found[-1]):
        found.append(inside[np.isin(parents[inside], found[-1])])
    reached = sum(map(len, found))
    if len(found[0]) != 1 or reached != len(inside):
        raise TrafficError(
            f"the parents {parents.tolist()} are no tree: one rank has the parent {ROOT}, and all others are below it"
        )
    return found[:-1]


def reduce_up(columns: ColumnBuilder, parents: Numbers, chunks: Numbers, *, channel: int = 0) -> Numbers:
    """Every rank adds its chunks to its parent's when its own children's are in. Returns (n_ranks, len(chunks), most
    children of a rank) the sends that each rank receives of each chunk."""
    received = np.full((len(parents), len(chunks), most_children(parents)), NONE)
    child_place = place_among_siblings(parents)
    for ranks in levels(parents)[:0:-1]:
        up = parents[ranks]
        sent = columns.sends(ranks[:, None], up[:, None], chunks, reduce=True, after=received[ranks], channel=channel)
        received[up, :, child_place[ranks]] = sent
    return received


def all_reduce_along(columns: ColumnBuilder, parents: Numbers, chunks: Numbers, *, channel: int = 0) -> None:
    """Up to the root and, from there, each chunk down as soon as it is whole."""
    received = reduce_up(columns, parents, chunks, channel=channel)
    broadcast_down(columns, parents, chunks, after=received[root_of(parents)], channel=channel)


def broadcast_down(
    columns: ColumnBuilder,
    parents: Numbers,
    chunks: Numbers,
    *,
    after: Numbers | None = None,
    channel: int = 0,
    in_turn: bool = False,
) -> None:
    """Every rank passes its parent's chunks on to its children: side by side, or to each when the last chunk for the one before
    has left.

    after: (len(chunks), any) what the root waits for with each chunk; None = nothing.
    """
    root = root_of(parents)
    received, left = np.full((len(parents), len(chunks), 1), NONE), np.full((len(parents), 1, 1), NONE)
    for ranks in siblings_in_turn(parents):
        up = parents[ranks]
        waits = received[up] if after is None or up[0] != root else np.broadcast_to(after, (len(ranks), *after.shape))
        if in_turn:
            waits = np.concatenate((waits, np.broadcast_to(left[up], (len(ranks), len(chunks), 1))), axis=-1)
        sent = columns.sends(up[:, None], ranks[:, None], chunks, reduce=False, after=waits, channel=channel)
        received[ranks, :, 0] = sent
        left[up, 0, 0] = sent[:, -1]


def siblings_in_turn(parents: Numbers) -> Iterator[Numbers]:
    """The ranks below the root, level by level, first the child of each parent with the most below it, then the next."""
    below = subtree_sizes(parents)
    for ranks in levels(parents)[1:]:
        sorted_ = ranks[np.argsort(-below[ranks], kind="stable")]
        turn = place_among_siblings(parents[sorted_])
        for i in range(int(turn.max()) + 1):
            yield sorted_[turn == i]


def subtree_sizes(parents: Numbers) -> Numbers:
    """(n_ranks,) a rank and all below it."""
    sizes = np.ones(len(parents), dtype=np.int64)
    for ranks in levels(parents)[:0:-1]:
        np.add.at(sizes, parents[ranks], sizes[ranks])
    return sizes


def most_children(parents: Numbers) -> int:
    return int(np.bincount(parents[parents >= 0], minlength=1).max(initial=0))


def place_among_siblings(parents: Numbers) -> Numbers:
    """For each rank of these parents, how many of the same parent's children stand before it."""
    by_parent = np.argsort(parents, kind="stable")
    starts = np.searchsorted(parents[by_parent], parents[by_parent])
    place = np.empty(len(parents), dtype=np.int64)
    place[by_parent] = np.arange(len(parents)) - starts
    return place
