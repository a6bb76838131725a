"""Rules to OpenFlow messages and back, by Ryu's own encoder and parser, without a switch."""

from typing import Any

import pytest

from controller import POLICIES, fits, rules_of
from controller.actions import Action, Bundle, ForgetInPort, GotoTable, Multipath, Output, SetField, ShiftLabel
from controller.changes import Step, diff
from controller.flow import UDP
from controller.match import Match
from controller.openflow import COOKIE, PROTOCOL, Undecodable, decode, decode_flow, encode, ofp, parser
from controller.rules import Bucket, FlowRule, GroupRule, SwitchRules
from topologies.dragonfly import Dragonfly
from topologies.fabric import Fabric
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


@pytest.mark.parametrize("fabric", [SpineLeaf(spines=3).build(), Dragonfly(a=3, p=1, h=1, g=4).build()])
@pytest.mark.parametrize("name", POLICIES)
def test_every_rule_survives_the_wire(name: str, fabric: Fabric) -> None:
    if not fits(POLICIES[name], fabric):
        return
    rules = rules_of(POLICIES[name], fabric, frozenset({20}))
    for switch in rules.values():
        groups = [parser.OFPGroupMod(PROTOCOL, buckets=encode(Step("put-group", g)).buckets) for g in switch.groups]
        for group, ours in zip(groups, switch.groups, strict=True):
            group.group_id = ours.group_id
        decoded, strange = decode(map(as_stats, switch.flows), groups)
        assert decoded == switch and strange == []


def test_every_match_field_survives_the_wire() -> None:
    for mac in ("02:00:00:00:00:01", "02:00:00:00:00:01/ff:00:00:00:00:0f"):
        match = Match(3, "198.18.1.0/24", "198.18.0.1", UDP, 49152, 4791, mac, 5, 0)
        rule = FlowRule(match, (Output(2),), 5, 1)
        assert decode_flow(as_stats(rule)) == rule


def test_a_pipeline_survives_the_wire() -> None:
    pipeline: list[tuple[Action, ...]] = [
        (GotoTable(1),),
        (Multipath(9, 7), Multipath(0xFFFF, 65536, 1), GotoTable(1)),
        (SetField("eth_dst", "02:00:00:00:00:01"), GotoTable(4)),
        (ShiftLabel(7), Output(3)),
        (ForgetInPort(), Output(3)),
    ]
    for actions in pipeline:
        rule = FlowRule(Match(ipv4_dst="198.18.0.0/15"), actions)
        assert decode_flow(as_stats(rule)) == rule


def test_a_multipath_is_what_open_vswitch_accepts() -> None:
    rule = FlowRule(Match(in_port=1), (Multipath(9, 7, 1), GotoTable(1)))
    apply, goto = on_the_wire(Step("add-flow", rule)).instructions
    (action,) = apply.actions
    # nicira-ext.h: symmetric_l3l4+udp is 3, NX_MP_ALG_MODULO_N 0; the last value is n - 1; all 32 bits of the register.
    assert (action.fields, action.algorithm, action.basis, action.max_link) == (3, 0, 9, 6)
    assert (action.dst, action.ofs_nbits, goto.table_id) == ("reg1", 31, 1)


def test_a_shifted_label_is_a_move_within_the_destination_mac() -> None:
    (apply,) = on_the_wire(Step("add-flow", FlowRule(Match(in_port=1), (ShiftLabel(4), Output(2))))).instructions
    move, _ = apply.actions
    # 40 bits, of which the 36 from bit 4 on go to bit 0.
    assert (move.src_field, move.src_ofs, move.dst_field, move.dst_ofs, move.n_bits) == ("eth_dst", 4, "eth_dst", 0, 36)
    assert str(ShiftLabel(4)) == "move:NXM_OF_ETH_DST[4..39]->NXM_OF_ETH_DST[0..35]"


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
