"""What a switch is told, as data: rules that sort, compare, diff and print, and know no OpenFlow library.

The text of a rule is the one `ovs-ofctl dump-flows` shows, so that the two can be compared by eye.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv4Network
from typing import Literal

from controller.flow import Flow
from topologies.errors import Refused


class RuleError(Refused):
    """A rule, or a set of them, that no switch should be sent."""


@lru_cache(maxsize=65536)
def ipv4_int(address: str) -> int:
    """'198.18.0.1' -> 0xc6120001."""
    return int(IPv4Address(address))


@lru_cache(maxsize=65536)
def _canonical(prefix: str) -> str:
    try:
        network = IPv4Network(prefix)
    except ValueError as error:
        raise RuleError(f"{prefix!r} is not an IPv4 address or prefix: {error}") from None
    return str(network.network_address) if network.prefixlen == 32 else str(network)


@lru_cache(maxsize=65536)
def value_and_mask(prefix: str) -> tuple[int, int]:
    """'198.18.0.0/29' -> (0xc6120000, 0xfffffff8)."""
    address, _, length = prefix.partition("/")
    return ipv4_int(address), (0xFFFFFFFF << (32 - int(length or 32))) & 0xFFFFFFFF


# -- matches and actions --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Match:
    """Which packets: a field that is None matches any. Addresses are IPv4 prefixes ('198.18.0.0/29', '198.18.0.1').

    `l4_src` and `l4_dst` are TCP, UDP or SCTP ports and need `ip_proto`, as OpenFlow's prerequisites say.
    """

    in_port: int | None = None
    ipv4_src: str | None = None
    ipv4_dst: str | None = None
    ip_proto: int | None = None
    l4_src: int | None = None
    l4_dst: int | None = None

    def __post_init__(self) -> None:
        for name in ("ipv4_src", "ipv4_dst"):
            prefix = getattr(self, name)
            if prefix is not None:
                object.__setattr__(self, name, _canonical(prefix))
        if self.ip_proto is None and (self.l4_src is not None or self.l4_dst is not None):
            raise RuleError(f"match {self}: a layer 4 port needs ip_proto")

    @property
    def is_ip(self) -> bool:
        return not (self.ipv4_src is None and self.ipv4_dst is None and self.ip_proto is None)

    def covers(self, flow: Flow, in_port: int) -> bool:
        """Whether a packet of the flow that came in through `in_port` is meant."""
        return (
            (self.in_port is None or self.in_port == in_port)
            and (self.ipv4_dst is None or _in_prefix(flow.dst_ip, self.ipv4_dst))
            and (self.ipv4_src is None or _in_prefix(flow.src_ip, self.ipv4_src))
            and (self.ip_proto is None or self.ip_proto == flow.proto)
            and (self.l4_src is None or self.l4_src == flow.src_port)
            and (self.l4_dst is None or self.l4_dst == flow.dst_port)
        )

    def __str__(self) -> str:
        values = (
            ("in_port", self.in_port),
            ("nw_src", self.ipv4_src),
            ("nw_dst", self.ipv4_dst),
            ("nw_proto", self.ip_proto),
            ("tp_src", self.l4_src),
            ("tp_dst", self.l4_dst),
        )
        fields = [f"{name}={value}" for name, value in values if value is not None]
        return ",".join(["ip", *fields] if self.is_ip else fields)


def _in_prefix(address: str, prefix: str) -> bool:
    value, mask = value_and_mask(prefix)
    return ipv4_int(address) & mask == value


@dataclass(frozen=True, slots=True)
class SetField:
    field: Literal["eth_dst", "eth_src"]
    value: str

    def __str__(self) -> str:
        return f"set_field:{self.value}->{self.field}"


@dataclass(frozen=True, slots=True)
class DecTtl:
    """One hop less to live: a packet caught between two states of the fabric dies instead of circling."""

    def __str__(self) -> str:
        return "dec_ttl"


@dataclass(frozen=True, slots=True)
class Output:
    port: int

    def __str__(self) -> str:
        return f"output:{self.port}"


@dataclass(frozen=True, slots=True)
class Bundle:
    """Open vSwitch's `bundle`: one of `ports` by highest random weight over a hash of the 5-tuple, dead ports skipped.

    The hash sees a port's *place* in the list, not its number. A place that is None is vacant: it keeps the later
    ones where they are, so that a port's going and coming moves that port's flows and no others.
    """

    basis: int
    ports: tuple[int | None, ...]

    def __post_init__(self) -> None:
        if not any(self.ports):
            raise RuleError("a bundle without ports drops every packet")
        if not 0 <= self.basis <= 0xFFFF:
            raise RuleError(f"bundle basis {self.basis} is outside 0..65535")

    @property
    def live_ports(self) -> tuple[int, ...]:
        return tuple(p for p in self.ports if p is not None)

    def __str__(self) -> str:
        members = ",".join("vacant" if p is None else str(p) for p in self.ports)
        return f"bundle(symmetric_l3l4+udp,{self.basis},hrw,ofport,members:{members})"


@dataclass(frozen=True, slots=True)
class Group:
    group_id: int

    def __str__(self) -> str:
        return f"group:{self.group_id}"


Forward = Output | Bundle | Group
Action = SetField | DecTtl | Forward


# -- rules ----------------------------------------------------------------------------------------------------------

FlowKey = tuple[int, int, Match]


@dataclass(frozen=True)
class FlowRule:
    """Packets that `match` in `table` have `actions` done to them; the highest priority wins. Unicast: the last action
    is the one that forwards."""

    match: Match
    actions: tuple[Action, ...]
    priority: int = 1000
    table: int = 0

    def __post_init__(self) -> None:
        *before, last = self.actions or (None,)
        if not isinstance(last, Forward) or any(isinstance(a, Forward) for a in before):
            raise RuleError(f"rule {self}: exactly one action must forward, and it must be the last")

    @property
    def key(self) -> FlowKey:
        """What OpenFlow identifies a rule by: two rules of one switch never share it."""
        return (self.table, self.priority, self.match)

    @property
    def forward(self) -> Forward:
        last = self.actions[-1]
        assert isinstance(last, Forward)  # __post_init__ saw to it
        return last

    @cached_property
    def _order(self) -> tuple[int, int, int, str]:
        destination, _ = value_and_mask(self.match.ipv4_dst or "0.0.0.0")
        return (self.table, -self.priority, destination, str(self.match))

    def __lt__(self, other: FlowRule) -> bool:
        return self._order < other._order

    def __str__(self) -> str:
        match = ",".join(filter(None, (f"priority={self.priority}", str(self.match))))
        return f"table={self.table},{match} actions={','.join(map(str, self.actions))}"


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """One way out of a group, dead when `port` is.

    Open vSwitch accepts weight 0, or a watch_port that is not there, without a word and then drops every packet.
    """

    port: int
    weight: int = 1

    def __post_init__(self) -> None:
        if self.weight < 1:
            raise RuleError(f"bucket to port {self.port} has weight {self.weight}: a bucket below 1 gets no packet")

    def __str__(self) -> str:
        return f"bucket=weight:{self.weight},watch_port:{self.port},actions=output:{self.port}"


@dataclass(frozen=True, slots=True, order=True)
class GroupRule:
    """An OpenFlow 1.3 group of type select."""

    group_id: int
    buckets: tuple[Bucket, ...]

    def __post_init__(self) -> None:
        if not self.buckets:
            raise RuleError(f"group {self.group_id} has no bucket and would drop every packet")

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(b.port for b in self.buckets)

    def __str__(self) -> str:
        return f"group_id={self.group_id},type=select,{','.join(map(str, self.buckets))}"


@dataclass(frozen=True)
class SwitchRules:
    """All rules of one switch, kept sorted: equal sets are equal objects."""

    flows: tuple[FlowRule, ...] = ()
    groups: tuple[GroupRule, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "flows", tuple(sorted(self.flows)))
        object.__setattr__(self, "groups", tuple(sorted(self.groups)))
        _check_unique("rule", Counter(f.key for f in self.flows))
        _check_unique("group", Counter(g.group_id for g in self.groups))

    @cached_property
    def flow_by_key(self) -> Mapping[FlowKey, FlowRule]:
        return {flow.key: flow for flow in self.flows}

    @cached_property
    def group_by_id(self) -> Mapping[int, GroupRule]:
        return {group.group_id: group for group in self.groups}

    def ports_of(self, forward: Forward) -> tuple[int, ...]:
        """The ports through which packets may leave."""
        if isinstance(forward, Output):
            return (forward.port,)
        if isinstance(forward, Bundle):
            return forward.live_ports
        if forward.group_id not in self.group_by_id:
            raise RuleError(f"group {forward.group_id} is used by a rule but not among the switch's groups")
        return self.group_by_id[forward.group_id].ports

    def lookup(self, flow: Flow, in_port: int) -> FlowRule | None:
        """The rule of table 0 that a packet of the flow hits, or None."""
        destination = ipv4_int(flow.dst_ip)
        for mask, by_value in self._classifier:
            for rule in by_value.get(destination & mask, ()):
                if rule.match.covers(flow, in_port):
                    return rule
        return None

    @cached_property
    def _classifier(self) -> list[tuple[int, dict[int, list[FlowRule]]]]:
        """Per priority and destination mask, a dict: as Open vSwitch's tuple space search, for the same reason."""
        tables: dict[tuple[int, int], dict[int, list[FlowRule]]] = {}
        for rule in self.flows:
            if rule.table == 0:
                value, mask = value_and_mask(rule.match.ipv4_dst or "0.0.0.0/0")
                tables.setdefault((-rule.priority, -mask), {}).setdefault(value, []).append(rule)
        return [(-mask, by_value) for (_, mask), by_value in sorted(tables.items(), key=lambda item: item[0])]


