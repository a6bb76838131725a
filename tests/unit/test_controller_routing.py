"""Equal-cost next hops over any fabric."""

import random
from dataclasses import replace

import networkx as nx
import pytest

from controller.routing import adjacency, distances, next_hops, places, prefixes
from tests.unit.controller_fabrics import link_between, three_tier, two_rails
from topologies.dragonfly import Dragonfly
from topologies.fabric import Fabric
from topologies.fat_tree import FatTree
from topologies.spine_leaf import SpineLeaf


def test_a_leaf_reaches_every_other_leaf_by_all_its_uplinks() -> None:
    fabric = SpineLeaf(spines=3, leaves=2, hosts_per_leaf=2).build()
    hops = next_hops(fabric)
    assert hops["leaf1"] == {"198.18.0.4/30": (3, 4, 5)}
    assert hops["spine2"] == {"198.18.0.0/30": (1,), "198.18.0.4/30": (2,)}


def test_parallel_cables_are_next_hops_of_their_own() -> None:
    hops = next_hops(SpineLeaf(spines=2, leaves=2, hosts_per_leaf=1, links_per_pair=2).build())
    assert hops["leaf1"]["198.18.0.2/31"] == (2, 3, 4, 5)
    assert hops["spine1"]["198.18.0.0/31"] == (1, 2)


def test_other_leaves_leave_a_spine_whose_far_link_is_down() -> None:
    fabric = SpineLeaf(spines=2, leaves=3, hosts_per_leaf=1).build()
    down = frozenset({link_between(fabric, "leaf1", "spine1").index})
    hops = next_hops(fabric, down)
    assert hops["leaf2"]["198.18.0.0/31"] == hops["leaf3"]["198.18.0.0/31"] == (3,)
    assert hops["leaf1"]["198.18.0.2/31"] == (3,)
    assert hops["leaf2"]["198.18.0.4/31"] == (2, 3)
    # What is still on its way through the spine goes by the other leaves.
    assert hops["spine1"]["198.18.0.0/31"] == (2, 3)


def test_only_shortest_paths_count() -> None:
    fabric = three_tier()
    hops = next_hops(fabric)
    assert len(hops["leftLeafA"]["198.18.0.8/29"]) == 2
    # Within the pod the aggregation switch goes down, not up.
    assert len(hops["leftAggA"]["198.18.0.8/29"]) == 1
    assert len(hops["leftAggA"]["198.18.0.16/29"]) == 2
    assert distances(adjacency(fabric), "leftLeafA")["rightLeafB"] == 4


def test_what_cannot_be_reached_has_no_next_hop() -> None:
    fabric = SpineLeaf(spines=1, leaves=2, hosts_per_leaf=1).build()
    down = frozenset({link_between(fabric, "leaf1", "spine1").index})
    assert next_hops(fabric, down)["leaf1"] == {}
    assert next_hops(two_rails()) == {"rail0": {}, "rail1": {}}


def by_distance(fabric: Fabric, down: frozenset[int]) -> dict[str, dict[str, tuple[int, ...]]]:
    """Next hops from the definition: ports to neighbours that are one hop nearer to the prefix's owner."""
    links = [x for x in fabric.links if x.index not in down and not any(fabric.node(p.node).is_host for p in x.ports)]
    graph = nx.MultiGraph([(x.a.node, x.b.node) for x in links])
    graph.add_nodes_from(switch.name for switch in fabric.switches)
    hops: dict[str, dict[str, tuple[int, ...]]] = {name: {} for name in graph}
    for prefix, owner in prefixes(fabric).items():
        n_hops = nx.single_source_shortest_path_length(graph, owner)
        for name in n_hops.keys() - {owner}:
            ends = [(x.here(name), x.other(name)) for x in links if name in (x.a.node, x.b.node)]
            ports = sorted(own.number for own, far in ends if n_hops[far.node] == n_hops[name] - 1)
            hops[name][prefix] = tuple(ports)
    return hops


@pytest.mark.parametrize("n_down", [0, 1, 2, 4, 8])
@pytest.mark.parametrize(
    "fabric",
    [
        FatTree(k=4).build(),
        Dragonfly(a=3, p=1, h=1, g=4).build(),
        SpineLeaf(spines=2, leaves=3, hosts_per_leaf=1, links_per_pair=2).build(),
        two_rails(),
    ],
    ids=lambda fabric: fabric.name,
)
def test_next_hops_are_nearer_whatever_is_down(fabric: Fabric, n_down: int) -> None:
    draw = random.Random(n_down)
    for _ in range(5):
        down = frozenset(draw.sample(range(len(fabric.links)), min(n_down, len(fabric.links))))
        assert next_hops(fabric, down) == by_distance(fabric, down)


def test_an_equal_fabric_is_computed_by_itself() -> None:
    """What is kept with a fabric does not go over to one made from it."""
    fabric = SpineLeaf(spines=2, leaves=2, hosts_per_leaf=1).build()
    hops = next_hops(fabric)
    without = replace(fabric, links=fabric.links[:-1])
    assert next_hops(fabric) is hops
    assert next_hops(without) == by_distance(without, frozenset()) != hops


def test_a_switch_without_a_prefix_owns_its_hosts_addresses() -> None:
    assert prefixes(two_rails()) == {"198.18.0.0/30": "rail0", "198.18.0.5": "rail1", "198.18.0.6": "rail1"}


def test_ports_keep_their_places() -> None:
    assert places((1, 2, 3, 4), (1, 2, 3, 4)) == (1, 2, 3, 4)
    assert places((1, 2, 3, 4), (1, 4)) == (1, None, None, 4)
    assert places((1,), (5, 6)) == (None, 5, 6)
    assert places((), (2, 7)) == (2, 7)
