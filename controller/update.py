"""From one state of the fabric's rules to the next without a loop on the way.

Switches change one after the other, so for a moment old and new rules are mixed. Two facts keep packets from circling:
a rule that only loses ports stays within the old paths, so it may change at once; any other rule changes after the
switches it points to, nearest to the destination first. (Francois and Bonaventure, "Avoiding transient loops during
the convergence of link-state routing protocols", 2007.)

A rule for a single flow goes last, where it is farthest from the destination first: what is left of the flow's path still
leads to the end.

With several tables, a mark that sends packets on a detour is set only when all switches know the way of the mark. A more
specific rule goes, nearest first, when the rules that it hid are right everywhere; one that hid nothing goes last.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeGuard

from controller.actions import GotoTable, Group, SetField
from controller.changes import Step, diff
from controller.match import Match, is_in
from controller.rules import FlowRule, GroupRule, SwitchRules
from topologies.fabric import Fabric, Port
from topologies.shaping import OCS_ROLE

Rules = Mapping[str, SwitchRules]
# What may be sent at the same time: switch -> its steps, in order. The next stage waits for every switch's barrier.
Stage = Mapping[str, list[Step]]

# (phase, switches to pass on the longest way to the last one); stages are sent in this order.
_When = tuple[int, int]
_NOW, _ROUTES, _MARKS, _UNHIDE, _REMOVE = range(5)


def plan(fabric: Fabric, old: Rules, new: Rules) -> list[Stage]:
    """Stages that lead from `old` to `new`, over the switches that both name. Deletions come last of all."""
    far, was_far = _Distance(fabric, new), _Distance(fabric, old)
    steps: dict[_When, dict[str, list[Step]]] = defaultdict(lambda: defaultdict(list))
    for switch in sorted(old.keys() & new.keys()):
        for step in diff(old[switch], new[switch]):
            if step.operation == "delete-flow" and _is_of_one_flow(step.rule):
                when = (_REMOVE, -was_far.of(switch, step.rule.match))
            else:
                when = _when(step, switch, old[switch], new[switch], far)
            steps[when][switch].append(step)
    return [dict(steps[when]) for when in sorted(steps)]


def _when(step: Step, switch: str, old: SwitchRules, new: SwitchRules, far: "_Distance") -> _When:
    if isinstance(step.rule, GroupRule):
        return _when_group(step, step.rule, switch, old, far)
    if step.operation == "delete-flow":
        hidden = _hidden_by(step.rule, new)
        return (_UNHIDE, far.of(switch, hidden.match)) if hidden else (_REMOVE, 0)
    if isinstance(step.rule.end, GotoTable):
        return _when_handed_on(step.rule, step.rule.end.table, old, far.gateway_mac)
    before = old.flow_by_key.get(step.rule.key)
    only_loses = before is not None and _ports(new, step.rule) <= _ports(old, before)
    return (_NOW, 0) if only_loses else (_ROUTES, far.of(switch, step.rule.match))


def _is_of_one_flow(rule: FlowRule | GroupRule) -> TypeGuard[FlowRule]:
    return isinstance(rule, FlowRule) and rule.match.ipv4_src is not None


def _when_group(step: Step, group: GroupRule, switch: str, old: SwitchRules, far: "_Distance") -> _When:
    if step.operation == "delete-group":
        return (_REMOVE, 0)
    before = old.group_by_id.get(group.group_id)
    # A group that is new carries nothing until a flow names it, and the flow waits its turn.
    if before is None or set(group.ports) <= set(before.ports):
        return (_NOW, 0)
    return (_ROUTES, far.of_group(switch, Group(group.group_id)))


def _hidden_by(rule: FlowRule, new: SwitchRules) -> FlowRule | None:
    """The rule for a wider prefix that takes over."""
    prefix = rule.match.ipv4_dst
    wider = (
        other
        for other in new.flows
        if (other.table, replace(other.match, ipv4_dst=prefix)) == (rule.table, rule.match)
        and other.priority < rule.priority
        and prefix is not None
        and other.match.ipv4_dst is not None
        and is_in(prefix.partition("/")[0], other.match.ipv4_dst)
    )
    return next(wider, None)


def _when_handed_on(rule: FlowRule, table: int, old: SwitchRules, gateway_mac: str) -> _When:
    """At once where nothing is marked and the next table is in use; marks come off when nobody sets them any more."""
    written = [action.value for action in rule.actions if isinstance(action, SetField)]
    if set(written) - {gateway_mac} or all(flow.table != table for flow in old.flows):
        return (_MARKS, 0)
    return (_NOW, len(written))


def _ports(rules: SwitchRules, flow: FlowRule) -> set[int]:
    return set(rules.ports_of(flow.end))


class _Distance:
    """Switches that a match passes on its longest way to the last switch, under the new rules."""

    def __init__(self, fabric: Fabric, rules: Rules) -> None:
        self._fabric = fabric
        self.gateway_mac = fabric.gateway_mac
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
            peer = {own.number: self._behind(far) for own, far, _ in self._fabric.neighbours(switch)}
            nexts: dict[Match, set[str]] = defaultdict(set)
            for flow in rules.flows:
                nexts[flow.match].update(peer[p] for p in rules.ports_of(flow.end) if p in peer)
            self._next_of[switch] = dict(nexts)
        return self._next_of[switch]

    def _behind(self, port: Port) -> str:
        """The node that the port belongs to; of an optical switch's, the one that its circuit leads to."""
        if self._fabric.node(port.node).role != OCS_ROLE:
            return port.node
        rules = self._rules.get(port.node, SwitchRules())
        led_to = {out for flow in rules.flows if flow.match.in_port == port.number for out in rules.ports_of(flow.end)}
        return next((far.node for own, far, _ in self._fabric.neighbours(port.node) if own.number in led_to), port.node)
