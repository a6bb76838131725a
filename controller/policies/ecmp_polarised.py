"""ECMP with one hash for all switches: what a fabric does when every switch came with the same seed.

The second stage sees only flows that the first has already sorted by the same hash, so on fabrics of three tiers part
of its links stay empty. There to be measured against `ecmp`.
"""

from controller.actions import Bundle, Forward
from controller.prefix_rules import only_port, route
from controller.rules import GroupRule, SwitchRules
from topologies.fabric import Fabric, Node

SAME_BASIS = 1


def ecmp_polarised(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
    return route(fabric, down, _spread)


def _spread(_switch: Node, _prefix: int, ports: tuple[int | None, ...]) -> tuple[Forward, GroupRule | None]:
    return only_port(ports) or Bundle(SAME_BASIS, ports), None
