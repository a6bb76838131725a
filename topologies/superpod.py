"""SuperPOD: scalable units of servers with a leaf per rail each, all joined by one tier of spines at full bisection.

NVIDIA, "DGX SuperPOD: Next Generation Scalable Infrastructure for AI Leadership, Reference Architecture", DGX H100, compute
fabric: a scalable unit is 32 servers of 8 accelerators with 8 leaves; four units share 16 spines.
"""

from dataclasses import asdict, dataclass

from topologies.builder import FabricBuilder
from topologies.errors import TopologyError
from topologies.fabric import Fabric
from topologies.rails import DEFAULT_HB_RATE_GBPS, add_servers, join, require_rate, with_hb_domains
from topologies.spine_leaf import SpineLeaf
from topologies.topology import ClosedForm, require_at_least


@dataclass(frozen=True)
class SuperPod:
    """units: scalable units; servers_per_unit, which is also a leaf's cables down and up; gpus_per_server: accelerators of
    an HB domain, and leaves of a unit; spines, which every leaf's uplinks are shared among; hb_rate_gbps: of an
    accelerator's scale-up link."""

    units: int = 2
    servers_per_unit: int = 2
    gpus_per_server: int = 4
    spines: int = 2
    hb_rate_gbps: float = DEFAULT_HB_RATE_GBPS

    def __post_init__(self) -> None:
        require_at_least(self, units=1, servers_per_unit=1, gpus_per_server=1, spines=1)
        require_rate(self)
        if self.servers_per_unit % self.spines:
            raise TopologyError(
                f"spines={self.spines} do not get the same share of a leaf's {self.servers_per_unit} uplinks, one for each "
                f"server of its unit: use a divisor of {self.servers_per_unit}"
            )

    @property
    def _links_per_pair(self) -> int:
        """Cables between a leaf and a spine."""
        return self.servers_per_unit // self.spines

    def build(self) -> Fabric:
        fabric = FabricBuilder("superpod", asdict(self))
        spines = [fabric.switch(f"spine{s + 1}", "spine") for s in range(self.spines)]
        leaves = add_servers(fabric, self.units, self.servers_per_unit, self.gpus_per_server, self.hb_rate_gbps)
        join(fabric, leaves, spines, self._links_per_pair)
        return fabric.build()

    def closed_form(self) -> ClosedForm:
        """The network is a spine-leaf with other neighbours below a leaf."""
        leaves = self.units * self.gpus_per_server
        network = SpineLeaf(self.spines, leaves, self.servers_per_unit, self._links_per_pair).closed_form()
        return with_hb_domains(network, self.units * self.servers_per_unit, self.gpus_per_server)
