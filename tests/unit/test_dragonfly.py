"""The dragonfly against its published counts and arrangements, networkx's distances and cuts tried one by one."""

from collections import Counter
from ipaddress import IPv4Address, IPv4Network

import networkx as nx
import pytest

from tests.unit.fabric_graphs import max_flow, router_graph, worst_even_split
from topologies import Fabric, TopologyError, topology
from topologies.addressing import group_prefixes
from topologies.conformance import check_topology
from topologies.describe import describe
from topologies.dragonfly import ARRANGEMENTS, Dragonfly

BALANCED = [
    # h, hosts, routers, local and global links, radix: a = 2p = 2h, g = a h + 1
    (1, 6, 6, 3, 3, 3),
    (2, 72, 36, 54, 36, 7),
    (4, 1056, 264, 33 * 28, 33 * 32 // 2, 15),
    (8, 16512, 2064, 129 * 120, 129 * 128 // 2, 31),
]


def balanced(h: int, arrangement: str = "absolute") -> Dragonfly:
    return Dragonfly(a=2 * h, p=h, h=h, g=0, arrangement=arrangement)


@pytest.mark.parametrize(("h", "hosts", "routers", "local", "global_", "radix"), BALANCED)
def test_balanced_counts_are_the_published_ones(
    h: int, hosts: int, routers: int, local: int, global_: int, radix: int
) -> None:
    fabric = balanced(h).build()
    assert (len(fabric.hosts), len(fabric.switches)) == (hosts, routers)
    assert Counter(x.kind for x in fabric.links) == {"scale-out": hosts, "local": local, "global": global_}
    assert {len(fabric.links_at(s.name)) for s in fabric.switches} == {radix}


def test_the_default_is_the_balanced_one_of_72_hosts() -> None:
    assert Dragonfly() == Dragonfly(a=4, p=2, h=2, g=9) and len(Dragonfly().build().hosts) == 72


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize(
    ("a", "h", "g"), [(4, 2, 9), (4, 2, 2), (4, 2, 5), (4, 2, 6), (3, 1, 4), (6, 3, 11), (1, 4, 5)]
)
def test_every_pair_of_groups_has_the_same_number_of_links(arrangement: str, a: int, h: int, g: int) -> None:
    fabric = Dragonfly(a, 1, h, g, arrangement).build()
    ends = [[fabric.node(p.node).group for p in x.ports] for x in fabric.links if x.kind == "global"]
    joined = Counter(frozenset(pair) for pair in ends)
    assert set(joined.values()) == {a * h // (g - 1)}
    assert len(joined) == g * (g - 1) // 2


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize(("a", "h", "g"), [(4, 2, 9), (4, 2, 5), (4, 2, 6), (6, 3, 11), (8, 4, 33)])
def test_global_links_are_even_over_the_routers(arrangement: str, a: int, h: int, g: int) -> None:
    """g (g-1) m ends over a g routers, m = floor(a h / (g-1)); never more than a router has ports."""
    fabric = Dragonfly(a, 1, h, g, arrangement).build()
    held = [sum(x.kind == "global" for x in fabric.links_at(s.name)) for s in fabric.switches]
    used = a * h // (g - 1) * (g - 1)
    assert set(held) == {used // a, -(-used // a)} and max(held) <= h


def _far_groups(fabric: Fabric, router: str) -> set[int | None]:
    return {fabric.node(far.node).group for _, far, link in fabric.neighbours(router) if link.kind == "global"}


def test_absolute_routers_lead_to_the_groups_in_their_order() -> None:
    """Group 0 skips itself at once, group 4 in the middle, group 8 never meets itself."""
    fabric = Dragonfly().build()
    assert [_far_groups(fabric, f"g1r{r}") for r in (1, 2, 3, 4)] == [{1, 2}, {3, 4}, {5, 6}, {7, 8}]
    assert [_far_groups(fabric, f"g5r{r}") for r in (1, 2, 3, 4)] == [{0, 1}, {2, 3}, {5, 6}, {7, 8}]
    assert [_far_groups(fabric, f"g9r{r}") for r in (1, 2, 3, 4)] == [{0, 1}, {2, 3}, {4, 5}, {6, 7}]


def test_relative_routers_lead_to_the_groups_counted_from_their_own() -> None:
    fabric = Dragonfly(arrangement="relative").build()
    for i in range(9):
        want = [{(i + r) % 9, (i + r + 1) % 9} for r in (1, 3, 5, 7)]
        assert [_far_groups(fabric, f"g{i + 1}r{r}") for r in (1, 2, 3, 4)] == want


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize("h", [1, 2, 4])
def test_diameter_is_three(h: int, arrangement: str) -> None:
    t = balanced(h, arrangement)
    assert nx.diameter(router_graph(t.build())) == 3 == t.closed_form().diameter


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize(("a", "h", "g"), [(2, 1, 3), (2, 1, 2), (3, 1, 4), (4, 1, 3), (4, 2, 2), (5, 2, 2)])
def test_bisection_is_the_worst_split_of_all(arrangement: str, a: int, h: int, g: int) -> None:
    t = Dragonfly(a, 4, h, g, arrangement)
    assert t.closed_form().bisection_links == worst_even_split(t.build())


def test_an_even_split_reaches_the_stated_bisection() -> None:
    """Four groups, half of the fifth: 4 x 4 global and 2 x 2 local links carry 20 of 36 hosts' rate."""
    t = Dragonfly()
    names = [h.name for h in t.build().hosts]
    assert t.closed_form().bisection_links == 20
    assert max_flow(t.build(), names[:36], names[36:]) == 20 * 400_000


@pytest.mark.parametrize("spec", ["a=4,h=4,g=17", "a=4,h=2,g=3", "a=3,p=1,h=2,g=7"])
def test_bisection_without_a_formula_is_not_stated(spec: str) -> None:
    t = topology(f"dragonfly:{spec}")
    assert t.closed_form().bisection_links is None
    assert describe(t.build(), t)["bisection_gbps"] is None


@pytest.mark.parametrize(("a", "p", "g"), [(4, 2, 9), (3, 3, 4), (5, 1, 6), (1, 8, 3)])
def test_one_prefix_matches_a_group_and_nothing_else(a: int, p: int, g: int) -> None:
    fabric = Dragonfly(a, p, 2, g).build()
    networks = {group: IPv4Network(prefix) for group, prefix in group_prefixes(fabric).items()}
    assert list(networks) == list(range(g))
    for host in fabric.hosts:
        address = IPv4Address(fabric.scale_out_port(host.name).ip or "")
        assert [group for group, network in networks.items() if address in network] == [host.group]


@pytest.mark.parametrize("spec", ["g=0,arrangement=relative", "a=2,p=1,h=1,g=3", "a=1,g=3", "a=6,h=3,g=7", "g=1"])
def test_other_sizes_conform(spec: str) -> None:
    assert check_topology(topology(f"dragonfly:{spec}")) == []


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("a=0", "a=0 is too small: use a >= 1"),
        ("p=-1", "p=-1 is too small: use p >= 1"),
        ("h=0", "h=0 is too small: use h >= 1"),
        ("g=10", "g=10 is too large: a=4 routers with h=2 global ports each reach 8 other groups, use g <= 9"),
        ("arrangement=random", "unknown arrangement 'random': choose from absolute, relative"),
        (
            "a=32,p=16,h=16,g=0",
            "513 groups x 32 switches x 16 hosts need 525312 addresses, 198.18.0.0/15 gives 98304: use fewer hosts",
        ),
    ],
)
def test_nonsense_is_refused_in_one_line(spec: str, text: str) -> None:
    with pytest.raises(TopologyError) as refused:
        topology(f"dragonfly:{spec}").build()
    assert str(refused.value) == text
