"""Reducers and parameter servers: where they are plugged in, what that leaves as it was, and what algorithms gain by them."""

from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from controller import POLICIES, fits, rules_of
from controller.dataplane import DataPlane, Unpredictable
from controller.flow import UDP, Flow
from lab.planning.experiment import load
from lab.planning.forecast import forecast_of
from lab.planning.helpers import told
from lab.planning.plan import Plan, endpoints, plan
from lab.planning.roofline import Cut
from lab.planning.scale import Scale
from lab.planning.site import fabric_of
from tests.unit.controller_fabrics import two_rails
from topologies import TOPOLOGIES, Fabric, Refused, TopologyError, topology
from topologies.conformance import check_fabric
from topologies.describe import describe, describe_text
from topologies.drawing import place as place_boxes
from topologies.drawing import svg
from topologies.graphml import from_graphml, to_graphml
from topologies.helpers import with_helpers
from topologies.shaping import OCS_ROLE
from topologies.tiers import network_switches
from traffic import COLLECTIVES, HELPERS, Layout, TrafficError
from traffic.placement import PLACEMENTS, place

SPINE_LEAF = topology("spine-leaf").build()
# Without circuits, or over the scale-out network alone, the others are islands.
JOINED = [name for name in TOPOLOGIES if name not in ("rail-only", "ocs-leaf", "ocs-dragonfly")]


def small(name: str) -> Fabric:
    """In two of these the prefixes are as large as their switches' hosts need: helpers have addresses outside."""
    smaller = {
        "torus": "torus:dims=4x3",
        "dragonfly": "dragonfly:a=3,p=2,h=1,g=4",
        "spine-leaf": "spine-leaf:hosts_per_leaf=3",
    }
    return topology(smaller.get(name, name)).build()


def at_the_edge_and_on_top(fabric: Fabric) -> list[str]:
    """The switches of the first and of the last host, and in a fabric of tiers one that has none."""
    packet = [s.name for s in network_switches(fabric) if s.role != OCS_ROLE]
    ends = (fabric.switch_of(fabric.accelerators[i].name) for i in (0, -1))
    return list(dict.fromkeys((*ends, packet[0], packet[-1])))


def planned(**overrides: Any) -> Plan:
    return plan(load(None, {"min_bytes": "1G", "max_bytes": "1G"} | overrides))


# -- the fabric -------------------------------------------------------------------------------------------------------


def test_a_helper_at_a_leaf_and_one_at_a_spine_by_hand() -> None:
    """leaf1 has 198.18.0.0/29, ports 1 to 4 to its hosts and 5 and 6 to the spines; a spine has four leaves and no prefix.
    Nothing is given from the end of the hosts' range, 198.19.127.255."""
    fabric = with_helpers(SPINE_LEAF, ["leaf1", "spine2"], [800_000.0, 1_600_000.0], role="server", delay_us=2.0)
    low, high = fabric.helpers
    assert [(x.name, x.role, x.is_host) for x in (low, high)] == [
        ("server1", "server", True),
        ("server2", "server", True),
    ]
    assert [fabric.scale_out_port(x.name).ip for x in (low, high)] == ["198.18.0.5", "198.19.127.255"]
    assert [fabric.peer(fabric.scale_out_port(x.name)).intf for x in (low, high)] == ["leaf1-eth7", "spine2-eth5"]
    assert [(x.rate_mbps, x.delay_us) for x in fabric.links[-2:]] == [(800_000.0, 2.0), (1_600_000.0, 2.0)]
    assert len({port.mac for link in fabric.links for port in link.ports if port.mac}) == 18


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_nothing_else_changes_and_the_fabric_conforms(name: str) -> None:
    before = small(name)
    after = with_helpers(before, at_the_edge_and_on_top(before), 400_000.0)
    assert (after.nodes[: len(before.nodes)], after.links[: len(before.links)]) == (before.nodes, before.links)
    assert after.accelerators == before.accelerators
    n_helpers = len(at_the_edge_and_on_top(before))
    assert check_fabric(after) == []
    old, new = describe(before), describe(after)
    assert new["helpers"] == {"reducer": n_helpers} and not old["helpers"]
    same = old.keys() - {"graph", "helpers", "links"}
    assert {key: new[key] for key in same} == {key: old[key] for key in same}
    assert f"{n_helpers} reducers" in describe_text(new)
    for placement in PLACEMENTS:
        n = len(before.accelerators)
        assert place(after, n, placement, 3) == place(before, n, placement, 3)


