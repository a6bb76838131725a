"""The fake data plane: it finds a packet's way, and says why one does not arrive."""

import time

import pytest

from controller import policy, rules_of
from controller.actions import GotoTable, Multipath, Output, SetField
from controller.dataplane import DataPlane, Dropped, Hairpin, Loop, Unpredictable, path, paths
from controller.flow import ICMP, TCP, UDP, Flow, Packet
from controller.match import Match
from controller.ovs_hash import choose, hash_2words, symmetric_l3l4_udp
from controller.rules import FlowRule, SwitchRules
from tests.unit.controller_fabrics import address, link_between
from topologies.spine_leaf import SpineLeaf

FABRIC = SpineLeaf(spines=2, leaves=2, hosts_per_leaf=2).build()
RULES = rules_of(policy("single-path"), FABRIC)
FLOW = Flow(address(FABRIC, "h1"), address(FABRIC, "h4"), UDP, 49152, 4791)


def test_a_path_is_the_egress_ports_from_the_hosts_nic_on() -> None:
    assert [p.intf for p in path(FABRIC, RULES, FLOW)] == ["h1-eth0", "leaf1-eth3", "spine1-eth2", "leaf2-eth2"]
    below_one_leaf = Flow(address(FABRIC, "h1"), address(FABRIC, "h2"))
    assert [p.intf for p in path(FABRIC, RULES, below_one_leaf)] == ["h1-eth0", "leaf1-eth2"]


def test_select_groups_are_unpredictable_and_enumerated() -> None:
    rules = rules_of(policy("ecmp-group"), FABRIC)
    with pytest.raises(Unpredictable, match="chooses among ports 3, 4 at leaf1"):
        path(FABRIC, rules, FLOW)
    assert [[p.intf for p in way][1] for way in paths(FABRIC, rules, FLOW)] == ["leaf1-eth3", "leaf1-eth4"]
    # A bucket whose port is dead is left alone; one that is left can be predicted.
    down = frozenset({link_between(FABRIC, "leaf1", "spine1").index})
    assert path(FABRIC, rules, FLOW, down)[1].intf == "leaf1-eth4"


def replaced(switch: str, *rules: FlowRule) -> dict[str, SwitchRules]:
    return {**RULES, switch: SwitchRules(rules)}


TO_ALL = Match(ipv4_dst="198.18.0.0/15")


