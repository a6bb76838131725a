"""Changing all switches' rules: whatever has arrived so far, no packet may circle."""

from itertools import combinations, islice

import pytest

from controller import POLICIES, fits, rules_of
from controller.changes import Step, diff
from controller.dataplane import DataPlane, Dropped, Hairpin, Loop
from controller.flow import UDP, Flow
from controller.rules import GroupRule, SwitchRules
from controller.update import Rules, Stage, plan
from tests.unit.controller_fabrics import address, link_between, ring, three_tier
from topologies.dragonfly import Dragonfly
from topologies.fabric import Fabric
from topologies.spine_leaf import SpineLeaf


def applied(rules: SwitchRules, steps: list[Step]) -> SwitchRules:
    """What a switch has after the steps."""
    flows, groups = dict(rules.flow_by_key), dict(rules.group_by_id)
    for step in steps:
        if isinstance(step.rule, GroupRule):
            table, key = groups, step.rule.group_id
        else:
            table, key = flows, step.rule.key  # type: ignore[assignment]
        if step.operation.startswith("delete"):
            del table[key]
        else:
            table[key] = step.rule  # type: ignore[assignment]
    return SwitchRules(tuple(flows.values()), tuple(groups.values()))


def mixtures(old: Rules, stages: list[Stage]) -> list[Rules]:
    """The states that the fabric may pass through: within a stage any subset of its switches may be first."""
    states: list[Rules] = []
    now = dict(old)
    for stage in stages:
        done = {s: applied(now[s], stage[s]) for s in stage}
        for n in range(len(stage) + 1):
            first = islice(combinations(stage, n), 40)
            states.extend({**now, **{s: done[s] for s in some}} for some in first)
        now = {**now, **done}
    return [*states, now]


def loops(fabric: Fabric, rules: Rules, down: frozenset[int]) -> list[str]:
    plane, found = DataPlane(fabric, rules, down), []
    ends = [address(fabric, host.name) for host in fabric.hosts]
    for a in ends:
        for b in (x for x in ends if x != a):
            try:
                plane.paths(Flow(a, b, UDP, 49152, 4791))
            except (Loop, Hairpin) as error:
                # A loop between two neighbours: each sends the packet back, and a switch drops that.
                found.append(str(error))
            except Dropped:
                pass
    return found


CASES = {
    "ring": (ring(5), "s0", "s1"),
    "even ring": (ring(6), "s2", "s3"),
    "spine-leaf": (SpineLeaf(spines=2, leaves=3, hosts_per_leaf=1).build(), "leaf1", "spine1"),
    "dragonfly, local": (Dragonfly(a=3, p=1, h=1, g=2).build(), "g1r1", "g1r2"),
    "dragonfly, split group": (Dragonfly(a=2, p=1, h=1, g=3).build(), "g1r1", "g1r2"),
    "dragonfly, global": (Dragonfly(a=2, p=1, h=1, g=3).build(), "g1r1", "g2r1"),
    "three-tier": (three_tier(), "leftLeafA", "leftAggA"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", POLICIES)
def test_no_state_on_the_way_has_a_loop(name: str, case: str) -> None:
    fabric, a, b = CASES[case]
    if not fits(POLICIES[name], fabric):
        return
    down = frozenset({link_between(fabric, a, b).index})
    intact, broken = rules_of(POLICIES[name], fabric), rules_of(POLICIES[name], fabric, down)
    for old, new, dead in ((intact, broken, down), (broken, intact, frozenset[int]())):
        states = mixtures(old, plan(fabric, old, new))
        assert states[-1] == new
        assert [loop for state in states for loop in loops(fabric, state, dead)] == []


def test_changing_everything_at_once_would_loop() -> None:
    """Else the test above would prove nothing."""
    fabric, a, b = CASES["ring"]
    down = frozenset({link_between(fabric, a, b).index})
    old, new = rules_of(POLICIES["ecmp"], fabric), rules_of(POLICIES["ecmp"], fabric, down)
    at_once: Stage = {s: diff(old[s], new[s]) for s in old if old[s] != new[s]}
    assert any(loops(fabric, state, down) for state in mixtures(old, [at_once]))


def test_other_leaves_leave_the_spine_first() -> None:
    fabric, a, b = CASES["spine-leaf"]
    down = frozenset({link_between(fabric, a, b).index})
    first, *later = plan(fabric, rules_of(POLICIES["ecmp"], fabric), rules_of(POLICIES["ecmp"], fabric, down))
    assert set(first) == {"leaf1", "leaf2", "leaf3"}
    assert [set(stage) for stage in later] == [{"spine1"}]


def test_deletions_come_last_and_nothing_to_do_is_nothing() -> None:
    fabric = SpineLeaf(spines=1, leaves=2, hosts_per_leaf=1).build()
    down = frozenset({link_between(fabric, "leaf1", "spine1").index})
    old, new = rules_of(POLICIES["ecmp"], fabric), rules_of(POLICIES["ecmp"], fabric, down)
    (stage,) = plan(fabric, old, new)
    assert {step.operation for steps in stage.values() for step in steps} == {"delete-flow"}
    assert plan(fabric, new, new) == []


def test_only_switches_whose_rules_are_known_are_changed() -> None:
    fabric = SpineLeaf().build()
    new = rules_of(POLICIES["ecmp"], fabric)
    stages = plan(fabric, {"leaf1": SwitchRules()}, new)
    assert {switch for stage in stages for switch in stage} == {"leaf1"}
