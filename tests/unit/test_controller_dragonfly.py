"""Minimal and Valiant on dragonflies: ways, groups visited, shares, failures, and how few rules it takes."""

from collections import Counter
from collections.abc import Iterator
from itertools import permutations
from math import sqrt

import networkx as nx
import pytest

from controller import POLICIES, PolicyError, policy, policy_for, rules_of
from controller.dataplane import DataPlane
from controller.detour import CHOICE, DESTINATION, HALFWAY, ORIGIN
from controller.dragonfly import is_dragonfly
from controller.flow import UDP, Flow
from tests.unit.controller_fabrics import address, link_between, three_tier
from topologies.dragonfly import Dragonfly
from topologies.fabric import Fabric, Link, Port
from topologies.spine_leaf import SpineLeaf

BALANCED = Dragonfly(a=4, p=2, h=2, g=9).build()
# The smallest of each kind: pairs of routers, whose only local link splits the group; one router per group; several
# global links between two groups; two groups, with no third to go through; the other arrangement.
SMALL = {
    "pairs of routers": Dragonfly(a=2, p=1, h=1, g=3).build(),
    "five groups of two": Dragonfly(a=2, p=1, h=2, g=5).build(),
    "one router per group": Dragonfly(a=1, p=2, h=3, g=4).build(),
    "several global links": Dragonfly(a=2, p=1, h=2, g=3).build(),
    "two groups": Dragonfly(a=3, p=1, h=1, g=2).build(),
    "relative": Dragonfly(a=3, p=1, h=1, g=4, arrangement="relative").build(),
}


def flows(fabric: Fabric, n: int) -> Iterator[Flow]:
    """n flows between every two hosts."""
    ends = [address(fabric, host.name) for host in fabric.hosts]
    for a, b in permutations(ends, 2):
        yield from (Flow(a, b, UDP, 49152 + i, 4791) for i in range(n))


def visited(fabric: Fabric, way: list[Port]) -> list[int | None]:
    """The groups on the way, each once per visit."""
    groups = [fabric.node(port.node).group for port in way]
    return [group for i, group in enumerate(groups) if i == 0 or group != groups[i - 1]]


def between_routers(fabric: Fabric) -> list[Link]:
    return [link for link in fabric.links if link.kind in ("local", "global")]


def is_connected_without(fabric: Fabric, link: Link) -> bool:
    return bool(nx.is_connected(nx.Graph([(x.a.node, x.b.node) for x in fabric.links if x != link])))


@pytest.mark.parametrize("fabric", SMALL)
@pytest.mark.parametrize("name", ["minimal", "valiant", "ugal"])
def test_every_flow_arrives_before_and_after_every_failure(name: str, fabric: str) -> None:
    """Without loop, and never back out of the port it came in by: the walk raises on both."""
    chosen = SMALL[fabric]
    for link in (None, *between_routers(chosen)):
        if link is None or is_connected_without(chosen, link):
            down = frozenset({link.index} if link else ())
            plane = DataPlane(chosen, rules_of(policy(name), chosen, down), down)
            for flow in flows(chosen, 3):
                plane.path(flow)


def test_minimal_takes_three_links_at_most_one_of_them_global() -> None:
    plane = DataPlane(BALANCED, rules_of(policy("minimal"), BALANCED))
    lengths = Counter[int]()
    for flow in flows(BALANCED, 1):
        kinds = [BALANCED.link_of(port.intf).kind for port in plane.path(flow)[1:-1]]
        assert kinds.count("global") <= 1
        lengths[len(kinds)] += 1
    # From each router: itself, 3 in its group, 2 at the far ends of its own global links, 6 + 6 a local hop before or
    # after those, the other 18 both; 4 pairs of hosts for two routers, 2 for a router and itself; 36 routers.
    assert lengths == {0: 36 * 2, 1: 36 * 4 * (3 + 2), 2: 36 * 4 * (6 + 6), 3: 36 * 4 * 18}


def test_minimal_between_two_groups_has_one_global_link() -> None:
    plane = DataPlane(BALANCED, rules_of(policy("minimal"), BALANCED))
    group_of = {address(BALANCED, h.name): h.group for h in BALANCED.hosts}
    used = {
        port.intf
        for flow in flows(BALANCED, 1)
        if (group_of[flow.src_ip], group_of[flow.dst_ip]) == (3, 4)
        for port in plane.path(flow)[1:]
        if BALANCED.link_of(port.intf).kind == "global"
    }
    assert len(used) == 1


