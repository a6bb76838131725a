"""Rules as data: they check themselves, sort, print as ovs-ofctl does, and differ in a safe order."""

import pytest

from controller.actions import Action, Bundle, DecTtl, GotoTable, Group, Multipath, Output, SetField
from controller.changes import Step, diff
from controller.flow import TCP, UDP, Flow, Packet
from controller.match import Match, RuleError
from controller.rules import Bucket, FlowRule, GroupRule, SwitchRules


def to(prefix: str, port: int, priority: int = 1000) -> FlowRule:
    return FlowRule(Match(ipv4_dst=prefix), (Output(port),), priority)


def test_a_rule_prints_as_ovs_ofctl_does() -> None:
    rule = FlowRule(
        Match(in_port=3, ipv4_dst="198.18.0.0/29", ip_proto=UDP, l4_dst=4791),
        (SetField("eth_dst", "02:00:00:00:00:01"), DecTtl(), Bundle(7, (1, None, 3))),
        1029,
    )
    assert str(rule) == (
        "table=0,priority=1029,in_port=3,ip,nw_dst=198.18.0.0/29,nw_proto=17,tp_dst=4791 actions="
        "set_field:02:00:00:00:00:01->eth_dst,dec_ttl,bundle(symmetric_l3l4+udp,7,hrw,ofport,members:1,vacant,3)"
    ).replace(",in_port=3,ip,", ",ip,in_port=3,")


def test_a_rule_of_a_pipeline_prints_as_ovs_ofctl_does() -> None:
    spread = FlowRule(Match(in_port=1), (Multipath(9, 7, 1), GotoTable(2)), 10)
    assert str(spread) == (
        "table=0,priority=10,in_port=1 actions=multipath(symmetric_l3l4+udp,9,modulo_n,7,0,NXM_NX_REG1[]),goto_table:2"
    )
    mark = FlowRule(Match(reg0=3, eth_dst="02:00:00:00:00:01", ipv4_dst="198.18.0.0/15"), (GotoTable(3),), 10, 1)
    assert str(mark) == (
        "table=1,priority=10,ip,reg0=3,dl_dst=02:00:00:00:00:01,nw_dst=198.18.0.0/15 actions=goto_table:3"
    )


def test_sets_of_rules_are_equal_whatever_their_order() -> None:
    a, b = to("198.18.0.0/29", 1), to("198.18.0.10", 2, 1032)
    assert SwitchRules((a, b)) == SwitchRules((b, a))
    assert SwitchRules((a, b)).flows == (b, a)


@pytest.mark.parametrize(
    ("actions", "groups", "hashes"),
    [
        ((Output(1),), (), False),
        ((Bundle(7, (1, None, 3)),), (), True),
        ((Bundle(7, (1, None, None)),), (), False),
        ((Multipath(9, 7, 1), GotoTable(2)), (), True),
        ((Multipath(9, 1, 1), GotoTable(2)), (), False),
        ((Group(5),), (GroupRule(5, (Bucket(1), Bucket(2))),), True),
        ((Group(5),), (GroupRule(5, (Bucket(1),)),), False),
    ],
)
def test_where_only_one_way_out_is_left_nothing_hashes(
    actions: tuple[Action, ...], groups: tuple[GroupRule, ...], *, hashes: bool
) -> None:
    assert SwitchRules((FlowRule(Match(), actions),), groups).hashes is hashes


def test_addresses_sort_as_numbers() -> None:
    rules = SwitchRules(tuple(to(f"198.18.0.{i}", i) for i in (10, 9, 100)))
    assert [f.match.ipv4_dst for f in rules.flows] == ["198.18.0.9", "198.18.0.10", "198.18.0.100"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Match(ipv4_dst="198.18.0.1/29"), "'198.18.0.1/29' is not an IPv4 address or prefix"),
        (lambda: Match(l4_dst=80), "a layer 4 port needs ip_proto"),
        (lambda: FlowRule(Match(), ()), "exactly one action must forward"),
        (lambda: FlowRule(Match(), (Output(1), Output(2))), "exactly one action must forward"),
        (lambda: FlowRule(Match(), (Output(1), DecTtl())), "it must be the last"),
        (lambda: FlowRule(Match(), (GotoTable(1), Output(1))), "exactly one action must forward"),
        (lambda: FlowRule(Match(), (GotoTable(1),), table=1), "goes on to later tables only"),
        (lambda: Multipath(1, 0), "multipath over 0 values"),
        (lambda: Multipath(0x10000, 2), "multipath basis 65536 is outside"),
        (lambda: Multipath(1, 2, register=2), "choose from 0..1"),
        (lambda: Bundle(1, (None, None)), "drops every packet"),
        (lambda: Bundle(0x10000, (1,)), "outside 0..65535"),
        (lambda: Bucket(1, weight=0), "weight 0"),
        (lambda: GroupRule(1, ()), "has no bucket"),
        (lambda: SwitchRules((to("198.18.0.1", 1), to("198.18.0.1", 2))), "rule given twice"),
        (lambda: SwitchRules((), (GroupRule(1, (Bucket(1),)),) * 2), "group given twice"),
        (lambda: SwitchRules().ports_of(Group(4)), "group 4 is used by a rule but"),
    ],
)
def test_what_no_switch_should_be_sent_is_refused(make: object, text: str) -> None:
    with pytest.raises(RuleError) as refusal:
        make()  # type: ignore[operator]
    assert text in str(refusal.value)


