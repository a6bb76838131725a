"""Rules to OpenFlow messages and back, by Ryu's own encoder and parser, without a switch."""

from typing import Any

import pytest

from controller import POLICIES, rules_of
from controller.flow import UDP
from controller.openflow import COOKIE, PROTOCOL, Undecodable, decode, decode_flow, encode, ofp, parser
from controller.rules import Bucket, Bundle, FlowRule, GroupRule, Match, Output, Step, SwitchRules, diff
from topologies.spine_leaf import SpineLeaf


def on_the_wire(step: Step) -> Any:
    """The message as a switch would read it."""
    message = encode(step)
    message.set_xid(1)
    message.serialize()
    return parser.msg_parser(PROTOCOL, message.version, message.msg_type, len(message.buf), 1, bytes(message.buf))


def as_stats(rule: FlowRule) -> Any:
    """What a switch reports about a rule that it was sent."""
    sent = on_the_wire(Step("add-flow", rule))
    return parser.OFPFlowStats(
        table_id=sent.table_id, priority=sent.priority, match=sent.match, instructions=sent.instructions, cookie=COOKIE
    )


@pytest.mark.parametrize("name", POLICIES)
def test_every_rule_survives_the_wire(name: str) -> None:
    rules = rules_of(POLICIES[name], SpineLeaf(spines=3).build(), frozenset({20}))
    for switch in rules.values():
        groups = [parser.OFPGroupMod(PROTOCOL, buckets=encode(Step("put-group", g)).buckets) for g in switch.groups]
        for group, ours in zip(groups, switch.groups, strict=True):
            group.group_id = ours.group_id
        decoded, strange = decode(map(as_stats, switch.flows), groups)
        assert decoded == switch and strange == []


def test_every_match_field_survives_the_wire() -> None:
    match = Match(3, "198.18.1.0/24", "198.18.0.1", UDP, 49152, 4791)
    rule = FlowRule(match, (Output(2),), 5, 1)
    assert decode_flow(as_stats(rule)) == rule


def test_a_bundle_is_what_open_vswitch_accepts() -> None:
    (instruction,) = on_the_wire(Step("add-flow", FlowRule(Match(), (Bundle(7, (2, None, 3)),)))).instructions
    (action,) = instruction.actions
    assert (action.algorithm, action.fields, action.basis) == (1, 3, 7)
    assert action.slaves == [2, 0xFEFF, 3]


def test_a_group_spells_out_what_ryu_would_default_to_zero() -> None:
    message = encode(Step("put-group", GroupRule(4, (Bucket(2), Bucket(3)))))
    message.serialize()
    assert message.command == 0x8000 and message.type == ofp.OFPGT_SELECT and message.group_id == 4
    assert [(b.weight, b.watch_port, b.watch_group) for b in message.buckets] == [
        (1, 2, ofp.OFPG_ANY),
        (1, 3, ofp.OFPG_ANY),
    ]


def test_commands_change_in_place_and_delete_only_what_is_ours() -> None:
    rule = FlowRule(Match(in_port=1), (Output(2),))
    assert on_the_wire(Step("add-flow", rule)).command == ofp.OFPFC_ADD
    assert on_the_wire(Step("modify-flow", rule)).command == ofp.OFPFC_MODIFY_STRICT
    deletion = on_the_wire(Step("delete-flow", rule))
    assert deletion.command == ofp.OFPFC_DELETE_STRICT
    assert (deletion.cookie, deletion.cookie_mask) == (COOKIE, 0xFFFF_FFFF_FFFF_FFFF)
    assert encode(Step("delete-group", GroupRule(4, (Bucket(2),)))).command == ofp.OFPGC_DELETE


def test_what_is_not_ours_is_told_apart() -> None:
    flood = parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, [parser.OFPActionPopVlan()])
    stats = parser.OFPFlowStats(table_id=0, priority=1, match=parser.OFPMatch(), instructions=[flood])
    with pytest.raises(Undecodable):
        decode_flow(stats)
    vlan = parser.OFPFlowStats(table_id=0, priority=1, match=parser.OFPMatch(vlan_vid=5), instructions=[])
    assert decode([stats, vlan], []) == (SwitchRules(), [stats, vlan])


def test_a_group_that_cannot_be_read_is_put_again() -> None:
    dead = parser.OFPBucket(weight=0, watch_port=0, watch_group=0, actions=[parser.OFPActionOutput(2)])
    desc = parser.OFPGroupDescStats(type_=ofp.OFPGT_SELECT, group_id=1, buckets=[dead])
    rules, _ = decode([], [desc])
    wanted = SwitchRules((), (GroupRule(1, (Bucket(2),)),))
    assert [str(s) for s in diff(rules, wanted)] == [
        "put-group group_id=1,type=select,bucket=weight:1,watch_port:2,actions=output:2"
    ]
