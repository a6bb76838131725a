"""Routing over circuits: walked packet by packet, and compared with paths that networkx finds in the same graph."""

import random
from collections.abc import Callable, Iterator

import networkx as nx
import pytest

from controller.changes import diff
from controller.circuits.changing import CrossConnects
from controller.circuits.changing import rules_of as optical_rules
from controller.circuits.plan_file import circuits_from_texts
from controller.circuits.rotation import rotations
from controller.circuits.routing import Circuits, OverCircuits, Ways, edges_of
from controller.circuits.uplinks import uplinks
from controller.conformance import check_policy
from controller.dataplane import DataPlane, Dropped
from controller.flow import UDP, Flow
from controller.policy import rules_of
from controller.routing import attached
from controller.update import Rules, Stage, plan
from tests.unit.controller_fabrics import address
from tests.unit.test_controller_update import loops, mixtures
from topologies.fabric import Fabric
from topologies.ocs_dragonfly import OcsDragonfly
from topologies.ocs_leaf import OcsLeaf
from topologies.shaping import OCS_ROLE

PURE = OcsLeaf(leaves=6, hosts_per_leaf=1, uplinks=2, ocs=2).build()
HYBRID = OcsLeaf(leaves=4, hosts_per_leaf=1, uplinks=1, ocs=1, spines=2).build()
GROUPS = OcsDragonfly(a=2, p=1, h=1, g=3).build()


def circuits(fabric: Fabric, *texts: str) -> Circuits:
    return circuits_from_texts(texts, uplinks(fabric), "test")


def drawn(fabric: Fabric, seed: int) -> Circuits:
    """A random set of cross-connects, of which some inputs have none."""
    draw = random.Random(seed)
    made = {}
    for ocs in (s.name for s in fabric.switches if s.role == OCS_ROLE):
        ports = [port.number for port in fabric.ports_of(ocs)]
        targets = draw.sample(ports, len(ports))
        made[ocs] = {i: o for i, o in zip(ports, targets, strict=True) if i != o and draw.random() < 0.8}
    return made


def walk(fabric: Fabric, set_up: Circuits, source: str, target: str, down: frozenset[int] = frozenset()) -> list[str]:
    """The switches on the way of one flow from a host of the first switch to one of the second."""
    plane = DataPlane(fabric, rules_of(OverCircuits(set_up), fabric, down), down)
    hosts = {name: attached(fabric, name)[0][1].ip or "" for name in (source, target)}
    return [port.node for port in plane.path(Flow(hosts[source], hosts[target], UDP, 49152, 4791))][1:]


@pytest.mark.parametrize("fabric", [PURE, HYBRID, GROUPS], ids=lambda f: f.name)
@pytest.mark.parametrize("seed", range(4))
def test_every_pair_has_a_way_exactly_where_the_graph_has_one(fabric: Fabric, seed: int) -> None:
    """The oracle: networkx on the directed graph, a circuit weighing 1 and any other hop nothing."""
    set_up = drawn(fabric, seed)
    graph = nx.DiGraph()
    graph.add_nodes_from(s.name for s in fabric.switches if s.role != OCS_ROLE)
    for edge in edges_of(fabric, set_up):
        old = graph.get_edge_data(edge.switch, edge.peer, {"weight": 9})["weight"]
        graph.add_edge(edge.switch, edge.peer, weight=min(old, int(edge.is_circuit)))
    with_hosts = [s.name for s in fabric.switches if attached(fabric, s.name)]
    optical = {s.name for s in fabric.switches if s.role == OCS_ROLE}
    unreachable = set(Ways(fabric, set_up).unreachable)
    for a in with_hosts:
        weights = nx.single_source_dijkstra_path_length(graph, a)
        for b in (x for x in with_hosts if x != a):
            if weights.get(b, 99) <= 4:
                assert (a, b) not in unreachable
                n_circuits = sum(node in optical for node in walk(fabric, set_up, a, b))
                assert n_circuits == weights[b] or (n_circuits == 1 and weights[b] == 0 and graph.has_edge(a, b))
            else:
                assert (a, b) in unreachable
                with pytest.raises(Dropped, match="no rule matches"):
                    walk(fabric, set_up, a, b)


@pytest.mark.parametrize("seed", range(6))
def test_no_rule_points_to_a_port_without_a_circuit(seed: int) -> None:
    for fabric in (PURE, HYBRID, GROUPS):
        set_up = drawn(fabric, seed)
        rules = rules_of(OverCircuits(set_up), fabric)
        for its in uplinks(fabric).of:
            for uplink in its:
                if uplink.ocs_port not in set_up.get(uplink.ocs, {}):
                    assert uplink.port not in rules[uplink.switch].used_ports


