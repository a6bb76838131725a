"""Rail-optimised, rail-only and superpod: rails, HB domains, and what is counted of each."""

from collections import Counter
from ipaddress import IPv4Address, IPv4Network
from itertools import combinations
from typing import Any

import pytest

from controller import POLICIES, fits, rules_of
from controller.dataplane import DataPlane, Dropped
from controller.flow import Flow
from lab.planning.experiment import load
from lab.planning.plan import plan
from lab.planning.scale import Scale
from tests.unit.fabric_graphs import max_flow_links
from topologies import Refused, TopologyError, topology
from topologies.conformance import check_topology
from topologies.describe import describe, describe_text
from topologies.drawing import svg
from topologies.host_routes import domain_ports
from topologies.rail_only import RailOnly
from topologies.rail_optimised import RailOptimised
from topologies.shaping import shapes
from topologies.superpod import SuperPod
from topologies.tiers import hb_domains, scale_out_links

RAILS = ("rail-optimised", "rail-only", "superpod")


@pytest.mark.parametrize(
    "spec",
    [
        "rail-optimised:servers=3,gpus_per_server=2,spines=3", "rail-optimised:gpus_per_server=1", "rail-only:servers=1",
        "rail-only:servers=5,gpus_per_server=3", "superpod:units=3,servers_per_unit=4,spines=2",
        "superpod:units=1,servers_per_unit=32,gpus_per_server=8,spines=4",
    ],
)  # fmt: skip
def test_rail_fabrics_conform_at_other_sizes(spec: str) -> None:
    assert check_topology(topology(spec)) == []


@pytest.mark.parametrize("name", RAILS)
def test_a_rail_is_one_local_rank_and_a_server_is_an_hb_domain(name: str) -> None:
    """By default 16 accelerators in four servers of four."""
    fabric = topology(name).build()
    servers = hb_domains(fabric)
    assert [len(server) for server in servers] == [4, 4, 4, 4]
    rank = {host: i for server in servers for i, host in enumerate(server)}
    on_leaf: dict[str, set[int]] = {}
    for host in fabric.hosts:
        on_leaf.setdefault(fabric.switch_of(host.name), set()).add(rank[host.name])
    assert {len(ranks) for ranks in on_leaf.values()} == {1}
    assert {fabric.node(host).group for host in servers[2]} == {2}


@pytest.mark.parametrize("name", RAILS)
def test_both_interfaces_have_addresses_of_their_own(name: str) -> None:
    fabric = topology(name).build()
    ports = [port for host in fabric.hosts for port in fabric.ports_of(host.name)]
    assert len({p.ip for p in ports} - {None}) == len({p.mac for p in ports} - {None}) == len(ports) == 32
    assert [p.intf for p in fabric.ports_of("s2g3")] == ["s2g3-eth0", "s2g3-eth1"]
    assert fabric.scale_out_port("s2g3").intf == "s2g3-eth0"
    assert [p.node for p in domain_ports(fabric, fabric.ports_of("s2g3")[1])] == ["s2g1", "s2g2", "s2g4"]


def test_what_is_inside_the_servers_is_counted_apart() -> None:
    """4 servers x 4 accelerators, 2 spines: the network is that of a spine-leaf with 4 leaves of 4 hosts."""
    d = describe(RailOptimised().build())
    same = describe(topology("spine-leaf").build())
    assert (d["hosts"], d["switches"], d["links"]) == (16, 6, {"scale-out": 24, "scale-up": 16})
    assert (d["scale_up_switches"], d["hb_domains"], d["hb_domain_size"]) == (4, 4, 4)
    assert (same["scale_up_switches"], same["hb_domains"], same["hb_domain_size"]) == (0, 0, None)
    for key in (
        "ports",
        "diameter",
        "mean_path",
        "bisection_gbps",
        "oversubscription",
        "transceivers",
        "cable_ends",
    ):
        assert d[key] == same[key], key
    # The rails' leaves are farther from a server than the switch of its rack: 16 AOC instead of 16 DAC.
    assert (d["cables"], same["cables"]) == ({"aoc": 16, "fibre": 8}, {"dac": 16, "fibre": 8})
    assert d["cost"] - same["cost"] == 16 * (800 - 100)