@pytest.mark.parametrize(
    ("rules", "error", "text"),
    [
        (replaced("leaf1"), Dropped, "no rule matches at leaf1"),
        (replaced("spine1", FlowRule(TO_ALL, (Output(1),))), Hairpin, "sent back out of port 1 at spine1"),
        (replaced("leaf1", FlowRule(TO_ALL, (Output(2),))), Dropped, "delivered to h2, which has address 198.18.0.2"),
        (replaced("leaf2", FlowRule(TO_ALL, (Output(2),))), Dropped, "to h4 with destination MAC 02:fa:b0:00:00:fe"),
    ],
)
def test_a_packet_that_does_not_arrive_says_where_and_why(
    rules: dict[str, SwitchRules], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        path(FABRIC, rules, FLOW)


def test_a_loop_is_seen() -> None:
    rules = {
        **RULES,
        "spine1": SwitchRules((FlowRule(TO_ALL, (Output(2),)),)),
        "leaf2": SwitchRules((FlowRule(TO_ALL, (Output(4),)),)),
        "spine2": SwitchRules((FlowRule(TO_ALL, (Output(1),)),)),
        "leaf1": SwitchRules((FlowRule(TO_ALL, (Output(3),)),)),
    }
    with pytest.raises(Loop, match="goes round in a loop at spine1"):
        path(FABRIC, rules, FLOW)


MARK = "02:00:00:00:00:77"


def test_a_packet_walks_the_tables_with_its_mac_and_registers() -> None:
    """leaf1 spreads over two spines by a register and marks the frame; leaf2 knows the mark and takes it off."""
    a, b = (Match(reg0=i) for i in range(2))
    last = RULES["leaf2"].lookup(Packet(FLOW, 3, FABRIC.gateway_mac))
    assert last
    rules = {
        **RULES,
        "leaf1": SwitchRules(
            (
                FlowRule(TO_ALL, (Multipath(1, 2), GotoTable(2))),
                FlowRule(a, (SetField("eth_dst", MARK), Output(3)), table=2),
                FlowRule(b, (SetField("eth_dst", MARK), Output(4)), table=2),
            )
        ),
        "leaf2": SwitchRules(
            (
                FlowRule(Match(eth_dst=MARK), (GotoTable(1),)),
                FlowRule(last.match, last.actions, table=1),
            )
        ),
    }
    plane = DataPlane(FABRIC, rules)
    flows = [Flow(FLOW.src_ip, FLOW.dst_ip, UDP, port, 4791) for port in range(20000, 20256)]
    seen = [plane.path(flow)[1].number for flow in flows]
    assert seen == [3 + symmetric_l3l4_udp(flow, 1) % 2 for flow in flows]
    assert abs(seen.count(3) - 128) <= 40  # five standard deviations


def test_a_table_without_a_rule_drops() -> None:
    with pytest.raises(Dropped, match="no rule matches in table 3 at leaf1"):
        path(FABRIC, replaced("leaf1", FlowRule(TO_ALL, (GotoTable(3),))), FLOW)


def test_dead_links_drop() -> None:
    down = frozenset({link_between(FABRIC, "leaf1", "spine1").index})
    with pytest.raises(Dropped, match="no live port"):
        path(FABRIC, RULES, FLOW, down)
    with pytest.raises(Dropped, match="the host's link is down at h1"):
        path(FABRIC, RULES, FLOW, frozenset({link_between(FABRIC, "h1", "leaf1").index}))
    with pytest.raises(Dropped, match="no host has the source address"):
        path(FABRIC, RULES, Flow("198.19.0.1", FLOW.dst_ip))


def test_the_host_gets_its_own_mac_from_the_gateway() -> None:
    nic = FABRIC.scale_out_port("h4")
    last = RULES["leaf2"].lookup(Packet(FLOW, 3, FABRIC.gateway_mac))
    assert last and SetField("eth_dst", nic.mac or "") in last.actions
    assert SetField("eth_src", FABRIC.gateway_mac) in last.actions


# -- Open vSwitch's hash. Values as computed by the C functions of lib/hash.h and lib/flow.c ------------------------


def test_hash_is_symmetric_and_sees_ports_of_tcp_and_udp_only() -> None:
    there = Flow("198.18.0.1", "198.18.0.9", UDP, 49152, 4791)
    back = Flow("198.18.0.9", "198.18.0.1", UDP, 4791, 49152)
    assert symmetric_l3l4_udp(there, 7) == symmetric_l3l4_udp(back, 7)
    assert symmetric_l3l4_udp(there, 7) != symmetric_l3l4_udp(there, 8)
    for proto, seen in ((TCP, True), (UDP, True), (ICMP, False)):
        a, b = (Flow("198.18.0.1", "198.18.0.9", proto, port, 4791) for port in (1, 2))
        assert (symmetric_l3l4_udp(a, 7) != symmetric_l3l4_udp(b, 7)) == seen


def test_hash_values() -> None:
    assert [hash_2words(i, 0x12345678) for i in range(3)] == [3668891472, 758179248, 1615600873]
    assert symmetric_l3l4_udp(Flow("198.18.0.1", "198.18.0.9", UDP, 49152, 4791), 7) == 1833889720


def test_the_choice_skips_the_dead_and_keeps_places() -> None:
    flows = [Flow("198.18.0.1", "198.18.0.9", UDP, port, 4791) for port in range(200)]
    for flow in flows:
        best = choose(flow, 7, [True] * 4)
        assert best is not None
        assert choose(flow, 7, [i != best for i in range(4)]) != best
        assert choose(flow, 7, [i in (best, 0) for i in range(4)]) == best
    assert choose(flows[0], 7, [False, False]) is None


def test_a_ring_over_512_hosts_is_quick() -> None:
    fabric = SpineLeaf(spines=16, leaves=32, hosts_per_leaf=16).build()
    rules = rules_of(policy("ecmp"), fabric)
    ends = [address(fabric, h.name) for h in fabric.hosts]
    begun = time.perf_counter()
    plane = DataPlane(fabric, rules)
    ways = [plane.path(Flow(a, b, UDP, 49152, 4791)) for a, b in zip(ends, ends[1:] + ends[:1], strict=True)]
    # 0.02 s on an idle machine; the bound leaves room for a busy one.
    assert time.perf_counter() - begun < 0.2
    assert {len(way) for way in ways} == {2, 4}
