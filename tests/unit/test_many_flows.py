"""The paths of many flows at once are those of the fake data plane, which walks the policy's rules."""

import random
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from controller import policy, rules_of
from controller.dataplane import DataPlane
from controller.flow import TCP, UDP, Flow
from controller.many_flows import FlowTable, egress_ports, numbers_of, table_of
from controller.ovs_hash import choose, choose_each, hash_xors
from controller.policy import PolicyError
from tests.unit.controller_fabrics import jellyfish, three_tier, two_rails
from topologies import topology
from topologies.fabric import Fabric

FABRICS: dict[str, Callable[[], Fabric]] = {
    "spine-leaf": lambda: topology("spine-leaf:spines=3,leaves=4,hosts_per_leaf=3").build(),
    "fat-tree": lambda: topology("fat-tree:k=6").build(),
    "dragonfly": lambda: topology("dragonfly").build(),
    # Scale-up networks beside the scale-out one.
    "rail-optimised": lambda: topology("rail-optimised").build(),
    "torus": lambda: topology("torus").build(),
    "multi-dc": lambda: topology("multi-dc").build(),
    "three tiers, names without digits": three_tier,
    "jellyfish": lambda: jellyfish(12, 4),
}


def reachable_flows(fabric: Fabric, n: int, proto: int) -> list[Flow]:
    """n at random, between interfaces of one network."""
    rng = random.Random(n)
    ports = [port for link in fabric.links for port in link.ports if port.ip]
    kind = {port.ip: fabric.link_of(port.intf).kind == "scale-up" for port in ports}
    flows: list[Flow] = []
    while len(flows) < n:
        a, b = rng.sample(ports, 2)
        same_server = fabric.peer(a).node == fabric.peer(b).node
        if kind[a.ip] == kind[b.ip] and (not kind[a.ip] or same_server):
            flows.append(Flow(str(a.ip), str(b.ip), proto, rng.randrange(1, 65536), rng.randrange(1, 65536)))
    return flows


def as_table(flows: list[Flow]) -> FlowTable:
    src, dst = numbers_of([f.src_ip for f in flows]), numbers_of([f.dst_ip for f in flows])
    return FlowTable(
        src, dst, np.array([f.src_port for f in flows]), np.array([f.dst_port for f in flows]), flows[0].proto
    )


@pytest.mark.parametrize("routing", ["ecmp", "ecmp-polarised", "single-path"])
@pytest.mark.parametrize("name", FABRICS)
def test_paths_are_those_of_the_rules(name: str, routing: str) -> None:
    fabric = FABRICS[name]()
    chosen = policy(routing)
    flows = reachable_flows(fabric, 150, TCP if name == "fat-tree" else UDP)
    plane, table = DataPlane(fabric, rules_of(chosen, fabric)), table_of(chosen, fabric)
    assert table is not None
    start, links = table.paths(as_table(flows))
    found = [egress_ports(fabric, links[a:b]) for a, b in pairwise(start.tolist())]
    assert found == [plane.path(flow) for flow in flows]


def test_flows_without_ports_are_hashed_by_address_alone() -> None:
    fabric = FABRICS["spine-leaf"]()
    flows = reachable_flows(fabric, 50, 1)
    table = table_of(policy("ecmp"), fabric)
    assert table is not None
    start, links = table.paths(as_table(flows))
    plane = DataPlane(fabric, rules_of(policy("ecmp"), fabric))
    found = [egress_ports(fabric, links[a:b]) for a, b in pairwise(start.tolist())]
    assert found == [plane.path(flow) for flow in flows]


def test_a_policy_that_chooses_otherwise_has_no_table() -> None:
    fabric = FABRICS["dragonfly"]()
    assert table_of(policy("minimal"), fabric) is None
    assert table_of(policy("ecmp-group"), fabric) is None
    assert table_of(policy("per-flow"), fabric) is None


def test_flows_between_islands_are_refused() -> None:
    table = table_of(policy("ecmp"), two_rails())
    assert table is not None
    with pytest.raises(PolicyError, match=r"no way from 198.18.0.1 to 198.18.0.5: 1 of 1 flows have none"):
        table.paths(as_table([Flow("198.18.0.1", "198.18.0.5")]))


def test_many_choices_are_those_of_one_by_one() -> None:
    rng = random.Random(1)
    flows = [Flow(f"198.18.0.{i}", "198.18.1.7", UDP, rng.randrange(65536), 4791) for i in range(1, 200)]
    n_alive = np.array([rng.randint(1, 9) for _ in flows])
    table = as_table(flows)
    addresses, ports = (
        (a ^ b).astype(np.uint64) for a, b in ((table.src_ip, table.dst_ip), (table.src_port, table.dst_port))
    )
    basis = np.full(len(flows), 11, dtype=np.uint64)
    found = choose_each(hash_xors(addresses, UDP, ports, basis), n_alive)
    assert found.tolist() == [choose(f, 11, [True] * int(n)) for f, n in zip(flows, n_alive, strict=True)]
