"""What a run should show, known before its first packet: every flow's path, and from it the predicted time.

A path is a walk through the policy's rules with Open vSwitch's own hash. It is unknown where the controller is the user's,
where the policy leaves the choice to a hash that nobody can compute, or where it follows measured load; then there is no
prediction, and the reason says so.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controller import rules_of
from controller.dataplane import DataPlane, DataPlaneError, Unpredictable
from controller.flow import Flow
from controller.policy import Reactive
from lab.announcing import flow_of, routing
from lab.errors import LabError
from lab.experiment import Experiment
from lab.fluid import Prediction
from lab.plan import Plan, Size, endpoints, plan
from lab.predictor import predict
from lab.scale import TYPICAL_BUDGET, Scale, choose_scale
from topologies import Fabric, Port
from topologies.units import format_rate, format_size
from traffic import TRANSPORTS
from traffic.schedule import Connection
from traffic.transport import WireFlow


@dataclass(frozen=True)
class Forecast:
    """paths: connection -> egress port of every hop; ack_paths: connection -> the way back."""

    plan: Plan
    emulated: Fabric
    paths: Mapping[Connection, Sequence[Port]] = field(default_factory=dict)
    ack_paths: Mapping[Connection, Sequence[Port]] = field(default_factory=dict)
    unknown: str = ""

    def prediction(self, size: Size, scale: Scale) -> Prediction | None:
        if self.unknown:
            return None
        sends, mtu = self.plan.sends(size.count, scale.time_dilation), self.plan.experiment.mtu
        return predict(self.emulated, sends, self.paths, mtu, ack_paths=self.ack_paths)

    def roofline_s(self, size: Size, scale: Scale) -> float:
        """In hardware seconds, for the bytes that are really sent."""
        return self.plan.cut.seconds(size.emulated_bytes * scale.size_scale)


def forecast(planned: Plan, emulated: Fabric, flows: Sequence[WireFlow]) -> Forecast:
    """Walk every flow and the acknowledgements that come back. Raises LabError when the policy drops one of them."""
    if planned.experiment.controller:
        return Forecast(planned, emulated, unknown="the controller is not ours, so the paths are not known")
    if planned.circuits and len(planned.circuits.slices) > 1:
        return Forecast(planned, emulated, unknown="circuits change while it runs")
    chosen = routing(planned, emulated)
    if isinstance(chosen, Reactive):
        return Forecast(planned, emulated, unknown=f"{planned.experiment.routing} moves flows while they run")
    plane = DataPlane(emulated, rules_of(chosen, emulated))
    paths: dict[Connection, Sequence[Port]] = {}
    ack_paths: dict[Connection, Sequence[Port]] = {}
    for f in flows:
        there = flow_of(f)
        back = Flow(f.dst_ip, f.src_ip, f.proto, f.dst_port, f.src_port)
        try:
            paths[f.connection] = plane.path(there)
            ack_paths[f.connection] = plane.path(back)
        except Unpredictable:
            unknown = f"{planned.experiment.routing} leaves the choice of path to a hash that cannot be computed"
            return Forecast(planned, emulated, unknown=unknown)
        except DataPlaneError as error:
            raise LabError(f"routing {planned.routing} does not carry this traffic: {error}") from None
    return Forecast(planned, emulated, paths, ack_paths)


def forecast_of(planned: Plan, scale: Scale) -> Forecast:
    """For the connections that the plan's transport will make. Needs no root and builds nothing."""
    emulated = scale.fabric(planned.fabric)
    flows = TRANSPORTS[planned.experiment.transport].plan(endpoints(planned, emulated), planned.schedule.connections)
    return forecast(planned, emulated, flows)


def show(experiment: Experiment, *, as_json: bool) -> None:
    """`run_topo.py predict`: prints the expectation for each size. Needs no root and builds nothing."""
    planned = plan(experiment)
    scale = experiment.scale or choose_scale(planned.load, TYPICAL_BUDGET, experiment.time_limit_s)
    expected = forecast_of(planned, scale)
    rows = [_row(expected, size, scale) for size in planned.sizes(scale)]
    if as_json:
        print(json.dumps(rows))
        return
    nic = format_rate(planned.nic_mbps)
    print(
        f"{planned.fabric.name}, {planned.ranks} ranks, {experiment.collective} {planned.algorithm}, {planned.routing}, {nic}"
    )
    print(f"emulated at rates / {scale.rate_scale:g}, sizes / {scale.size_scale:g}")
    print(f"roofline: {planned.cut}")
    print(f"{'size':>10} {'roofline (us)':>14} {'predicted (us)':>15} {'ratio':>7} {'busbw (GB/s)':>13}  busiest link")
    for row in rows:
        print(
            f"{format_size(row['size_bytes']):>10} {row['roofline_s'] * 1e6:>14.1f} {row['predicted_s'] * 1e6:>15.1f} "
            f"{row['ratio']:>7.3f} {row['busbw_gbytes_s']:>13.2f}  {row['bottleneck']}"
        )
    if expected.unknown:
        print(f"no prediction: {expected.unknown}")


def _row(expected: Forecast, size: Size, scale: Scale) -> dict[str, Any]:
    found = expected.prediction(size, scale)
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
    }
