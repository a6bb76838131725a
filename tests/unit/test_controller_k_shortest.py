"""k-shortest: its paths against all there are, how flows spread over them, failures, and paths too long for a label."""

from collections import Counter
from itertools import permutations
from math import sqrt

import networkx as nx
import pytest

from controller import POLICIES, policy, rules_of
from controller.conformance import check_policy
from controller.dataplane import DataPlane
from controller.flow import UDP, Flow, Packet
from controller.match import Match
from controller.policies.k_shortest import K
from tests.unit.controller_fabrics import address, jellyfish, link_between, ring
from tests.unit.fabric_graphs import router_graph
from topologies.fabric import Fabric, Link
from topologies.torus import Torus

TORUS = Torus("4x4").build()
JELLYFISH = jellyfish(8, 3)
NONE_DOWN = frozenset[int]()


def between_switches(fabric: Fabric) -> list[Link]:
    return [link for link in fabric.links if not any(fabric.node(p.node).is_host for p in link.ports)]


def flows(fabric: Fabric, a: str, b: str, n: int) -> list[Flow]:
    return [Flow(address(fabric, a), address(fabric, b), UDP, 20000 + i, 4791) for i in range(n)]


def ways(name: str, fabric: Fabric, asked: list[Flow], down: frozenset[int] = NONE_DOWN) -> list[tuple[str, ...]]:
    """The switches on every flow's way."""
    plane = DataPlane(fabric, rules_of(policy(name), fabric, down), down)
    return [tuple(port.node for port in plane.path(flow)[1:]) for flow in asked]


def simple_paths(fabric: Fabric, a: str, b: str, cutoff: int) -> list[tuple[str, ...]]:
    """All loopless paths of at most `cutoff` hops, shortest first."""
    found = nx.all_simple_paths(router_graph(fabric), fabric.switch_of(a), fabric.switch_of(b), cutoff)
    return sorted(map(tuple, found), key=len)


@pytest.mark.parametrize("destination", [host.name for host in TORUS.hosts[1:]])
def test_the_paths_are_the_shortest_of_all_that_there_are(destination: str) -> None:
    every = simple_paths(TORUS, "h1", destination, cutoff=5)
    used = set(ways("k-shortest", TORUS, flows(TORUS, "h1", destination, 300)))
    # Of equally long ones any will do.
    assert used <= set(every)
    assert sorted(map(len, used)) == [len(path) for path in every[:8]]


@pytest.mark.parametrize("fabric", [TORUS, JELLYFISH], ids=["torus", "jellyfish"])
def test_neighbours_have_eight_paths_where_ecmp_has_one(fabric: Fabric) -> None:
    a, b = (p.node for p in between_switches(fabric)[0].ports)
    hosts = [next(h.name for h in fabric.hosts if fabric.switch_of(h.name) == switch) for switch in (a, b)]
    asked = flows(fabric, hosts[0], hosts[1], 300)
    assert (len(set(ways("ecmp", fabric, asked))), len(set(ways("k-shortest", fabric, asked)))) == (1, 8)


def test_every_path_gets_its_share_of_flows() -> None:
    n = 1600
    counts = Counter(ways("k-shortest", TORUS, flows(TORUS, "h1", "h11", n)))
    band = 4.5 * sqrt(n * (1 / K) * (1 - 1 / K))  # binomial, 4.5 standard deviations
    assert len(counts) == K and all(abs(count - n / K) <= band for count in counts.values())


def test_a_random_graph_conforms() -> None:
    assert check_policy(POLICIES["k-shortest"], {"jellyfish": jellyfish(7, 4)}) == []


def test_every_path_of_every_pair_survives_every_failure() -> None:
    """Without loop, and never back out of the port it came in by: the walk raises on both."""
    fabric = jellyfish(6, 3)
    asked = [flow for a, b in permutations((h.name for h in fabric.hosts), 2) for flow in flows(fabric, a, b, 12)]
    for link in between_switches(fabric):
        assert all(len(set(way)) == len(way) for way in ways("k-shortest", fabric, asked, frozenset({link.index})))


def test_a_failure_moves_only_the_flows_over_that_link() -> None:
    link = link_between(TORUS, "x1y1", "x1y2")
    asked = flows(TORUS, "h1", "h6", 300)
    before, after = (ways("k-shortest", TORUS, asked, down) for down in (NONE_DOWN, frozenset({link.index})))
    uses_it = [{"x1y1", "x1y2"} <= set(way) and abs(way.index("x1y1") - way.index("x1y2")) == 1 for way in before]
    assert any(uses_it) and not all(uses_it)
    assert all((a != b) == moved for a, b, moved in zip(before, after, uses_it, strict=True))
    # The two shortest are x1y1, x1y2, x2y2 and x1y1, x2y1, x2y2: the other one stays. 8 of the rest, by brute force.
    every = [way for way in simple_paths(TORUS, "h1", "h6", 6) if "x1y1, x1y2" not in ", ".join(way)]
    assert sorted(map(len, set(after))) == [len(way) for way in every[:8]]


def test_flows_share_what_paths_are_left() -> None:
    """On a ring there are two ways; a failure leaves one."""
    fabric = ring(5)
    asked = flows(fabric, "h0", "h2", 100)
    down = frozenset({link_between(fabric, "s0", "s1").index})
    assert set(ways("k-shortest", fabric, asked)) == {("s0", "s1", "s2"), ("s0", "s4", "s3", "s2")}
    assert set(ways("k-shortest", fabric, asked, down)) == {("s0", "s4", "s3", "s2")}


def test_a_path_too_long_for_a_label_is_the_shortest_one() -> None:
    """Ports 1 to 3 take two bits: 19 hops and an empty field fit into 40 bits."""
    fabric = ring(42, hosts_at=(0, 19, 21))
    assert set(map(len, ways("k-shortest", fabric, flows(fabric, "h0", "h19", 50)))) == {20}
    assert set(map(len, ways("k-shortest", fabric, flows(fabric, "h0", "h21", 50)))) == {22}


def test_a_mask_leaves_part_of_a_mac_open() -> None:
    match = Match(eth_dst="02:00:00:00:00:03/ff:00:00:00:00:07")
    packets = {
        mac: Packet(Flow("198.18.0.1", "198.18.0.2"), 1, mac) for mac in ("02:aa:00:00:00:0b", "02:00:00:00:00:04")
    }
    assert [match.covers(packet) for packet in packets.values()] == [True, False]
