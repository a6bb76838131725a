"""Sites joined by long-haul links: each site as it was by itself, all of them apart in names and addresses."""

from collections import Counter
from ipaddress import IPv4Network
from itertools import combinations, pairwise

import networkx as nx
import pytest

from tests.unit.fabric_graphs import max_flow, router_graph
from topologies import Fabric, Port, Refused, topology
from topologies.conformance import check_topology
from topologies.describe import describe
from topologies.multi_dc import MultiDc, border_switches
from topologies.topology import nested

SITES = [
    "spine-leaf",
    "dragonfly(g=5)",
    "torus(dims=4x4)",
    "ocs-leaf(spines=1)",
    "ocs-leaf",
    "ocs-dragonfly(g=3)",
    "rail-optimised(servers=2;gpus_per_server=2)",
]


def test_default_by_hand() -> None:
    """Two default spine-leaves, a border router over each, two links of 1 ms between them."""
    fabric = MultiDc().build()
    assert (len(fabric.hosts), len(fabric.switches)) == (32, 2 * (6 + 1))
    assert Counter(x.kind for x in fabric.links) == {"scale-out": 2 * (24 + 2), "global": 2}
    assert {x.delay_us for x in fabric.links if x.kind == "global"} == {1000.0}
    assert {x.delay_us for x in fabric.links if x.kind != "global"} == {0.0}
    assert {far.node for _, far, _ in fabric.neighbours("s2border")} == {"s2spine1", "s2spine2", "s1border"}


def test_a_link_rate_keeps_the_long_haul_s_share_and_a_delay_is_no_shorter() -> None:
    """400 Gbit/s hosts and a quarter of that between the sites, at 20 Mbit/s: 5 Mbit/s."""
    fabric = MultiDc(rate_mbps=100_000.0).build().with_links(rate_mbps=20.0, delay_us=10.0)
    assert {(x.rate_mbps, x.delay_us) for x in fabric.links if x.kind == "global"} == {(5.0, 1000.0)}
    assert {(x.rate_mbps, x.delay_us) for x in fabric.links if x.kind != "global"} == {(20.0, 10.0)}


@pytest.mark.parametrize("site", SITES)
def test_every_site_is_its_topology(site: str) -> None:
    """The same links between the same nodes, of the same kind and rate, at the same port numbers."""
    alone, whole = topology(nested(site)).build(), MultiDc(sites=3, site=site).build()
    want = Counter((_end(x.a, ""), _end(x.b, ""), x.kind, x.rate_mbps) for x in alone.links)
    for n in ("s1", "s2", "s3"):
        inside = [x for x in whole.links if "border" not in x.a.node]
        have = Counter((_end(x.a, n), _end(x.b, n), x.kind, x.rate_mbps) for x in inside if x.a.node.startswith(n))
        assert have == want


def _end(port: Port, site: str) -> tuple[str, int]:
    return port.node.removeprefix(site), port.number


@pytest.mark.parametrize("site", SITES)
def test_prefixes_of_all_sites_are_apart(site: str) -> None:
    switches = MultiDc(sites=3, site=site).build().switches
    networks = sorted(IPv4Network(s.prefix) for s in switches if s.prefix)
    assert not any(a.overlaps(b) for a, b in pairwise(networks))


def test_groups_of_all_sites_are_apart() -> None:
    groups = [h.group for h in MultiDc(site="dragonfly(g=5)").build().hosts]
    assert set(groups[:40]) == set(range(5)) and set(groups[40:]) == set(range(5, 10))


@pytest.mark.parametrize("site", ["spine-leaf", "dragonfly(g=5)", "torus(dims=4x4)"])
def test_no_shortest_path_inside_a_site_leads_over_its_border(site: str) -> None:
    alone = topology(nested(site)).build()
    length = dict(nx.all_pairs_shortest_path_length(router_graph(alone)))
    inside = router_graph(MultiDc(site=site).build()).subgraph([f"s1{s.name}" for s in alone.switches] + ["s1border"])
    edges = sorted({alone.switch_of(h.name) for h in alone.hosts})
    for a, b in combinations(edges, 2):
        paths = list(nx.all_shortest_paths(inside, f"s1{a}", f"s1{b}"))
        assert {len(path) - 1 for path in paths} == {length[a][b]}
        assert not any("s1border" in path for path in paths)


