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
from lab.model.predictor import MAX_STEP_SENDS, predict_over
from lab.model.wire import Paths, queue_pair_connection
from lab.planning import sending
from lab.planning.credits import credits_of
from lab.planning.plan import Plan, Size, wire_flows
from lab.planning.scale import TYPICAL_BUDGET, Scale, choose_scale
from lab.planning.ways import Unknown, ways
from lab.planning.workload import step_columns
from lab.rows import json_value
from topologies import Fabric, Port
from topologies.shaping import Shape, shapes
from traffic.schedule import Connection
from traffic.transport import WireFlow
from traffic.workloads.report import StepReport

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
    def paths(self) -> Mapping[Connection, Sequence[Port]]:
        """connection -> the egress port of every hop, each queue pair as a connection."""
        return self._by_connection(self.ways.forth()) if self.ways else {}

    @cached_property
    def ack_paths(self) -> Mapping[Connection, Sequence[Port]]:
        """connection -> the way back."""
        return self._by_connection(self.ways.back()) if self.ways else {}

    def _by_connection(self, paths: Sequence[Sequence[Port]]) -> dict[Connection, Sequence[Port]]:
        qps = self.plan.experiment.qps
        over = [queue_pair_connection(c, i, qps) for c in self.plan.schedule.connections for i in range(qps)]
        return dict(zip(over, paths, strict=True))

    def prediction(self, size: Size, scale: Scale) -> Prediction | None:
        """Made once for each size and scale."""
        if self.ways is None:
            return None
        if (size, scale) not in self._made:
            sends, mtu = self.plan.sends(size.count, scale.time_dilation), self.plan.experiment.mtu
            self._made[size, scale] = predict_over(self.emulated, sends, self.ways, mtu)
        return self._made[size, scale]

    def stated(self, scale: Scale) -> dict[str, Any]:
        """What is expected of every size, with what it was reckoned with: plain data, for before the first packet."""
        rows = [row(self, size, self.prediction(size, scale), scale) for size in self.plan.sizes(scale)]
        return {
            "unknown": self.unknown,
            "latency": {
                "per_hop_s": DEFAULT_LATENCY.per_hop_s,
                "end_s": DEFAULT_LATENCY.end_s,
                "calibrated_on": "two hosts over one switch and over three, none of them of this fabric",
            },
            "rows": [{name: json_value(value) for name, value in one.items()} for one in rows],
        }

    @cached_property
    def shapes(self) -> Mapping[str, Shape]:
        """Of the emulated links, by interface."""
        e = self.plan.experiment
        return shapes(self.emulated, e.mtu, e.queue_frames)

    def credits(self) -> dict[WireFlow, int]:
        """Of each flow, for --lossless credits. Raises LabError where paths are unknown, or queues too short."""
        e = self.plan.experiment
        if self.unknown:
            raise LabError(f"--lossless credits needs to know which queues a packet crosses: {self.unknown}")
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
    """Walk every flow and the acknowledgements that come back. Raises LabError when the policy drops one of them."""
    try:
        return Forecast(planned, emulated, ways(planned, emulated, flows))
    except Unknown as unknown:
        return Forecast(planned, emulated, unknown=str(unknown))


def require_short_ways(expected: Forecast, scale: Scale) -> None:
    """Refuses round trips so long, as emulated, that no connection would be made in its time."""
    if not expected.ways:
        return
    p, hosts, e = expected.ways, expected.plan.hosts, expected.plan.experiment
    delay_s = np.array([expected.emulated.link_of(port.intf).delay_us for port in p.ports]) * 1e-6
    trip_s = np.zeros(len(p))
    for start, link in ((p.start, p.link), (p.back_start, p.back_link)):
        trip_s += np.bincount(np.repeat(np.arange(len(p)), np.diff(start)), delay_s[link], len(p))
    longest = int(np.argmax(trip_s))
    if trip_s[longest] > MAX_ROUND_TRIP_S:
        src, dst, _ = expected.plan.schedule.connections[longest // e.qps]
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


def typical_scale(planned: Plan) -> Scale:
    """The scale that was asked for, or a typical machine's."""
    return planned.experiment.scale or choose_scale(planned.load, TYPICAL_BUDGET, planned.experiment.time_limit_s)


def rows(planned: Plan) -> list[dict[str, Any]]:
    """What `predict --json` prints."""
    scale, expected, found = expected_of(planned)
    return [
        {name: json_value(value) for name, value in row(expected, size, prediction, scale).items()}
        for size, prediction in found
    ]


def expected_of(planned: Plan) -> tuple[Scale, Forecast, list[tuple[Size, Prediction | None]]]:
    """At the scale that was asked for, or a typical machine's."""
    scale = typical_scale(planned)
    expected = forecast_of(planned, scale)
    return scale, expected, [(size, expected.prediction(size, scale)) for size in planned.sizes(scale)]


def row(expected: Forecast, size: Size, found: Prediction | None, scale: Scale) -> dict[str, Any]:
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
