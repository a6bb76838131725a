"""From what was counted to the tables that `lab.measuring.diagnosis` reads. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from controller.circuits.routing import Circuits
from lab.measuring.diagnosis import CircuitUse, HostUse, LinkUse
from lab.measuring.monitor import Window
from lab.planning.circuits import Optical
from topologies import Fabric
from topologies.impairments import EgressCounts
from topologies.inspected import Inspection
from topologies.netlink_readings import Counters
from topologies.shaping import Shape

# Frames in a queue that is not about to be empty; pairs of readings; of the rate.
_QUEUED, _READINGS, _LEAST_SHARE = 2, 2, 0.9


@dataclass(frozen=True)
class Seen:
    """At one moment. counters: of both ends of delayed links, where they differ; empty where there are none."""

    inspection: Inspection
    counters: Mapping[str, Counters]


def link_uses(
    fabric: Fabric,
    shapes: Mapping[str, Shape],
    window: Window,
    before: Seen,
    after: Seen,
    *,
    lost_behind: Mapping[str, int],
    on_purpose: Mapping[str, EgressCounts],
) -> list[LinkUse]:
    """One for each direction of each link. lost_behind, on_purpose: by interface, in this window."""
    frames, swallowed = window.frames_by_intf(), window.swallowed()
    rate = np.array([shapes[i].rate_bytes_s if i in shapes else np.inf for i in window.intfs], float)
    # After a pause the bucket and one frame more leave at once (topologies.shaping).
    burst = np.array(
        [shapes[i].burst_bytes + shapes[i].quantum if i in shapes else np.inf for i in window.intfs], float
    )
    excess, speed = (dict(zip(window.intfs, x.tolist(), strict=True)) for x in window.excess(rate, burst))
    return [
        LinkUse(
            intf=intf,
            sent=frames.get(intf, 0),
            lost_behind=lost_behind.get(intf, 0),
            filtered=_filtered(intf, before.inspection, after.inspection),
            swallowed=swallowed.get(intf, 0) - (on_purpose[intf].lost if intf in on_purpose else 0),
            arrived=_arrived(fabric, intf, frames, before, after),
            excess=excess[intf],
            excess_mbps=speed[intf] * 8e-6,
        )
        for intf in window.intfs
    ]


def _filtered(intf: str, before: Inspection, after: Inspection) -> int:
    return after.filters.get(intf, 0) - before.filters.get(intf, 0)


def _arrived(fabric: Fabric, intf: str, frames: Mapping[str, int], before: Seen, after: Seen) -> int | None:
    """Frames that came in at the other end of a delayed link between switches. A cable without a hop has one counter for both
    ends, and a host's end is read in the mirror."""
    link = fabric.link_of(intf)
    far = link.b.intf if link.a.intf == intf else link.a.intf
    if not link.delay_us or far not in after.counters or any(fabric.node(port.node).is_host for port in link.ports):
        return None
    return after.counters[far].rx_packets - before.counters[far].rx_packets


def host_uses(
    fabric: Fabric, before: Inspection, after: Inspection, on_purpose: Mapping[str, EgressCounts]
) -> list[HostUse]:
    """Packets that a host's IP layer counted and its NIC or its transport did not."""
    uses = []
    for host, now in after.ip.items():
        then = before.ip[host]
        asked = sum(on_purpose[port.intf].lost for port in fabric.ports_of(host) if port.intf in on_purpose)
        taken = after.received[host] - before.received[host]
        handed_on = after.sent[host] - before.sent[host] + asked
        lost_in, lost_out = taken - (now.delivered - then.delivered), now.sent - then.sent - handed_on
        uses.append(HostUse(host, max(lost_in, 0), max(lost_out, 0)))
    return uses


def circuit_uses(
    circuits: Circuits, optical: Optical, fabric: Fabric, window: Window, began_s: float
) -> Iterator[CircuitUse]:
    """Of circuits that stay as they are: frames since the last that came out of the optical switch. began_s: when the run began,
    on the window's clock."""
    place = {intf: i for i, intf in enumerate(window.intfs)}
    if len(window.at_s) < 2:
        return
    for ocs, its in sorted(circuits.items()):
        port_of = {port.number: port for port in fabric.ports_of(ocs)}
        for source, target in sorted(its.items()):
            into = window.frames_sent[:, place[fabric.peer(port_of[source]).intf]]
            out = window.frames_sent[:, place[port_of[target].intf]]
            came = np.flatnonzero(np.diff(out))
            last = int(came[-1]) if len(came) else 0
            whole = int(into[-1] - into[0]), int(out[-1] - out[0])
            since = int(into[-1] - into[last]), int(out[-1] - out[last])
            went_dark = since[0] - since[1] > (whole[0] - whole[1]) / 2
            n_in, n_out = since if went_dark else whole
            yield CircuitUse(
                ocs=ocs,
                source=optical.cable_at(ocs, source),
                target=optical.cable_at(ocs, target),
                n_in=n_in,
                n_out=n_out,
                dark_since_s=float(window.at_s[last] - began_s) if went_dark else None,
            )


def idle_queues(fabric: Fabric, shapes: Mapping[str, Shape], window: Window) -> Iterator[str]:
    """Links that sent less than their rate while frames waited for them, the worst first: what a shaped link does to frames
    against what it should (as Mininet-HiFi compares departures with the ideal), between readings that both found a queue."""
    if len(window.at_s) < 2 or len(window.queue_at_s) < 2:
        return
    at = np.abs(window.at_s[:, None] - window.queue_at_s).argmin(axis=0)
    waited = (window.queue_frames[1:] >= _QUEUED) & (window.queue_frames[:-1] >= _QUEUED)
    moved = np.diff(window.bytes_sent[at], axis=0)
    seconds = np.diff(window.at_s[at])[:, None]
    shares = {}
    for i in np.flatnonzero(waited.sum(axis=0) >= _READINGS):
        shape, busy = shapes.get(window.intfs[i]), waited[:, i]
        if shape:
            ideal = (np.broadcast_to(seconds, waited.shape)[busy, i] * shape.rate_bytes_s).sum()
            shares[window.intfs[i]] = float(moved[busy, i].sum() / ideal)
    for intf, share in sorted(shares.items(), key=lambda both: both[1]):
        if share < _LEAST_SHARE:
            link = fabric.link_of(intf)
            label = fabric.direction(link.a if link.a.intf == intf else link.b)
            yield f"{label} ({intf}) sent {share:.0%} of its rate while frames waited"
