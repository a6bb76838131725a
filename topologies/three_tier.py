"""Three-tier: the classic tree of access, aggregation and core, which loses capacity on its way up.

Oversubscription is realised by the number of uplinks, all cables having one rate; the hosts' share of the core is
1 / (access_oversubscription x aggregation_oversubscription).
"""

from dataclasses import asdict, dataclass

from topologies.addressing import grouped_prefixes, host_ip
from topologies.builder import FabricBuilder
from topologies.errors import TopologyError
from topologies.fabric import Fabric
from topologies.topology import ClosedForm, require_at_least

# Two, as in the classic design: one may fail.
AGGREGATIONS_PER_POD = 2


@dataclass(frozen=True)
class ThreeTier:
    """cores; pods; access_per_pod: access switches of a pod, each joined to the pod's two aggregation switches;
    hosts_per_access; access_oversubscription, aggregation_oversubscription: cables down per cable up, of each switch.

    An aggregation switch's uplinks go to all cores alike, or, where they are half as many as the cores, its pod's other
    aggregation switch has the other half.
    """

    cores: int = 2
    pods: int = 2
    access_per_pod: int = 2
    hosts_per_access: int = 4
    access_oversubscription: int = 2
    aggregation_oversubscription: int = 2

    def __post_init__(self) -> None:
        require_at_least(
            self, cores=1, pods=2, access_per_pod=1, hosts_per_access=1, access_oversubscription=1,
            aggregation_oversubscription=1,
        )  # fmt: skip
        if self.hosts_per_access % (self.access_oversubscription * AGGREGATIONS_PER_POD):
            raise TopologyError(
                f"access_oversubscription={self.access_oversubscription} with hosts_per_access={self.hosts_per_access} does "
                f"not give both aggregation switches the same number of cables: use a hosts_per_access that is a multiple "
                f"of {self.access_oversubscription * AGGREGATIONS_PER_POD}"
            )
        if self._down % self.aggregation_oversubscription:
            raise TopologyError(
                f"aggregation_oversubscription={self.aggregation_oversubscription} does not divide the {self._down} cables "
                f"down of an aggregation switch: use a divisor of {self._down}, or more access_per_pod"
            )
        if self._up % self.cores and self._up * AGGREGATIONS_PER_POD != self.cores:
            raise TopologyError(
                f"cores={self.cores} do not get the same share of each aggregation switch's uplinks ({self._up}): use a divisor "
                f"of {self._up}, or {self._up * AGGREGATIONS_PER_POD}"
            )

    @property
    def _cables(self) -> int:
        """Between an access switch and an aggregation switch."""
        return self.hosts_per_access // self.access_oversubscription // AGGREGATIONS_PER_POD

    @property
    def _down(self) -> int:
        """Cables of an aggregation switch to its pod's access switches."""
        return self.access_per_pod * self._cables

    @property
    def _up(self) -> int:
        """Cables of an aggregation switch to the cores."""
        return self._down // self.aggregation_oversubscription

    def build(self) -> Fabric:
        fabric = FabricBuilder("three-tier", asdict(self))
        cores = [fabric.switch(f"core{i + 1}", "core") for i in range(self.cores)]
        for pod, prefixes in enumerate(grouped_prefixes(self.pods, self.access_per_pod, self.hosts_per_access)):
            first = pod * AGGREGATIONS_PER_POD
            aggregations = [
                fabric.switch(f"agg{first + j + 1}", "aggregation", group=pod) for j in range(AGGREGATIONS_PER_POD)
            ]
            for i, prefix in enumerate(prefixes, pod * self.access_per_pod):
                access = fabric.switch(f"access{i + 1}", "access", prefix=str(prefix), group=pod)
                for j in range(self.hosts_per_access):
                    name = fabric.host(f"h{i * self.hosts_per_access + j + 1}", host_ip(prefix, j), group=pod)
                    fabric.link(name, access, "scale-out")
                for aggregation in aggregations:
                    for _ in range(self._cables):
                        fabric.link(access, aggregation, "scale-out")
            for j, aggregation in enumerate(aggregations):
                for i in range(self._up):
                    fabric.link(aggregation, cores[(j * self._up + i) % self.cores], "scale-out")
        return fabric.build()

    def closed_form(self) -> ClosedForm:
        """Bisection: half of the pods against the other half, through the uplinks of the smaller half. Paths: a cable to
        an aggregation switch, one to a core, and the same down."""
        n_access, up = self.pods * self.access_per_pod, self._up * AGGREGATIONS_PER_POD
        hosts = n_access * self.hosts_per_access
        return ClosedForm(
            hosts=hosts,
            switches=self.cores + self.pods * AGGREGATIONS_PER_POD + n_access,
            links=hosts + n_access * AGGREGATIONS_PER_POD * self._cables + self.pods * up,
            diameter=4,
            bisection_links=self.pods // 2 * up,
            path_diversity=self.cores * self._ways_to_a_core**2,
        )

    @property
    def _ways_to_a_core(self) -> int:
        """From an access switch: over both aggregation switches, or over the one that has this core."""
        if self._up < self.cores:
            return self._cables
        return AGGREGATIONS_PER_POD * self._cables * (self._up // self.cores)
