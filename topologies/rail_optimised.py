"""Rail-optimised: the accelerators of one local rank share a leaf, so that rings within a rail never climb; spines join the
rails."""

from dataclasses import asdict, dataclass

from topologies.builder import FabricBuilder
from topologies.fabric import Fabric
from topologies.rails import DEFAULT_HB_RATE_GBPS, add_servers, join, require_rate, with_hb_domains
from topologies.spine_leaf import SpineLeaf
from topologies.topology import ClosedForm, require_at_least


@dataclass(frozen=True)
class RailOptimised:
    """servers; gpus_per_server: accelerators of an HB domain, and the number of rails; spines, one cable to every leaf;
    hb_rate_gbps: of an accelerator's scale-up link."""

    servers: int = 4
    gpus_per_server: int = 4
    spines: int = 2
    hb_rate_gbps: float = DEFAULT_HB_RATE_GBPS

    def __post_init__(self) -> None:
        require_at_least(self, servers=1, gpus_per_server=1, spines=1)
        require_rate(self)

    def build(self) -> Fabric:
        fabric = FabricBuilder("rail-optimised", asdict(self))
        spines = [fabric.switch(f"spine{s + 1}", "spine") for s in range(self.spines)]
        leaves = add_servers(fabric, 1, self.servers, self.gpus_per_server, self.hb_rate_gbps)
        join(fabric, leaves, spines)
        return fabric.build()

    def closed_form(self) -> ClosedForm:
        """The network is a spine-leaf with other neighbours below a leaf."""
        network = SpineLeaf(self.spines, leaves=self.gpus_per_server, hosts_per_leaf=self.servers).closed_form()
        return with_hb_domains(network, self.servers, self.gpus_per_server)
