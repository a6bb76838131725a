"""Rules <-> OpenFlow 1.3 messages with Nicira's extensions. Needs no switch: `protocol` is `PROTOCOL` or a datapath.

Everything we install carries COOKIE, so that rules of somebody else (a user's `ovs-ofctl add-flow`) are neither read
nor touched.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Network
from typing import Any

from controller.actions import (
    LABEL_BITS,
    Action,
    Bundle,
    DecTtl,
    ForgetInPort,
    Forward,
    GotoTable,
    Group,
    Multipath,
    Output,
    SetField,
    ShiftLabel,
)
from controller.changes import Step
from controller.flow import SCTP, TCP, UDP
from controller.match import Match
from controller.rules import Bucket, FlowRule, GroupRule, SwitchRules
from controller.ryu_compat import ProtocolDesc, nicira_ext, ofproto_v1_3, ofproto_v1_3_parser

ofp, parser = ofproto_v1_3, ofproto_v1_3_parser

PROTOCOL = ProtocolDesc(ofp.OFP_VERSION)
COOKIE = 0xFAB0_0000_0000_0001
COOKIE_MASK = 0xFFFF_FFFF_FFFF_FFFF

_ETH_TYPE_IP = 0x0800
# nicira-ext.h: the hash fields symmetric_l3l4+udp, which Ryu has no name for, and the bundle algorithm HRW, for which
# Ryu's example gives multipath's number 2: Open vSwitch refuses that.
_NX_HASH_FIELDS_SYMMETRIC_L3L4_UDP = 3
_NX_BD_ALG_HRW = 1
# openflow-common.h: add the group or replace its buckets. An extension of Open vSwitch, in OpenFlow 1.1 and later.
_OFPGC_ADD_OR_MOD = 0x8000
# The last number an ordinary port can have (OFPP_MAX - 1). Open vSwitch takes a member that does not exist for dead.
# OFPP_NONE would not do: it counts as alive, and its packets are lost.
_VACANT = 0xFEFF
# Fields whose name and value are the same on both sides.
_PLAIN = ("in_port", "ip_proto", "reg0", "reg1")
_REGISTERS = ("reg0", "reg1")
_L4 = {TCP: "tcp", UDP: "udp", SCTP: "sctp"}

# -- encoding -------------------------------------------------------------------------------------------------------


def encode(step: Step, protocol: Any = PROTOCOL) -> Any:
    """One step as one Ryu message, not yet serialised."""
    if isinstance(step.rule, GroupRule):
        command = _OFPGC_ADD_OR_MOD if step.operation == "put-group" else ofp.OFPGC_DELETE
        return _group_mod(step.rule, command, protocol)
    command = {
        "add-flow": ofp.OFPFC_ADD,
        "modify-flow": ofp.OFPFC_MODIFY_STRICT,
        "delete-flow": ofp.OFPFC_DELETE_STRICT,
    }[step.operation]
    return _flow_mod(step.rule, command, protocol)


def _flow_mod(rule: FlowRule, command: int, protocol: Any) -> Any:
    deletes = command == ofp.OFPFC_DELETE_STRICT
    return parser.OFPFlowMod(
        datapath=protocol,
        cookie=COOKIE,
        # Also for a delete: a rule of somebody else with the same match is theirs.
        cookie_mask=COOKIE_MASK if deletes else 0,
        table_id=rule.table,
        command=command,
        priority=rule.priority,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        match=_match(rule.match),
        instructions=[] if deletes else list(_instructions(rule)),
    )


def _instructions(rule: FlowRule) -> Iterator[Any]:
    actions = [_action(a) for a in rule.actions if not isinstance(a, GotoTable)]
    if actions:
        yield parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions)
    if isinstance(rule.end, GotoTable):
        yield parser.OFPInstructionGotoTable(rule.end.table)


def _group_mod(rule: GroupRule, command: int, protocol: Any) -> Any:
    # Ryu's defaults are weight 0 and watch_port 0, with which Open vSwitch drops every packet: spell all out.
    buckets = [
        parser.OFPBucket(
            weight=b.weight, watch_port=b.port, watch_group=ofp.OFPG_ANY, actions=[_action(Output(b.port))]
        )
        for b in rule.buckets
    ]
    return parser.OFPGroupMod(
        datapath=protocol,
        command=command,
        type_=ofp.OFPGT_SELECT,
        group_id=rule.group_id,
        buckets=[] if command == ofp.OFPGC_DELETE else buckets,
    )


def _match(match: Match) -> Any:
    fields: dict[str, Any] = {name: getattr(match, name) for name in _PLAIN if getattr(match, name) is not None}
    if match.is_ip:
        fields["eth_type"] = _ETH_TYPE_IP
    for name in ("ipv4_src", "ipv4_dst"):
        prefix = getattr(match, name)
        if prefix is not None:
            address, slash, _ = prefix.partition("/")
            fields[name] = (address, str(IPv4Network(prefix).netmask)) if slash else address
    if match.eth_dst is not None:
        mac, slash, mask = match.eth_dst.partition("/")
        fields["eth_dst"] = (mac, mask) if slash else mac
    for side in ("src", "dst"):
        port = getattr(match, f"l4_{side}")
        if port is not None and match.ip_proto is not None:
            fields[f"{_L4[match.ip_proto]}_{side}"] = port
    return parser.OFPMatch(**fields)


def _action(action: Action) -> Any:
    return _ENCODERS[type(action)](action)


def _bundle(action: Bundle) -> Any:
    return parser.NXActionBundle(
        algorithm=_NX_BD_ALG_HRW,
        fields=_NX_HASH_FIELDS_SYMMETRIC_L3L4_UDP,
        basis=action.basis,
        slave_type=nicira_ext.NXM_OF_IN_PORT,
        n_slaves=len(action.ports),
        ofs_nbits=0,
        dst=0,
        slaves=[_VACANT if port is None else port for port in action.ports],
    )


def _multipath(action: Multipath) -> Any:
    return parser.NXActionMultipath(
        fields=_NX_HASH_FIELDS_SYMMETRIC_L3L4_UDP,
        basis=action.basis,
        algorithm=nicira_ext.NX_MP_ALG_MODULO_N,
        max_link=action.n - 1,
        arg=0,
        ofs_nbits=nicira_ext.ofs_nbits(0, 31),
        dst=f"reg{action.register}",
    )


def _shift_label(action: ShiftLabel) -> Any:
    return parser.NXActionRegMove(
        src_field="eth_dst",
        dst_field="eth_dst",
        n_bits=LABEL_BITS - action.n_bits,
        src_ofs=action.n_bits,
        dst_ofs=0,
    )


_ENCODERS: dict[type, Callable[[Any], Any]] = {
    SetField: lambda a: parser.OFPActionSetField(**{a.field: a.value}),
    DecTtl: lambda _: parser.OFPActionDecNwTtl(),
    Output: lambda a: parser.OFPActionOutput(a.port),
    Bundle: _bundle,
    Multipath: _multipath,
    ShiftLabel: _shift_label,
    ForgetInPort: lambda _: parser.NXActionRegLoad(nicira_ext.ofs_nbits(0, 31), "in_port", 0),
    Group: lambda a: parser.OFPActionGroup(a.group_id),
}

# -- asking a switch ------------------------------------------------------------------------------------------------


def flow_request(datapath: Any) -> Any:
    """Asks for the rules that carry our cookie."""
    return parser.OFPFlowStatsRequest(
        datapath, 0, ofp.OFPTT_ALL, ofp.OFPP_ANY, ofp.OFPG_ANY, COOKIE, COOKIE_MASK, parser.OFPMatch()
    )


def group_request(datapath: Any) -> Any:
    return parser.OFPGroupDescStatsRequest(datapath, 0)


def port_stats_request(datapath: Any) -> Any:
    return parser.OFPPortStatsRequest(datapath, 0, ofp.OFPP_ANY)


def barrier_request(datapath: Any) -> Any:
    return parser.OFPBarrierRequest(datapath)


# -- decoding -------------------------------------------------------------------------------------------------------


class Undecodable(ValueError):
    """A rule with our cookie that this program would not have written: another version's."""


