"""The example of a user's own controller: its rules, walked without a switch."""

import json
from itertools import permutations
from pathlib import Path

import pytest

from controller.actions import Output, SetField
from controller.dataplane import DataPlane
from controller.flow import TCP, Flow
from controller.match import Match
from controller.rules import FlowRule, SwitchRules
from topologies import user_code
from topologies.spine_leaf import SpineLeaf

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize(("spines", "leaves", "hosts_per_leaf"), [(2, 2, 2), (3, 4, 2), (1, 2, 1)])
def test_its_rules_reach_every_host_over_the_spine_of_its_number(spines: int, leaves: int, hosts_per_leaf: int) -> None:
    rules = user_code.load_module(str(EXAMPLES / "spine_leaf_rules.py"), "example").rules
    fabric = SpineLeaf(spines, leaves, hosts_per_leaf).build()
    graph = json.loads(fabric.to_json())
    made = {}
    for switch in fabric.switches:
        its = rules(graph, switch.dpid)
        assert len(its) == leaves * hosts_per_leaf
        flows = [
            FlowRule(Match(ipv4_dst=ip), (*([SetField("eth_dst", mac)] if mac else []), Output(port)))
            for ip, port, mac in its
        ]
        made[switch.name] = SwitchRules(tuple(flows))
    plane, addresses = DataPlane(fabric, made), [fabric.scale_out_port(h.name).ip or "" for h in fabric.hosts]
    for source, target in permutations(range(len(addresses)), 2):
        way = [port.node for port in plane.path(Flow(addresses[source], addresses[target], proto=TCP))]
        same_leaf = source // hosts_per_leaf == target // hosts_per_leaf
        assert [node for node in way if node.startswith("spine")] == (
            [] if same_leaf else [f"spine{target % spines + 1}"]
        )


def test_what_its_page_names_exists() -> None:
    text = (EXAMPLES.parent / "docs" / "own-controller.md").read_text()
    for path in ("examples/ryu_manager.py", "examples/minimal_ryu_app.py", "examples/minimal_os_ken_app.py"):
        assert path in text and (EXAMPLES.parent / path).is_file()