@pytest.mark.parametrize(
    ("units", "spines", "leaves", "leaf_spine"), [(1, 4, 8, 256), (2, 8, 16, 512), (4, 16, 32, 1024)]
)
def test_superpod_has_the_published_counts(units: int, spines: int, leaves: int, leaf_spine: int) -> None:
    """DGX SuperPOD reference architecture for DGX H100, compute fabric component counts: 32 servers and 8 leaves a unit;
    every switch has 64 ports, and half of a leaf's go up."""
    fabric = SuperPod(units, 32, 8, spines).build()
    roles = Counter(s.role for s in fabric.switches)
    assert roles == {"leaf": leaves, "spine": spines, "scale-up": 32 * units}
    assert len(scale_out_links(fabric)) == 256 * units + leaf_spine
    network = [s for s in fabric.switches if s.role != "scale-up"]
    assert {len(fabric.links_at(s.name)) for s in network} == {64}
    assert describe(fabric)["oversubscription"] == 1.0


def test_rail_only_saves_all_spines() -> None:
    """Wang et al.: what is left is one leaf per rail."""
    rail_only, rail_optimised = RailOnly(32, 8).closed_form(), RailOptimised(32, 8, spines=32).closed_form()
    assert (rail_only.switches, rail_optimised.switches) == (8, 40)
    assert rail_optimised.links - rail_only.links == 8 * 32


def test_figures_across_rails_that_nothing_joins_do_not_exist() -> None:
    d = describe(RailOnly().build())
    figures = ("diameter", "mean_path", "bisection_gbps", "oversubscription", "path_diversity")
    assert [d[key] for key in figures] == [None] * 5
    assert "oversubscription -\n" in describe_text(d)