def decode(flows: Iterable[Any], groups: Iterable[Any]) -> tuple[SwitchRules, list[Any]]:
    """(rules, strange) of a switch, from the bodies of its flow-stats and group-desc replies.

    `strange` are the flow entries that cannot be read. A group that cannot be is left out: putting it replaces it.
    """
    ours, strange = [], []
    for stats in flows:
        try:
            ours.append(decode_flow(stats))
        except Undecodable:
            strange.append(stats)
    known = []
    for desc in groups:
        with suppress(Undecodable):
            known.append(_decode_group(desc))
    return SwitchRules(tuple(ours), tuple(known)), strange


def delete_request(stats: Any, protocol: Any = PROTOCOL) -> Any:
    """Deletes a flow entry as the switch reported it."""
    return parser.OFPFlowMod(
        datapath=protocol,
        cookie=COOKIE,
        cookie_mask=COOKIE_MASK,
        table_id=stats.table_id,
        command=ofp.OFPFC_DELETE_STRICT,
        priority=stats.priority,
        out_port=ofp.OFPP_ANY,
        out_group=ofp.OFPG_ANY,
        match=stats.match,
    )


def decode_flow(stats: Any) -> FlowRule:
    try:
        actions = tuple(action for i in stats.instructions for action in _decode_instruction(i))
        return FlowRule(_decode_match(stats.match), actions, stats.priority, stats.table_id)
    except (ValueError, AttributeError, KeyError) as error:
        raise Undecodable(f"{stats.match} {stats.instructions}: {error}") from error


