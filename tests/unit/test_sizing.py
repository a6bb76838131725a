"""How large each fabric has to be: published counts, brute force over what could be built, and what is really built."""

from itertools import combinations_with_replacement, product
from math import prod

import pytest

from topologies import TOPOLOGIES, topology
from topologies.bill import bill
from topologies.describe import Distances
from topologies.errors import TopologyError
from topologies.shaping import OCS_ROLE
from topologies.sizing import SIZERS, Unreachable, Want, sized
from topologies.sizing.clos import Clos, moved_when_doubled
from topologies.tiers import network_switches


def counts(fabric: str, accelerators: int, radix: int, hb_domain: int = 8) -> tuple[int, int]:
    """(switches, cable ends)"""
    size = sized(fabric, Want(accelerators, radix, hb_domain))
    return size.switches, size.bill(400).cable_ends


def test_every_topology_is_sized() -> None:
    assert set(SIZERS) == set(TOPOLOGIES)


# -- published ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hb_domain", "radix", "any_to_any", "rail_only"),
    [
        (256, 64, (2560, 196_608), (1536, 131_072)),
        (256, 128, (1280, 196_608), (256, 65_536)),
        (256, 256, (384, 131_072), (128, 65_536)),
        # Rails of 4096: three tiers each at radix 64, as the whole needs; two at 128, 3 x 4096 / 128 switches a rail.
        (8, 64, (2560, 196_608), (2560, 196_608)),
        (8, 128, (1280, 196_608), (8 * 96, 131_072)),
        (8, 256, (384, 131_072), (384, 131_072)),
    ],
)
def test_rail_only_saving_for_32768_accelerators(
    hb_domain: int, radix: int, any_to_any: tuple[int, int], rail_only: tuple[int, int]
) -> None:
    """Wang et al., "Rail-only", HOTI 2024, whose accounting has two transceivers to every cable."""
    assert counts("rail-optimised", 32768, radix, hb_domain) == any_to_any
    assert counts("rail-only", 32768, radix, hb_domain) == rail_only


@pytest.mark.parametrize(("k", "hosts", "switches"), [(4, 16, 20), (6, 54, 45), (8, 128, 80), (48, 27_648, 2880)])
def test_a_full_fat_tree(k: int, hosts: int, switches: int) -> None:
    """Al-Fares et al., SIGCOMM 2008: k^3/4 hosts, 5 k^2/4 switches, 3 k^3/4 cables."""
    size = sized("fat-tree", Want(hosts, k))
    assert (size.hosts, size.switches, size.text) == (hosts, switches, f"fat-tree:k={k}")
    assert sum(size.cables.values()) == 3 * k**3 // 4


@pytest.mark.parametrize(("h", "hosts", "routers"), [(2, 72, 36), (4, 1056, 264), (8, 16_512, 2064)])
def test_the_largest_dragonfly_of_a_radix(h: int, hosts: int, routers: int) -> None:
    """Kim et al., ISCA 2008: a = 2p = 2h, radix 4h - 1, local and global links by formula."""
    size = sized("dragonfly", Want(hosts, 4 * h - 1))
    assert (size.hosts, size.switches, size.diameter) == (hosts, routers, 3)
    groups = 2 * h * h + 1
    assert size.cables == {
        "in-rack": hosts, "local": groups * h * (2 * h - 1), "global": groups * h * h,
    }  # fmt: skip


def test_four_units_of_a_superpod() -> None:
    """DGX SuperPOD H100 reference architecture: 4 units of 32 servers, 32 leaves, 16 spines, 64-port switches."""
    size = sized("superpod", Want(1024, 64))
    assert size.text == "superpod:units=4,servers_per_unit=32,gpus_per_server=8,spines=16"
    assert size.switches == 32 + 16


