"""What the fabric and the machine did while something was measured, whatever sent: losses, links, evidence for the verdict."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from lab.machine.bringup import Lab
from lab.measuring.cpu import SAMPLED
from lab.measuring.diagnosis import Diagnosis, RankUse, Tables, diagnose
from lab.measuring.losses import Losses
from lab.measuring.monitor import Monitor, Window
from lab.measuring.tables import Seen, circuit_uses, host_uses, idle_queues, link_uses
from lab.measuring.verdict import Evidence
from lab.planning.scale import Scale
from lab.planning.site import Site
from lab.rows import CpuSamples, LinkSamples, LinkTotal, RunRecord
from topologies import Fabric
from topologies.inspection import inspect
from traffic.framing import ETHERNET_BYTES
from traffic.transport import TransportCounters


class Before:
    """All that is read before something is measured; `after` reads it again. counters: of what sends, cumulative."""

    def __init__(self, lab: Lab, site: Site, monitor: Monitor, counters: Callable[[], TransportCounters]) -> None:
        self._lab, self._site, self._monitor, self._counters = lab, site, monitor, counters
        lab.net.hop_report()
        self._losses, self._seen, self._start = Losses.of(lab, counters()), _look(lab), monitor.mark()

    def after(self) -> "Observation":
        window = self._monitor.window(self._start, self._monitor.mark())
        losses = Losses.of(self._lab, self._counters()).since(self._losses)
        return Observation(self._lab, self._site, window, losses, self._seen, _look(self._lab), self._monitor.origin_s)


@dataclass(frozen=True)
class Observation:
    """Of the time between `before` and `after`. losses: in that time; origin_s: when the run began, on the window's clock."""

    lab: Lab
    site: Site
    window: Window
    losses: Losses
    before: Seen
    after: Seen
    origin_s: float

    @property
    def fabric(self) -> Fabric:
        return self.lab.fabric

    @cached_property
    def links(self) -> LinkSamples:
        fabric, window = self.fabric, self.window
        return LinkSamples(
            at_s=window.at_s - self.origin_s,
            intfs=window.intfs,
            links=tuple(direction(fabric, intf) for intf in window.intfs),
            kinds=tuple(fabric.link_of(intf).kind for intf in window.intfs),
            bytes_sent=window.bytes_sent,
            packets_sent=window.frames_sent,
            queue_at_s=window.queue_at_s - self.origin_s,
            queue_bytes=window.queue_bytes,
            queue_drops=window.queue_drops,
        )

    def keep(self, record: RunRecord, busy_s: float, *, size_bytes: int, planned: Mapping[str, float]) -> None:
        """The links' and the CPU's samples, and each link's total. busy_s: emulated seconds over which utilisation is taken."""
        record.links.append(self.links)
        record.cpu.append(CpuSamples(self.window.queue_at_s - self.origin_s, SAMPLED, self.window.cpu_s))
        record.link_totals += self._link_totals(busy_s, size_bytes, planned)

    def _link_totals(self, busy_s: float, size_bytes: int, planned: Mapping[str, float]) -> list[LinkTotal]:
        """One for each direction of each link."""
        link_of = self.fabric.link_of
        return [
            LinkTotal(
                size_bytes=size_bytes,
                intf=intf,
                link=direction(self.fabric, intf),
                kind=link_of(intf).kind,
                bytes_sent=sent,
                planned_bytes=planned.get(intf, 0.0),
                dropped=self.losses.at(intf),
                utilisation=sent * 8 / (link_of(intf).rate_mbps * 1e6 * busy_s) if busy_s else 0.0,
            )
            for intf, sent in self.window.bytes_by_intf().items()
        ]

    def diagnosed(self, *, other_cores: float | None = None, ranks: Sequence[RankUse] = ()) -> tuple[Diagnosis, ...]:
        """What is wrong with the fabric now, or was since `before`. other_cores: None = as the window has it."""
        site, fabric, window, losses = self.site, self.fabric, self.window, self.losses
        still = site.optical and site.circuits and len(site.circuits.slices) == 1
        return diagnose(
            Tables(
                fabric=fabric,
                inspection=self.after.inspection,
                shaping=self.lab.net.audit(),
                links=link_uses(
                    fabric,
                    self.lab.net.emulation.shapes,
                    window,
                    self.before,
                    self.after,
                    lost_behind=losses.backlogs,
                    on_purpose=losses.on_purpose,
                ),
                hosts=host_uses(fabric, self.before.inspection, self.after.inspection, losses.on_purpose),
                circuits=list(
                    circuit_uses(site.circuits.slices[0].circuits, site.optical, fabric, window, self.origin_s)
                )
                if still and site.circuits and site.optical
                else (),
                ranks=ranks,
                other_cores=window.other_cores if other_cores is None else other_cores,
                strangers=window.strangers,
                idle_share=window.idle_share,
            )
        )

    def evidence(self, diagnoses: tuple[Diagnosis, ...]) -> Evidence:
        """What is known without knowing who sent what, of something that was asked for once and done."""
        e, lab, window, losses = self.site.experiment, self.lab, self.window, self.losses
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


def _look(lab: Lab) -> Seen:
    """What the fabric is now, whatever was asked for."""
    delayed = any(link.delay_us for link in lab.fabric.links)
    return Seen(inspect(lab.fabric), lab.net.link_counters() if delayed else {})


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
