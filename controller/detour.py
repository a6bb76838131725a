"""Minimal and detoured routing on a dragonfly: the rules that `minimal`, `valiant` and `ugal` share.

A detour leads through an intermediate group, which travels in the frame's destination MAC: the last switch rewrites that
anyway. Only a host's own router decides; others see by the MAC which half of the way a packet is on:

    ORIGIN       from a host, within its group -> DESTINATION; from a host -> load registers by hash -> CHOICE;
                 else -> HALFWAY
    CHOICE       reg1 among the minimal slots of the destination group -> DESTINATION;
                 reg0 -> the MAC of an intermediate group -> HALFWAY
    HALFWAY      the MAC of another group -> toward that group; of this one -> the gateway's MAC -> DESTINATION;
                 else -> DESTINATION
    DESTINATION  a host -> out; a router of this group -> toward it; another group -> toward that group

A detour uses one global link into the intermediate group and one out of it. Where failures leave no such way the packet
goes minimally. So both halves follow falling costs, and no packet returns by the port it came in by.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from controller.actions import Action, Bundle, DecTtl, Forward, GotoTable, Multipath, SetField
from controller.dragonfly import Ports, group_of, routers_by_group, ways
from controller.match import Match
from controller.prefix_rules import BASE_PRIORITY, KEPT_RULES, deliver, only_port, rule_toward
from controller.routing import attached, places, prefixes_by_owner
from controller.rules import FlowRule, SwitchRules
from topologies.addressing import FABRIC_NETWORK, group_prefixes
from topologies.fabric import Fabric, Node

ORIGIN, CHOICE, HALFWAY, DESTINATION = range(4)
# Into how many parts a pair's traffic can be divided between minimal and detoured: reg1 is a packet's slot.
SLOTS = 8
# (source group, destination group) -> how many of the slots go minimally; 0 if absent
Shares = Mapping[tuple[int, int], int]

_EVERYTHING = str(FABRIC_NETWORK)
# A second hash of the same flow, independent of the first.
_SLOT_BASIS = 0x8000


def minimal_routes(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
    """Every router's ways to the destination itself, in one table."""
    plan = _Plan(fabric, down)
    return {router.name: SwitchRules(tuple(plan.destination(router, ORIGIN))) for router in fabric.switches}


def detoured_routes(fabric: Fabric, down: frozenset[int], shares: Shares) -> dict[str, SwitchRules]:
    """The four tables. With two groups there is no third to go through: minimal routes."""
    plan = _Plan(fabric, down)
    if len(plan.groups) < 3:
        return minimal_routes(fabric, down)
    return {
        router.name: SwitchRules(
            (
                *plan.origin(router, has_slots=bool(shares)),
                *plan.choice(router, shares),
                *plan.halfway(router),
                *plan.destination(router, DESTINATION),
            )
        )
        for router in fabric.switches
    }


