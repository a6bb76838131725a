"""`run_topo.py predict`: what a run should show. Needs no root and builds nothing."""

import json
import math
from typing import Any

from lab.model.fluid import Prediction
from lab.planning.experiment import Experiment
from lab.planning.fitting import typically
from lab.planning.forecast import Forecast, forecast_of
from lab.planning.helpers import told
from lab.planning.plan import Plan, Size, plan
from lab.planning.scale import Scale
from lab.planning.workload import step_columns, step_lines
from lab.rows import json_value
from topologies.units import format_rate, format_size


def show(experiment: Experiment, *, as_json: bool) -> None:
    """`run_topo.py predict`: prints the expectation for each size. Needs no root and builds nothing."""
    planned = plan(experiment)
    if as_json:
        print(json.dumps(rows(planned)))
        return
    scale, expected, found = _expected(planned)
    experiment, nic = planned.experiment, format_rate(planned.nic_mbps)
    print(
        f"{planned.fabric.name}, {planned.ranks} ranks, {planned.collective} {planned.algorithm}, {planned.routing}, {nic}"
    )
    print(f"emulated at rates / {scale.rate_scale:g}, sizes / {scale.size_scale:g}")
    if planned.helpers:
        print(f"helpers: {told(planned.fabric, planned.helpers)}")
    print(f"roofline: {planned.cut}")
    print(f"{'size':>10} {'roofline (us)':>14} {'predicted (us)':>15} {'ratio':>7} {'busbw (GB/s)':>13}  busiest link")
    for size, prediction in found:
        row = _row(expected, size, prediction, scale)
        figures = (f"{row['predicted_s'] * 1e6:.1f}", f"{row['ratio']:.3f}", f"{row['busbw_gbytes_s']:.2f}")
        predicted, ratio, busbw = ("N/A" if text == "nan" else text for text in figures)
        print(
            f"{format_size(row['size_bytes']):>10} {row['roofline_s'] * 1e6:>14.1f} {predicted:>15} {ratio:>7} {busbw:>13}  "
            f"{row['bottleneck']}"
        )
        for line in step_lines(expected.jobs(prediction, scale)):
            print(line)
    if expected.untimed:
        print(f"no prediction: {expected.untimed}")


def rows(planned: Plan) -> list[dict[str, Any]]:
    """What `predict --json` prints."""
    scale, expected, found = _expected(planned)
    return [
        {name: json_value(value) for name, value in _row(expected, size, prediction, scale).items()}
        for size, prediction in found
    ]


def _expected(planned: Plan) -> tuple[Scale, Forecast, list[tuple[Size, Prediction | None]]]:
    planned, scale = typically(planned)
    expected = forecast_of(planned, scale)
    return scale, expected, [(size, expected.prediction(size, scale)) for size in planned.sizes(scale)]


def _row(expected: Forecast, size: Size, found: Prediction | None, scale: Scale) -> dict[str, Any]:
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
        **step_columns(expected.jobs(found, scale), expected.plan.workload),
    }
