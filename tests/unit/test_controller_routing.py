"""Equal-cost next hops over any fabric."""

from controller.routing import adjacency, distances, next_hops, places, prefixes
from tests.unit.controller_fabrics import link_between, three_tier, two_rails
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


def test_a_switch_without_a_prefix_owns_its_hosts_addresses() -> None:
    assert prefixes(two_rails()) == {"198.18.0.0/30": "rail0", "198.18.0.5": "rail1", "198.18.0.6": "rail1"}


def test_ports_keep_their_places() -> None:
    assert places((1, 2, 3, 4), (1, 2, 3, 4)) == (1, 2, 3, 4)
    assert places((1, 2, 3, 4), (1, 4)) == (1, None, None, 4)
    assert places((1,), (5, 6)) == (None, 5, 6)
    assert places((), (2, 7)) == (2, 7)