class _Plan:
    """What the rules of all routers are made from."""

    def __init__(self, fabric: Fabric, down: frozenset[int]) -> None:
        self._fabric = fabric
        self._intact, self._usable = ways(fabric), ways(fabric, down)
        self.groups = routers_by_group(fabric)
        self._prefix_of_group = group_prefixes(fabric)
        self._mac = {group: _mac(fabric.gateway_mac, group) for group in self.groups}
        # Groups that every router of the first reaches by one global link.
        self._joined = {
            (via, to)
            for via, members in self.groups.items()
            for to in self.groups
            if all((name, to) in self._usable.direct for name in members)
        }

    # -- the tables, in order ---------------------------------------------------------------------------------------

    def origin(self, router: Node, *, has_slots: bool) -> Iterator[FlowRule]:
        basis = (router.dpid or 0) & 0x7FFF
        load: list[Action] = [Multipath(basis, len(self.groups) - 2, 0)]
        if has_slots:
            load.append(Multipath(basis | _SLOT_BASIS, SLOTS, 1))
        own = self._prefix_of_group[group_of(router)]
        for port, _ in attached(self._fabric, router.name):
            yield _rule(ORIGIN, 2, Match(port.number, ipv4_dst=own), GotoTable(DESTINATION))
            yield _rule(ORIGIN, 1, Match(port.number, ipv4_dst=_EVERYTHING), *load, GotoTable(CHOICE))
        yield _rule(ORIGIN, 0, Match(ipv4_dst=_EVERYTHING), GotoTable(HALFWAY))

    def choice(self, router: Node, shares: Shares) -> Iterator[FlowRule]:
        own = group_of(router)
        for to in (group for group in self.groups if group != own):
            prefix = self._prefix_of_group[to]
            if to in self._usable.split:
                yield _rule(CHOICE, 3, Match(ipv4_dst=prefix), GotoTable(DESTINATION))
            for slot in range(shares.get((own, to), 0)):
                yield _rule(CHOICE, 2, Match(ipv4_dst=prefix, reg1=slot), GotoTable(DESTINATION))
        yield from self._intermediates(router)

    def _intermediates(self, router: Node) -> Iterator[FlowRule]:
        """reg0 counts the other groups but the last, which stands in where the counted one is the destination: so each
        of the g - 2 candidates gets the same share, with two rules each."""
        *counted, last = others = [group for group in self.groups if group != group_of(router)]
        for slot, via in enumerate(counted):
            usual = via if (router.name, via) in self._usable.direct else None
            yield _rule(CHOICE, 0, Match(ipv4_dst=_EVERYTHING, reg0=slot), *self._go_via(usual))
            for to in others:
                wanted = last if to == via else via
                possible = (router.name, wanted) in self._usable.direct and (wanted, to) in self._joined
                if (wanted if possible else None) != usual:
                    match = Match(ipv4_dst=self._prefix_of_group[to], reg0=slot)
                    yield _rule(CHOICE, 1, match, *self._go_via(wanted if possible else None))

    def _go_via(self, group: int | None) -> tuple[Action, ...]:
        if group is None:
            return (GotoTable(DESTINATION),)
        return (SetField("eth_dst", self._mac[group]), GotoTable(HALFWAY))

    def halfway(self, router: Node) -> Iterator[FlowRule]:
        for group in self.groups:
            match = Match(ipv4_dst=_EVERYTHING, eth_dst=self._mac[group])
            toward = self._toward_group(router, group)
            if toward and (router.name, group) in self._usable.direct:
                yield _rule(HALFWAY, 1, match, DecTtl(), toward)
            else:
                unmarked = SetField("eth_dst", self._fabric.gateway_mac)
                yield _rule(HALFWAY, 1, match, unmarked, GotoTable(DESTINATION))
        yield _rule(HALFWAY, 0, Match(ipv4_dst=_EVERYTHING), GotoTable(DESTINATION))

    def destination(self, router: Node, table: int) -> Iterator[FlowRule]:
        yield from deliver(self._fabric, router.name, table)
        for group, prefix in self._prefix_of_group.items():
            if toward := self._toward_group(router, group):
                yield rule_toward(prefix, toward, table)
        for other, its_prefixes in prefixes_by_owner(self._fabric).items():
            if toward := _forward(router, self._intact.to_router[other], self._usable.to_router[other]):
                yield from (rule_toward(prefix, toward, table) for prefix in its_prefixes)

    def _toward_group(self, router: Node, group: int) -> Forward | None:
        return _forward(router, self._intact.to_group[group], self._usable.to_group[group])


def _mac(gateway_mac: str, group: int) -> str:
    """The gateway's MAC with the group's number, from 1, in its fourth and fifth byte."""
    octets = gateway_mac.split(":")
    return ":".join([*octets[:3], *(f"{octet:02x}" for octet in divmod(group + 1, 256)), octets[5]])


def _forward(router: Node, intact: Ports, usable: Ports) -> Forward | None:
    if router.name not in usable:
        return None
    ports = places(intact.get(router.name, ()), usable[router.name])
    return only_port(ports) or Bundle((router.dpid or 0) & 0xFFFF, ports)


@lru_cache(KEPT_RULES)
def _rule(table: int, rank: int, match: Match, *actions: Action) -> FlowRule:
    return FlowRule(match, actions, BASE_PRIORITY + rank, table)
