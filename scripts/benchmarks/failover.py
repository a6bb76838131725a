"""An uplink goes down under load and comes back: how many packets its flows lose, and whether any others lose one."""

import select
import socket
import statistics
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.figure import Figure, Losses, Target, figure, joined, losses
from benchmarks.machine import inside, prefer
from controller import policy, rules_of
from controller.dataplane import DataPlane
from controller.flow import UDP, Flow
from lab.bringup import Lab, lab_up
from lab.progress import Progress
from topologies import namespaces
from topologies.fabric import Fabric
from topologies.spine_leaf import SpineLeaf

_LEAF = "leaf1"
_FLOWS = 16
_TICK_S = 0.001
_RATE_MBPS = 100
_ROCEV2_PORT, _FIRST_SOURCE_PORT = 4791, 20_000
# Frames of about 100 bytes.
_PAYLOAD_BYTES = 60
# A sender that was held up longer goes on from now: what it missed would be a burst that no sender meant.
_MAX_CATCH_UP_S = 0.03
_DRAIN_EVERY = 20
_SO_RCVBUFFORCE, _RECEIVE_BYTES = 33, 4 << 20
# Before a change: packets that may still be under way belong to it.
_MARGIN_S = 0.1
_PHASE_S = 2.0
_DEAD = Target("ours", high=30)
_NONE = Target("ours", 0, 0)
_AS_COMPUTED = Target("ratio", 0.95, 1.05)


@dataclass(frozen=True)
class _Round:
    """One failure of `uplink`: losses of its flows and of the others, and of all when it came back and before."""

    uplink: str
    dead: list[Losses]
    others_lost: int
    back_lost: int
    before_lost: int
    counted: int
    computed: int
    latest_s: float
    per_s: float


def failover(*, quick: bool) -> list[Figure]:
    fabric = SpineLeaf(spines=2, leaves=4, hosts_per_leaf=4).build().with_links(rate_mbps=_RATE_MBPS)
    measured = inside(lambda: _measure(fabric, times=1 if quick else 3), fabric.name)
    rounds = [_Round(**{**r, "dead": [Losses(*x) for x in r["dead"]]}) for r in measured["rounds"]]
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
        figure("failover, dead link", max(lost), "ms", _DEAD, note=note),
        figure("failover, other links", sum(r.others_lost for r in rounds), "packets", _NONE, note=each),
        figure("failover, link returns", sum(r.back_lost for r in rounds), "packets", _NONE, note="all flows"),
        figure(
            "failover, paths", sum(r.counted for r in rounds), "packets", _AS_COMPUTED,
            peer=sum(r.computed for r in rounds),
            note="counted on the link in the second before, against what flows computed to use it sent",
        ),
    ]  # fmt: skip


def _measure(fabric: Fabric, times: int) -> dict[str, Any]:
    """Runs inside a sandbox."""
    flows = _flows(fabric)
    plane = DataPlane(fabric, rules_of(policy("ecmp"), fabric))
    paths = [{port.intf for port in plane.path(flow)} for flow in flows]
    uplinks = sorted(p.intf for p in fabric.ports_of(_LEAF) if not fabric.node(fabric.peer(p).node).is_host)
    with lab_up(fabric, policy="ecmp", mtu=9000, progress=Progress(quiet=True)) as lab:
        rounds = [
            _fail(lab, uplink, flows, [uplink in path for path in paths]) for _ in range(times) for uplink in uplinks
        ]
    return {"rounds": rounds}


def _flows(fabric: Fabric) -> list[Flow]:
    """From the leaf's hosts in turn to the hosts of other leaves in turn, a source port each."""
    near = [h.name for h in fabric.hosts if fabric.switch_of(h.name) == _LEAF]
    far = [h.name for h in fabric.hosts if fabric.switch_of(h.name) != _LEAF]

    def ip(host: str) -> str:
        return str(fabric.scale_out_port(host).ip)

    return [
        Flow(ip(near[i % len(near)]), ip(far[i % len(far)]), UDP, _FIRST_SOURCE_PORT + i, _ROCEV2_PORT)
        for i in range(_FLOWS)
    ]


