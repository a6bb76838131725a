"""What the fabric and the machine did while something was measured, whatever sent: losses, links, evidence for the verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.machine.bringup import Lab
from lab.measuring.cpu import SAMPLED
from lab.measuring.diagnosis import Diagnosis, RankUse, Tables, diagnose
from lab.measuring.monitor import Window
from lab.measuring.tables import Seen, circuit_uses, host_uses, idle_queues, link_uses
from lab.measuring.verdict import Evidence
from lab.planning.scale import Scale
from lab.planning.site import Site
from lab.rows import CpuSamples, LinkSamples, LinkTotal
from topologies import Fabric
from topologies.impairments import EgressCounts
from topologies.inspection import inspect
from traffic.framing import ETHERNET_BYTES
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


def look(lab: Lab) -> Seen:
    """What the fabric is now, whatever was asked for."""
    delayed = any(link.delay_us for link in lab.fabric.links)
    return Seen(inspect(lab.fabric), lab.net.link_counters() if delayed else {})


def diagnosed(
    lab: Lab,
    site: Site,
    window: Window,
    losses: Losses,
    before: Seen,
    *,
    other_cores: float | None = None,
    ranks: Sequence[RankUse] = (),
    began_s: float = 0.0,
) -> tuple[Diagnosis, ...]:
    """What is wrong with the fabric now, or was since `before`. other_cores: None = as the window has it; began_s: when the run
    began, on the window's clock."""
    fabric, after = lab.fabric, look(lab)
    still = site.optical and site.circuits and len(site.circuits.slices) == 1
    return diagnose(
        Tables(
            fabric=fabric,
            inspection=after.inspection,
            shaping=lab.net.audit(),
            links=link_uses(
                fabric,
                lab.net.emulation.shapes,
                window,
                before,
                after,
                lost_behind=losses.backlogs,
                on_purpose=losses.on_purpose,
            ),
            hosts=host_uses(fabric, before.inspection, after.inspection, losses.on_purpose),
            circuits=list(circuit_uses(site.circuits.slices[0].circuits, site.optical, fabric, window, began_s))
            if still and site.circuits and site.optical
            else (),
            ranks=ranks,
            other_cores=window.other_cores if other_cores is None else other_cores,
            strangers=window.strangers,
            idle_share=window.idle_share,
        )
    )


def observed(lab: Lab, site: Site, window: Window, losses: Losses, diagnoses: tuple[Diagnosis, ...]) -> Evidence:
    """What is known without knowing who sent what, of something that was asked for once and done."""
    e = site.experiment
    return Evidence(
        iterations_done=1,
        iterations_asked=1,
        diagnoses=diagnoses,
        idle_share=window.idle_share,
        switch_wait_share=window.switch_wait_share,
        steal_share=window.steal_share,
        other_labs_cores=window.other_labs_cores,
        clock_drift=window.clock_drift,
        longest_gap_s=window.longest_gap_s,
        idle_queues=tuple(idle_queues(lab.fabric, lab.net.emulation.shapes, window)),
        controller_status=lab.controller.poll() if lab.controller else None,
        datapath_stopped_s=window.stopped_s,
        retransmits=losses.transport.retransmits,
        timeouts=losses.transport.timeouts,
        spread=e.spread,
        out_of_order=losses.transport.out_of_order,
        dropped_at_sockets=losses.transport.dropped_host,
        queue_drops=sum(losses.queues.values()),
        pacing=t.paced_ns / t.pacing_took_ns if (t := losses.transport).pacing_took_ns else None,
        lossless_asked=e.lossless is not None,
        frame_bytes=e.mtu + ETHERNET_BYTES,
        datapath_drops=losses.datapath,
        loss_asked=e.loss_percent / 100,
        impaired=losses.impaired,
        jitter_asked=e.jitter_us > 0,
        hop=lab.net.hop_report(),
        hop_frames_per_s=lab.hop_frames_per_s,
        delays_us=tuple(sorted({link.delay_us for link in lab.fabric.links if link.delay_us})),
    )


def switch_queue_frames(lab: Lab, window: Window, busy: Sequence[tuple[float, float]], frame_s: float) -> float | None:
    """How long frames waited for the switch thread, in frame times; None = not observed, or the kernel switches."""
    waited_s = window.switch_queue_s(busy) if lab.datapath == "netdev" else None
    return None if waited_s is None else waited_s / frame_s


def frame_s(site: Site, scale: Scale) -> float:
    """Emulated time of one full frame at the fastest NIC's rate."""
    return (site.experiment.mtu + ETHERNET_BYTES) * 8 / (site.nic_mbps / scale.rate_scale * 1e6)


def direction(fabric: Fabric, intf: str) -> str:
    """'leaf1->spine2' for the interface that sends there."""
    link = fabric.link_of(intf)
    return fabric.direction(link.a if link.a.intf == intf else link.b)


def link_samples(fabric: Fabric, window: Window, origin_s: float) -> LinkSamples:
    links = tuple(direction(fabric, intf) for intf in window.intfs)
    kinds = tuple(fabric.link_of(intf).kind for intf in window.intfs)
    return LinkSamples(
        at_s=window.at_s - origin_s,
        intfs=window.intfs,
        links=links,
        kinds=kinds,
        bytes_sent=window.bytes_sent,
        packets_sent=window.frames_sent,
        queue_at_s=window.queue_at_s - origin_s,
        queue_bytes=window.queue_bytes,
        queue_drops=window.queue_drops,
    )


def cpu_samples(window: Window, origin_s: float) -> CpuSamples:
    return CpuSamples(window.queue_at_s - origin_s, SAMPLED, window.cpu_s)


def link_totals(
    fabric: Fabric, window: Window, losses: Losses, busy_s: float, *, size_bytes: int, planned: Mapping[str, float]
) -> list[LinkTotal]:
    """One for each direction of each link. busy_s: emulated seconds over which utilisation is taken."""
    return [
        LinkTotal(
            size_bytes=size_bytes,
            intf=intf,
            link=direction(fabric, intf),
            kind=fabric.link_of(intf).kind,
            bytes_sent=sent,
            planned_bytes=planned.get(intf, 0.0),
            dropped=losses.at(intf),
            utilisation=sent * 8 / (fabric.link_of(intf).rate_mbps * 1e6 * busy_s) if busy_s else 0.0,
        )
        for intf, sent in window.bytes_by_intf().items()
    ]