@pytest.mark.parametrize("radix", [8, 16, 64])
def test_a_full_clos_has_the_counts_of_its_formula(radix: int) -> None:
    """3 N / k switches and 4 N cable ends in two tiers, 5 N / k and 6 N in three."""
    two, three = radix**2 // 2, radix**3 // 4
    assert counts("spine-leaf", two, radix) == (3 * two // radix, 4 * two)
    assert counts("fat-tree", three, radix) == (5 * three // radix, 6 * three)


# -- brute force ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("radix", [4, 6, 7])
def test_no_spine_leaf_at_full_bisection_has_fewer_switches(radix: int) -> None:
    ways = [
        (leaves * hosts, leaves + spines)
        for leaves, spines, hosts, links in product(*[range(1, radix + 1)] * 4)
        if hosts <= spines * links and hosts + spines * links <= radix and leaves * links <= radix
    ]
    for accelerators in range(radix + 1, max(hosts for hosts, _ in ways) + 1):
        fewest = min(switches for hosts, switches in ways if hosts >= accelerators)
        assert sized("spine-leaf", Want(accelerators, radix)).switches == fewest


def test_no_balanced_dragonfly_has_fewer_routers() -> None:
    for accelerators in range(2, 300, 7):
        ways = [2 * h * g for h in (1, 2, 3) for g in range(2, 2 * h * h + 2) if 2 * h * h * g >= accelerators]
        assert sized("dragonfly", Want(accelerators, 12)).switches == min(ways)


def test_no_torus_of_that_shape_has_fewer_routers() -> None:
    boxes = [s for s in combinations_with_replacement(range(2, 15), 3) if s[2] <= 2 * s[0] and s[2] % 2 == 0]
    for accelerators in range(2, 600, 13):
        fewest = min(prod(s) for s in boxes if prod(s) >= accelerators)
        assert sized("torus", Want(accelerators, 7)).switches == fewest


@pytest.mark.parametrize("fabric", SIZERS)
@pytest.mark.parametrize(("radix", "hb_domain"), [(8, 4), (16, 4), (31, 8)])
def test_more_accelerators_never_need_fewer_switches(fabric: str, radix: int, hb_domain: int) -> None:
    before = 0
    for accelerators in range(2, 400, 9):
        try:
            size = sized(fabric, Want(accelerators, radix, hb_domain))
        except Unreachable:
            return
        assert size.hosts >= accelerators and size.radix <= radix
        assert size.switches >= before
        before = size.switches


# A torus of three dimensions, for which a router of 7 ports is enough, may be of any size.
WITH_A_MAXIMUM = [
    (fabric, radix, hb_domain)
    for fabric in SIZERS
    for radix, hb_domain in ((3, 1), (4, 2), (7, 2), (8, 4), (15, 4), (64, 8))
    if fabric != "torus" or radix < 7
]


@pytest.mark.parametrize(("fabric", "radix", "hb_domain"), WITH_A_MAXIMUM)
def test_the_stated_maximum_is_reached_and_not_passed(fabric: str, radix: int, hb_domain: int) -> None:
    most = _most(fabric, Want(10**7, radix, hb_domain))
    assert most is not None
    if most:
        assert sized(fabric, Want(most, radix, hb_domain)).hosts == most
    assert _most(fabric, Want(max(most + 1, 2), radix, hb_domain)) == most


def _most(fabric: str, want: Want) -> int | None:
    """None: it can be so large."""
    try:
        sized(fabric, want)
    except Unreachable as error:
        return error.most
    return None


# -- what is built --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fabric", SIZERS)
def test_what_is_built_has_the_counts_of_its_size(fabric: str) -> None:
    """Hosts, switches of both kinds, every part of the bill, the largest radix, and paths where circuits need not be set."""
    built = 0
    for accelerators, radix, hb_domain in product((16, 24, 32, 54, 72), (4, 6, 8, 12, 16), (2, 4, 8)):
        try:
            size = sized(fabric, Want(accelerators, radix, hb_domain))
        except Unreachable:
            continue
        if not size.buildable:
            continue
        made = topology(size.text).build()
        switches = network_switches(made)
        optical = [s for s in switches if s.role == OCS_ROLE]
        assert (len(made.hosts), len(switches)) == (size.hosts, size.switches + size.ocs)
        assert len(optical) == size.ocs
        assert bill(made).parts == size.bill(400).parts
        assert size.radix == max(len(made.links_at(s.name)) for s in switches if s not in optical)
        built += 1
    assert built


@pytest.mark.parametrize("fabric", [name for name in SIZERS if not name.startswith("ocs")])
def test_paths_and_bisection_are_those_of_what_is_built(fabric: str) -> None:
    for accelerators, radix in ((16, 8), (32, 8), (72, 7), (32, 12), (32, 16)):
        try:
            size = sized(fabric, Want(accelerators, radix, 4))
        except Unreachable:
            continue
        if not size.buildable:
            continue
        made = topology(size.text)
        distances, form = Distances(made.build()), made.closed_form()
        if distances.connected:
            assert size.diameter == distances.diameter
            assert size.path_diversity in (None, distances.path_diversity)
        # The closed form of a spine-leaf leaves the odd leaf out.
        if form.bisection_links is not None and getattr(made, "leaves", 2) % 2 == 0:
            assert size.bisection_links == form.bisection_links


# -- growing --------------------------------------------------------------------------------------------------------


def test_a_spine_leaf_without_spare_ports_moves_half_of_its_uplinks() -> None:
    """32 leaves with 2 cables to each of 16 spines become 64 leaves with one to each of 32."""
    assert sized("spine-leaf", Want(1024, 64)).moved == 512


def test_a_spine_leaf_with_spare_spine_ports_moves_nothing() -> None:
    assert moved_when_doubled(Clos(2, leaves=32, hosts_per_leaf=32, tops=32, trunk=1), radix=64) == 0


def test_a_full_two_tier_clos_cannot_double_in_two_tiers_and_moves_half_for_a_third() -> None:
    full = Clos(2, leaves=64, hosts_per_leaf=32, tops=32, trunk=1)
    assert moved_when_doubled(full, radix=64, most_tiers=2) is None
    assert moved_when_doubled(full, radix=64) == 64 * 32 // 2


def test_a_single_switch_keeps_half_of_its_hosts() -> None:
    assert moved_when_doubled(Clos(1, leaves=1, hosts_per_leaf=64), radix=64) == 32
    assert moved_when_doubled(Clos(1, leaves=1, hosts_per_leaf=20), radix=64) == 0


def test_rails_that_share_a_switch_part_when_they_double() -> None:
    """256 rails of 128, two to a switch of 256 ports: one of two leaves."""
    assert sized("rail-only", Want(32768, 256, 256)).moved == 128 * 128


def test_a_dragonfly_gives_links_of_old_pairs_to_new_ones() -> None:
    """h = 2, 4 groups: 8 global links each, 2 a pair; among 8 groups 1 a pair, so 1 of each of 6 pairs moves."""
    size = sized("dragonfly", Want(32, 7))
    assert (size.parameters["g"], size.moved) == (4, 6)


def test_the_largest_dragonfly_cannot_double_at_its_radix_and_is_built_anew_at_a_larger_one() -> None:
    assert sized("dragonfly", Want(72, 7)).moved is None
    size = sized("dragonfly", Want(6, 8))  # h = 1: a triangle of three pairs, and h = 2 fits 8 ports
    assert size.moved == 3 + 3


def test_circuits_move_instead_of_cables_while_an_ocs_has_ports() -> None:
    """68 groups of two ports each fill 136."""
    assert sized("ocs-dragonfly", Want(32, 7)).moved == 0
    assert sized("ocs-dragonfly", Want(34 * 128, 31)).moved == 0
    assert sized("ocs-dragonfly", Want(35 * 128, 31)).moved is None


def test_a_torus_cuts_the_rings_of_the_dimension_that_doubles() -> None:
    """4 x 4 x 4: 16 rings."""
    size = sized("torus", Want(64, 7))
    assert (size.text, size.moved) == ("torus:dims=4x4x4", 16)


# -- refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [((1, 64, 8), "--accelerators 1"), ((16, 1, 8), "--radix 1"), ((16, 64, 0), "--hb-domain 0")],
)
def test_a_size_that_cannot_be_meant_is_refused(arguments: tuple[int, int, int], wanted: str) -> None:
    with pytest.raises(TopologyError, match=wanted):
        Want(*arguments)


def test_an_unknown_fabric_lists_the_known_ones() -> None:
    with pytest.raises(TopologyError) as refusal:
        sized("clos", Want(16, 8))
    assert all(name in str(refusal.value) for name in SIZERS)
