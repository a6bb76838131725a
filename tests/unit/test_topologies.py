"""Every registered topology passes the conformance checks by itself, and its bisection is a cut that max-flow confirms."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import networkx as nx
import pytest

from tests.unit.fabric_graphs import max_flow
from topologies import TOPOLOGIES, Fabric, topology
from topologies.builder import FabricBuilder
from topologies.conformance import check_topology
from topologies.describe import Distances, describe, describe_text, host_rate_mbps
from topologies.drawing import colour, svg
from topologies.topology import ClosedForm


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_default_of_every_registered_topology_conforms(name: str) -> None:
    assert check_topology(TOPOLOGIES[name]()) == []


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_registered_topology_can_be_described_and_drawn(name: str) -> None:
    t = TOPOLOGIES[name]()
    fabric = t.build()
    assert describe_text(describe(fabric, t)).startswith(f"{name}: ")
    assert svg(fabric, {fabric.links[0].a.intf: 0.5}).count("<line") >= len(fabric.hosts) / 2


# Their packet network alone has none: rails meet in the servers, leaves and groups in circuits.
WITHOUT_BISECTION = {"rail-only", "ocs-leaf", "ocs-dragonfly"}


@pytest.mark.parametrize("name", [name for name in TOPOLOGIES if name not in WITHOUT_BISECTION])
def test_no_even_split_of_hosts_by_order_is_below_the_stated_bisection(name: str) -> None:
    """Max-flow between the two halves of the hosts in their order is one even split, so never below the worst."""
    t = TOPOLOGIES[name]()
    fabric, links = t.build(), t.closed_form().bisection_links
    assert links is not None
    names = [h.name for h in fabric.hosts]
    flow = max_flow(fabric, names[: len(names) // 2], names[len(names) // 2 :])
    assert flow >= links * host_rate_mbps(fabric) * (1 - 1e-9)


SPINE_LEAF = [
    ("spine-leaf", 4),
    ("spine-leaf:spines=4", 8),
    ("spine-leaf:spines=8", 8),
    ("spine-leaf:spines=1,leaves=2,hosts_per_leaf=8", 1),
    ("spine-leaf:spines=2,leaves=6,links_per_pair=2", 12),
    ("spine-leaf:leaves=1,hosts_per_leaf=8", 4),
]


@pytest.mark.parametrize(("spec", "links"), SPINE_LEAF)
def test_spine_leaf_bisection_is_the_minimum_over_splits(spec: str, links: int) -> None:
    t = topology(spec)
    fabric = t.build()
    assert t.closed_form().bisection_links == links
    names = [h.name for h in fabric.hosts]
    assert max_flow(fabric, names[: len(names) // 2], names[len(names) // 2 :]) == links * 400_000


@pytest.mark.parametrize(
    "spec",
    [
        "spine-leaf:spines=16,leaves=32,hosts_per_leaf=16", "spine-leaf:spines=1,leaves=1,hosts_per_leaf=1",
        "spine-leaf:spines=3,leaves=5,hosts_per_leaf=7,links_per_pair=2",
    ],
)  # fmt: skip
def test_spine_leaf_conforms_at_other_sizes(spec: str) -> None:
    assert check_topology(topology(spec)) == []


def test_describe_spine_leaf_by_hand() -> None:
    """2 spines x 4 leaves x 4 hosts: 16 + 8 cables, 2:1 at each leaf; per host 3 others at 0 links, 12 at 2."""
    d = describe(topology("spine-leaf").build())
    assert (d["hosts"], d["switches"], d["links"]) == (16, 6, {"scale-out": 24})
    assert d["ports"] == {"host": 16, "leaf": 24, "spine": 8}
    assert (d["diameter"], d["path_diversity"]) == (2, 2)
    assert (d["cables"], d["cable_ends"], d["transceivers"]) == ({"dac": 16, "fibre": 8}, 48, 16)
    assert d["mean_path"] == pytest.approx(12 * 2 / 15)
    assert (d["bisection_gbps"], d["oversubscription"]) == (1600.0, 2.0)
    # 32 switch ports, 16 NICs, 16 DACs, 8 fibres with two transceivers each, at the reference rate.
    assert d["cost"] == 32 * 400 + 16 * 1200 + 16 * 100 + 8 * 50 + 16 * 500
    assert d["power_w"] == 32 * 20 + 16 * 25 + 16 * 9
    assert list(d)[:2] == ["fabric", "parameters"] and Fabric.from_dict(d).hosts


def test_two_tier_cable_ends_follow_the_published_count() -> None:
    """N hosts at full bisection need 4N cable ends: two of a host's cable and of an uplink."""
    assert describe(topology("spine-leaf:spines=4,leaves=8").build())["cable_ends"] == 4 * 32


