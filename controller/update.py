"""From one state of the fabric's rules to the next without a loop on the way.

Switches change one after the other, so for a moment old and new rules are mixed. Two facts keep packets from circling:
a rule that only loses ports stays within the old paths, so it may change at once; any other rule changes after the
switches it points to, nearest to the destination first. (Francois and Bonaventure, "Avoiding transient loops during
the convergence of link-state routing protocols", 2007.)
"""

from collections import defaultdict
from collections.abc import Mapping

from controller.actions import Group
from controller.changes import Step, diff
from controller.match import Match
from controller.rules import FlowRule, GroupRule, SwitchRules
from topologies.fabric import Fabric

Rules = Mapping[str, SwitchRules]
# What may be sent at the same time: switch -> its steps, in order. The next stage waits for every switch's barrier.
Stage = Mapping[str, list[Step]]

_NOW = 0


def plan(fabric: Fabric, old: Rules, new: Rules) -> list[Stage]:
    """Stages that lead from `old` to `new`, over the switches that both name. Deletions come last of all."""
    far = _Distance(fabric, new)
    steps: dict[float, dict[str, list[Step]]] = defaultdict(lambda: defaultdict(list))
    for switch in sorted(old.keys() & new.keys()):
        for step in diff(old[switch], new[switch]):
            steps[_when(step, switch, old[switch], new[switch], far)][switch].append(step)
    return [dict(steps[when]) for when in sorted(steps)]


def _when(step: Step, switch: str, old: SwitchRules, new: SwitchRules, far: "_Distance") -> float:
    if step.operation.startswith("delete"):
        return float("inf")
    if isinstance(step.rule, GroupRule):
        return _when_group(step.rule, switch, old, far)
    before = old.flow_by_key.get(step.rule.key)
    only_loses = before is not None and _ports(new, step.rule) <= _ports(old, before)
    return _NOW if only_loses else far.of(switch, step.rule.match)


def _when_group(group: GroupRule, switch: str, old: SwitchRules, far: "_Distance") -> float:
    before = old.group_by_id.get(group.group_id)
    # A group that is new carries nothing until a flow names it, and the flow waits its turn.
    if before is None or set(group.ports) <= set(before.ports):
        return _NOW
    return far.of_group(switch, Group(group.group_id))


def _ports(rules: SwitchRules, flow: FlowRule) -> set[int]:
    return set(rules.ports_of(flow.end))


class _Distance:
    """Switches that a match passes on its longest way to the last switch, under the new rules."""

    def __init__(self, fabric: Fabric, rules: Rules) -> None:
        self._fabric = fabric
        self._rules = rules
        self._next_of: dict[str, dict[Match, set[str]]] = {}
        self._known: dict[tuple[str, Match], int] = {}

    def of(self, switch: str, match: Match) -> int:
        key = (switch, match)
        if key not in self._known:
            # Also ends the recursion, should a user's policy go round in circles.
            self._known[key] = 1
            nearer = [n for n in self._nexts(switch)[match] if match in self._nexts(n)]
            self._known[key] = 1 + max((self.of(n, match) for n in nearer), default=0)
        return self._known[key]

    def of_group(self, switch: str, group: Group) -> int:
        users = [flow.match for flow in self._rules[switch].flows if flow.end == group]
        return max((self.of(switch, match) for match in users), default=1)

    def _nexts(self, switch: str) -> Mapping[Match, set[str]]:
        """match -> the nodes that this switch may send it to."""
        if switch not in self._next_of:
            rules = self._rules.get(switch, SwitchRules())
            peer = {own.number: far.node for own, far, _ in self._fabric.neighbours(switch)}
            nexts: dict[Match, set[str]] = defaultdict(set)
            for flow in rules.flows:
                nexts[flow.match].update(peer[p] for p in rules.ports_of(flow.end) if p in peer)
            self._next_of[switch] = dict(nexts)
        return self._next_of[switch]
