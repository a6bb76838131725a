"""The vocabulary of circuits in time: matchings, slices, demand, and what a scheduler is told.

A slice starts with a night, in which circuits that change are dark, and goes on with a day; what stays as it was in the
slice before carries all along. (Etalon and c-Through say day and night, RotorNet and Opera slice and cycle.)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from topologies.errors import Refused

# By end: the end that its circuit leads to, None = no circuit. No end is led to twice, none to itself.
Matching = tuple[int | None, ...]
# [source, target]: bytes
DemandMatrix = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Slice:
    """matchings: one for every uplink, or fewer that uplinks share (one: a trunk); length_us: night and day together."""

    matchings: tuple[Matching, ...]
    length_us: float

    @property
    def circuits(self) -> list[tuple[int, int]]:
        """(from, to) of every circuit; the same twice where two uplinks join the same ends."""
        return [(i, j) for matching in self.matchings for i, j in enumerate(matching) if j is not None]


@dataclass(frozen=True)
class Parameters:
    """What every scheduler is told beside the demand.

    rate_mbps: of one circuit; uplinks: circuits that an end can have at once; dark_us: how long one that changes is dark;
    slice_us: the length of slices, where the scheduler does not choose it; packet_mbps: an end's rate into a packet
    network beside the circuits, 0 = there is none; cutoff_bytes: the size from which a message waits for a circuit of its
    own (15 MB in Opera, NSDI 2020).
    """

    rate_mbps: float = 100_000.0
    uplinks: int = 1
    dark_us: float = 20.0
    slice_us: float = 200.0
    packet_mbps: float = 0.0
    cutoff_bytes: int = 15_000_000

    def __post_init__(self) -> None:
        for field in fields(self):
            if not math.isfinite(getattr(self, field.name)):
                raise Refused(f"{field.name}={getattr(self, field.name)} must be a finite number")
        if self.rate_mbps <= 0 or self.uplinks < 1:
            raise Refused(
                f"{self.uplinks} circuits of {self.rate_mbps:g} Mbit/s: at least one of a positive rate is needed"
            )
        if min(self.dark_us, self.packet_mbps, self.cutoff_bytes) < 0:
            raise Refused("dark_us, packet_mbps and cutoff_bytes cannot be negative")
        check_outlasts_dark(self.slice_us, self.dark_us)

    @property
    def day_us(self) -> float:
        return self.slice_us - self.dark_us

    @property
    def day_bytes(self) -> int:
        """What one circuit carries in the day of a slice."""
        return int(self.day_us * self.rate_mbps / 8)

    @property
    def trunk_mbps(self) -> float:
        """All uplinks of an end together."""
        return self.uplinks * self.rate_mbps

    def slice_for(self, matching: Matching, n_bytes: int) -> Slice:
        """On all uplinks together, with a night of its own and a day in which each of its circuits can carry so much."""
        return Slice((matching,), self.dark_us + n_bytes * 8 / self.trunk_mbps)


def check_outlasts_dark(slice_us: float, dark_us: float, what: str = "a slice", guardband_us: float = 0.0) -> None:
    """Refuses a slice that leaves its circuits no time to carry."""
    if slice_us <= dark_us + guardband_us:
        guardband = f" and the guardband of {guardband_us:g} us" if guardband_us else ""
        raise Refused(
            f"{what} of {slice_us:g} us would be over before its circuits are up, after the dark time of {dark_us:g} us"
            f"{guardband}: make it longer"
        )


def demand_matrix(values: npt.ArrayLike) -> DemandMatrix:
    """Checked, with whole bytes (fractions rounded up) and nothing on the diagonal: what stays at an end needs no circuit.
    Read-only, so that every scheduler sees the same."""
    try:
        given = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise Refused("a demand matrix must be rows of numbers, all of the same length") from None
    if given.ndim != 2 or given.shape[0] != given.shape[1] or given.shape[0] < 2:
        shape = " x ".join(map(str, given.shape)) or "a single number"
        raise Refused(f"a demand matrix must be square, with at least 2 rows: it is {shape}")
    # Beyond this the sum of a row would no longer be exact.
    if not np.isfinite(given).all() or given.min() < 0 or given.max() > 2**50:
        i, j = (int(x) for x in np.argwhere(~(np.isfinite(given) & (given >= 0) & (given <= 2**50)))[0])
        raise Refused(f"demand from {i + 1} to {j + 1} is {given[i, j]:g} bytes: it must be 0..2^50")
    result = np.ceil(given).astype(np.int64)
    np.fill_diagonal(result, 0)
    result.flags.writeable = False
    return result


def check_matching(matching: Matching, n: int) -> None:
    """Refuses what is not a matching of n ends."""
    if len(matching) != n:
        raise Refused(f"a matching of {len(matching)} ends, where there are {n}")
    led_from: dict[int, int] = {}
    for i, j in enumerate(matching):
        if j is None:
            continue
        if not 0 <= j < n:
            raise Refused(f"a circuit from {i + 1} to {j + 1}, where there are {n} ends")
        if i == j:
            raise Refused(f"a circuit from {i + 1} to itself")
        if j in led_from:
            raise Refused(f"circuits from {led_from[j] + 1} and from {i + 1} to {j + 1} on the same uplink")
        led_from[j] = i


def without_idle(assignment: Sequence[int] | npt.NDArray[np.integer], demand: DemandMatrix) -> Matching:
    """The matching that leaves out the circuits which nothing would be sent over, among them those to oneself."""
    columns = np.asarray(assignment)
    needed = demand[np.arange(len(demand)), columns] > 0
    return tuple(j if used else None for j, used in zip(columns.tolist(), needed.tolist(), strict=True))
