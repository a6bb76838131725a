"""From one set of an optical switch's cross-connects to another: phases, each ended by a barrier.

A cross-connect leads light from an input to an output; a circuit between two switches is two of them, one each way, which
need not change together. What both sets have is in no phase: a kept circuit is never dark.

break-before-make      tear down what goes; dark; set up what comes
make-before-break      set up first what needs no port that is still in use, then as above
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from controller.actions import Output
from controller.changes import Step
from controller.match import Match
from controller.prefix_rules import BASE_PRIORITY
from controller.rules import FlowRule, SwitchRules
from topologies.errors import Refused

# input port -> output port; no output twice
CrossConnects = Mapping[int, int]
CrossConnect = tuple[int, int]


@dataclass(frozen=True)
class Phase:
    """wait_us: from when the phase before was confirmed until this one is sent, 0 = at once."""

    operation: Literal["tear-down", "set-up"]
    cross_connects: tuple[CrossConnect, ...]
    wait_us: float = 0.0

    @property
    def steps(self) -> list[Step]:
        operation: Literal["add-flow", "delete-flow"] = "add-flow" if self.operation == "set-up" else "delete-flow"
        return [Step(operation, rule_of(one)) for one in self.cross_connects]


def rule_of(cross_connect: CrossConnect) -> FlowRule:
    source, target = cross_connect
    return FlowRule(Match(in_port=source), (Output(target),), BASE_PRIORITY)


def rules_of(cross_connects: CrossConnects) -> SwitchRules:
    """All that an optical switch's bridge holds."""
    return SwitchRules(tuple(rule_of(one) for one in cross_connects.items()))


def check_bijective(ocs: str, cross_connects: CrossConnects, ports: Iterable[int]) -> None:
    """Refuses what no optical switch can set."""
    known, input_of = set(ports), dict[int, int]()
    for source, target in cross_connects.items():
        if stranger := {source, target} - known:
            raise Refused(f"{ocs} has no port {min(stranger)}: its ports are {_span(known)}")
        if source == target:
            raise Refused(f"{ocs} port {source}: light cannot be led back to where it came from")
        if target in input_of:
            raise Refused(
                f"{ocs} port {target}: light from ports {input_of[target]} and {source} cannot both leave by it"
            )
        input_of[target] = source


def _span(ports: set[int]) -> str:
    return f"{min(ports)}..{max(ports)}" if ports else "none"


def phases(
    current: CrossConnects, wanted: CrossConnects, dark_us: float, *, make_before_break: bool = False
) -> list[Phase]:
    """What to do, in order; nothing where nothing changes."""
    gone = sorted(current.items() - wanted.items())
    new = sorted(wanted.items() - current.items())
    busy_outputs = set(current.values())
    free = [(i, o) for i, o in new if make_before_break and i not in current and o not in busy_outputs]
    rest = [one for one in new if one not in free]
    planned = (
        Phase("set-up", tuple(free), dark_us),
        Phase("tear-down", tuple(gone)),
        Phase("set-up", tuple(rest), dark_us),
    )
    return [phase for phase in planned if phase.cross_connects]


def reconfiguration(
    current: Mapping[str, CrossConnects],
    wanted: Mapping[str, CrossConnects],
    dark_us: Mapping[str, float],
    *,
    make_before_break: bool = False,
) -> dict[str, list[Phase]]:
    """The same for several optical switches, which change side by side: name -> its phases, of those that change."""
    planned = {
        ocs: phases(current.get(ocs, {}), wanted.get(ocs, {}), dark_us[ocs], make_before_break=make_before_break)
        for ocs in sorted({*current, *wanted})
    }
    return {ocs: its_phases for ocs, its_phases in planned.items() if its_phases}


def duty_cycle(slice_us: float, night_us: float) -> float:
    """The share of a slice in which its circuits carry, when they are dark for the night at its start."""
    return (slice_us - night_us) / slice_us
