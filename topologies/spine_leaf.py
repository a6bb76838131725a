"""Spine-leaf: every leaf (ToR) joined to every spine, hosts below the leaves. Also called a two-tier folded Clos."""

from dataclasses import asdict, dataclass

from topologies.addressing import host_ip, leaf_prefixes
from topologies.builder import FabricBuilder
from topologies.errors import TopologyError
from topologies.fabric import Fabric
from topologies.topology import ClosedForm, require_at_least


@dataclass(frozen=True)
class SpineLeaf:
    """spines, leaves: switches per tier; hosts_per_leaf: accelerators below each leaf; links_per_pair: parallel cables
    between each leaf and each spine."""

    spines: int = 2
    leaves: int = 4
    hosts_per_leaf: int = 4
    links_per_pair: int = 1

    def __post_init__(self) -> None:
        require_at_least(self, leaves=1, hosts_per_leaf=1, spines=0, links_per_pair=1)
        if self.spines == 0 and self.leaves > 1:
            raise TopologyError(
                f"spines=0 with leaves={self.leaves} leaves the leaves unconnected: use spines >= 1, or leaves=1"
            )

    def build(self) -> Fabric:
        fabric = FabricBuilder("spine-leaf", asdict(self))
        spines = [fabric.switch(f"spine{s + 1}", "spine") for s in range(self.spines)]
        leaves = add_leaves(fabric, self.leaves, self.hosts_per_leaf)
        for leaf in leaves:
            for spine in spines:
                for _ in range(self.links_per_pair):
                    fabric.link(leaf, spine, "scale-out")
        return fabric.build()

    def closed_form(self) -> ClosedForm:
        """Bisection: half of the leaves against the other half, so min(hosts, uplinks) of the smaller half. Paths: a spine,
        one of its cables up and one down."""
        uplinks = self.spines * self.links_per_pair
        half = self.leaves // 2
        cut = half * min(self.hosts_per_leaf, uplinks) if self.leaves > 1 else self.hosts_per_leaf // 2
        return ClosedForm(
            hosts=self.leaves * self.hosts_per_leaf,
            switches=self.spines + self.leaves,
            links=self.leaves * self.hosts_per_leaf + self.leaves * uplinks,
            diameter=2 if self.leaves > 1 else 0,
            bisection_links=cut,
            path_diversity=self.spines * self.links_per_pair**2 if self.leaves > 1 else 1,
        )


def add_leaves(fabric: FabricBuilder, leaves: int, hosts_per_leaf: int) -> list[str]:
    """Leaves, and then the hosts of each. Returns the leaves' names."""
    prefixes = leaf_prefixes(leaves, hosts_per_leaf)
    names = [fabric.switch(f"leaf{i + 1}", "leaf", prefix=str(p), group=i) for i, p in enumerate(prefixes)]
    for i, leaf in enumerate(names):
        for j in range(hosts_per_leaf):
            host = fabric.host(f"h{i * hosts_per_leaf + j + 1}", host_ip(prefixes[i], j), group=i)
            fabric.link(host, leaf, "scale-out")
    return names
