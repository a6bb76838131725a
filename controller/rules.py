"""What a switch is told, as data: rules that sort, compare, diff and print, and know no OpenFlow library.

The text of a rule is the one `ovs-ofctl dump-flows` shows, so that the two can be compared by eye.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from controller.actions import Action, Bundle, End, GotoTable, Multipath, Output, SetField, ShiftLabel
from controller.flow import Packet
from controller.match import Match, RuleError, ipv4_int, value_and_mask

FlowKey = tuple[int, int, Match]
Rewrite = SetField | ShiftLabel | Multipath


@dataclass(frozen=True)
class FlowRule:
    """Packets that `match` in `table` have `actions` done to them; the highest priority wins. Unicast: the last action
    is the only one that forwards, or hands on to a later table."""

    match: Match
    actions: tuple[Action, ...]
    priority: int = 1000
    table: int = 0

    def __post_init__(self) -> None:
        *before, last = self.actions or (None,)
        if not isinstance(last, End) or any(isinstance(a, End) for a in before):
            raise RuleError(f"rule {self}: exactly one action must forward, and it must be the last")
        if isinstance(last, GotoTable) and last.table <= self.table:
            raise RuleError(f"rule {self}: a packet goes on to later tables only")

    @property
    def key(self) -> FlowKey:
        """What OpenFlow identifies a rule by: two rules of one switch never share it."""
        return (self.table, self.priority, self.match)

    @cached_property
    def end(self) -> End:
        last = self.actions[-1]
        assert isinstance(last, End)  # __post_init__ saw to it
        return last

    @cached_property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """The actions after which later tables, or the next switch, may see another packet."""
        return tuple(
            a
            for a in self.actions
            if isinstance(a, (ShiftLabel, Multipath)) or (isinstance(a, SetField) and a.field == "eth_dst")
        )

    @cached_property
    def order(self) -> tuple[int, int, int, str]:
        """By table, the highest priority first, then by destination."""
        destination, _ = value_and_mask(self.match.ipv4_dst or "0.0.0.0")
        return (self.table, -self.priority, destination, str(self.match))

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
        object.__setattr__(self, "flows", tuple(sorted(self.flows, key=lambda flow: flow.order)))
        object.__setattr__(self, "groups", tuple(sorted(self.groups)))
        _check_unique("rule", [f.key for f in self.flows])
        _check_unique("group", [g.group_id for g in self.groups])

    @cached_property
    def flow_by_key(self) -> Mapping[FlowKey, FlowRule]:
        return {flow.key: flow for flow in self.flows}

    @cached_property
    def group_by_id(self) -> Mapping[int, GroupRule]:
        return {group.group_id: group for group in self.groups}

    def ports_of(self, end: End) -> tuple[int, ...]:
        """The ports through which packets may leave; none where a later table decides."""
        if isinstance(end, GotoTable):
            return ()
        if isinstance(end, Output):
            return (end.port,)
        if isinstance(end, Bundle):
            return end.live_ports
        if end.group_id not in self.group_by_id:
            raise RuleError(f"group {end.group_id} is used by a rule but not among the switch's groups")
        return self.group_by_id[end.group_id].ports

    @property
    def hashes(self) -> bool:
        """Some packets' way depends on their ports."""
        actions = [action for flow in self.flows for action in flow.actions]
        return (
            any(isinstance(action, Bundle) and len(action.live_ports) > 1 for action in actions)
            or any(isinstance(action, Multipath) and action.n > 1 for action in actions)
            or any(len(group.ports) > 1 for group in self.groups)
        )

    @cached_property
    def used_ports(self) -> frozenset[int]:
        """All ports through which packets may leave, by whatever rule."""
        by_flows = {port for flow in self.flows for port in self.ports_of(flow.end)}
        return frozenset(by_flows.union(*(group.ports for group in self.groups)))

    def lookup(self, packet: Packet, table: int = 0) -> FlowRule | None:
        """The rule of the table that the packet hits, or None."""
        destination = ipv4_int(packet.flow.dst_ip)
        for mask, by_value in self._classifiers.get(table, ()):
            for rule, decided in by_value.get(destination & mask, ()):
                if decided or rule.match.covers(packet):
                    return rule
        return None

    @cached_property
    def _classifiers(self) -> Mapping[int, _Classifier]:
        by_table: dict[int, list[FlowRule]] = {}
        for rule in self.flows:
            by_table.setdefault(rule.table, []).append(rule)
        return {table: _classifier(rules) for table, rules in by_table.items()}


# Per priority and destination mask, a dict: as Open vSwitch's tuple space search, for the same reason. With each rule,
# whether the destination alone decides that it is hit.
_Classifier = list[tuple[int, dict[int, list[tuple[FlowRule, bool]]]]]


def _classifier(rules: Iterable[FlowRule]) -> _Classifier:
    spaces: dict[tuple[int, int], dict[int, list[tuple[FlowRule, bool]]]] = {}
    for rule in rules:
        value, mask = value_and_mask(rule.match.ipv4_dst or "0.0.0.0/0")
        by_value = spaces.setdefault((-rule.priority, -mask), {})
        by_value.setdefault(value, []).append((rule, rule.match.is_by_destination))
    return [(-mask, by_value) for (_, mask), by_value in sorted(spaces.items(), key=lambda item: item[0])]


def _check_unique(what: str, keys: Sequence[FlowKey] | Sequence[int]) -> None:
    if len(set(keys)) < len(keys):
        twice = next(str(key) for key, n in Counter(keys).items() if n > 1)
        raise RuleError(f"{what} given twice: {twice}")
