"""GraphML: ours survives a round trip and is read by networkx; others' is completed; what is no fabric is refused in a line."""

import time

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import POLICIES
from controller.conformance import check_policy
from topologies import TOPOLOGIES, TopologyError, topology
from topologies.dragonfly import Dragonfly
from topologies.graphml import from_graphml, to_graphml
from topologies.spine_leaf import SpineLeaf


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_registered_topology_survives_a_round_trip(name: str) -> None:
    fabric = TOPOLOGIES[name]().build()
    assert from_graphml(to_graphml(fabric)) == fabric


@given(
    st.integers(1, 4), st.integers(1, 5), st.integers(1, 9), st.integers(1, 3), st.floats(1e-3, 1e9), st.floats(0, 1e9)
)
def test_any_spine_leaf_of_any_rate_and_delay_survives(
    spines: int, leaves: int, hosts_per_leaf: int, links_per_pair: int, rate_mbps: float, delay_us: float
) -> None:
    fabric = SpineLeaf(spines, leaves, hosts_per_leaf, links_per_pair).build()
    fabric = fabric.with_links(rate_mbps=rate_mbps, delay_us=delay_us)
    assert from_graphml(to_graphml(fabric)) == fabric


def test_networkx_reads_ours_with_nodes_cables_and_attributes() -> None:
    """2 spines, 4 leaves with 4 hosts each, 2 cables for each of the 8 pairs of leaf and spine."""
    graph = nx.parse_graphml(to_graphml(topology("spine-leaf:links_per_pair=2").build()))
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (2 + 4 + 16, 16 + 2 * 8)
    assert graph.graph["name"] == "spine-leaf"
    assert graph.nodes["leaf3"] == {"role": "leaf", "dpid": 5, "prefix": "198.18.0.16/29", "group": 2}
    cables = graph.get_edge_data("leaf1", "spine1").values()
    assert {(c["kind"], c["rate_mbps"], c["delay_us"]) for c in cables} == {("scale-out", 400_000.0, 0.0)}
    assert sorted(c["ports"] for c in cables) == ["leaf1-eth5,spine1-eth1", "leaf1-eth6,spine1-eth2"]


def test_ours_passed_on_by_networkx_is_the_same_fabric() -> None:
    """networkx orders edges anew and may turn them around."""
    fabric = topology("spine-leaf:links_per_pair=2").build()
    passed_on = from_graphml("\n".join(nx.generate_graphml(nx.parse_graphml(to_graphml(fabric)))))
    assert passed_on.nodes == fabric.nodes
    assert {frozenset(x.ports) for x in passed_on.links} == {frozenset(x.ports) for x in fabric.links}


def test_a_large_fabric_is_written_and_read_in_seconds() -> None:
    """Balanced h=4: 1056 hosts."""
    fabric = Dragonfly(a=8, p=4, h=4, g=0).build()
    start = time.monotonic()
    assert len(from_graphml(to_graphml(fabric)).hosts) == 1056
    assert time.monotonic() - start < 5


# -- of others --------------------------------------------------------------------------------------------------------

FOREIGN = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns/graphml">
  <key attr.name="label" attr.type="string" for="node" id="d33"/>
  <graph edgedefault="undirected">
    <data key="d0">Ours</data>
    <node id="left"><data key="d33">New York</data></node>
    <node id="right"/>
    <node id="0"/> <node id="1"/> <node id="2"/> <node id="3"/>
    <edge source="left" target="right"/> <edge source="left" target="right"/>
    <edge source="0" target="left"/> <edge source="left" target="1"/>
    <edge source="2" target="right"/> <edge source="3" target="right"/>
  </graph>
