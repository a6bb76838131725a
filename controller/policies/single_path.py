"""One path per destination, always the first port: the fabric as a spanning tree would leave it. The baseline."""

from controller.actions import Forward, Output
from controller.prefix_rules import route
from controller.rules import GroupRule, SwitchRules
from topologies.fabric import Fabric, Node


def single_path(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
    return route(fabric, down, _spread)


def _spread(_switch: Node, _prefix: int, ports: tuple[int | None, ...]) -> tuple[Forward, GroupRule | None]:
    return Output(next(p for p in ports if p is not None)), None