@pytest.mark.parametrize("spec", ["rail-optimised", "rail-optimised:spines=4", "superpod"])
def test_bisection_is_the_least_max_flow_over_all_even_splits(spec: str) -> None:
    """Over the network alone. Hosts of one leaf are alike, so a split is how many of each leaf's are on one side."""
    t = topology(spec)
    fabric = t.build()
    below: dict[str, list[str]] = {}
    for host in fabric.hosts:
        below.setdefault(fabric.switch_of(host.name), []).append(host.name)
    n = len(next(iter(below.values())))
    counts = falling_numbers(n, len(below), len(fabric.hosts) // 2)
    halves = ([h for hosts, k in zip(below.values(), ks, strict=True) for h in hosts[:k]] for ks in counts)
    assert min(max_flow_links(fabric, half) for half in halves) == t.closed_form().bisection_links


def falling_numbers(most: int, places: int, total: int) -> list[tuple[int, ...]]:
    """Falling numbers from 0 to `most`, so many that they sum to `total`."""
    if places == 0:
        return [()] if total == 0 else []
    return [
        (first, *rest)
        for first in range(min(most, total) + 1)
        for rest in falling_numbers(first, places - 1, total - first)
    ]


# -- routing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [name for name, p in POLICIES.items() if fits(p, RailOptimised().build())])
def test_scale_up_switches_deliver_within_their_server_and_nowhere_else(policy: str) -> None:
    fabric = RailOptimised().build()
    plane = DataPlane(fabric, rules_of(POLICIES[policy], fabric))
    inside = {h.name: fabric.ports_of(h.name)[1].ip or "" for h in fabric.hosts}
    path = plane.path(Flow(inside["s1g1"], inside["s1g4"]))
    assert [p.node for p in path] == ["s1g1", "hb1"]
    for away in (inside["s2g1"], fabric.scale_out_port("s1g4").ip or ""):
        with pytest.raises(Dropped):
            plane.path(Flow(inside["s1g1"], away))


def test_rail_only_joins_exactly_the_accelerators_of_a_rail() -> None:
    fabric = RailOnly(servers=3, gpus_per_server=2).build()
    plane = DataPlane(fabric, rules_of(POLICIES["ecmp"], fabric))
    joined = set()
    for a, b in combinations([h.name for h in fabric.hosts], 2):
        ends = fabric.scale_out_port(a).ip or "", fabric.scale_out_port(b).ip or ""
        try:
            joined.add((a, b, len(plane.path(Flow(*ends)))))
        except Dropped:
            continue
    assert joined == {(f"s{i}g{r}", f"s{j}g{r}", 2) for i, j in ((1, 2), (1, 3), (2, 3)) for r in (1, 2)}


# -- a run ----------------------------------------------------------------------------------------------------------


def test_both_kinds_of_link_are_scaled_and_shaped() -> None:
    """400 and 3600 Gbit/s at rate_scale 8000; the NICs at half of it, the others as they are."""
    emulated = Scale(8000, 64).fabric(RailOptimised().build().with_links(rate_mbps=200_000, keep_scale_up=True))
    assert {(x.kind, x.rate_mbps) for x in emulated.links} == {("scale-out", 25.0), ("scale-up", 450.0)}
    shaped = shapes(emulated, 9000)
    assert set(shaped) == {p.intf for link in emulated.links for p in link.ports}
    assert (shaped["s1g1-eth0"].rate_mbps, shaped["s1g1-eth1"].rate_mbps) == (25.0, 450.0)


def planned(**overrides: Any) -> Any:
    return plan(load(None, {"min_bytes": "256M", "max_bytes": "1G"} | overrides))


def test_a_plan_counts_an_accelerators_nic_only() -> None:
    p = planned(topology="rail-optimised")
    assert (p.ranks, p.b_acc_mbps, p.nic_mbps) == (16, 400_000, 400_000)


@pytest.mark.parametrize("scale", ["auto", "1"])
def test_a_run_over_rails_that_nothing_joins_is_refused_with_the_first_pairs(scale: str) -> None:
    with pytest.raises(Refused) as refused:
        planned(topology="rail-only", algorithm="ring", scale=scale)
    assert str(refused.value) == (
        "all_reduce by ring has 4 of 16 pairs that the scale-out network of rail-only does not join, first s1g4 -> s2g1, "
        "s2g4 -> s3g1, s3g4 -> s4g1: use --algorithm hierarchical, halving-doubling, doubling-halving, "
        "recursive-doubling or rail-ring, or another --topology"
    )


@pytest.mark.parametrize(
    ("ranks", "pairs"),
    [
        (
            8,
            "2 of 8 pairs that the scale-out network of rail-only does not join, first s1g4 -> s2g1, s2g4 -> s1g1: use",
        ),
        # Four and one: back to the first rank it is one rail.
        (5, "1 of 5 pairs that the scale-out network of rail-only does not join, first s1g4 -> s2g1: use"),
    ],
)
def test_a_ring_round_two_servers_is_refused_with_every_pair_across_rails(ranks: int, pairs: str) -> None:
    with pytest.raises(Refused) as refused:
        planned(topology="rail-only:servers=2,gpus_per_server=4", algorithm="ring", ranks=ranks)
    assert pairs in str(refused.value)


def test_a_collective_without_a_schedule_for_rails_that_nothing_joins_is_refused() -> None:
    with pytest.raises(Refused, match=r"s3g4 -> s4g1: use another --topology, --placement or --collective$"):
        planned(topology="rail-only", collective="sendrecv")


def test_a_scale_up_rate_that_cannot_be_shaped_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        planned(topology="rail-optimised:hb_rate_gbps=3600", scale="1", link_rate="20Mbit")
    assert str(refused.value) == (
        "link s1g1-hb1: 3.6Tbit at rate_scale 1 is 3.6Tbit here, and a link can be shaped to 100kbit to 34Gbit: use --scale "
        "auto, or another --scale RATE[:SIZE], or --topology with another scale-up rate"
    )


# -- pictures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RAILS)
def test_servers_are_framed_with_their_scale_up_switch(name: str) -> None:
    fabric = topology(name).build()
    picture = svg(fabric)
    assert picture.count("<rect") == len(fabric.nodes)
    assert picture.count("<line") == len(fabric.links)
    units = {s.group for s in fabric.switches if s.role == "leaf"}
    assert picture.count("<path") == 4 + (len(units) if len(units) > 1 else 0)


def test_a_large_drawing_condenses_servers() -> None:
    picture = svg(SuperPod(4, 32, 8, 16).build())
    assert picture.count("<rect") == 16 + 32 + 128
    assert "8 hosts: s1g1 .. s1g8" in picture


# -- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("rail-optimised:spines=0", "spines=0 is too small: use spines >= 1"),
        ("rail-only:gpus_per_server=1", "gpus_per_server=1 is too small: use gpus_per_server >= 2"),
        ("rail-only:hb_rate_gbps=0", "hb_rate_gbps=0 must be positive: it is 3600 by default"),
        (
            "superpod:servers_per_unit=4,spines=3",
            "spines=3 do not get the same share of a leaf's 4 uplinks, one for each server of its unit: use a divisor of 4",
        ),
    ],
)
def test_what_cannot_be_realised_is_refused(spec: str, text: str) -> None:
    with pytest.raises(TopologyError) as refused:
        topology(spec)
    assert str(refused.value) == text


def test_scale_up_addresses_end_before_the_gateway() -> None:
    """2047 domains of 8 (16 addresses each) fill 198.19.128.0/17 but for the gateway's block."""
    fabric = RailOnly(2047, 8).build()
    last = fabric.ports_of("s2047g8")[1].ip
    assert last and IPv4Address(last) in IPv4Network("198.19.255.224/28")
    with pytest.raises(
        TopologyError, match=r"2048 HB domains of 8 accelerators are more than the 2047 that 198.19.128.0/17"
    ):
        RailOnly(2048, 8).build()
