"""Leaves joined by optical circuit switches (OCS), alone or beside a packet spine (hybrid).

An OCS forwards light: it joins its ports in pairs, and which pairs is set while the fabric runs. Until then a leaf's
uplinks lead nowhere. What closed_form() gives of paths is therefore the packet network's alone, the spines', and
nothing where there are none. Helios (Farrington et al., SIGCOMM 2010) and c-Through (Wang et al., SIGCOMM 2010) are
hybrids of this kind.
"""

from dataclasses import asdict, dataclass, replace

from topologies.builder import FabricBuilder
from topologies.errors import TopologyError
from topologies.fabric import Fabric
from topologies.shaping import OCS_ROLE
from topologies.spine_leaf import SpineLeaf, add_leaves
from topologies.topology import ClosedForm, require_at_least


@dataclass(frozen=True)
class OcsLeaf:
    """leaves: packet switches below the optical ones; hosts_per_leaf: accelerators on each; uplinks: a leaf's links to
    optical switches, spread evenly over them; ocs: optical switches; spines: packet switches joined to every leaf by one
    link each, 0 = circuits only."""

    leaves: int = 4
    hosts_per_leaf: int = 4
    uplinks: int = 2
    ocs: int = 2
    spines: int = 0

    def __post_init__(self) -> None:
        require_at_least(self, leaves=2, hosts_per_leaf=1, uplinks=1, ocs=1, spines=0)
        if self.uplinks % self.ocs:
            raise TopologyError(
                f"uplinks={self.uplinks} cannot be spread evenly over ocs={self.ocs}: use a multiple of {self.ocs}"
            )

    def build(self) -> Fabric:
        fabric = FabricBuilder("ocs-leaf", asdict(self))
        optical = [fabric.switch(f"ocs{o + 1}", OCS_ROLE) for o in range(self.ocs)]
        spines = [fabric.switch(f"spine{s + 1}", "spine") for s in range(self.spines)]
        leaves = add_leaves(fabric, self.leaves, self.hosts_per_leaf)
        for leaf in leaves:
            for spine in spines:
                fabric.link(leaf, spine, "scale-out")
            for u in range(self.uplinks):
                fabric.link(leaf, optical[u % self.ocs], "circuit")
        return fabric.build()

    def closed_form(self) -> ClosedForm:
        hosts, circuits = self.leaves * self.hosts_per_leaf, self.leaves * self.uplinks
        if not self.spines:
            return ClosedForm(hosts, self.ocs + self.leaves, hosts + circuits, None, None, None)
        packet = SpineLeaf(self.spines, self.leaves, self.hosts_per_leaf).closed_form()
        return replace(packet, switches=packet.switches + self.ocs, links=packet.links + circuits)