def test_lookup_takes_the_highest_priority_that_covers_the_packet() -> None:
    special = FlowRule(Match(ipv4_dst="198.18.0.0/24", ip_proto=TCP, l4_dst=80), (Output(3),), 2000)
    port_only = FlowRule(Match(in_port=9), (Output(4),), 3000)
    rules = SwitchRules((to("198.18.0.0/24", 1), to("198.18.0.1", 2, 1032), special, port_only))

    def port(flow: Flow, in_port: int = 1) -> object:
        rule = rules.lookup(Packet(flow, in_port, "02:00:00:00:00:01"))
        return rule and rule.end

    assert port(Flow("198.19.0.1", "198.18.0.1")) == Output(2)
    assert port(Flow("198.19.0.1", "198.18.0.2")) == Output(1)
    assert port(Flow("198.19.0.1", "198.18.0.1", TCP, 1, 80)) == Output(3)
    assert port(Flow("198.19.0.1", "198.18.0.1"), in_port=9) == Output(4)
    assert port(Flow("198.19.0.1", "198.18.1.1")) is None


def test_lookup_looks_in_one_table_at_mac_and_registers() -> None:
    mac = "02:00:00:00:00:01"
    by_mac = FlowRule(Match(eth_dst=mac), (Output(1),), 10, 1)
    by_register = FlowRule(Match(reg0=2, reg1=5), (Output(2),), 20, 1)
    rules = SwitchRules((by_mac, by_register, to("198.18.0.1", 3)))
    flow = Flow("198.19.0.1", "198.18.0.1")
    assert rules.lookup(Packet(flow, 1, mac), 1) == by_mac
    assert rules.lookup(Packet(flow, 1, mac, (2, 5)), 1) == by_register
    assert rules.lookup(Packet(flow, 1, "02:00:00:00:00:02", (2, 4)), 1) is None
    assert rules.lookup(Packet(flow, 1, mac)) == to("198.18.0.1", 3)


def test_diff_of_equal_rules_is_empty() -> None:
    rules = SwitchRules((to("198.18.0.1", 1),), (GroupRule(1, (Bucket(1),)),))
    assert diff(rules, rules) == []


def test_diff_puts_groups_before_their_flows_and_deletes_them_after() -> None:
    a, b, c = "198.18.0.0/29", "198.18.0.8/29", "198.18.0.16/29"
    one, two = GroupRule(1, (Bucket(1), Bucket(2))), GroupRule(2, (Bucket(3),))
    old = SwitchRules((to(a, 1), FlowRule(Match(ipv4_dst=b), (Group(1),))), (one,))
    new = SwitchRules((FlowRule(Match(ipv4_dst=a), (Group(2),)), to(c, 5)), (two,))
    assert diff(old, new) == [
        Step("put-group", two),
        Step("add-flow", to(c, 5)),
        Step("modify-flow", FlowRule(Match(ipv4_dst=a), (Group(2),))),
        Step("delete-flow", FlowRule(Match(ipv4_dst=b), (Group(1),))),
        Step("delete-group", one),
    ]


def test_a_changed_group_is_replaced_in_place() -> None:
    old = SwitchRules((FlowRule(Match(), (Group(1),)),), (GroupRule(1, (Bucket(1), Bucket(2))),))
    new = SwitchRules(old.flows, (GroupRule(1, (Bucket(2),)),))
    assert [step.operation for step in diff(old, new)] == ["put-group"]
