"""Dragonfly, minimal: over the one global link between the two groups, with at most a local hop on either side.

Three links between routers at most, and the shortest way there is; but all traffic from one group to another shares that
global link: where every host of a group sends to the next group, each gets 1 / (a p) of its rate.
(Kim et al., "Technology-Driven, Highly-Scalable Dragonfly Topology", ISCA 2008.)
"""

from controller.detour import minimal_routes
from controller.dragonfly import is_dragonfly
from controller.policy import only_on
from controller.rules import SwitchRules
from topologies.fabric import Fabric


@only_on(is_dragonfly)
def minimal(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
    return minimal_routes(fabric, down)
