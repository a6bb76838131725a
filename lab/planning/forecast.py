"""What a run should show, known before its first packet: every flow's path, and from it the predicted time.

Where a path is unknown (lab/planning/ways.py says when) there is no prediction, and the reason says so.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from lab.errors import LabError
from lab.model.fluid import DEFAULT_LATENCY, Prediction
from lab.model.predictor import MAX_STEP_SENDS, busiest_link_s, predict_over
from lab.model.wire import Paths, Way, queue_pair_connection, shares
from lab.planning import sending
from lab.planning.credits import credits_of
from lab.planning.plan import Plan, Size, wire_flows
from lab.planning.scale import Scale
from lab.planning.ways import Unknown, ways
from lab.planning.workload import step_columns
from lab.rows import json_value
from topologies import Fabric, Port
from topologies.shaping import LINKS_PER_ROUND_TRIP, Shape, shapes
from traffic.schedule import Connection
from traffic.transport import WireFlow
from traffic.workloads.report import StepReport

# TCP's window: one bandwidth-delay product is under way, as much again may wait where flows meet. The emulator's own delay
# counts as well: one process refills all send buffers, and adds all ranks' values when a step ends. Measured at 25 Mbit/s, a
# ring over its roofline with 14 frames 1.13, with 32 1.02, without a window 1.02; all-to-all over its prediction at 20 Mbit/s
# with 14 frames 1.01, with 32 1.02, with 48 1.07, without 1.13 to 1.23.
_WINDOW_BDPS, _EMULATOR_S = 2, 35e-3
# Where paths are unknown, links of the host's on a long one.
_LONG_WAY = 8
# A connection is given up after 15 s.
MAX_ROUND_TRIP_S = 10.0


@dataclass(frozen=True)
class Forecast:
    """ways: of the plan's connections, each queue pair as one; None where they are unknown, and why."""

    plan: Plan
    emulated: Fabric
    ways: Paths | None = None
    unknown: str = ""
    _made: dict[tuple[Size, Scale], Prediction] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def paths(self) -> Mapping[Connection, Way]:
        """connection -> egress port of every hop, or with packets sprayed the share that leaves by each."""
        return self._by_connection(self.ways.forth.rows(self.ways.ports)) if self.ways else {}

    @cached_property
    def ack_paths(self) -> Mapping[Connection, Way]:
        """connection -> the way back."""
        return self._by_connection(self.ways.back.rows(self.ways.ports)) if self.ways else {}

    def _by_connection(self, found: Sequence[Way]) -> dict[Connection, Way]:
        qps = self.plan.experiment.qps
        over = [queue_pair_connection(c, i, qps) for c in self.plan.schedule.connections for i in range(qps)]
        return dict(zip(over, found, strict=True))

    def prediction(self, size: Size, scale: Scale) -> Prediction | None:
        """Made once for each size and scale."""
        if self.ways is None:
            return None
        if (size, scale) not in self._made:
            sends, mtu = self.plan.sends(size.count, scale.time_dilation), self.plan.experiment.mtu
            self._made[size, scale] = predict_over(self.emulated, sends, self.ways, mtu)
        return self._made[size, scale]

    def busiest_link_s(self, size: Size, scale: Scale) -> float:
        """Hardware seconds for which the fullest link is busy in one iteration: no schedule ends sooner. Paths must be known."""
        assert self.ways
        sends = self.plan.sends(size.count, scale.time_dilation)
        return scale.hardware_s(busiest_link_s(self.emulated, sends, self.ways, self.plan.experiment.mtu))

    @cached_property
    def shapes(self) -> Mapping[str, Shape]:
        """Of the emulated links, by interface."""
        e = self.plan.experiment
        return shapes(self.emulated, e.mtu, e.queue_frames)

    @property
    def windows(self) -> Mapping[Connection, int]:
        """Full frames that each TCP connection has under way at most; none where there is no limit of ours.

        As NICs for RDMA bound it (HPCC, SIGCOMM 2019: one bandwidth-delay product): flows that meet share as equals, and none
        fills a queue alone. Here store-and-forward of full frames is most of the delay.
        """
        e = self.plan.experiment
        if e.transport != sending.TCP or e.window_frames == 0:
            return {}
        if e.window_frames is not None:
            return dict.fromkeys(self.plan.schedule.connections, e.window_frames)
        return {c: math.ceil(_WINDOW_BDPS * frames) for c, frames in self._bdp_frames(_EMULATOR_S).items()}

    def _bdp_frames(self, more_s: float = 0.0) -> dict[Connection, float]:
        """Bandwidth-delay products of the connections' ways, in full frames; of the worst way of all where none is known."""
        frame = self.plan.framing.frame_bytes
        if self.paths:
            return {c: self._bdp_bytes(shares(way), more_s) / frame for c, way in self.paths.items()}
        rates = [self.shapes[self.emulated.scale_out_port(host).intf].rate_bytes_s for host in self.plan.hosts]
        longest_s = max(link.delay_us for link in self.emulated.links) * 1e-6
        worst = _LONG_WAY + max(rates) * (LINKS_PER_ROUND_TRIP * longest_s + more_s) / frame
        return dict.fromkeys(self.plan.schedule.connections, worst)

    def _bdp_bytes(self, way: Sequence[tuple[Port, float]], more_s: float) -> float:
        """Of the slowest link, by the time that a full frame and its acknowledgement take. way: ports, how often each."""
        round_trip_s, slowest = more_s, math.inf
        for port, times in way:
            if port.intf in self.shapes:
                rate = self.shapes[port.intf].rate_bytes_s
                delay_s = self.emulated.link_of(port.intf).delay_us * 1e-6
                round_trip_s += times * (self.plan.framing.frame_bytes / rate + 2 * delay_s)
                slowest = min(slowest, rate)
        return slowest * round_trip_s if slowest < math.inf else 0.0

    def credits(self) -> dict[WireFlow, int]:
        """Of each flow, for --lossless credits. Raises LabError where paths are unknown, or queues too short."""
        e = self.plan.experiment
        if self.unknown:
            raise LabError(f"--lossless credits needs to know which queues a packet crosses: {self.unknown}")
        if e.spread != "flow":
            raise LabError(
                f"--lossless credits needs to know which queues a packet crosses: with --spread {e.spread} those change; use "
                "--spread flow"
            )
        most = sending.reliability(e).window
        found = credits_of(self.paths, self.ack_paths, self.shapes, self.plan.framing, most)
        flows = wire_flows(self.plan, self.emulated)
        return {f: found[queue_pair_connection(f.connection, f.qp, e.qps)] for f in flows}

    @property
    def untimed(self) -> str:
        """Why there is no predicted time; '' where there is one."""
        if self.unknown or not self.plan.workload or len(self.plan.schedule) <= MAX_STEP_SENDS:
            return self.unknown
        return (
            f"{len(self.plan.schedule)} operations are more than the {MAX_STEP_SENDS} that the model follows where ranks "
            "compute between their messages: fewer microbatches, layers or ranks have one"
        )

    def jobs(self, found: Prediction | None, scale: Scale) -> tuple[StepReport, ...]:
        """A workload's figures by job, as predicted; none where no time is."""
        if found is None or not self.plan.workload or not len(found.arrived_s):
            return ()
        times = (np.rint(t / scale.time_dilation * 1e9).astype(np.int64) for t in (found.started_s, found.arrived_s))
        return tuple(self.plan.workload.reports(*times))

    def roofline_s(self, size: Size, scale: Scale) -> float:
        """In hardware seconds, for the bytes that are really sent."""
        return self.plan.cut.seconds(size.emulated_bytes * scale.size_scale)


