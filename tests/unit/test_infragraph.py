"""InfraGraph, where its package is installed: ours survives a round trip, and its own builders have the counts of ours."""

from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from tests.unit.fabric_graphs import router_graph
from topologies import TOPOLOGIES, Fabric, Topology, TopologyError, topology
from topologies.conformance import check_topology
from topologies.dragonfly import Dragonfly
from topologies.fat_tree import FatTree
from topologies.infragraph import INSTALL, from_infragraph, to_infragraph
from topologies.spine_leaf import SpineLeaf

pytest.importorskip("infragraph", reason=f"needs the package infragraph: run `{INSTALL}`")


@pytest.mark.parametrize("name", ["spine-leaf", "three-tier", "rail-optimised", "superpod", "ocs-leaf", "multi-dc"])
def test_a_registered_topology_survives_a_round_trip(name: str) -> None:
    fabric = TOPOLOGIES[name]().build()
    assert from_infragraph(to_infragraph(fabric)) == fabric


def test_json_reads_like_yaml() -> None:
    fabric = topology("spine-leaf:links_per_pair=2").build().with_links(rate_mbps=100.1, delay_us=0.7)
    text = to_infragraph(fabric, as_json=True)
    assert text.startswith("{") and from_infragraph(text) == fabric


def test_a_file_is_a_topology(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(to_infragraph(topology("spine-leaf").build()))
    assert check_topology(topology(str(file))) == []


# -- its own builders ---------------------------------------------------------------------------------------------------


def clos(radix: int, levels: int) -> Any:
    """A folded Clos of switches with so many ports, its server with two NICs, each a host of ours."""
    from infragraph.blueprints.devices.generic.generic_switch import Switch
    from infragraph.blueprints.devices.generic.server import Server
    from infragraph.blueprints.fabrics.clos_fat_tree_fabric import ClosFatTreeFabric

    return ClosFatTreeFabric(Switch(radix), Server(), levels, [400] * levels)


def dragonfly(h: int) -> Any:
    from infragraph.blueprints.devices.generic.generic_switch import Switch
    from infragraph.blueprints.devices.generic.server import Server
    from infragraph.blueprints.fabrics.dragonfly_fabric import DragonflyFabric

    return DragonflyFabric(Switch(4 * h - 1), Server(), 2 * h, h, h, [400, 400, 400])


def two_tier(radix: int) -> SpineLeaf:
    return SpineLeaf(spines=radix // 2, leaves=radix, hosts_per_leaf=radix // 2)


def imported(infrastructure: Any) -> Fabric:
    return from_infragraph(infrastructure.serialize("yaml"))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (FatTree(k=4), lambda: clos(4, 3)),
        (FatTree(k=8), lambda: clos(8, 3)),
        (two_tier(8), lambda: clos(8, 2)),
        (Dragonfly(a=4, p=2, h=2, g=9), lambda: dragonfly(2)),
    ],
)
def test_counts_equal_those_of_infragraphs_builders(ours: Topology, theirs: Any) -> None:
    fabric, form = imported(theirs()), ours.closed_form()
    assert (len(fabric.hosts), len(fabric.switches), len(fabric.links)) == (form.hosts, form.switches, form.links)
    assert {link.rate_mbps for link in fabric.links} == {400_000.0}


@pytest.mark.parametrize(("ours", "theirs"), [(FatTree(k=4), (4, 3)), (two_tier(8), (8, 2))])
def test_switches_of_a_clos_are_joined_as_in_infragraphs(ours: Topology, theirs: tuple[int, int]) -> None:
    assert nx.is_isomorphic(router_graph(ours.build()), router_graph(imported(clos(*theirs))))


def test_routers_of_a_dragonfly_are_joined_as_in_infragraphs() -> None:
    """Its groups take the others in ascending order, port after port: the absolute arrangement, link by link."""
    fabric, ours = imported(dragonfly(2)), Dragonfly(a=4, p=2, h=2, g=9, arrangement="absolute").build()
    number = {switch.name: i for f in (fabric, ours) for i, switch in enumerate(f.switches)}
    joined, want = ({frozenset((number[a], number[b])) for a, b in router_graph(f).edges} for f in (fabric, ours))
    assert joined == want


def test_the_nics_of_a_server_are_hosts_of_one_group() -> None:
    """Leaf switches of radix 4 hold one server of two NICs each."""
    fabric = imported(clos(4, 2))
    assert [(h.name, h.group) for h in fabric.hosts] == [(f"h{i + 1}", i // 2) for i in range(8)]
    assert [fabric.switch_of(h.name) for h in fabric.hosts] == [f"sw{i // 2 + 1}" for i in range(8)]
    assert [s.role for s in fabric.switches] == ["tier_0"] * 4 + ["tier_1"] * 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense", "not an InfraGraph infrastructure: 'str' object has no attribute 'items'"),
        (": :", "not an InfraGraph infrastructure: while parsing a block mapping"),
        ("devices: 3", "not an InfraGraph infrastructure: property devices shall be of type"),
    ],
)
def test_what_is_no_infrastructure_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(TopologyError) as refused:
        from_infragraph(text)
    assert str(refused.value).startswith(says) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("good", "bad", "says"),
    [
        ("port[2]", "prt[2]", "edge leaf1.0.prt.2-spine1.0.port.0: unknown component 'prt': choose from asic, port"),
        ("port[2]", "port[99]", "an edge ends at leaf1.0.port.99, but there are not so many"),
        ("h1[0]", "h1[7]", "an edge ends at h1.7.nic.0, but there are not so many"),
        (
            "h1[0]",
            "h9[0]",
            "not an InfraGraph infrastructure: Instance 'h9' does not exist in infrastructure instances",
        ),
        (
            "link: scale-out-1",
            "link: copper",
            "edge h1.0.nic.0-leaf1.0.port.0: unknown link 'copper': choose from scale-out-1",
        ),
    ],
)
def test_an_edge_to_what_is_not_there_is_refused_and_not_dropped(good: str, bad: str, says: str) -> None:
    text = to_infragraph(topology("spine-leaf:leaves=2,hosts_per_leaf=2").build())
    with pytest.raises(TopologyError) as refused:
        from_infragraph(text.replace(good, bad, 1) if "link" in good else text.replace(good, bad))
    assert str(refused.value) == says


def test_a_rate_that_is_none_is_refused_by_the_links_name() -> None:
    made = clos(4, 2)
    made.links[0].physical.bandwidth.gigatransfers_per_second = 32
    with pytest.raises(
        TopologyError, match=r"^link tier_0_link: bandwidth in gigatransfers_per_second: use one of giga"
    ):
        imported(made)