def _decode_group(desc: Any) -> GroupRule:
    try:
        return GroupRule(desc.group_id, tuple(Bucket(_only_output(b), b.weight) for b in desc.buckets))
    except (ValueError, AttributeError) as error:
        raise Undecodable(f"group {desc.group_id}: {error}") from error


def _only_output(bucket: Any) -> int:
    (action,) = bucket.actions
    port: int = action.port
    if bucket.watch_port != port:
        raise ValueError(f"bucket to port {port} watches {bucket.watch_port}")
    return port


def _decode_match(match: Any) -> Match:
    fields: dict[str, Any] = {}
    for name, value in match.items():
        if name in ("ipv4_src", "ipv4_dst", "eth_dst"):
            fields[name] = "/".join(value) if isinstance(value, tuple) else value
        elif name in _PLAIN:
            fields[name] = value
        elif name != "eth_type":
            protocol, _, side = name.partition("_")
            if protocol not in _L4.values():
                raise ValueError(f"match field {name} is not ours")
            fields[f"l4_{side}"] = value
    return Match(**fields)


def _decode_instruction(instruction: Any) -> Iterator[Action]:
    if isinstance(instruction, parser.OFPInstructionGotoTable):
        yield GotoTable(instruction.table_id)
    else:
        yield from map(_decode_action, instruction.actions)


def _decode_action(action: Any) -> Action:
    if isinstance(action, parser.OFPActionSetField):
        return SetField(action.key, action.value)
    if isinstance(action, parser.OFPActionDecNwTtl):
        return DecTtl()
    if isinstance(action, parser.NXActionMultipath):
        return Multipath(action.basis, action.max_link + 1, _REGISTERS.index(action.dst))
    if isinstance(action, parser.NXActionRegMove):
        return ShiftLabel(action.src_ofs)
    if isinstance(action, parser.NXActionRegLoad) and (action.dst, action.value) == ("in_port", 0):
        return ForgetInPort()
    return _decode_forward(action)


def _decode_forward(action: Any) -> Forward:
    if isinstance(action, parser.OFPActionOutput):
        return Output(action.port)
    if isinstance(action, parser.OFPActionGroup):
        return Group(action.group_id)
    if isinstance(action, parser.NXActionBundle):
        return Bundle(action.basis, tuple(None if port == _VACANT else port for port in action.slaves))
    raise ValueError(f"action {action} is not ours")