def test_valiant_goes_through_a_third_group_and_stays_at_home_within_one() -> None:
    plane = DataPlane(BALANCED, rules_of(policy("valiant"), BALANCED))
    group_of = {address(BALANCED, h.name): h.group for h in BALANCED.hosts}
    for flow in flows(BALANCED, 1):
        source, destination = group_of[flow.src_ip], group_of[flow.dst_ip]
        groups = visited(BALANCED, plane.path(flow))
        if source == destination:
            assert groups == [source]
        else:
            first, via, last = groups
            assert (first, last) == (source, destination) and via not in (source, destination)


@pytest.mark.parametrize("destination", ["h9", "h41", "h72"])
def test_valiant_spreads_evenly_over_all_other_groups(destination: str) -> None:
    """Over many ports and addresses, among them a destination in the group that stands in for the others: the last."""
    plane = DataPlane(BALANCED, rules_of(policy("valiant"), BALANCED))
    n = 2100
    counts = Counter(
        visited(BALANCED, plane.path(Flow(address(BALANCED, "h1"), address(BALANCED, destination), UDP, port, 4791)))[1]
        for port in range(20000, 20000 + n)
    )
    band = 4.5 * sqrt(n * (1 / 7) * (6 / 7))  # binomial, 4.5 standard deviations
    assert len(counts) == 7 and all(abs(count - n / 7) <= band for count in counts.values())


def test_valiant_avoids_a_group_it_cannot_leave_directly() -> None:
    """Else the packet might come back by the port it came in by."""
    link = next(x for x in BALANCED.links if {BALANCED.node(p.node).group for p in x.ports} == {2, 5})
    down = frozenset({link.index})
    plane = DataPlane(BALANCED, rules_of(policy("valiant"), BALANCED, down), down)
    to_group_5 = Flow(address(BALANCED, "h1"), address(BALANCED, "h41"), UDP, 0, 4791)
    ways = [
        visited(BALANCED, plane.path(Flow(to_group_5.src_ip, to_group_5.dst_ip, UDP, port, 4791)))
        for port in range(300)
    ]
    assert {tuple(way[1:-1]) for way in ways} == {(), (1,), (3,), (4,), (6,), (7,), (8,)}


def test_a_split_group_is_reached_router_by_router() -> None:
    """Two routers whose only local link is dead: the way from one to the other leads out of the group and back."""
    fabric = SMALL["pairs of routers"]
    down = frozenset({link_between(fabric, "g1r1", "g1r2").index})
    plane = DataPlane(fabric, rules_of(policy("minimal"), fabric, down), down)
    way = plane.path(Flow(address(fabric, "h1"), address(fabric, "h2")))
    assert visited(fabric, way)[0] == visited(fabric, way)[-1] == 0 and len(visited(fabric, way)) > 1


@pytest.mark.parametrize(("a", "p", "h"), [(4, 2, 2), (6, 3, 3)])
def test_rules_per_router_by_closed_formula(a: int, p: int, h: int) -> None:
    """Hosts and routers of the own group one by one, all others by group."""
    fabric, g = Dragonfly(a=a, p=p, h=h, g=0).build(), a * h + 1
    destination = p + (a - 1) + (g - 1)
    assert {len(r.flows) for r in rules_of(policy("minimal"), fabric).values()} == {destination}
    tables = {ORIGIN: 2 * p + 1, CHOICE: 2 * (g - 2), HALFWAY: g + 1, DESTINATION: destination}
    for rules in rules_of(policy("valiant"), fabric).values():
        assert Counter(flow.table for flow in rules.flows) == tables


def test_what_is_no_dragonfly_is_refused_with_what_fits() -> None:
    assert is_dragonfly(BALANCED) and not is_dragonfly(SpineLeaf().build()) and not is_dragonfly(three_tier())
    with pytest.raises(PolicyError) as refusal:
        policy_for("valiant", SpineLeaf().build())
    fitting = ", ".join(sorted(name for name in POLICIES if name not in ("minimal", "valiant", "ugal")))
    assert str(refusal.value) == f"policy 'valiant' does not fit fabric spine-leaf: choose from {fitting}"
    assert policy_for("valiant", BALANCED) is POLICIES["valiant"]
