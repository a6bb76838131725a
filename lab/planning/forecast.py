"""What a run should show, known before its first packet: every flow's path, and from it the predicted time.

A path is a walk through the policy's rules with Open vSwitch's own hash; with packets sprayed, a walk for each source port
that they leave by in turn. It is unknown where the controller is the user's, where the policy leaves the choice to a hash that
nobody can compute, where it follows measured load, or where it changes with pauses; then there is no prediction, and the
reason says so.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from controller import rules_of
from controller.dataplane import DataPlane, DataPlaneError, Unpredictable
from controller.flow import Flow
from controller.policy import Reactive
from lab.errors import LabError
from lab.model.fluid import Prediction
from lab.model.predictor import MAX_STEP_SENDS, busiest_link_s, predict
from lab.model.wire import Way, queue_pair_connection, shares
from lab.planning import sending
from lab.planning.announcing import flow_of, routing
from lab.planning.credits import credits_of
from lab.planning.experiment import Experiment
from lab.planning.plan import Plan, Size, wire_flows
from lab.planning.scale import Scale
from topologies import Fabric
from topologies.shaping import Shape, shapes
from traffic.schedule import Connection
from traffic.transport import WireFlow
from traffic.workloads.report import StepReport

# A connection is given up after 15 s.
MAX_ROUND_TRIP_S = 10.0
# Through the rules: one takes 50 to 200 us.
_MAX_WALKS = 20_000


@dataclass(frozen=True)
class Forecast:
    """paths: connection -> egress port of every hop, or with packets sprayed the share that leaves by each; each queue pair is a
    connection; ack_paths: connection -> the way back."""

    plan: Plan
    emulated: Fabric
    paths: Mapping[Connection, Way] = field(default_factory=dict)
    ack_paths: Mapping[Connection, Way] = field(default_factory=dict)
    unknown: str = ""

    def prediction(self, size: Size, scale: Scale) -> Prediction | None:
        if self.unknown:
            return None
        sends, mtu = self.plan.sends(size.count, scale.time_dilation), self.plan.experiment.mtu
        return predict(self.emulated, sends, self.paths, mtu, ack_paths=self.ack_paths)

    def busiest_link_s(self, size: Size, scale: Scale) -> float:
        """Hardware seconds for which the fullest link is busy in one iteration: no schedule ends sooner. Paths must be known."""
        sends = self.plan.sends(size.count, scale.time_dilation)
        return scale.hardware_s(
            busiest_link_s(self.emulated, sends, self.paths, self.ack_paths, self.plan.experiment.mtu)
        )

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
    """Walk every flow and the acknowledgements that come back. Raises LabError when the policy drops one of them."""
    if planned.experiment.controller:
        return Forecast(planned, emulated, unknown="the controller is not ours, so the paths are not known")
    if planned.experiment.spread == "flowlet":
        return Forecast(
            planned, emulated, unknown="with --spread flowlet paths follow pauses, which nobody knows before"
        )
    if planned.experiment.rate_limit_mbps is not None:
        return Forecast(
            planned, emulated, unknown="--rate-limit holds senders back, the model knows the links' rates alone"
        )
    if planned.circuits and len(planned.circuits.slices) > 1:
        return Forecast(planned, emulated, unknown="circuits change while it runs")
    chosen = routing(planned, emulated)
    if isinstance(chosen, Reactive):
        return Forecast(planned, emulated, unknown=f"{planned.experiment.routing} moves flows while they run")
    plane = DataPlane(emulated, rules_of(chosen, emulated))
    walk = _Walk(planned.experiment, emulated, plane, len(flows))
    paths: dict[Connection, Way] = {}
    ack_paths: dict[Connection, Way] = {}
    for f in flows:
        there = flow_of(f)
        back = Flow(f.dst_ip, f.src_ip, f.proto, f.dst_port, f.src_port)
        try:
            of = queue_pair_connection(f.connection, f.qp, planned.experiment.qps)
            paths[of], ack_paths[of] = walk.way(there), walk.way(back, acknowledges=True)
        except Unpredictable:
            unknown = f"{planned.experiment.routing} leaves the choice of path to a hash that cannot be computed"
            return Forecast(planned, emulated, unknown=unknown)
        except DataPlaneError as error:
            raise LabError(f"routing {planned.routing} does not carry this traffic: {error}") from None
    return Forecast(planned, emulated, paths, ack_paths)


class _Walk:
    """Flows' ways, each packet's where they are sprayed. Of many flows not every turn is walked: they make up for each other."""

    def __init__(self, e: Experiment, emulated: Fabric, plane: DataPlane, n_flows: int) -> None:
        self._e, self._plane = e, plane
        self._turns = max(1, _MAX_WALKS // (2 * max(n_flows, 1)))
        self._sprayed_ips = {emulated.scale_out_port(host.name).ip for host in emulated.hosts}

    def way(self, flow: Flow, *, acknowledges: bool = False) -> Way:
        as_one = acknowledges and not sending.spreads_acknowledgements(self._e)
        if self._e.spread == "flow" or as_one or flow.src_ip not in self._sprayed_ips:
            return self._plane.path(flow)
        turns = [replace(flow, src_port=p) for p in sending.source_ports(self._e, flow.src_port)[: self._turns]]
        crossed = Counter(port for turn in turns for port in self._plane.path(turn))
        return {port: n / len(turns) for port, n in crossed.items()}


def require_short_ways(expected: Forecast, scale: Scale) -> None:
    """Refuses round trips so long, as emulated, that no connection would be made in its time."""
    hosts = expected.plan.hosts
    for (src, dst, channel), there in expected.paths.items():
        way = (*shares(there), *shares(expected.ack_paths[src, dst, channel]))
        delay_s = sum(expected.emulated.link_of(port.intf).delay_us * share for port, share in way) * 1e-6
        if delay_s > MAX_ROUND_TRIP_S:
            raise LabError(
                f"a round trip {hosts[src]} -> {hosts[dst]} would take {delay_s:g} s here, more than "
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
