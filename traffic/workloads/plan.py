"""A plan: the phases of a step, what each waits for, and what it sends or computes. Data only.

A phase is one thing that many ranks do in groups: all tensor parallel groups of a stage reduce one layer's activations, say.
Waiting is each rank's own affair: a rank starts its part of a phase when its own parts in the phases it waits for have
ended, and a collective needs all ranks of its group. In a `sendrecv` the first rank of a group sends to the second, which
need not be ready. No group of a phase waits for another.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from traffic.errors import TrafficError
from traffic.workloads.split import Groups

CALC = "calc"


@dataclass(frozen=True)
class Phase:
    """operation: CALC or a collective; axis: what the groups are (tp, dp_cp, ...; '' of a calc); groups: (g, k) ranks, k = 1
    in a calc. n_bytes: nccl-tests' `size` of each group's collective. flops: of each rank. after: phases that are earlier."""

    name: str
    operation: str
    axis: str
    groups: Groups
    n_bytes: int = 0
    flops: float = 0.0
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    n_ranks: int
    phases: tuple[Phase, ...]

    def __len__(self) -> int:
        return len(self.phases)

    def messages(self, axis: str | None = None) -> Iterator[Phase]:
        """The phases that send, of one axis or of all."""
        return (p for p in self.phases if p.operation != CALC and axis in (None, p.axis))

    @property
    def flops(self) -> float:
        """Of all ranks together."""
        return sum(phase.flops * phase.groups.size for phase in self.phases)


class PlanBuilder:
    """Collects phases one by one; `add` returns the phase's number, for others to wait for."""

    def __init__(self, n_ranks: int) -> None:
        self._n_ranks = n_ranks
        self._phases: list[Phase] = []

    def add(self, phase: Phase) -> int:
        number = len(self._phases)
        if any(not 0 <= a < number for a in phase.after):
            raise TrafficError(
                f"phase {number} ({phase.name}) waits for {list(phase.after)}: it can for earlier ones only"
            )
        self._phases.append(replace(phase, after=tuple(dict.fromkeys(phase.after))))
        return number

    def build(self) -> Plan:
        return Plan(self._n_ranks, tuple(self._phases))


def side_by_side(jobs: Sequence[tuple[Plan, Sequence[int]]], n_ranks: int) -> Plan:
    """Several jobs on one fabric of n_ranks ranks: each plan, and the rank of the fabric that each of its ranks becomes.

    Raises TrafficError for a rank that two jobs, or one job twice, would use.
    """
    used: set[int] = set()
    phases: list[Phase] = []
    for number, (plan, ranks) in enumerate(jobs):
        if len(ranks) != plan.n_ranks:
            raise TrafficError(f"job {number} has {plan.n_ranks} ranks and {len(ranks)} places: give each rank one")
        for rank in ranks:
            if not 0 <= rank < n_ranks:
                raise TrafficError(f"job {number} on rank {rank}: the ranks are 0 to {n_ranks - 1}")
            if rank in used:
                raise TrafficError(f"job {number} on rank {rank}: that rank is taken; jobs share no rank")
            used.add(rank)
        places = np.array(ranks, dtype=np.int32)
        first = len(phases)
        phases.extend(
            replace(
                phase,
                name=f"job {number}: {phase.name}",
                groups=places[phase.groups],
                after=tuple(first + a for a in phase.after),
            )
            for phase in plan.phases
        )
    return Plan(n_ranks, tuple(phases))
