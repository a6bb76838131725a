"""Rail-only: rails that no spine joins. Two accelerators that share neither rail nor server meet through a peer's HB domain.

Wang, Ghobadi, Shakeri, Zhang, Hasani, "Rail-only: A Low-Cost High-Performance Network for Training LLMs with Trillion
Parameters", HOTI 2024.
"""

from dataclasses import asdict, dataclass

from topologies.builder import FabricBuilder
from topologies.fabric import Fabric
from topologies.rails import DEFAULT_HB_RATE_GBPS, add_servers, require_rate, with_hb_domains
from topologies.topology import ClosedForm, require_at_least


@dataclass(frozen=True)
class RailOnly:
    """servers; gpus_per_server: accelerators of an HB domain, and the number of rails, each one leaf; hb_rate_gbps: of an
    accelerator's scale-up link."""

    servers: int = 4
    gpus_per_server: int = 4
    hb_rate_gbps: float = DEFAULT_HB_RATE_GBPS

    def __post_init__(self) -> None:
        require_at_least(self, servers=1, gpus_per_server=2)
        require_rate(self)

    def build(self) -> Fabric:
        fabric = FabricBuilder("rail-only", asdict(self))
        add_servers(fabric, 1, self.servers, self.gpus_per_server, self.hb_rate_gbps)
        return fabric.build()

    def closed_form(self) -> ClosedForm:
        """Across rails the network has no paths, so none of the figures that compare them."""
        hosts = self.servers * self.gpus_per_server
        network = ClosedForm(
            hosts, self.gpus_per_server, links=hosts, diameter=None, bisection_links=None, path_diversity=None
        )
        return with_hb_domains(network, self.servers, self.gpus_per_server)
