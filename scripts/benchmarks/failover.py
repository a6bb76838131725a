"""A link goes down under load and comes back: how many packets its flows lose, and whether any others lose one."""

import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.figure import Figure, Losses, Target, figure, joined, losses
from benchmarks.machine import inside
from benchmarks.numbered_traffic import MARGIN_S, ROCEV2_PORT, NumberedTraffic
from controller import policy, rules_of
from controller.dataplane import DataPlane
from controller.flow import UDP, Flow
from lab.machine.bringup import Lab, lab_up
from lab.progress import Progress
from topologies.fabric import Fabric, Port
from topologies.spine_leaf import SpineLeaf

_LEAF = "leaf1"
_FLOWS = 16
_RATE_MBPS = 100
_FIRST_SOURCE_PORT = 20_000
_PHASE_S = 2.0
_DEAD = Target("ours", high=30)
_REMOTE = Target("ours", high=300)
_NONE = Target("ours", 0, 0)
_AS_COMPUTED = Target("ratio", 0.95, 1.05)


@dataclass(frozen=True)
class _Round:
    """One failure of the link of `intf`: losses of its flows and of the others, and of all when it came back and before."""

    intf: str
    dead: list[Losses]
    others_lost: int
    back_lost: int
    before_lost: int
    counted: int
    computed: int
    latest_s: float
    per_s: float


def failover(*, quick: bool) -> list[Figure]:
    """The link that dies is the leaf's own: it sees so itself, and need not be told."""
    fabric = _fabric()
    uplinks = _between(fabric, _LEAF, "spine")
    rounds = _rounds(fabric, uplinks * (1 if quick else 3))
    return [
        *_figures("failover", rounds, _DEAD),
        figure(
            "failover, paths", sum(r.counted for r in rounds), "packets", _AS_COMPUTED,
            peer=sum(r.computed for r in rounds),
            note="counted on the link in the second before, against what flows computed to use it sent",
        ),
    ]  # fmt: skip


def remote_failure(*, quick: bool) -> list[Figure]:
    """A spine loses its link to another leaf: the leaf that sends has all its uplinks, and learns it from the controller."""
    fabric = _fabric()
    far = [intf for spine in ("spine1", "spine2") for intf in _between(fabric, spine, "leaf")]
    used = {port.intf for path in _paths(fabric) for port in path}
    remote = [intf for intf in far if intf in used]
    return _figures("remote failure", _rounds(fabric, remote[:2] if quick else remote), _REMOTE)


def _fabric() -> Fabric:
    return SpineLeaf(spines=2, leaves=4, hosts_per_leaf=4).build().with_links(rate_mbps=_RATE_MBPS)


def _between(fabric: Fabric, switch: str, role: str) -> list[str]:
    """The switch's interfaces to switches of a role."""
    return [own.intf for own, far, _ in fabric.neighbours(switch) if fabric.node(far.node).role == role]


def _paths(fabric: Fabric) -> list[Sequence[Port]]:
    plane = DataPlane(fabric, rules_of(policy("ecmp"), fabric))
    return [plane.path(flow) for flow in _flows(fabric)]


def _figures(name: str, rounds: Sequence[_Round], target: Target) -> list[Figure]:
    dead = [flow for r in rounds for flow in r.dead]
    lost = [flow.lost for flow in dead]
    latest_s = max(r.latest_s for r in rounds)
    before = sum(r.before_lost for r in rounds)
    note = joined(
        f"worst of {len(lost)} flows, median {statistics.median(lost):g}",
        f"worst of each failure: {', '.join(str(max((x.lost for x in r.dead), default=0)) for r in rounds)}",
        f"longest gap {max(flow.longest_gap_s for flow in dead) * 1e3:.0f} ms of the sender's clock",
        f"senders at most {latest_s * 1e3:.1f} ms late, {min(r.per_s for r in rounds):.0f} packets/s or more",
        f"{before} packets lost with nothing wrong" if before else "",
    )
    each = f"{_FLOWS} flows of 1000 packets/s"
    return [
        figure(f"{name}, dead link", max(lost), "ms", target, note=note),
        figure(f"{name}, other links", sum(r.others_lost for r in rounds), "packets", _NONE, note=each),
        figure(f"{name}, link returns", sum(r.back_lost for r in rounds), "packets", _NONE, note="all flows"),
    ]


def _rounds(fabric: Fabric, intfs: Sequence[str]) -> list[_Round]:
    """The interfaces' links die and return one after the other, in one sandbox."""

    def job() -> dict[str, Any]:
        paths = [{port.intf for port in path} for path in _paths(fabric)]
        with lab_up(fabric, policy="ecmp", mtu=9000, progress=Progress(quiet=True)) as lab:
            return {"rounds": [_fail(lab, x, _flows(fabric), [x in path for path in paths]) for x in intfs]}

    measured = inside(job, fabric.name)["rounds"]
    return [_Round(**{**r, "dead": [Losses(*x) for x in r["dead"]]}) for r in measured]


def _flows(fabric: Fabric) -> list[Flow]:
    """From the leaf's hosts in turn to the hosts of other leaves in turn, a source port each."""
    near = [h.name for h in fabric.hosts if fabric.switch_of(h.name) == _LEAF]
    far = [h.name for h in fabric.hosts if fabric.switch_of(h.name) != _LEAF]

    def ip(host: str) -> str:
        return str(fabric.scale_out_port(host).ip)

    return [
        Flow(ip(near[i % len(near)]), ip(far[i % len(far)]), UDP, _FIRST_SOURCE_PORT + i, ROCEV2_PORT)
        for i in range(_FLOWS)
    ]


def _fail(lab: Lab, intf: str, flows: Sequence[Flow], on_link: Sequence[bool]) -> dict[str, Any]:
    traffic = NumberedTraffic(lab.fabric, flows)
    traffic.start()
    try:
        time.sleep(_PHASE_S / 2)
        counted, ticks = -_sent(lab, intf), -len(traffic.sent_at)
        time.sleep(_PHASE_S / 2)
        counted, ticks = counted + _sent(lab, intf), ticks + len(traffic.sent_at)
        down_at = _set(intf, "down")
        time.sleep(_PHASE_S)
        up_at = _set(intf, "up")
        time.sleep(_PHASE_S)
    finally:
        traffic.stop()
    start, end = traffic.sent_at[0] + _PHASE_S / 4, traffic.sent_at[-1]

    def lost(begin: float, until: float) -> list[Losses]:
        return [losses(traffic.sent_at, got, begin, until) for got in traffic.arrived]

    dark = lost(down_at - MARGIN_S, up_at - MARGIN_S)
    return {
        "intf": intf,
        "dead": [(x.lost, x.longest_gap_s) for x, dead in zip(dark, on_link, strict=True) if dead],
        "others_lost": sum(x.lost for x, dead in zip(dark, on_link, strict=True) if not dead),
        "back_lost": sum(x.lost for x in lost(up_at - MARGIN_S, end)),
        "before_lost": sum(x.lost for x in lost(start, down_at - MARGIN_S)),
        "counted": counted,
        "computed": ticks * sum(on_link),
        "latest_s": traffic.latest_s,
        "per_s": len(traffic.sent_at) / (end - traffic.sent_at[0]),
    }


def _sent(lab: Lab, intf: str) -> int:
    return lab.net.link_counters()[intf].tx_packets


def _set(intf: str, state: str) -> float:
    """`ip link set`; when it was begun."""
    began = time.monotonic()
    subprocess.run(["ip", "link", "set", intf, state], check=True, timeout=10)
    return began
