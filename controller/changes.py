"""From one set of a switch's rules to another: steps, in an order that leaves no packet without a rule on the way."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from controller.rules import FlowRule, GroupRule, SwitchRules

Operation = Literal["put-group", "add-flow", "modify-flow", "delete-flow", "delete-group"]


@dataclass(frozen=True, slots=True)
class Step:
    """One change to a switch. 'put-group' adds the group or replaces its buckets, whichever is needed."""

    operation: Operation
    rule: FlowRule | GroupRule

    def __str__(self) -> str:
        return f"{self.operation} {self.rule}"


def diff(old: SwitchRules, new: SwitchRules) -> list[Step]:
    """The steps from `old` to `new`, in an order that leaves no packet without a rule on the way.

    Groups come before the flows that use them (else BAD_OUT_GROUP) and go after (deleting a group deletes its flows);
    what exists is changed in place, never deleted and added.
    """
    if old == new:
        return []
    groups, flows = old.group_by_id, old.flow_by_key
    return [
        *_steps("put-group", (g for g in new.groups if groups.get(g.group_id) != g)),
        *_steps("add-flow", (f for f in new.flows if f.key not in flows)),
        *_steps("modify-flow", (f for f in new.flows if f.key in flows and flows[f.key].actions != f.actions)),
        *_steps("delete-flow", (f for f in old.flows if f.key not in new.flow_by_key)),
        *_steps("delete-group", (g for g in old.groups if g.group_id not in new.group_by_id)),
    ]


def _steps(operation: Operation, rules: Iterable[FlowRule] | Iterable[GroupRule]) -> Iterable[Step]:
    return (Step(operation, rule) for rule in rules)