def _fail(lab: Lab, uplink: str, flows: Sequence[Flow], on_uplink: Sequence[bool]) -> dict[str, Any]:
    traffic = _Traffic(lab.fabric, flows)
    traffic.start()
    try:
        time.sleep(_PHASE_S / 2)
        counted, ticks = -_sent(lab, uplink), -len(traffic.sent_at)
        time.sleep(_PHASE_S / 2)
        counted, ticks = counted + _sent(lab, uplink), ticks + len(traffic.sent_at)
        down_at = _set(uplink, "down")
        time.sleep(_PHASE_S)
        up_at = _set(uplink, "up")
        time.sleep(_PHASE_S)
    finally:
        traffic.stop()
    start, end = traffic.sent_at[0] + _PHASE_S / 4, traffic.sent_at[-1]

    def lost(begin: float, until: float) -> list[Losses]:
        return [losses(traffic.sent_at, got, begin, until) for got in traffic.arrived]

    dark = lost(down_at - _MARGIN_S, up_at - _MARGIN_S)
    return {
        "uplink": uplink,
        "dead": [(x.lost, x.longest_gap_s) for x, dead in zip(dark, on_uplink, strict=True) if dead],
        "others_lost": sum(x.lost for x, dead in zip(dark, on_uplink, strict=True) if not dead),
        "back_lost": sum(x.lost for x in lost(up_at - _MARGIN_S, end)),
        "before_lost": sum(x.lost for x in lost(start, down_at - _MARGIN_S)),
        "counted": counted,
        "computed": ticks * sum(on_uplink),
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


class _Traffic(threading.Thread):
    """Sends one packet of every flow each millisecond and notes which arrive. It sleeps between: it never spins.

    sent_at: by sequence number, the same for every flow; arrived: by flow, sequence numbers.
    """

    def __init__(self, fabric: Fabric, flows: Sequence[Flow]) -> None:
        super().__init__(name="traffic")
        host = {fabric.scale_out_port(h.name).ip: h.name for h in fabric.hosts}
        self._senders = namespaces.each([(host[f.src_ip], f) for f in flows], _sender)
        targets = {f.dst_ip: host[f.dst_ip] for f in flows}
        self._receivers = namespaces.each([(name, ip) for ip, name in targets.items()], _receiver)
        self._over = threading.Event()
        self.sent_at: list[float] = []
        self.arrived: list[list[int]] = [[] for _ in flows]
        self.latest_s = 0.0

    def stop(self) -> None:
        """Returns when the last packet has had its time to arrive."""
        self._over.set()
        self.join()
        for s in (*self._senders, *self._receivers):
            s.close()

    def run(self) -> None:
        prefer()
        due = time.monotonic()
        while not self._over.is_set():
            if (left := due - time.monotonic()) > 0:
                time.sleep(left)
            self._send(due)
            due += _TICK_S
            if len(self.sent_at) % _DRAIN_EVERY == 0:
                self._drain()
            if time.monotonic() > due + _MAX_CATCH_UP_S:
                due = time.monotonic()
        time.sleep(_MARGIN_S)
        self._drain()

    def _send(self, due: float) -> None:
        number, now = len(self.sent_at), time.monotonic()
        self.sent_at.append(now)
        self.latest_s = max(self.latest_s, now - due)
        for flow, sender in enumerate(self._senders):
            sender.send(struct.pack("=II", flow, number).ljust(_PAYLOAD_BYTES, b"\0"))

    def _drain(self) -> None:
        while ready := select.select(self._receivers, [], [], 0)[0]:
            for receiver in ready:
                flow, number = struct.unpack_from("=II", receiver.recv(2048))
                self.arrived[flow].append(number)


def _sender(flow: Flow) -> socket.socket:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((flow.src_ip, flow.src_port))
    s.connect((flow.dst_ip, flow.dst_port))
    return s


def _receiver(ip: str) -> socket.socket:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BYTES)
    s.bind((ip, _ROCEV2_PORT))
    s.setblocking(False)
    return s