@pytest.mark.parametrize(
    ("site", "switches"),
    [
        ("spine-leaf", ["spine1", "spine2"]),
        ("ocs-leaf:spines=1", ["spine1"]),
        ("ocs-leaf:leaves=2", ["leaf1", "leaf2"]),
        ("dragonfly", ["g1r1", "g1r2", "g1r3", "g1r4"]),
        ("torus", ["x1y1", "x1y2"]),
    ],
)
def test_a_border_joins_the_top_tier_or_routers_that_are_all_joined(site: str, switches: list[str]) -> None:
    assert border_switches(topology(site).build()) == switches


@pytest.mark.parametrize(
    ("spec", "links"),
    [
        ("sites=2", 2),
        ("sites=4,links_per_pair=1,site=spine-leaf(spines=4)", 4),
        ("sites=2,rate_mbps=100000", 0.5),
        ("sites=2,links_per_pair=9", 2),
        ("sites=2,links_per_pair=3,site=dragonfly(g=8)", 3),
    ],
)
def test_bisection_is_the_long_haul_or_the_uplinks_to_it(spec: str, links: float) -> None:
    t = topology(f"multi-dc:{spec}")
    fabric = t.build()
    names = [h.name for h in fabric.hosts]
    assert t.closed_form().bisection_links == links
    assert max_flow(fabric, names[: len(names) // 2], names[len(names) // 2 :]) == links * 400_000


@pytest.mark.parametrize(
    "spec", ["sites=3", "sites=2,links_per_pair=8,site=spine-leaf(spines=8;leaves=2;hosts_per_leaf=2)"]
)
def test_bisection_without_a_formula_is_not_stated(spec: str) -> None:
    t = topology(f"multi-dc:{spec}")
    assert t.closed_form().bisection_links is None and describe(t.build())["bisection_gbps"] is None


@pytest.mark.parametrize("site", SITES)
def test_sites_of_every_kind_conform(site: str) -> None:
    assert check_topology(topology(f"multi-dc:site={site}")) == []


def test_a_topology_within_one_is_read_from_its_text() -> None:
    t = topology("multi-dc:sites=3,site=spine-leaf(spines=1;leaves=2;hosts_per_leaf=8),delay_us=500")
    assert t == MultiDc(3, "spine-leaf(spines=1;leaves=2;hosts_per_leaf=8)", delay_us=500.0)
    fabric = t.build()
    assert (len(fabric.hosts), len(fabric.switches)) == (48, 3 * 4)
    assert Fabric.from_json(fabric.to_json()) == fabric


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("sites=1", "sites=1 is too small: use sites >= 2"),
        ("links_per_pair=0", "links_per_pair=0 is too small: use links_per_pair >= 1"),
        ("rate_mbps=0", "rate_mbps=0 is too small: a rate must be positive"),
        ("delay_us=-1", "delay_us=-1 is too small: use delay_us >= 0"),
        ("site=multi-dc", "site='multi-dc': a site cannot itself be multi-dc, use more sites"),
        ("site=torus(dims=4x4", "'torus(dims=4x4' is not a topology within one: write it as NAME or NAME(key=value;key=value)"),
        ("site=spine-leaf(spines=0)", "spines=0 with leaves=4 leaves the leaves unconnected: use spines >= 1, or leaves=1"),
        (
            "sites=49,site=spine-leaf(leaves=1024;hosts_per_leaf=1)",
            "49 sites of 2048 addresses each need 100352, 198.18.0.0/15 gives 98304: use fewer hosts",
        ),
    ],
)  # fmt: skip
def test_nonsense_is_refused_in_one_line(spec: str, text: str) -> None:
    with pytest.raises(Refused) as refused:
        topology(f"multi-dc:{spec}").build()
    assert str(refused.value) == text
