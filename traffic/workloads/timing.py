"""How long a plan takes: it is played with given costs, without a network.

Nothing here contends: two collectives on one link each have the time they would have alone. What the fabric adds to that is
what a run measures.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traffic.conventions import bus_factor
from traffic.errors import TrafficError
from traffic.workloads.plan import CALC, Phase, Plan

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Device:
    """An accelerator: its peak rate, and the share of it that matrix products reach."""

    flops_s: float
    efficiency: float = 1.0

    def __post_init__(self) -> None:
        if self.flops_s <= 0 or not 0 < self.efficiency <= 1:
            raise TrafficError(
                f"a device of {self.flops_s:g} flop/s at an efficiency of {self.efficiency:g}: "
                "use a rate above 0 and an efficiency above 0 and up to 1"
            )

    def seconds(self, flops: float) -> float:
        return flops / (self.flops_s * self.efficiency)


@dataclass(frozen=True)
class Slowness:
    """factor: (n_ranks,) by which each rank's calculations take longer; delay_s: (n_ranks,) added once a step, to its
    first calculation."""

    factor: Floats
    delay_s: Floats


def stragglers(n_ranks: int, n_slow: int, *, factor: float = 1.0, delay_s: float = 0.0, seed: int = 1) -> Slowness:
    """n_slow ranks drawn at random, the same for the same seed, slower by a factor and a delay."""
    if not 0 <= n_slow <= n_ranks:
        raise TrafficError(f"{n_slow} stragglers of {n_ranks} ranks: use 0 to {n_ranks}")
    if factor < 1 or delay_s < 0:
        raise TrafficError(f"stragglers by a factor of {factor:g} and {delay_s:g} s: use 1 or more and 0 or more")
    slow = random.Random(seed).sample(range(n_ranks), n_slow)
    factors, delays = np.ones(n_ranks), np.zeros(n_ranks)
    factors[slow], delays[slow] = factor, delay_s
    return Slowness(factors, delays)


def calc_seconds(plan: Plan, device: Device, slowness: Slowness | None = None) -> list[Floats]:
    """Per phase: the seconds of each of its groups' rank; empty where it sends."""
    slow = slowness or stragglers(plan.n_ranks, 0)
    delay_s = slow.delay_s.copy()
    seconds: list[Floats] = []
    for phase in plan.phases:
        if phase.operation != CALC:
            seconds.append(np.zeros(0))
            continue
        ranks = phase.groups[:, 0]
        seconds.append(device.seconds(phase.flops) * slow.factor[ranks] + delay_s[ranks])
        delay_s[ranks] = 0.0
    return seconds


@dataclass(frozen=True)
class Rates:
    """A rank's rate out of its server, its rate within an HB domain of `domain` neighbouring ranks, and a message's latency."""

    scale_out_bytes_s: float
    scale_up_bytes_s: float = 0.0
    domain: int = 1
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        if self.scale_out_bytes_s <= 0 or self.domain < 1 or (self.domain > 1 and self.scale_up_bytes_s <= 0):
            raise TrafficError("rates must be above 0, of HB domains of 1 or more ranks: give scale-up a rate too")

    def seconds(self, phase: Phase) -> float:
        """What its collectives take at full rate: the bus factor's bytes, which ring algorithms reach, and a latency for each
        step of a ring. Groups that leave their HB domain go at the scale-out rate."""
        n = phase.groups.shape[1]
        steps = {"all_reduce": 2 * (n - 1), "sendrecv": 1}.get(phase.operation, n - 1)
        domains = phase.groups // self.domain
        within = self.domain > 1 and bool((domains == domains[:, :1]).all())
        rate_bytes_s = self.scale_up_bytes_s if within else self.scale_out_bytes_s
        return bus_factor(phase.operation, n) * phase.n_bytes / rate_bytes_s + steps * self.latency_s


@dataclass(frozen=True)
class Times:
    """When each rank was busy with its part of each phase: (k,) columns, a row per rank and phase."""

    phase: NDArray[np.int64]
    rank: NDArray[np.int32]
    start_s: Floats
    end_s: Floats

    @property
    def iteration_s(self) -> float:
        return float(self.end_s.max() - self.start_s.min()) if len(self.phase) else 0.0


def play(plan: Plan, calc_s: Sequence[Floats], message_s: Callable[[Phase], float]) -> Times:
    """calc_s: as of calc_seconds; message_s: seconds of a phase's collectives from the moment its group is ready."""
    starts: list[Floats] = []
    ends: list[Floats] = []
    ranks = [phase.groups.ravel() for phase in plan.phases]
    for number, phase in enumerate(plan.phases):
        ready = np.zeros(plan.n_ranks)
        for earlier in phase.after:
            ready[ranks[earlier]] = np.maximum(ready[ranks[earlier]], ends[earlier])
        of_groups = ready[phase.groups]
        start = of_groups[:, 0] if phase.operation == "sendrecv" else of_groups.max(axis=1)
        end = start + (calc_s[number] if phase.operation == CALC else message_s(phase))
        each = phase.groups.shape[1]
        starts.append(np.repeat(start, each))
        ends.append(np.repeat(end, each))
    numbers = np.repeat(np.arange(len(plan)), [len(r) for r in ranks])
    if not len(plan):
        return Times(numbers, np.zeros(0, dtype=np.int32), np.zeros(0), np.zeros(0))
    return Times(numbers, np.concatenate(ranks), np.concatenate(starts), np.concatenate(ends))
