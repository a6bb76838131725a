"""What each collective starts from and must end with: whose values are in which chunk. The check and the values ask here.

A chunk's values come from an origin: a rank's input, at a chunk. Before a collective a member's chunk holds its own input
or nothing; after it, the input of one origin, or the sum of all members' inputs of one chunk, or anything.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topologies import unknown
from traffic.conventions import BY_TRAFFIC
from traffic.errors import TrafficError
from traffic.schedule import Part, Schedule

Longs = NDArray[np.int64]
# In place of an origin rank.
ANYTHING, ALL = -1, -2


@dataclass(frozen=True)
class Shape:
    """n members; a buffer of k chunks in `regions` equal regions, of which the first is the input; root: a member."""

    n: int
    k: int
    root: int
    regions: int

    @property
    def region(self) -> int:
        """Chunks of a region."""
        return self.k // self.regions

    def part(self, chunk: Longs) -> Longs:
        """Which of a region's n parts a chunk is in."""
        return chunk % self.region * self.n // self.region

    def exchanged(self, rank: int, chunk: Longs) -> Longs:
        """The chunk of the input that an all-to-all brings to `rank` at a chunk of the output: at the same place in part `rank`
        of the rank whose part it is."""
        per_part = self.region // self.n
        return rank * per_part + chunk % per_part


# Of a member, chunks 0 .. k - 1 of its buffer, and the shape: whether it holds its own input in each.
Before = Callable[[int, Longs, Shape], Any]
# And the rank, or ALL or ANYTHING, and the chunk whose values it must hold afterwards in each.
After = Callable[[int, Longs, Shape], tuple[Any, Any]]


@dataclass(frozen=True)
class Contract:
    """in_parts: each region is n equal parts. regions: 2 where what is received is apart from what is sent.

    Both functions may return one value for all chunks.
    """

    before: Before
    after: After
    in_parts: bool = False
    regions: int = 1


def _own_part(r: int, c: Longs, s: Shape) -> Any:
    return s.part(c) == r


def _at_root(r: int, c: Longs, s: Shape) -> bool:
    return r == s.root


def _exchanged(r: int, c: Longs, s: Shape) -> tuple[Any, Any]:
    return np.where(c < s.region, ANYTHING, s.part(c)), s.exchanged(r, c)


_ALL_TO_ALL = Contract(lambda r, c, s: c < s.region, _exchanged, in_parts=True, regions=2)

# To add a collective: a line here.
CONTRACTS: dict[str, Contract] = {
    "all_reduce": Contract(lambda r, c, s: True, lambda r, c, s: (ALL, c)),
    "reduce_scatter": Contract(
        lambda r, c, s: True, lambda r, c, s: (np.where(s.part(c) == r, ALL, ANYTHING), c), in_parts=True
    ),
    "all_gather": Contract(_own_part, lambda r, c, s: (s.part(c), c), in_parts=True),
    "all_to_all": _ALL_TO_ALL,
    "all_to_all_v": _ALL_TO_ALL,
    "broadcast": Contract(_at_root, lambda r, c, s: (s.root, c)),
    "reduce": Contract(lambda r, c, s: True, lambda r, c, s: (ALL if r == s.root else ANYTHING, c)),
    "gather": Contract(_own_part, lambda r, c, s: (s.part(c) if r == s.root else ANYTHING, c), in_parts=True),
    "scatter": Contract(_at_root, lambda r, c, s: (np.where(s.part(c) == r, s.root, ANYTHING), c), in_parts=True),
    # As in nccl-tests: every rank sends to the next.
    "sendrecv": Contract(
        lambda r, c, s: c < s.region,
        lambda r, c, s: (np.where(c < s.region, ANYTHING, (r - 1) % s.n), c % s.region),
        regions=2,
    ),
}


@dataclass(frozen=True)
class Terms:
    """A part's contract. number: its place among the schedule's parts."""

    number: int
    part: Part
    contract: Contract
    shape: Shape

    def before(self, member: int) -> NDArray[np.bool_]:
        """(k,) whether the member holds its own input in each chunk of the part."""
        return np.broadcast_to(self.contract.before(member, np.arange(self.shape.k), self.shape), self.shape.k)

    def after(self, member: int) -> tuple[Longs, Longs]:
        """(k,) each: the member whose input it must hold in each chunk, or ALL or ANYTHING; and that input's chunk, counted
        in the part."""
        rank, chunk = self.contract.after(member, np.arange(self.shape.k), self.shape)
        return np.broadcast_to(rank, self.shape.k), np.broadcast_to(chunk, self.shape.k)


def terms(schedule: Schedule) -> Iterator[Terms]:
    """Part by part. Raises TrafficError for a collective without a contract, or chunks that do not divide as it needs."""
    for number, part in enumerate(schedule.parts):
        contract = CONTRACTS.get(part.collective)
        if contract is None:
            raise TrafficError(unknown("collective", part.collective, CONTRACTS))
        n, regions = len(part.ranks), contract.regions
        if contract.in_parts and part.n_chunks % (n * regions):
            what = f"{n} ranks' parts" if regions == 1 else f"{regions} regions of {n} ranks' parts"
            raise TrafficError(f"{part.n_chunks} chunks do not divide into {what}: {part.collective} needs that")
        if part.n_chunks % regions:
            raise TrafficError(
                f"{part.n_chunks} chunks do not divide into {regions} regions: {part.collective} needs that"
            )
        yield Terms(number, part, contract, Shape(n, part.n_chunks, part.root, regions))


def buffer_ratio(schedule: Schedule) -> Fraction:
    """Elements of a rank's buffer over those that nccl-tests' `size` counts: a buffer has room for what arrives and for what is
    under way as well. Of unequal chunks the size is the most that a rank sends or receives (all_to_all_v, messages, traces); of
    several collectives, the buffer itself."""
    if schedule.collective in BY_TRAFFIC:
        natural = schedule.natural_count or 0
        most = max(schedule.sent_per_rank(natural).max(), schedule.received_per_rank(natural).max())
        return Fraction(max(1, natural), max(1, int(most)))
    if schedule.composed_of:
        return Fraction(1)
    (only,) = terms(schedule)
    region, k = only.shape.region, only.shape.k
    if schedule.natural_count is None:
        return Fraction(schedule.n_chunks, region)
    sizes = np.atleast_2d(np.asarray(schedule.chunk_elements))
    size = max(int(sizes[:, at : at + region].sum(axis=1).max()) for at in range(0, k, region))
    return Fraction(max(1, schedule.natural_count), max(1, size))