@pytest.mark.parametrize(
    ("policy", "name"),
    [(policy, name) for policy in POLICIES for name in JOINED if fits(POLICIES[policy], small(name))],
)
def test_policies_lead_to_helpers_and_back(name: str, policy: str) -> None:
    fabric = small(name)
    fabric = with_helpers(fabric, at_the_edge_and_on_top(fabric), 400_000.0)
    assert fits(POLICIES[policy], fabric)
    plane = DataPlane(fabric, rules_of(POLICIES[policy], fabric))
    ends = [fabric.scale_out_port(x.name) for x in (*fabric.helpers, fabric.accelerators[-1])]
    for src, dst in permutations(ends, 2):
        with suppress(Unpredictable):
            path = plane.path(Flow(str(src.ip), str(dst.ip), UDP, 20_000, 4791))
            assert fabric.peer(path[-1]) == dst


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_drawings_show_them_beside_everything_else(name: str) -> None:
    fabric = small(name)
    fabric = with_helpers(fabric, at_the_edge_and_on_top(fabric), 400_000.0)
    boxes = place_boxes(fabric).boxes
    assert {helper.name for helper in fabric.helpers} <= boxes.keys()
    for helper in fabric.helpers:
        (left, top), (right, bottom) = boxes[helper.name].corners
        for other, box in boxes.items():
            (a, b), (c, d) = box.corners
            assert other == helper.name or right <= a or c <= left or bottom <= b or d <= top, (helper.name, other)
    assert f"reducer2 (reducer) on {fabric.switch_of('reducer2')}" in svg(fabric)


def test_a_file_keeps_them() -> None:
    """At a switch with a prefix: another has one assigned by whoever reads it."""
    fabric = with_helpers(SPINE_LEAF, ["leaf2", "leaf1"], 800_000.0)
    assert from_graphml(to_graphml(fabric)) == fabric
    assert Fabric.from_json(fabric.to_json()) == fabric


def test_names_and_addresses_in_use_are_passed_over() -> None:
    """A switch with hosts and without a prefix is routed to address by address."""
    once = with_helpers(two_rails(), ["rail1"], 1000.0)
    twice = with_helpers(once, ["rail1"], 1000.0)
    assert [x.name for x in twice.helpers] == ["reducer1", "reducer2"]
    assert [twice.scale_out_port(x.name).ip for x in twice.helpers] == ["198.19.127.255", "198.19.127.254"]
    assert [finding[:13] for finding in check_fabric(twice)] == ["not connected"]


@pytest.mark.parametrize(
    ("spec", "switch", "text"),
    [
        (
            "spine-leaf",
            "leaf9",
            "unknown switch for a reducer 'leaf9': choose from leaf1, leaf2, leaf3, leaf4, spine1, spine2",
        ),
        (
            "spine-leaf",
            "h1",
            "unknown switch for a reducer 'h1': choose from leaf1, leaf2, leaf3, leaf4, spine1, spine2",
        ),
        ("rail-only", "hb1", "unknown switch for a reducer 'hb1': choose from leaf1, leaf2, leaf3, leaf4"),
    ],
)
def test_refused_switches(spec: str, switch: str, text: str) -> None:
    with pytest.raises(TopologyError) as caught:
        with_helpers(topology(spec).build(), [switch], 1000.0)
    assert str(caught.value) == text


def test_a_full_prefix_sends_its_switch_s_helper_outside() -> None:
    """leaf2 has 198.18.0.4/30, whose .5 to .7 are its hosts'."""
    fabric = with_helpers(topology("spine-leaf:hosts_per_leaf=3").build(), ["leaf2"], 1000.0)
    assert fabric.scale_out_port("reducer1").ip == "198.19.127.255"
    assert check_fabric(fabric) == []


def test_a_policy_that_goes_by_groups_knows_no_address_outside_and_is_refused() -> None:
    """/30 has room for a router's three hosts, and no helper."""
    with pytest.raises(Refused) as caught:
        planned(topology="dragonfly:a=3,p=3,h=1,g=4", routing="valiant", algorithm="in-network")
    assert str(caught.value).startswith("policy 'valiant' does not fit fabric dragonfly: choose from adaptive, ecmp, ")
    assert planned(topology="dragonfly:a=3,p=3,h=1,g=4", routing="ecmp", algorithm="in-network").helpers


def test_an_address_outside_is_for_helpers_only() -> None:
    fabric = topology("spine-leaf:hosts_per_leaf=3").build()
    own = fabric.scale_out_port("h4")
    moved = [
        replace(link, a=replace(own, ip="198.19.127.255")) if link.a == own else
        replace(link, b=replace(own, ip="198.19.127.255")) if link.b == own else link
        for link in fabric.links
    ]  # fmt: skip
    found = check_fabric(replace(fabric, links=tuple(moved)))
    assert "h4 (198.19.127.255) is on leaf2, whose prefix 198.18.0.4/30 does not cover it" in found


