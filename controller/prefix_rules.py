"""What all policies that route by prefix have in common: deliver to the hosts of a switch, forward toward each prefix.

They differ in one thing only: what a switch does when several ports lead to a prefix. That is `spread`.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

from controller.actions import DecTtl, Forward, Output, SetField
from controller.match import Match, value_and_mask
from controller.per_fabric import per_fabric
from controller.routing import attached, next_hops, places, prefixes
from controller.rules import FlowRule, GroupRule, SwitchRules
from topologies.fabric import Fabric, Node

# Longest prefix first: priority = base + prefix length. Far above 0, the table-miss rule's, so that no catch-all that
# somebody adds can compete with a data rule.
BASE_PRIORITY = 1000
# A failure leaves most rules as they are, so they are made once: the switches and the rules that are remembered.
KEPT_SWITCHES, KEPT_RULES = 2048, 65536

# (switch, the prefix's number in the fabric, ports by place) -> how to forward, and the group it needs if any
Spread = Callable[[Node, int, tuple[int | None, ...]], tuple[Forward, GroupRule | None]]


def route(fabric: Fabric, down: frozenset[int], spread: Spread) -> dict[str, SwitchRules]:
    """The rules of every switch: one per attached host, one per reachable prefix."""
    intact, usable = next_hops(fabric), next_hops(fabric, down)
    number = {prefix: i for i, prefix in enumerate(prefixes(fabric))}
    rules = {}
    for switch in fabric.switches:
        before = intact[switch.name]
        ways = ((p, number[p], places(before.get(p, ()), ports)) for p, ports in usable[switch.name].items())
        rules[switch.name] = switch_rules(switch, _delivering(fabric)[switch.name], tuple(ways), spread)
    return rules


@lru_cache(KEPT_SWITCHES)
def switch_rules(
    switch: Node,
    delivering: tuple[FlowRule, ...],
    ways: tuple[tuple[str, int, tuple[int | None, ...]], ...],
    spread: Spread,
) -> SwitchRules:
    """ways: (prefix, its number in the fabric, ports by place)."""
    flows, groups = list(delivering), []
    for prefix, number, ports in ways:
        forward, group = spread(switch, number, ports)
        flows.append(rule_toward(prefix, forward))
        if group:
            groups.append(group)
    return SwitchRules(tuple(flows), tuple(groups))


@per_fabric
def _delivering(fabric: Fabric) -> Mapping[str, tuple[FlowRule, ...]]:
    return {switch.name: tuple(deliver(fabric, switch.name)) for switch in fabric.switches}


def deliver(fabric: Fabric, switch: str, table: int = 0) -> list[FlowRule]:
    """The last hop: the frame gets the host's MAC as destination and the gateway's as source, as from a router."""
    return [
        FlowRule(
            Match(ipv4_dst=far.ip),
            (
                SetField("eth_src", fabric.gateway_mac),
                SetField("eth_dst", far.mac or fabric.gateway_mac),
                DecTtl(),
                Output(own.number),
            ),
            BASE_PRIORITY + 32,
            table,
        )
        for own, far in attached(fabric, switch)
    ]


@lru_cache(KEPT_RULES)
def rule_toward(prefix: str, forward: Forward, table: int = 0) -> FlowRule:
    length = value_and_mask(prefix)[1].bit_count()
    return FlowRule(Match(ipv4_dst=prefix), (DecTtl(), forward), BASE_PRIORITY + length, table)


def only_port(ports: tuple[int | None, ...]) -> Output | None:
    """A plain output when one port is left: without a hash Open vSwitch caches one flow per prefix, not per 5-tuple."""
    live = [p for p in ports if p is not None]
    return Output(live[0]) if len(live) == 1 else None
