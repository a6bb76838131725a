"""A plan: which circuits are set for how long, slice after slice; and what is wrong with one, before anything is set."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.circuits.changing import CrossConnects, duty_cycle
from controller.circuits.routing import HOP_LIMIT, Circuits, Ways
from controller.circuits.slices import DemandMatrix, Slice, check_outlasts_dark
from controller.circuits.uplinks import Uplinks, uplinks
from topologies.errors import Refused
from topologies.fabric import Fabric


@dataclass(frozen=True)
class PlannedSlice:
    """circuits: the cross-connects of every optical switch, none where it is not named; length_us: night and day."""

    circuits: Circuits
    length_us: float


@dataclass(frozen=True)
class Plan:
    """slices: in order, or none where `scheduler` names who decides; guardband_us: how long after a change is over nothing is
    sent over it yet; cycles: how often the slices are gone through, None = until the run ends; slice_us: what a scheduler is
    given as the length."""

    slices: tuple[PlannedSlice, ...] = ()
    scheduler: str | None = None
    slice_us: float | None = None
    guardband_us: float = 0.0
    cycles: int | None = None

    def dilated(self, time_dilation: float) -> "Plan":
        """What is emulated in place of it."""
        return replace(
            self,
            slices=tuple(replace(one, length_us=one.length_us * time_dilation) for one in self.slices),
            slice_us=None if self.slice_us is None else self.slice_us * time_dilation,
            guardband_us=self.guardband_us * time_dilation,
        )

    def nights_us(self, dark_us: float) -> list[float]:
        """By slice, how long what changes at its start does not carry: nothing where nothing changes. The slice before the
        first is the last, or no circuits at all in a plan that is gone through once."""
        first: Circuits = {} if self.cycles == 1 or not self.slices else self.slices[-1].circuits
        before = [first, *(one.circuits for one in self.slices[:-1])]
        return [
            dark_us + self.guardband_us if _sets_anew(old, one.circuits) else 0.0
            for old, one in zip(before, self.slices, strict=True)
        ]

    def duty_cycle(self, dark_us: float) -> float:
        """The share of the time that is not night."""
        return duty_cycle(sum(one.length_us for one in self.slices), sum(self.nights_us(dark_us)))


def planned(slices: Sequence[Slice], joined: Uplinks) -> tuple[PlannedSlice, ...]:
    """A scheduler's slices on the uplinks of a fabric."""
    return tuple(PlannedSlice(joined.cross_connects(one.matchings), one.length_us) for one in slices)


def check_plan(
    plan: Plan, fabric: Fabric, dark_us: float, demand: DemandMatrix | None = None, what: str = "plan"
) -> None:
    """Refuses slices that are over before their circuits are up, and traffic that no slice gives a way."""
    for number, (one, night_us) in enumerate(zip(plan.slices, plan.nights_us(dark_us), strict=True), 1):
        if night_us:
            check_outlasts_dark(one.length_us, dark_us, f"{what}: slice {number}", plan.guardband_us)
    if demand is not None and plan.slices:
        for source, target in _without_way(plan, fabric, demand):
            raise Refused(
                f"{what}: {source} has traffic for {target}, but no slice gives it a way of at most {HOP_LIMIT} circuits and "
                "there is no packet network: add a slice that joins them, or use a hybrid fabric (ocs-leaf:spines=2)"
            )


def _sets_anew(before: Circuits, after: Circuits) -> bool:
    """Whether a circuit comes up that was not."""
    none: CrossConnects = {}
    return any(its.items() - before.get(ocs, none).items() for ocs, its in after.items())


def _without_way(plan: Plan, fabric: Fabric, demand: DemandMatrix) -> Iterator[tuple[str, str]]:
    """(from, to) of the ends with demand that no slice joins."""
    ends = _switches_of_ends(uplinks(fabric))
    names = list(ends)
    if len(demand) != len(names):
        raise Refused(f"a demand matrix of {len(demand)} ends, where there are {len(names)}: {', '.join(names)}")
    cut = [set(Ways(fabric, one.circuits).unreachable) for one in plan.slices]
    for i, source in enumerate(names):
        for j, target in enumerate(names):
            pairs = {(a, b) for a in ends[source] for b in ends[target]}
            if demand[i, j] and all(pairs & unreachable for unreachable in cut):
                yield source, target


def _switches_of_ends(joined: Uplinks) -> Mapping[str, set[str]]:
    return {end: {u.switch for u in its} for end, its in zip(joined.ends, joined.of, strict=True)}
