"""Fat-tree and three-tier against the papers' numbers, and their bisection against brute force."""

from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Network
from itertools import combinations_with_replacement

import networkx as nx
import pytest

from tests.unit.fabric_graphs import max_flow_links
from topologies import TopologyError, topology
from topologies.conformance import check_topology
from topologies.describe import describe
from topologies.fabric import Fabric
from topologies.fat_tree import FatTree
from topologies.three_tier import ThreeTier


@pytest.mark.parametrize(
    ("k", "hosts", "switches", "links"),
    [(2, 2, 5, 6), (4, 16, 20, 48), (6, 54, 45, 162), (8, 128, 80, 384)],
)
def test_fat_tree_has_the_published_counts(k: int, hosts: int, switches: int, links: int) -> None:
    fabric = FatTree(k).build()
    assert (len(fabric.hosts), len(fabric.switches), len(fabric.links)) == (hosts, switches, links)
    assert check_topology(FatTree(k)) == []


def test_fat_tree_of_48_port_switches_has_27648_hosts() -> None:
    """Al-Fares 2008, section 3.1; three cables a host: its own, its edge switch's and its aggregation switch's."""
    closed = FatTree(48).closed_form()
    assert (closed.hosts, closed.switches, closed.links) == (27_648, 2_880, 3 * 27_648)


@pytest.mark.parametrize("k", [4, 6])
def test_every_switch_of_a_fat_tree_has_k_ports(k: int) -> None:
    fabric = FatTree(k).build()
    assert {len(fabric.links_at(s.name)) for s in fabric.switches} == {k}
    roles = Counter(s.role for s in fabric.switches)
    assert roles == {"core": k * k // 4, "aggregation": k * k // 2, "edge": k * k // 2}


def test_each_core_has_one_cable_to_each_pod() -> None:
    fabric = FatTree(6).build()
    for core in (s for s in fabric.switches if s.role == "core"):
        pods = Counter(fabric.node(far.node).group for _, far, _ in fabric.neighbours(core.name))
        assert pods == dict.fromkeys(range(6), 1)


@pytest.mark.parametrize(
    "spec",
    ["fat-tree:k=4", "fat-tree:k=6", "three-tier:access_per_pod=3,pods=3,cores=1,aggregation_oversubscription=3"],
)
def test_no_address_of_another_pod_lies_in_a_pods_block(spec: str) -> None:
    """So that one prefix can stand for a pod."""
    fabric = topology(spec).build()
    pods: dict[int | None, list[str]] = {}
    for switch in fabric.switches:
        if switch.prefix:
            pods.setdefault(switch.group, []).append(switch.prefix)
    blocks = {pod: _enclosing(prefixes) for pod, prefixes in pods.items()}
    for pod, prefixes in pods.items():
        for other, block in blocks.items():
            assert all(IPv4Network(p).subnet_of(block) == (pod == other) for p in prefixes)


def _enclosing(prefixes: list[str]) -> IPv4Network:
    block = IPv4Network(prefixes[0])
    while not all(IPv4Network(p).subnet_of(block) for p in prefixes):
        block = block.supernet()
    return block


def test_a_fat_tree_is_the_three_tier_tree_without_oversubscription() -> None:
    three_tier = ThreeTier(cores=4, pods=4, access_per_pod=2, hosts_per_access=2, access_oversubscription=1,
                           aggregation_oversubscription=1)  # fmt: skip
    assert three_tier.closed_form() == FatTree(4).closed_form()
    assert nx.is_isomorphic(_graph(three_tier.build()), _graph(FatTree(4).build()))


# How many hosts share what one could send through the core.
THREE_TIER = {
    "three-tier": 4,
    "three-tier:aggregation_oversubscription=1": 2,
    "three-tier:access_oversubscription=1": 2,
    "three-tier:access_oversubscription=1,aggregation_oversubscription=4,cores=1": 4,
    "three-tier:access_oversubscription=1,aggregation_oversubscription=1,cores=8": 1,
}


@pytest.mark.parametrize("spec", THREE_TIER)
def test_three_tier_is_oversubscribed_as_asked(spec: str) -> None:
    """At 4:1 a half of 16 hosts gets a quarter of the 8 links that it could use."""
    t = topology(spec)
    assert describe(t.build(), t)["oversubscription"] == THREE_TIER[spec]
    assert t.closed_form().bisection_links == 8 / THREE_TIER[spec]
    assert check_topology(t) == []


@pytest.mark.parametrize("access", [1, 2, 4])
@pytest.mark.parametrize("aggregation", [1, 2, 4])
def test_each_tier_of_a_three_tier_has_its_own_ratio(access: int, aggregation: int) -> None:
    fabric = ThreeTier(1, 2, 4, 8, access, aggregation).build()
    for role, below, ratio in (("access", {"host"}, access), ("aggregation", {"access"}, aggregation)):
        for switch in (s for s in fabric.switches if s.role == role):
            down = [fabric.node(far.node).role in below for _, far, _ in fabric.neighbours(switch.name)]
            assert sum(down) == ratio * (len(down) - sum(down))


@pytest.mark.parametrize("spec", ["fat-tree:k=4", *THREE_TIER])
def test_bisection_is_the_least_max_flow_over_all_even_splits(spec: str) -> None:
    t = topology(spec)
    fabric = t.build()
    assert min(max_flow_links(fabric, half) for half in _even_splits(fabric)) == t.closed_form().bisection_links


def _even_splits(fabric: Fabric) -> Iterator[list[str]]:
    """One half of the hosts for every split that differs by more than the names of hosts, edge switches and pods."""
    below: dict[int | None, dict[str, list[str]]] = {}
    for host in fabric.hosts:
        below.setdefault(host.group, {}).setdefault(fabric.switch_of(host.name), []).append(host.name)
    pods = [list(switches.values()) for switches in below.values()]
    n_hosts, n_switches = len(pods[0][0]), len(pods[0])
    in_a_pod = list(combinations_with_replacement(range(n_hosts + 1), n_switches))
    for counts in combinations_with_replacement(in_a_pod, len(pods)):
        if sum(map(sum, counts)) == len(fabric.hosts) // 2:
            yield [
                h
                for pod, ns in zip(pods, counts, strict=True)
                for hosts, n in zip(pod, ns, strict=True)
                for h in hosts[:n]
            ]


def _graph(fabric: Fabric) -> "nx.Graph[str]":
    return nx.Graph((link.a.node, link.b.node) for link in fabric.links)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("fat-tree:k=5", "k=5 is odd: half of a switch's ports go up, use k=4 or 6"),
        ("fat-tree:k=0", "k=0 is too small: use k >= 2"),
        (
            "three-tier:hosts_per_access=6",
            (
                "access_oversubscription=2 with hosts_per_access=6 does not give both aggregation switches the same number of "
                "cables: use a hosts_per_access that is a multiple of 4"
            ),
        ),
        (
            "three-tier:aggregation_oversubscription=4",
            (
                "aggregation_oversubscription=4 does not divide the 2 cables down of an aggregation switch: use a divisor of 2, "
                "or more access_per_pod"
            ),
        ),
        (
            "three-tier:cores=3",
            "cores=3 do not get the same share of each aggregation switch's uplinks (1): use a divisor of 1, or 2",
        ),
        ("three-tier:pods=1", "pods=1 is too small: use pods >= 2"),
    ],
)
def test_what_cannot_be_realised_is_refused(spec: str, text: str) -> None:
    with pytest.raises(TopologyError) as refused:
        topology(spec)
    assert str(refused.value) == text
