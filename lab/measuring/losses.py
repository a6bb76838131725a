"""Frames that were lost, and where: cumulative counters of a fabric that is up, and their differences."""

from dataclasses import dataclass

from lab.machine.bringup import Lab
from topologies import Fabric
from topologies.impairments import EgressCounts
from traffic.transport import TransportCounters


@dataclass(frozen=True)
class Losses:
    """Cumulative: frames dropped by each link's queue and by the kernel behind it, what each link was asked to do to frames,
    frames lost inside the switch (since last asked), what the transport counted."""

    queues: dict[str, int]
    backlogs: dict[str, int]
    on_purpose: dict[str, EgressCounts]
    datapath: int
    transport: TransportCounters

    @classmethod
    def of(cls, lab: Lab, transport: TransportCounters) -> "Losses":
        """Until now."""
        return cls(
            {**lab.net.switch_drops(), **lab.net.host_drops()},
            lab.net.backlog_drops(),
            lab.net.egress_counts(),
            lab.net.datapath_drops(),
            transport,
        )

    def since(self, before: "Losses") -> "Losses":
        queues, backlogs = (
            {intf: n - old.get(intf, 0) for intf, n in new.items()}
            for new, old in ((self.queues, before.queues), (self.backlogs, before.backlogs))
        )
        on_purpose = {intf: counts.since(before.on_purpose[intf]) for intf, counts in self.on_purpose.items()}
        return Losses(queues, backlogs, on_purpose, self.datapath, self.transport - before.transport)

    def at(self, intf: str) -> int:
        """Frames that one direction of a link lost, on purpose or not."""
        return self.queues.get(intf, 0) + (self.on_purpose[intf].lost if intf in self.on_purpose else 0)

    def at_hosts(self, fabric: Fabric) -> int:
        """In the queues of the hosts' own interfaces, and at full sockets."""
        queues = sum(self.queues.get(port.intf, 0) for h in fabric.hosts for port in fabric.ports_of(h.name))
        return queues + self.transport.dropped_host

    @property
    def in_all(self) -> int:
        return sum(self.queues.values()) + self.datapath + self.impaired.lost + self.transport.dropped_host

    @property
    def impaired(self) -> EgressCounts:
        """All links together."""
        return EgressCounts(*(sum(column) for column in zip(*self.on_purpose.values(), strict=True)))