def test_a_fabric_without_a_free_address_refuses_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topologies.helpers.spare_addresses", lambda _: iter(()))
    with pytest.raises(TopologyError) as caught:
        with_helpers(topology("spine-leaf:hosts_per_leaf=3").build(), ["leaf2"], 1000.0)
    assert str(caught.value) == (
        "spine-leaf leaves no address for a helper at leaf2: choose a switch whose prefix has one, or fewer hosts"
    )


def test_optical_switches_are_none_for_helpers() -> None:
    fabric = topology("ocs-leaf").build()
    optical = next(s.name for s in fabric.switches if s.role == OCS_ROLE)
    with pytest.raises(TopologyError, match="unknown switch for a reducer"):
        with_helpers(fabric, [optical], 1000.0)


# -- the plan ---------------------------------------------------------------------------------------------------------


def test_every_algorithm_with_helpers_says_what_they_are() -> None:
    found = set()
    for algorithms in COLLECTIVES.values():
        for name, algorithm in algorithms.items():
            try:
                schedule = algorithm(Layout(8, domains=((0, 1, 2, 3), (4, 5, 6, 7)), matrix=((1,) * 8,) * 8))
            except TrafficError:
                continue
            found |= {name} if schedule.n_ranks > schedule.n_members else set()
    assert found == set(HELPERS)