def test_after_a_change_old_pairs_take_two_circuits_or_are_told_unreachable() -> None:
    """0-1 and 2-3 become 0-2 and 1-3: nobody sends into what is gone, and 0 to 1 has no way with one uplink."""
    fabric = OcsLeaf(leaves=4, hosts_per_leaf=1, uplinks=1, ocs=1).build()
    first, second = (
        circuits(fabric, *t) for t in (("leaf1 - leaf2", "leaf3 - leaf4"), ("leaf1 - leaf3", "leaf2 - leaf4"))
    )
    assert walk(fabric, first, "leaf1", "leaf2") == ["leaf1", "ocs1", "leaf2"]
    assert walk(fabric, second, "leaf1", "leaf3") == ["leaf1", "ocs1", "leaf3"]
    assert ("leaf1", "leaf2") in Ways(fabric, second).unreachable
    assert len(Ways(fabric, second).unreachable) == 4 * 3 - 4
    rules = [rules_of(OverCircuits(one), fabric) for one in (first, second)]
    assert [sum(len(r.flows) for r in one.values()) for one in rules] == [4 + 4 + 4] * 2


def test_several_circuits_in_a_row_up_to_the_limit() -> None:
    """A ring one way round over six leaves: the fifth next is five circuits away."""
    ring = circuits(PURE, *(f"leaf{i + 1}:2 > leaf{(i + 1) % 6 + 1}:2" for i in range(6)))
    assert walk(PURE, ring, "leaf1", "leaf5").count("ocs1") == 4
    assert ("leaf1", "leaf6") in Ways(PURE, ring).unreachable
    assert ("leaf1", "leaf6") not in Ways(PURE, ring, hop_limit=5).unreachable


def test_a_hybrid_takes_its_direct_circuit_and_packets_for_the_rest() -> None:
    set_up = circuits(HYBRID, "leaf1 - leaf2")
    assert walk(HYBRID, set_up, "leaf1", "leaf2") == ["leaf1", "ocs1", "leaf2"]
    assert walk(HYBRID, set_up, "leaf1", "leaf3")[1].startswith("spine")
    assert Ways(HYBRID, {}).unreachable == []


def test_parallel_circuits_share_the_flows() -> None:
    both = circuits(PURE, "leaf1:2 - leaf2:2", "leaf1:3 - leaf2:3")
    assert Ways(PURE, both).ports("leaf1", "leaf2") == (2, 3)
    plane = DataPlane(PURE, rules_of(OverCircuits(both), PURE))
    ends = address(PURE, "h1"), address(PURE, "h2")
    taken = [plane.path(Flow(*ends, UDP, 49152 + i, 4791))[1].number for i in range(200)]
    assert min(taken.count(2), taken.count(3)) > 70


def test_a_dead_cable_takes_its_circuit_with_it() -> None:
    both = circuits(PURE, "leaf1:2 - leaf2:2", "leaf1:3 - leaf2:3")
    dead = next(link.index for link in PURE.links if {p.node for p in link.ports} == {"leaf2", "ocs1"})
    assert Ways(PURE, both, frozenset({dead})).ports("leaf1", "leaf2") == (3,)


def test_a_dragonfly_goes_by_the_router_that_has_the_circuit() -> None:
    """Two routers a group, one circuit between the first two groups: local hop, circuit, local hop."""
    set_up = circuits(GROUPS, "g1r1 - g2r2")
    assert [n for n in walk(GROUPS, set_up, "g1r2", "g2r1") if n != "ocs1"] == ["g1r2", "g1r1", "g2r2", "g2r1"]


def test_optical_switches_have_their_cross_connects_and_nothing_else() -> None:
    set_up = circuits(PURE, "leaf1:2 - leaf2:2")
    rules = rules_of(OverCircuits(set_up), PURE)
    assert rules["ocs1"] == optical_rules({1: 2, 2: 1})
    assert rules["ocs2"] == optical_rules({})


def test_while_circuits_change_packets_are_sent_over_others_than_are_set() -> None:
    """`routed` keeps packets off circuits that are about to go, while the optical switch still holds them."""
    set_up = circuits(HYBRID, "leaf1 - leaf2")
    rules = rules_of(OverCircuits(set_up, routed={}), HYBRID)
    assert rules["ocs1"] == optical_rules({1: 2, 2: 1})
    lit = {uplink.port for uplink in uplinks(HYBRID).of[0]}
    assert not lit & rules["leaf1"].used_ports


