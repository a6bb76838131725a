"""How many rules a switch holds at 512 and 4096 hosts, by closed formula, and how long computing them takes."""

import time
from collections import defaultdict
from collections.abc import Mapping

import pytest

from controller import policy, rules_of
from controller.prefix_rules import rule_toward, switch_rules
from controller.rules import SwitchRules
from topologies import Fabric, topology

# Leaves: their hosts and the other leaves' prefixes; spines, aggregation and core switches: every leaf's prefix.
# Dragonflies, minimal: hosts, routers of the group, other groups; Valiant: see test_controller_dragonfly; UGAL: one more
# per slot and other group. k-shortest: hosts + 1, 8 per other switch + 1, ports to switches + 1, hosts and other switches.
CASES = [
    ("spine-leaf:spines=16,leaves=32,hosts_per_leaf=16", "ecmp", 512, {"leaf": 16 + 31, "spine": 32}),
    ("spine-leaf:spines=32,leaves=128,hosts_per_leaf=32", "ecmp", 4096, {"leaf": 32 + 127, "spine": 128}),
    ("dragonfly:a=8,p=4,h=4,g=16", "minimal", 512, {"router": 4 + 7 + 15}),
    ("dragonfly:a=8,p=4,h=4,g=16", "valiant", 512, {"router": 9 + 28 + 17 + 26}),
    ("dragonfly:a=8,p=4,h=4,g=16", "ugal", 512, {"router": 9 + (28 + 8 * 15) + 17 + 26}),
    ("torus:dims=4x4x2,hosts_per_router=16", "k-shortest", 512, {"router": 17 + (8 * 31 + 1) + (5 + 1) + (16 + 31)}),
    ("dragonfly:a=16,p=8,h=8,g=32", "minimal", 4096, {"router": 8 + 15 + 31}),
]


def counts(fabric: Fabric, all_rules: Mapping[str, SwitchRules]) -> dict[str, set[int]]:
    """Role -> how many rules its switches have."""
    found = defaultdict(set)
    for switch, rules in all_rules.items():
        found[fabric.node(switch).role].add(len(rules.flows))
    return found


@pytest.mark.parametrize(("spec", "name", "n_hosts", "per_switch"), CASES)
def test_rules_per_switch(spec: str, name: str, n_hosts: int, per_switch: dict[str, int]) -> None:
    fabric = topology(spec).build()
    assert len(fabric.hosts) == n_hosts
    assert counts(fabric, rules_of(policy(name), fabric)) == {role: {n} for role, n in per_switch.items()}


def test_rules_of_a_fat_tree_of_1024_hosts_take_two_seconds_at_most() -> None:
    """The rules are all there: a hosts' edge switch has those of its 8 hosts and of 127 other edge switches."""
    fabric = topology("fat-tree:k=16").build()
    for remembered in (switch_rules, rule_toward):
        remembered.cache_clear()
    begun = time.process_time()
    found = rules_of(policy("ecmp"), fabric)
    assert time.process_time() - begun <= 2.0
    assert counts(fabric, found) == {"edge": {8 + 127}, "aggregation": {128}, "core": {128}}
