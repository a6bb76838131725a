"""Recursive halving, then doubling, for any number of ranks: few steps, and as few bytes as the ring.

Of n = 2^k ranks, reduce-scatter exchanges half of what a rank still works on with the rank at distance n/2, n/4, .., 1 and
keeps the other half's sum; all-gather goes the same way back. 2k steps, d/n S sent at distance d, 2(n-1)/n S in all.
`doubling-halving` pairs near ranks first, so that the large messages stay near; the blocks then lie in bit-reversed order.

Other numbers of ranks (Thakur, Rabenseifner and Gropp, 2005): of the first 2(n - 2^k) ranks each odd one first gives its
data to the even one before it, stays out, and gets the result in the end. All-reduce then sends 2 S more over each such pair
and takes two steps more. Where the result is a part only (reduce-scatter), or what is given (all-gather), no byte goes
twice: (n-1) S over all ranks, as for the ring.
"""

from dataclasses import dataclass

import numpy as np

from traffic.columns import NONE, ColumnBuilder, Numbers
from traffic.schedule import Schedule


@dataclass(frozen=True)
class Fold:
    """members: (2^k,) the ranks that halve and double; extra: (n - 2^k,) those that stay out, each served by the member of
    the same index; part: (2^k + 1,) member i works for the parts part[i] .. part[i + 1] - 1, its own and its extra's."""

    members: Numbers
    extra: Numbers
    part: Numbers

    def received(self, given: list[Numbers]) -> Numbers:
        """(2^k, len(given)) what each member received of the extra ranks' sends; NONE where it serves none."""
        numbers = np.full((len(self.members), len(given)), NONE)
        for column, sends in enumerate(given):
            numbers[: len(sends), column] = sends
        return numbers


def halving_doubling_all_reduce(n_ranks: int) -> Schedule:
    """Far ranks first: S/2 to the rank at distance n/2."""
    return _all_reduce("halving-doubling", n_ranks, near_first=False)


def doubling_halving_all_reduce(n_ranks: int) -> Schedule:
    """Near ranks first: S/2 to the rank at distance 1."""
    return _all_reduce("doubling-halving", n_ranks, near_first=True)


def halving_reduce_scatter(n_ranks: int) -> Schedule:
    """Far ranks first, so that every message is one run of parts."""
    fold = fold_to_power_of_two(n_ranks)
    columns = ColumnBuilder("reduce_scatter", "halving", n_ranks, n_ranks)
    hosts = fold.members[: len(fold.extra)]
    # An extra rank adds its own part itself, in the end.
    given = [
        columns.sends(fold.extra, hosts, 0, n_chunks=fold.extra, reduce=True),
        columns.sends(fold.extra, hosts, fold.extra + 1, n_chunks=n_ranks - 1 - fold.extra, reduce=True),
    ]
    received = _halve(columns, fold.members, fold.part, fold.received(given))
    columns.sends(hosts, fold.extra, fold.extra, reduce=True, after=received[: len(hosts)])
    return columns.build()


def doubling_all_gather(n_ranks: int) -> Schedule:
    """Near ranks first, so that every message is one run of parts."""
    fold = fold_to_power_of_two(n_ranks)
    columns = ColumnBuilder("all_gather", "doubling", n_ranks, n_ranks)
    hosts = fold.members[: len(fold.extra)]
    given = columns.sends(fold.extra, hosts, fold.extra, reduce=False)
    received = _double(columns, fold.members, fold.part, fold.received([given]))
    back = received[: len(hosts)]
    # An extra rank has its own part.
    columns.sends(hosts, fold.extra, 0, n_chunks=fold.extra, reduce=False, after=back)
    columns.sends(hosts, fold.extra, fold.extra + 1, n_chunks=n_ranks - 1 - fold.extra, reduce=False, after=back)
    return columns.build()


def _all_reduce(algorithm: str, n_ranks: int, *, near_first: bool) -> Schedule:
    fold = fold_to_power_of_two(n_ranks)
    n_blocks, n_extra = len(fold.members), len(fold.extra)
    columns = ColumnBuilder("all_reduce", algorithm, n_ranks, n_blocks)
    hosts = fold.members[:n_extra]
    given = columns.sends(fold.extra, hosts, 0, n_chunks=n_blocks, reduce=True)
    received = fold.received([given])
    # The member that works at each place of the halving.
    at = _bit_reversal(n_blocks) if near_first else np.arange(n_blocks)
    blocks = np.arange(n_blocks + 1)
    by_place = _halve(columns, fold.members[at], blocks, received[at])
    by_place = _double(columns, fold.members[at], blocks, by_place)
    received = by_place[np.argsort(at)]
    columns.sends(hosts, fold.extra, 0, n_chunks=n_blocks, reduce=False, after=received[:n_extra])
    return columns.build()


def fold_to_power_of_two(n: int) -> Fold:
    n_members = 1 << (n.bit_length() - 1)
    n_extra = n - n_members
    extra = 2 * np.arange(n_extra) + 1
    members = np.setdiff1d(np.arange(n), extra)
    return Fold(members, extra, np.append(members, n))


def _halve(columns: ColumnBuilder, members: Numbers, start: Numbers, received: Numbers) -> Numbers:
    """Member i ends with the sum of the chunks start[i] .. start[i + 1] - 1. Returns `received` with what was added to it.

    A send waits for all that its sender has received: what it sends was added to in every step before.
    """
    me, d = np.arange(len(members)), len(members) // 2
    while d:
        peer = me ^ d
        received = _exchange(columns, members, start, received, peer, first=peer // d * d, d=d, reduce=True)
        d //= 2
    return received


def _double(columns: ColumnBuilder, members: Numbers, start: Numbers, received: Numbers) -> Numbers:
    """Member i starts with the chunks start[i] .. start[i + 1] - 1; in the end every member has all."""
    me, d = np.arange(len(members)), 1
    while d < len(members):
        received = _exchange(columns, members, start, received, me ^ d, first=me // d * d, d=d, reduce=False)
        d *= 2
    return received


def _exchange(
    columns: ColumnBuilder,
    members: Numbers,
    start: Numbers,
    received: Numbers,
    peer: Numbers,
    *,
    first: Numbers,
    d: int,
    reduce: bool,
) -> Numbers:
    """Member i sends the blocks first[i] .. first[i] + d - 1 to member peer[i]."""
    sent = columns.sends(
        members,
        members[peer],
        start[first],
        n_chunks=start[first + d] - start[first],
        reduce=reduce,
        after=received,
    )
    return np.column_stack((received, sent[peer]))


def _bit_reversal(n: int) -> Numbers:
    """(n,) the numbers below n = 2^k with their k bits reversed."""
    reversed_: Numbers = np.zeros(1, dtype=np.int64)
    while len(reversed_) < n:
        reversed_ = np.concatenate((2 * reversed_, 2 * reversed_ + 1))
    return reversed_