</graphml>"""


def test_nodes_with_one_edge_are_hosts_and_the_rest_is_assigned() -> None:
    """Two hosts and a free address take a /30 each; ports count in the order of edges, a host's from 0, a switch's from 1."""
    fabric = from_graphml(FOREIGN)
    assert [(s.name, s.role, s.dpid, s.prefix) for s in fabric.switches] == [
        ("left", "switch", 1, "198.18.0.0/30"),
        ("right", "switch", 2, "198.18.0.4/30"),
    ]
    nics = [fabric.scale_out_port(h.name) for h in fabric.hosts]
    assert [(p.intf, p.ip) for p in nics] == [
        ("0-eth0", "198.18.0.1"),
        ("1-eth0", "198.18.0.2"),
        ("2-eth0", "198.18.0.5"),
        ("3-eth0", "198.18.0.6"),
    ]
    assert len({p.mac for p in nics}) == 4
    assert [p.number for p in fabric.ports_of("left")] == [1, 2, 3, 4]
    assert {(x.kind, x.rate_mbps, x.delay_us) for x in fabric.links} == {("scale-out", 400_000.0, 0.0)}


@pytest.mark.parametrize("name", POLICIES)
def test_policies_conform_on_a_fabric_of_others(name: str) -> None:
    assert check_policy(POLICIES[name], {"foreign": from_graphml(FOREIGN)}) == []


def test_networkx_writes_what_we_read() -> None:
    """A ring of 5 switches with 2 hosts each; roles, one rate and one port are given."""
    graph = nx.cycle_graph(5)
    nx.set_node_attributes(graph, "router", "role")
    graph.add_edges_from((s, f"h{s}-{i}") for s in range(5) for i in (1, 2))
    nx.set_node_attributes(graph, {n: "host" for n in graph if isinstance(n, str)}, "role")
    graph.edges[0, 1].update(rate_mbps=100, delay_us=2.5, ports="1-eth4")
    fabric = from_graphml("\n".join(nx.generate_graphml(graph)))
    assert (len(fabric.hosts), len(fabric.switches), len(fabric.links)) == (10, 5, 15)
    (link,) = (x for x in fabric.links if {x.a.node, x.b.node} == {"0", "1"})
    assert (link.rate_mbps, link.delay_us, link.here("1").number) == (100.0, 2.5, 4)
    assert [p.number for p in fabric.ports_of("1")] == [1, 2, 3, 4]


def document(body: str, keys: str = "", edgedefault: str = "undirected") -> str:
    return f'<graphml>{keys}<graph edgedefault="{edgedefault}">{body}</graph></graphml>'


def node(id_: str, **attributes: object) -> str:
    return f'<node id="{id_}">{"".join(f"<data key={k!r}>{v}</data>" for k, v in attributes.items())}</node>'


def edge(a: str, b: str, **attributes: object) -> str:
    data = "".join(f"<data key={k!r}>{v}</data>" for k, v in attributes.items())
    return f'<edge source="{a}" target="{b}">{data}</edge>'


def test_given_dpids_prefixes_and_ports_are_kept_and_not_given_out_again() -> None:
    """198.18.0.0/29 is taken: the blocks of 4 that it covers are skipped."""
    fabric = from_graphml(
        document(
            node("a") + node("b", dpid=1, prefix="198.18.0.0/29") + node("c")
            + "".join(node(f"h{i}", role="host") for i in (1, 2, 3))
            + edge("h1", "a") + edge("h2", "b", ports="b-eth2") + edge("h3", "c") + edge("a", "b") + edge("b", "c")
        )
    )  # fmt: skip
    assert [s.dpid for s in fabric.switches] == [2, 1, 3]
    assert [s.prefix for s in fabric.switches] == ["198.18.0.8/31", "198.18.0.0/29", "198.18.0.10/31"]
    assert [(x.a.number, x.b.number) for x in fabric.links if x.b.node == "b" or x.a.node == "b"] == [
        (0, 2), (2, 1), (3, 2),
    ]  # fmt: skip


def test_names_and_defaults_are_those_that_the_file_declares() -> None:
    """igraph calls nodes n0, n1, ... and writes their names as an attribute."""
    keys = (
        '<key id="k0" for="node" attr.name="name"/>'
        '<key id="k1" for="node" attr.name="role"><default>host</default></key>'
        '<key id="k2" for="edge" attr.name="rate_mbps"><default>25000</default></key>'
    )
    body = (
        node("n0", k0="tor", k1="leaf") + node("n1", k0="x") + node("n2", k0="y") + edge("n1", "n0") + edge("n2", "n0")
    )
    fabric = from_graphml(document(body, keys))
    assert [(n.name, n.role) for n in fabric.nodes] == [("tor", "leaf"), ("x", "host"), ("y", "host")]
    assert [x.rate_mbps for x in fabric.links] == [25_000.0, 25_000.0]


PAIR = node("s", role="leaf") + node("h", role="host")
REFUSED: dict[str, tuple[str | bytes, str]] = {
    "not XML": ("hosts: 4", "not GraphML: syntax error: line 1, column 0"),
    "another XML": ("<svg/>", "not GraphML of one graph: its root is <svg>, with 0 <graph> in it"),
    "an encoding that is none": (b'<?xml version="1.0" encoding="x"?><a/>', "not GraphML: unknown encoding: x"),
    "a hyperedge": (
        document(PAIR + "<hyperedge/>"),
        "not a fabric: there is <hyperedge> in its graph; only nodes and edges are read",
    ),
    "no hosts": (
        document(node("s", role="leaf")),
        "there are no hosts: give them role=host, or no node a role and each host one link",
    ),
    "nothing": (document(""), "there are no hosts: give them role=host, or no node a role and each host one link"),
    "a node without id": (document("<node/>"), "<node > has no id"),
    "an id twice": (document(PAIR + node("h")), "node h: its id is there twice"),
    "a name twice": (
        document(node("a", name="x", role="host") + node("b", name="x")),
        "node x is there 2 times: each needs a name of its own",
    ),
    "a name that no interface can have": (
        document(node("New York")),
        "node 'New York': a name has letters, digits, - and _ only, for interfaces are named after it",
    ),
    "a name too long for an interface": (
        document(node("s", role="leaf") + node("accelerator1", role="host") + edge("accelerator1", "s")),
        "interface name 'accelerator1-eth0' has 17 characters, the kernel allows 15: give accelerator1 a shorter name",
    ),
    "an edge to nowhere": (document(PAIR + edge("h", "leaf9")), "edge h-leaf9: there is no node 'leaf9'"),
    "an edge with one end": (document('<edge id="e7" source="s"/>'), "<edge e7 s> has no target"),
    "an edge to itself": (document(PAIR + edge("h", "s") + edge("s", "s")), "link s-s: both ends are at one node"),
    "a directed graph": (
        document(PAIR + edge("h", "s"), edgedefault="directed"),
        "edge h-s: is directed, which no cable is: save the graph as undirected",
    ),
    "two NICs": (
        document(PAIR + edge("h", "s") + edge("h", "s")),
        "node h: has 2 links to the network, a host has one NIC and so one link",
    ),
    "no NIC": (document(PAIR), "node h: has 0 links to the network, a host has one NIC and so one link"),
    "two hosts back to back": (
        document(node("a") + node("b") + edge("a", "b")),
        "link a-b: joins two hosts, a host is joined to a switch",
    ),
    "an unknown kind": (
        document(PAIR + edge("h", "s", kind="copper")),
        "link h-s: unknown kind 'copper': choose from circuit, global, local, scale-out, scale-up",
    ),
    "a rate that is no number": (
        document(PAIR + edge("h", "s", rate_mbps="400G")),
        "link h-s: rate_mbps='400G' must be a number",
    ),
    "an infinite rate": (document(PAIR + edge("h", "s", rate_mbps="inf")), "link h-s: rate_mbps='inf' must be a number"),
    "no rate": (
        document(PAIR + edge("h", "s", rate_mbps=0)),
        "link h-s has rate 0 Mbit/s: a rate must be positive",
    ),
    "a negative delay": (
        document(PAIR + edge("h", "s", delay_us=-1)),
        "link h-s has delay -1 us: a delay cannot be negative",
    ),
    "a dpid that is no number": (document(node("s", dpid="one")), "node s: dpid='one' must be a whole number"),
    "a dpid twice": (
        document(PAIR + node("t", dpid=7) + node("u", dpid=7) + edge("h", "s")),
        "datapath id 0x7 is used twice, by t and u: each must be unique",
    ),
    "port 0 of a switch": (
        document(PAIR + edge("h", "s", ports="s-eth0")),
        "link h-s: port 0 at s must be from 1 to 65280",
    ),
    "a port of neither end": (
        document(PAIR + edge("h", "s", ports="leaf-eth1")),
        "link h-s: ports='leaf-eth1' must be like h-eth0,s-eth1, or left out",
    ),
    "a port twice": (
        document(PAIR + node("t") + edge("h", "s", ports="s-eth1") + edge("s", "t", ports="s-eth1")),
        "interface name 's-eth1' is used twice, by s and s: each must be unique",
    ),
    "a prefix of another network": (
        document(node("s", prefix="10.0.0.0/8")),
        "node s: prefix='10.0.0.0/8' must be an IPv4 prefix within 198.18.0.0/15, or left out",
    ),
    "a prefix that is none": (
        document(node("s", prefix="leaf")),
        "node s: prefix='leaf' must be an IPv4 prefix within 198.18.0.0/15, or left out",
    ),
    "prefixes that overlap": (
        document(PAIR + node("b", prefix="198.18.0.0/24") + node("a", prefix="198.18.0.64/30")),
        "node a: its prefix 198.18.0.64/30 overlaps 198.18.0.0/24 of b",
    ),
    "a prefix too small": (
        document(node("s", prefix="198.18.0.0/32") + node("h", role="host") + edge("h", "s")),
        "node s: its prefix 198.18.0.0/32 has too few addresses for its hosts",
    ),
    "parameters that are none": (
        document('<data key="parameters">k=4</data>' + PAIR),
        "parameters of the graph: 'k=4' must be a JSON object, or left out",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_fabric_is_refused_in_one_line(case: str) -> None:
    text, says = REFUSED[case]
    with pytest.raises(TopologyError) as refused:
        from_graphml(text)
    assert str(refused.value) == says