def test_reducers_stand_at_the_members_leaves_and_one_spine() -> None:
    """Four hosts below each of four leaves: a leaf's reducer hears four of them and the spine, that one four reducers."""
    p = planned(algorithm="in-network")
    assert (p.ranks, len(p.hosts), p.helpers) == (16, 21, tuple(f"reducer{i}" for i in range(1, 6)))
    assert [p.fabric.switch_of(h) for h in p.helpers] == ["leaf1", "leaf2", "leaf3", "leaf4", "spine1"]
    rates = [p.fabric.link_of(p.fabric.scale_out_port(h).intf).rate_mbps for h in p.helpers]
    assert rates == [5 * 400_000] * 4 + [4 * 400_000]
    up = {(a, b) for a, b, _ in p.schedule.connections}
    tree = {(r, 16 + r // 4) for r in range(16)} | {(16 + i, 20) for i in range(4)}
    assert up == tree | {(b, a) for a, b in tree}
    assert (p.algo_factor, p.nic_mbps, p.b_acc_mbps) == (1.875, 400_000, 400_000)
    assert [e.host for e in endpoints(p, p.fabric)] == [*(f"h{i}" for i in range(1, 17)), *p.helpers]


def test_every_link_of_the_tree_carries_the_buffer_once_each_way() -> None:
    """With frames of 8948 bytes in 9014 and an acknowledgement of 66 for every other frame; a reducer's own link has that of
    each of its four or five neighbours."""
    p, scale = planned(algorithm="in-network"), Scale(8000, 64)
    (size,) = p.sizes(scale)
    found = forecast_of(p, scale).prediction(size, scale)
    assert found is not None
    once = size.emulated_bytes * (9014 / 8948 + 66 / 8948 / 2)
    for intf, n in (("h1-eth0", 1), ("leaf1-eth3", 1), ("leaf3-eth5", 1), ("reducer1-eth0", 5), ("reducer5-eth0", 4)):
        assert found.bytes_by_intf[intf] == pytest.approx(n * once, rel=2e-3)
    assert found.bytes_by_intf.get("leaf1-eth6", 0) == 0


def test_busbw_above_the_link_rate_is_explained() -> None:
    """S / B where a ring needs 15/8 of it: 2^30 bytes at 50 GB/s. Eight chunks over four links one after the other take
    (8 + 3) / 8 of that at least, so busbw is 1.36 times the links' rate at most."""
    p, scale = planned(algorithm="in-network"), Scale(8000, 64)
    (size,) = p.sizes(scale)
    expected = forecast_of(p, scale)
    assert expected.roofline_s(size, scale) == pytest.approx(2**30 / 50e9)
    assert str(p.cut) == (
        "1 S / 400Gbit at each accelerator's NIC: reducers add up, so S leaves and enters once, and busbw may be 1.875 times "
        "the link rate"
    )
    found = expected.prediction(size, scale)
    assert found is not None
    seconds = scale.hardware_s(found.seconds)
    assert seconds / (2**30 / 50e9) * 8948 / 9014 * 1.03 >= 11 / 8
    assert 50e9 < 2**30 / seconds * 1.875 < 50e9 * 1.875 / (11 / 8) * 1.03


def test_one_server_is_n_squared_over_n_minus_one_times_the_ring() -> None:
    """Both phases are serial: 2 n S / B against 2 (n - 1) / n S / B."""
    scale, seconds = Scale(8000, 64), {}
    for algorithm in ("ring", "parameter-server"):
        p = planned(algorithm=algorithm, ranks=8)
        (size,) = p.sizes(scale)
        found = forecast_of(p, scale).prediction(size, scale)
        assert found is not None
        seconds[algorithm] = found.seconds
        assert algorithm == "ring" or (p.helpers, found.bottleneck) == (("server1",), "leaf1->server1")
    assert seconds["parameter-server"] / seconds["ring"] == pytest.approx(64 / 7, rel=0.1)


def test_more_servers_share_the_work() -> None:
    p = planned(algorithm="parameter-server", helpers_at="leaf1,leaf2,leaf3,leaf4", helper_rate="800Gbit", delay="1us")
    assert [p.fabric.switch_of(h) for h in p.helpers] == ["leaf1", "leaf2", "leaf3", "leaf4"]
    (size,) = p.sizes(Scale(8000, 64))
    received = p.schedule.received_per_rank(size.count)
    assert received[16:].tolist() == [16 * size.count / 4] * 4
    assert {(x.rate_mbps, x.delay_us) for x in p.fabric.links[-4:]} == {(800_000.0, 1.0)}
    # The collective's roofline stays the ring's: servers are hosts, nothing is added up inside the network.
    assert isinstance(p.cut, Cut) and p.cut.factor == 1.875


@pytest.mark.parametrize("topology", ["torus:hosts_per_router=2", *(name for name in JOINED if name != "torus")])
def test_in_network_has_a_tree_on_every_fabric_that_joins_its_hosts(topology: str) -> None:
    p = planned(algorithm="in-network", topology=topology, placement="random", ranks=8, seed=5)
    assert p.ranks == 8 and p.helpers
    assert p.schedule.sent_per_rank(1000)[:8].tolist() == [1000] * 8
    assert np.isfinite(p.load.frame_hops_per_s)


def test_a_fat_tree_has_a_reducer_where_ways_meet() -> None:
    """k = 4, all 16 hosts: eight edges, an aggregation switch in each of the four pods, one core."""
    p = planned(algorithm="in-network", topology="fat-tree:k=4")
    roles = [p.fabric.node(p.fabric.switch_of(h)).role for h in p.helpers]
    assert (roles.count("edge"), len(roles)) == (8, 13)
    assert roles[-1] == "core"


def test_stated_reducers() -> None:
    """A leaf without one sends to the nearest, the spine's; that adds up twelve hosts and a reducer."""
    p = planned(algorithm="in-network", helpers_at="spine1,leaf2")
    up = {(a, b) for a, b, _ in p.schedule.connections if a < b}
    assert up == {(r, 17 if r in range(4, 8) else 16) for r in range(16)} | {(16, 17)}
    assert [x.rate_mbps for x in p.fabric.links[-2:]] == [13 * 400_000, 5 * 400_000]


def test_describe_shows_them_too() -> None:
    assert len(fabric_of(load(None, {"algorithm": "in-network"})).helpers) == 5
    assert not fabric_of(load()).helpers


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (
            {"helpers_at": "leaf1"},
            (
                "--helpers-at is not for all_reduce by its own algorithm, which has no helpers: use it with --algorithm "
                "in-network or parameter-server"
            ),
        ),
        (
            {"helper_rate": "1Gbit", "algorithm": "ring"},
            (
                "--helper-rate is not for all_reduce by ring, which has no helpers: use it with --algorithm in-network or "
                "parameter-server"
            ),
        ),
        (
            {"helpers_at": "leaf1,leaf1", "algorithm": "in-network"},
            "in-network: the reducer at leaf1 would have nothing to add up: leave it out",
        ),
        (
            {"helpers_at": "leaf1,,leaf2"},
            "--helpers-at = 'leaf1,,leaf2' must be names with commas between them: write it like leaf1,spine1",
        ),
        (
            {"algorithm": "in-network", "topology": "rail-only"},
            (
                "in-network: no reducer is reached from every rank over the scale-out network: use --helpers-at with a switch "
                "that is, another --algorithm, or another --topology"
            ),
        ),
    ],
)
def test_refusals(overrides: dict[str, Any], text: str) -> None:
    with pytest.raises(Refused) as caught:
        planned(**overrides)
    assert str(caught.value) == text


def test_a_line_names_the_first_few() -> None:
    p = planned(algorithm="in-network", topology="fat-tree:k=4")
    assert told(p.fabric, p.helpers[:2]) == "reducer1 at edge1 (1.2Tbit), reducer2 at edge2 (1.2Tbit)"
    assert told(p.fabric, p.helpers).endswith("reducer6 at edge6 (1.2Tbit) and 7 more")
