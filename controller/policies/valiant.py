"""Dragonfly, Valiant: every flow between groups goes through a third group, chosen by hash at the host's router.

Any traffic looks uniform to the global links, at the price of two of them per flow: hosts get (g - 2) / (2 a p) of their
rate where minimal routing gives 1 / (a p), and half where it gives all. (Valiant, "A scheme for fast parallel
communication", SIAM J. Comput. 1982; by group: Kim et al., ISCA 2008.)
"""

from controller.detour import detoured_routes
from controller.dragonfly import is_dragonfly
from controller.policy import only_on
from controller.rules import SwitchRules
from topologies.fabric import Fabric


@only_on(is_dragonfly)
def valiant(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
    return detoured_routes(fabric, down, shares={})
