"""Dragonfly whose global ports end in optical circuit switches (OCS), so that the graph of the groups can be rewired.

Two global ports of every group end in each OCS: slots s and a h - 1 - s, so that a h / 2 of them have 2 g ports each, and
the odd slot in the middle, where there is one, has an OCS of g ports. Two, because every graph of groups with the same
even number of links at each falls into parts with two links at each (Petersen 1891), so any can be set; one port of each
group would not do, for with an odd number of groups every OCS would leave one out. All in one OCS, or one for each
of a router's global ports, would need h = 4 to have 264 ports and more; this way it needs 66, and a 136-port 3D-MEMS
switch serves 68 groups. The paired slots are those that the relative arrangement joins, so that can be set too.
"""

from dataclasses import asdict, dataclass

from topologies.builder import FabricBuilder
from topologies.dragonfly import Dragonfly, add_groups
from topologies.fabric import Fabric
from topologies.shaping import OCS_ROLE
from topologies.topology import ClosedForm, require_at_least


@dataclass(frozen=True)
class OcsDragonfly:
    """a: routers per group; p: hosts per router; h: global ports per router, all of them used; g: groups, 0 = the
    largest number, a h + 1."""

    a: int = 4
    p: int = 2
    h: int = 2
    g: int = 9

    def __post_init__(self) -> None:
        Dragonfly(self.a, self.p, self.h, self.g)
        if self.g:
            require_at_least(self, g=2)

    @property
    def groups(self) -> int:
        return self.g or self.a * self.h + 1

    def build(self) -> Fabric:
        fabric = FabricBuilder("ocs-dragonfly", asdict(self))
        routers = add_groups(fabric, self.groups, self.a, self.p)
        slots = self.a * self.h
        optical = [fabric.switch(f"ocs{o + 1}", OCS_ROLE) for o in range(-(-slots // 2))]
        for group in routers:
            for slot in range(slots):
                fabric.link(group[slot // self.h], optical[min(slot, slots - 1 - slot)], "circuit")
        return fabric.build()

    def closed_form(self) -> ClosedForm:
        """No path leads from group to group before circuits are set, so figures of paths do not exist."""
        g, slots = self.groups, self.a * self.h
        hosts = self.a * self.p * g
        return ClosedForm(
            hosts=hosts,
            switches=self.a * g + -(-slots // 2),
            links=hosts + g * self.a * (self.a - 1) // 2 + g * slots,
            diameter=None,
            bisection_links=None,
            path_diversity=None,
        )