def _check_unique(what: str, counts: Counter[FlowKey] | Counter[int]) -> None:
    twice = [str(key) for key, n in counts.items() if n > 1]
    if twice:
        raise RuleError(f"{what} given twice: {twice[0]}")


# -- from one set of rules to another -------------------------------------------------------------------------------

Operation = Literal["put-group", "add-flow", "modify-flow", "delete-flow", "delete-group"]


@dataclass(frozen=True, slots=True)
class Step:
    """One change to a switch. 'put-group' adds the group or replaces its buckets, whichever is needed."""

    operation: Operation
    rule: FlowRule | GroupRule

    def __str__(self) -> str:
        return f"{self.operation} {self.rule}"


def diff(old: SwitchRules, new: SwitchRules) -> list[Step]:
    """The steps from `old` to `new`, in an order that leaves no packet without a rule on the way.

    Groups come before the flows that use them (else BAD_OUT_GROUP) and go after (deleting a group deletes its flows);
    what exists is changed in place, never deleted and added.
    """
    if old == new:
        return []
    groups, flows = old.group_by_id, old.flow_by_key
    return [
        *_steps("put-group", (g for g in new.groups if groups.get(g.group_id) != g)),
        *_steps("add-flow", (f for f in new.flows if f.key not in flows)),
        *_steps("modify-flow", (f for f in new.flows if f.key in flows and flows[f.key].actions != f.actions)),
        *_steps("delete-flow", (f for f in old.flows if f.key not in new.flow_by_key)),
        *_steps("delete-group", (g for g in old.groups if g.group_id not in new.group_by_id)),
    ]


def _steps(operation: Operation, rules: Iterable[FlowRule] | Iterable[GroupRule]) -> Iterable[Step]:
    return (Step(operation, rule) for rule in rules)