def forecast(planned: Plan, emulated: Fabric, flows: Sequence[WireFlow]) -> Forecast:
    """Find every flow's path and that of the acknowledgements that come back. Raises LabError when the policy drops one."""
    try:
        known = Forecast(planned, emulated, ways(planned, emulated, flows))
    except Unknown as unknown:
        return Forecast(planned, emulated, unknown=str(unknown))
    asked = planned.experiment.window_frames
    if asked and asked < (least := max(known._bdp_frames().values(), default=0.0)):
        why = f"--window {asked} holds senders back: {math.ceil(least)} frames are one bandwidth-delay product"
        return Forecast(planned, emulated, unknown=why)
    return known


def row(expected: Forecast, size: Size, found: Prediction | None, scale: Scale) -> dict[str, Any]:
    """What `predict` shows of a size, by column."""
    roofline = expected.roofline_s(size, scale)
    predicted_s = scale.hardware_s(found.seconds) if found else math.nan
    return {
        "size_bytes": size.size_bytes,
        "emulated_bytes": size.emulated_bytes,
        "roofline_s": roofline,
        "predicted_s": predicted_s,
        "ratio": predicted_s / roofline,
        "busbw_gbytes_s": size.emulated_bytes * scale.size_scale / predicted_s * expected.plan.algo_factor / 1e9,
        "bottleneck": found.bottleneck if found else "",
        "model": found.model if found else "",
        **step_columns(expected.jobs(found, scale), expected.plan.workload),
    }


def stated(expected: Forecast, scale: Scale) -> dict[str, Any]:
    """What is expected of every size, with what it was reckoned with: plain data, for before the first packet."""
    rows = [row(expected, size, expected.prediction(size, scale), scale) for size in expected.plan.sizes(scale)]
    return {
        "unknown": expected.unknown,
        "latency": {
            "per_hop_s": DEFAULT_LATENCY.per_hop_s,
            "end_s": DEFAULT_LATENCY.end_s,
            "calibrated_on": "two hosts over one switch and over three, none of them of this fabric",
        },
        "rows": [{name: json_value(value) for name, value in one.items()} for one in rows],
    }


def require_short_ways(expected: Forecast, scale: Scale) -> None:
    """Refuses round trips so long, as emulated, that no connection would be made in its time."""
    if not expected.ways:
        return
    p, hosts, n = expected.ways, expected.plan.hosts, len(expected.ways.forth.start) - 1
    delay_s = np.array([expected.emulated.link_of(port.intf).delay_us for port in p.ports]) * 1e-6
    trip_s = np.zeros(n)
    for link, flow, share in (p.forth.of(np.arange(n)), p.back.of(np.arange(n))):
        trip_s += np.bincount(flow, delay_s[link] * share, n)
    longest = int(np.argmax(trip_s))
    if trip_s[longest] > MAX_ROUND_TRIP_S:
        src, dst, _ = expected.plan.schedule.connections[longest // expected.plan.experiment.qps]
        raise LabError(
            f"a round trip {hosts[src]} -> {hosts[dst]} would take {trip_s[longest]:g} s here, more than "
            f"{MAX_ROUND_TRIP_S:g} s: the delays x {scale.time_dilation:g}; use shorter ones, larger sizes, or a --scale "
            "RATE:SIZE whose factors are closer to each other"
        )


def forecast_of(planned: Plan, scale: Scale) -> Forecast:
    """For the connections that the plan's transport will make. Needs no root and builds nothing."""
    emulated = scale.fabric(planned.fabric)
    expected = forecast(planned, emulated, wire_flows(planned, emulated))
    if planned.experiment.lossless:
        expected.credits()
    return expected
