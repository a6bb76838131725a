"""Fabrics with optical circuit switches: where the circuits' ports are, and that none counts as a path before it is set."""

from collections import Counter

import pytest

from controller.routing import adjacency
from tests.unit.fabric_graphs import max_flow
from topologies import Fabric, TopologyError, topology
from topologies.conformance import check_topology
from topologies.describe import describe, describe_text
from topologies.dragonfly import Dragonfly
from topologies.ocs_dragonfly import OcsDragonfly
from topologies.ocs_leaf import OcsLeaf
from topologies.shaping import OCS_ROLE, shaped_ports


def _ocs_ports(fabric: Fabric) -> list[Counter[int | None]]:
    """By optical switch: group -> the ports in which its cables end."""
    return [
        Counter(fabric.node(far.node).group for _, far, _ in fabric.neighbours(s.name))
        for s in fabric.switches
        if s.role == OCS_ROLE
    ]


def test_uplinks_are_even_over_the_optical_switches() -> None:
    fabric = OcsLeaf(leaves=6, uplinks=4, ocs=2).build()
    assert _ocs_ports(fabric) == [dict.fromkeys(range(6), 2)] * 2


@pytest.mark.parametrize("spec", ["ocs-leaf", "ocs-leaf:spines=2", "ocs-dragonfly"])
def test_circuits_and_only_circuits_end_in_an_optical_switch_and_are_not_routed_over(spec: str) -> None:
    fabric = topology(spec).build()
    optical = {s.name for s in fabric.switches if s.role == OCS_ROLE}
    assert len(optical) >= 2
    assert all((x.kind == "circuit") == bool(optical & {p.node for p in x.ports}) for x in fabric.links)
    assert not any(adjacency(fabric)[name] for name in optical)
    assert not optical & {p.node for p in shaped_ports(fabric)}


@pytest.mark.parametrize("spec", ["ocs-leaf", "ocs-dragonfly:a=2,h=1,p=1,g=3"])
def test_without_circuits_there_are_no_paths_to_describe(spec: str) -> None:
    t = topology(spec)
    d = describe(t.build(), t)
    figures = ("diameter", "mean_path", "bisection_gbps", "oversubscription", "path_diversity")
    assert [d[key] for key in figures] == [None] * len(figures)


def test_a_hybrid_has_the_paths_of_its_packet_spine() -> None:
    """Two spines under four leaves of four hosts: 2:1 and 2 paths, whatever the optical switches could add."""
    hybrid, packet = topology("ocs-leaf:spines=2"), topology("spine-leaf")
    figures = ("hosts", "diameter", "mean_path", "bisection_gbps", "oversubscription", "path_diversity")
    d, want = describe(hybrid.build(), hybrid), describe(packet.build(), packet)
    assert [d[key] for key in figures] == [want[key] for key in figures]
    assert (d["switches"], d["links"]) == (4 + 2 + 2, {"scale-out": 16 + 8, "circuit": 8})


def test_describe_says_how_many_circuits_can_be_set() -> None:
    t = topology("ocs-leaf:leaves=5,uplinks=2,ocs=2")
    assert "up to 4, set at run time" in describe_text(describe(t.build(), t))


@pytest.mark.parametrize(
    ("a", "h", "g", "ports"),
    [(4, 2, 9, [18] * 4), (8, 4, 33, [66] * 16), (4, 2, 5, [10] * 4), (3, 1, 4, [8, 4])],
)
def test_two_global_ports_of_every_group_end_in_each_optical_switch(a: int, h: int, g: int, ports: list[int]) -> None:
    t = OcsDragonfly(a, 1, h, g)
    fabric = t.build()
    held = _ocs_ports(fabric)
    assert [sum(count.values()) for count in held] == ports
    assert all(set(count.values()) == {total // g} for count, total in zip(held, ports, strict=True))
    circuits = [
        sum(x.kind == "circuit" for x in fabric.links_at(s.name)) for s in fabric.switches if s.role == "router"
    ]
    assert circuits == [h] * (a * g)


def test_the_relative_dragonfly_can_be_set_as_circuits() -> None:
    """Each of its global links: one port of each of its two routers, in one optical switch, no port used twice."""
    fabric = OcsDragonfly().build()
    free: dict[str, list[str]] = {
        s.name: [far.node for _, far, link in fabric.neighbours(s.name) if link.kind == "circuit"]
        for s in fabric.switches
        if s.role == "router"
    }
    for (i, r), (j, s) in Dragonfly(arrangement="relative").global_links():
        one, other = free[f"g{i + 1}r{r + 1}"], free[f"g{j + 1}r{s + 1}"]
        ocs = next(name for name in one if name in other)
        one.remove(ocs)
        other.remove(ocs)
    assert not any(free.values())


@pytest.mark.parametrize("spines", [1, 2, 4])
def test_hybrid_bisection_is_that_of_the_spines(spines: int) -> None:
    t = OcsLeaf(spines=spines)
    fabric = t.build()
    packet = Fabric(fabric.name, {}, fabric.nodes, tuple(x for x in fabric.links if x.kind != "circuit"))
    names = [h.name for h in fabric.hosts]
    assert max_flow(packet, names[:8], names[8:]) == (t.closed_form().bisection_links or 0) * 400_000


@pytest.mark.parametrize(
    "spec",
    ["ocs-leaf:spines=3", "ocs-leaf:leaves=16,uplinks=8,ocs=8", "ocs-dragonfly:g=0", "ocs-dragonfly:a=3,h=1,g=4",
     "ocs-dragonfly:a=8,p=4,h=4,g=33"],
)  # fmt: skip
def test_other_sizes_conform(spec: str) -> None:
    assert check_topology(topology(spec)) == []


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("ocs-leaf:uplinks=3", "uplinks=3 cannot be spread evenly over ocs=2: use a multiple of 2"),
        ("ocs-leaf:leaves=1", "leaves=1 is too small: use leaves >= 2"),
        ("ocs-leaf:ocs=0", "ocs=0 is too small: use ocs >= 1"),
        ("ocs-dragonfly:g=1", "g=1 is too small: use g >= 2"),
        (
            "ocs-dragonfly:g=10",
            "g=10 is too large: a=4 routers with h=2 global ports each reach 8 other groups, use g <= 9",
        ),
    ],
)
def test_nonsense_is_refused_in_one_line(spec: str, text: str) -> None:
    with pytest.raises(TopologyError) as refused:
        topology(spec)
    assert str(refused.value) == text
