"""Fat-tree: k pods of k-port switches, every tier with the capacity of the one below. A three-tier folded Clos.

Al-Fares, Loukissas, Vahdat, "A Scalable, Commodity Data Center Network Architecture", SIGCOMM 2008, section 3.
"""

from dataclasses import asdict, dataclass

from topologies.addressing import grouped_prefixes, host_ip
from topologies.builder import FabricBuilder
from topologies.errors import TopologyError
from topologies.fabric import Fabric
from topologies.topology import ClosedForm, require_at_least


@dataclass(frozen=True)
class FatTree:
    """k: ports of every switch, and the number of pods. A pod has k/2 edge and k/2 aggregation switches; each edge switch
    has k/2 hosts; aggregation switch j of each pod is joined to the j-th k/2 of the (k/2)^2 cores."""

    k: int = 4

    def __post_init__(self) -> None:
        require_at_least(self, k=2)
        if self.k % 2:
            raise TopologyError(
                f"k={self.k} is odd: half of a switch's ports go up, use k={self.k - 1} or {self.k + 1}"
            )

    def build(self) -> Fabric:
        fabric, half = FabricBuilder("fat-tree", asdict(self)), self.k // 2
        cores = [fabric.switch(f"core{i + 1}", "core") for i in range(half**2)]
        for pod, prefixes in enumerate(grouped_prefixes(self.k, half, half)):
            first = pod * half
            aggregations = [fabric.switch(f"agg{first + j + 1}", "aggregation", group=pod) for j in range(half)]
            for i, prefix in enumerate(prefixes, first):
                edge = fabric.switch(f"edge{i + 1}", "edge", prefix=str(prefix), group=pod)
                for j in range(half):
                    fabric.link(fabric.host(f"h{i * half + j + 1}", host_ip(prefix, j), group=pod), edge, "scale-out")
                for aggregation in aggregations:
                    fabric.link(edge, aggregation, "scale-out")
            for j, aggregation in enumerate(aggregations):
                for core in cores[j * half : (j + 1) * half]:
                    fabric.link(aggregation, core, "scale-out")
        return fabric.build()

    def closed_form(self) -> ClosedForm:
        """Full bisection: every host of one half has a link's worth of the core. A path between pods is fixed by its
        core."""
        k = self.k
        return ClosedForm(
            hosts=k**3 // 4,
            switches=5 * k**2 // 4,
            links=3 * k**3 // 4,
            diameter=4,
            bisection_links=k**3 // 8,
            path_diversity=(k // 2) ** 2,
        )
