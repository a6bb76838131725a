"""Dragonfly: groups of fully joined routers, and every pair of groups joined by global links.

Kim, Dally, Scott, Abts, "Technology-Driven, Highly-Scalable Dragonfly Topology", ISCA 2008, with its symbols. Where the
global links end is the arrangement (Hastings et al., "Comparing Global Link Arrangements for Dragonfly Networks",
CLUSTER 2015). Slot s of a group, 0 <= s <= g-2, leads from group i to

    absolute   group s, or s + 1 from i upwards
    relative   group i + s + 1, modulo g

At the largest size, g = a h + 1, a group has one link per slot, and router r holds the slots r h .. r h + h - 1.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import combinations

from topologies.addressing import grouped_prefixes, host_ip
from topologies.builder import FabricBuilder
from topologies.errors import TopologyError, unknown
from topologies.fabric import Fabric
from topologies.topology import ClosedForm, require_at_least

# (group, slot, groups) -> the group at the far end
ARRANGEMENTS: dict[str, Callable[[int, int, int], int]] = {
    "absolute": lambda i, slot, _g: slot if slot < i else slot + 1,
    "relative": lambda i, slot, g: (i + slot + 1) % g,
}


@dataclass(frozen=True)
class Dragonfly:
    """a: routers per group; p: hosts per router; h: global ports per router; g: groups, 0 = the largest number, a h + 1;
    arrangement: absolute or relative.

    Below the largest g every pair of groups has the same number of links, floor(a h / (g - 1)), spread evenly over the
    routers of a group; the global ports that are left over stay unused.
    """

    a: int = 4
    p: int = 2
    h: int = 2
    g: int = 9
    arrangement: str = "absolute"

    def __post_init__(self) -> None:
        require_at_least(self, a=1, p=1, h=1, g=0)
        if self.g > self.a * self.h + 1:
            raise TopologyError(
                f"g={self.g} is too large: a={self.a} routers with h={self.h} global ports each reach "
                f"{self.a * self.h} other groups, use g <= {self.a * self.h + 1}"
            )
        if self.arrangement not in ARRANGEMENTS:
            raise TopologyError(unknown("arrangement", self.arrangement, ARRANGEMENTS))

    @property
    def groups(self) -> int:
        return self.g or self.a * self.h + 1

    @property
    def links_per_pair(self) -> int:
        """Global links between any two groups."""
        return self.a * self.h // (self.groups - 1) if self.groups > 1 else 0

    def build(self) -> Fabric:
        fabric = FabricBuilder("dragonfly", asdict(self))
        routers = add_groups(fabric, self.groups, self.a, self.p)
        for (i, r), (j, s) in self.global_links():
            fabric.link(routers[i][r], routers[j][s], "global")
        return fabric.build()

    def global_links(self) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """((group, router), (group, router)) of both ends, the lower group first."""
        g, leads_to = self.groups, ARRANGEMENTS[self.arrangement]
        slots = range(g - 1)
        slot_to = [{leads_to(i, slot, g): slot for slot in slots} for i in range(g)]
        for i, j in combinations(range(g), 2):
            for nth in range(self.links_per_pair):
                yield (i, self._router(slot_to[i][j], nth)), (j, self._router(slot_to[j][i], nth))

    def _router(self, slot: int, nth: int) -> int:
        """The router that holds the nth link of a slot: the group's links in order, in a runs of equal length."""
        per_round = self.groups - 1
        return (nth * per_round + slot) * self.a // (self.links_per_pair * per_round)

    def closed_form(self) -> ClosedForm:
        """Diameter and paths: local, global, local at the largest g; below it both depend on which routers the links
        meet, and have no formula."""
        g, m, hosts = self.groups, self.links_per_pair, self.a * self.p * self.groups
        local = self.a * (self.a - 1) // 2
        largest = g == self.a * self.h + 1
        return ClosedForm(
            hosts=hosts,
            switches=self.a * g,
            links=hosts + local * g + m * g * (g - 1) // 2,
            diameter=3 if largest and self.a > 1 else None,
            bisection_links=self._bisection_links(),
            path_diversity=1 if largest and self.a > 2 else None,
        )

    def _bisection_links(self) -> int | None:
        """Half of the groups against the other half. An odd group is halved too, with those of its routers on each side
        whose global links stay there, which needs a multiple of 2 m routers. No formula for any other odd number, nor
        where a router has more global links than a / 2, for then a cut through the groups is cheaper."""
        a, g, m = self.a, self.groups, self.links_per_pair
        if 2 * m * (g - 1) > a * a or (g % 2 and a % max(2 * m, 2)):
            return None
        cut = m * (g // 2) ** 2 + (g % 2) * (a // 2) ** 2
        return min(cut, a * self.p * g // 2)


def add_groups(fabric: FabricBuilder, groups: int, a: int, p: int) -> list[list[str]]:
    """Groups of a routers, all joined with each other, p hosts on each. Returns the routers' names by group."""
    prefixes = grouped_prefixes(groups, a, p)
    routers = [
        [fabric.switch(f"g{i + 1}r{r + 1}", "router", prefix=str(prefixes[i][r]), group=i) for r in range(a)]
        for i in range(groups)
    ]
    for i, group in enumerate(routers):
        for r, router in enumerate(group):
            for j in range(p):
                name = fabric.host(f"h{(i * a + r) * p + j + 1}", host_ip(prefixes[i][r], j), group=i)
                fabric.link(name, router, "scale-out")
    for group in routers:
        for one, other in combinations(group, 2):
            fabric.link(one, other, "local")
    return routers