def test_a_fabric_of_unknown_origin_has_no_bisection() -> None:
    d = describe(replace(topology("spine-leaf").build(), name="from-a-file"))
    assert d["bisection_gbps"] is None and d["oversubscription"] == 2.0 and d["diameter"] == 2


def test_distances_equal_networkx() -> None:
    fabric = topology("spine-leaf:spines=3,leaves=4,links_per_pair=2").build()
    graph = nx.Graph((x.a.node, x.b.node) for x in fabric.links)
    length = dict(nx.all_pairs_shortest_path_length(graph))
    hosts = [h.name for h in fabric.hosts]
    between = [length[a][b] - 2 for a in hosts for b in hosts if a != b]
    d = Distances(fabric)
    assert d.diameter == max(between)
    assert d.mean_path == pytest.approx(sum(between) / len(between))


@dataclass(frozen=True)
class Bad:
    """Two hosts on two switches without a cable between them, and a prefix that lies."""

    cable: bool = False
    prefix: str = "198.18.0.0/30"
    hosts: int = 2

    def build(self) -> Fabric:
        builder = FabricBuilder("bad", {})
        builder.switch("s1", "leaf", prefix="198.18.0.0/30")
        builder.switch("s2", "leaf", prefix=self.prefix)
        for i in (1, 2):
            builder.host(f"h{i}", f"198.18.0.{4 * i - 3}")
            builder.link(f"h{i}", f"s{i}", "scale-out")
        if self.cable:
            builder.link("s1", "s2", "scale-out")
        return builder.build()

    def closed_form(self) -> ClosedForm:
        return ClosedForm(self.hosts, 2, 3, 1, 1, 1)


@pytest.mark.parametrize(
    ("bad", "finding"),
    [
        (Bad(), "not connected: 2 nodes cannot be reached from h1, e.g. s2"),
        (Bad(cable=True), "h2 (198.18.0.5) is on s2, whose prefix 198.18.0.0/30 does not cover it"),
        (Bad(cable=True), "h1 (198.18.0.1) is on s1, but lies in the prefix 198.18.0.0/30 of s2"),
        (Bad(cable=True, prefix="198.18.0.4/30", hosts=3), "hosts: closed_form() says 3, the built fabric has 2"),
        (Bad(cable=True, prefix="nonsense"), "Bad failed: AddressValueError: Expected 4 octets in 'nonsense'"),
    ],
)
def test_conformance_finds(bad: Any, finding: str) -> None:
    assert finding in check_topology(bad)


def test_a_good_one_of_a_users_own_conforms() -> None:
    assert check_topology(Bad(cable=True, prefix="198.18.0.4/30")) == []


def test_load_colours_run_from_grey_to_brown() -> None:
    assert (colour(-1), colour(0.0), colour(1.0), colour(9)) == ("#d3d9df", "#d3d9df", "#461904", "#461904")


def test_more_load_is_darker_so_that_a_grey_print_shows_it() -> None:
    """Luma of ITU-R BT.709."""
    shades = [bytes.fromhex(colour(i / 50)[1:]) for i in range(51)]
    luma = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in shades]
    assert all(a > b for a, b in pairwise(luma))


def test_a_fabric_without_tiers_is_drawn_as_a_ring() -> None:
    """Two peers and a host each: everything is on the picture, at different places."""
    picture = svg(Bad(cable=True).build())
    assert (picture.count("<rect"), picture.count("<line")) == (4, 3)
    assert len({line.split('"')[3] for line in picture.splitlines() if line.startswith("<line")}) > 1


def test_large_drawings_condense_hosts() -> None:
    picture = svg(topology("spine-leaf:spines=16,leaves=32,hosts_per_leaf=16").build())
    assert picture.count("<rect") == 16 + 32 + 32
    assert "16 hosts: h1 .. h16" in picture