@pytest.mark.parametrize("fabric", [PURE, HYBRID, GROUPS], ids=lambda f: f.name)
def test_it_conforms_as_every_policy_does(fabric: Fabric) -> None:
    for seed in range(2):
        assert check_policy(OverCircuits(drawn(fabric, seed)), {fabric.name: fabric}) == []


def paired(fabric: Fabric, seed: int) -> Circuits:
    """A random set of circuits that go both ways."""
    draw = random.Random(seed)
    made = {}
    for ocs in (s.name for s in fabric.switches if s.role == OCS_ROLE):
        ports = [port.number for port in fabric.ports_of(ocs)]
        draw.shuffle(ports)
        made[ocs] = {i: o for a, b in zip(ports[::2], ports[1::2], strict=False) for i, o in ((a, b), (b, a))}
    return made


def _fitting(new: CrossConnects, kept: CrossConnects) -> CrossConnects:
    """Those of the new that need no port of the kept."""
    return {i: o for i, o in new.items() if i not in kept and o not in kept.values()}


def partings(fabric: Fabric, draw: Callable[[Fabric, int], Circuits]) -> Iterator[tuple[Rules, Rules]]:
    """(before, after) of packet switches that leave circuits, of which they keep only some, or take to new ones."""
    for seed in range(2):
        old, new = draw(fabric, seed), draw(fabric, seed + 10)
        kept = {ocs: dict(list(its.items())[: len(its) // 4 * 2]) for ocs, its in old.items()}
        merged = {ocs: {**_fitting(new[ocs], its), **its} for ocs, its in kept.items()}
        for set_up, others in ((old, (old, kept)), (merged, (kept, merged))):
            before, after = (rules_of(OverCircuits(set_up, routed=one), fabric) for one in others)
            yield before, after


@pytest.mark.parametrize("fabric", [PURE, HYBRID, GROUPS], ids=lambda f: f.name)
def test_no_packet_circles_while_packet_switches_change(fabric: Fabric) -> None:
    for before, after in partings(fabric, paired):
        states = mixtures(before, plan(fabric, before, after))
        assert states[-1] == after
        assert [text for state in states for text in loops(fabric, state, frozenset())] == []


@pytest.mark.parametrize("fabric", [PURE, GROUPS], ids=lambda f: f.name)
def test_nor_where_circuits_go_one_way(fabric: Fabric) -> None:
    """One that is sent back where it came from is lost there, but does not circle."""
    for before, after in partings(fabric, drawn):
        states = mixtures(before, plan(fabric, before, after))
        assert [text for state in states for text in loops(fabric, state, frozenset()) if "sent back" not in text] == []


def broken_ring() -> tuple[Rules, Rules]:
    """Six leaves in a ring, then without the circuit between the first and the last: what went through it turns round."""
    ring = circuits(
        PURE, *(f"leaf{i}:2 - leaf{i + 1}:2" for i in (1, 3, 5)), "leaf2 - leaf3", "leaf4 - leaf5", "leaf6 - leaf1"
    )
    line = circuits(PURE, *(f"leaf{i}:2 - leaf{i + 1}:2" for i in (1, 3, 5)), "leaf2 - leaf3", "leaf4 - leaf5")
    before, after = (rules_of(OverCircuits(ring, one, hop_limit=5), PURE) for one in (ring, line))
    return before, after


def test_a_broken_ring_is_left_from_its_far_end() -> None:
    before, after = broken_ring()
    assert [x for state in mixtures(before, plan(PURE, before, after)) for x in loops(PURE, state, frozenset())] == []


def test_changing_all_packet_switches_at_once_would_loop() -> None:
    """Else the tests above would prove nothing."""
    before, after = broken_ring()
    at_once: Stage = {s: diff(before[s], after[s]) for s in before if before[s] != after[s]}
    assert any(loops(PURE, state, frozenset()) for state in mixtures(before, [at_once]))


def test_all_to_all_over_rotations_has_a_direct_circuit_for_every_pair_once() -> None:
    joined = uplinks(PURE)
    seen = []
    for matching in rotations(6):
        ways = Ways(PURE, joined.cross_connects([matching]))
        seen += [(a, b) for a in joined.ends for b in joined.ends if a != b and ways.ports(a, b)]
    assert len(seen) == len(set(seen)) == 6 * 5
