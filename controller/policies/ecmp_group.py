"""ECMP with OpenFlow 1.3 select groups: the textbook way, and how it behaves on Open vSwitch.

The userspace datapath hashes UDP by address only and the hash cannot be predicted; a bucket that goes moves other
buckets' flows too. One group per prefix, changed in place when links fail.
"""

from controller.actions import Forward, Group, Output
from controller.policy import multipath
from controller.prefix_rules import route
from controller.rules import Bucket, GroupRule, SwitchRules
from topologies.fabric import Fabric, Node


@multipath
def ecmp_group(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
    return route(fabric, down, _spread)


def _spread(_switch: Node, prefix: int, ports: tuple[int | None, ...]) -> tuple[Forward, GroupRule | None]:
    live = [p for p in ports if p is not None]
    if len(ports) == 1 and len(live) == 1:
        return Output(live[0]), None
    group = GroupRule(prefix + 1, tuple(Bucket(port) for port in live))
    return Group(group.group_id), group
