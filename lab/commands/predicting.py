"""`run_topo.py predict`: what the models expect of an experiment, at any size. Needs no root and builds nothing."""

import json
import math
from typing import Any

from lab.model.fluid import Prediction
from lab.planning import forecast, outlook
from lab.planning.experiment import Experiment
from lab.planning.fitting import typically
from lab.planning.helpers import told
from lab.planning.plan import Plan, Size, plan
from lab.planning.scale import Scale
from lab.planning.workload import step_lines
from lab.rows import json_value
from topologies.units import format_rate, format_size

_HEAD = f"{'size':>10} {'roofline (us)':>14} {'predicted (us)':>15} {'ratio':>7} {'busbw (GB/s)':>13}  busiest link"


# Less is not told: the next one may hold it back as well.
_AHEAD = 0.01
_MODELS = {
    "fluid": "max-min fair shares, event by event",
    "levels": "levels of dependency one after the other, since there are too many sends for events",
    "bytes only": "the busiest link is known, the time is not",
}


def show(experiment: Experiment, *, as_json: bool) -> None:
    """Prints the expectation for each size."""
    if outlook.is_large(experiment):
        _large(experiment, as_json=as_json)
    else:
        _planned(experiment, as_json=as_json)


def _planned(experiment: Experiment, *, as_json: bool) -> None:
    planned = plan(experiment)
    if as_json:
        print(json.dumps(rows(planned)))
        return
    scale, expected, found = _expected(planned)
    experiment, nic = planned.experiment, format_rate(planned.nic_mbps)
    _title(planned.fabric.name, planned.ranks, planned.collective, planned.algorithm, planned.routing, nic)
    print(f"emulated at rates / {scale.rate_scale:g}, sizes / {scale.size_scale:g}")
    if planned.helpers:
        print(f"helpers: {told(planned.fabric, planned.helpers)}")
    print(f"roofline: {planned.cut}")
    print(_HEAD)
    for size, prediction in found:
        row = forecast.row(expected, size, prediction, scale)
        _line(row, prediction)
        for line in step_lines(expected.jobs(prediction, scale)):
            print(line)
    if expected.untimed:
        print(f"no prediction: {expected.untimed}")
    for model in sorted({p.model for _, p in found if p and p.model}):
        print(f"model: {model} ({_MODELS[model]})")


def rows(planned: Plan) -> list[dict[str, Any]]:
    """What `predict --json` prints."""
    return rows_and_gap(planned)[0]


def rows_and_gap(planned: Plan) -> tuple[list[dict[str, Any]], str]:
    """The rows, and why they have no predicted time, '' where they have."""
    scale, expected, found = _expected(planned)
    told = [
        {name: json_value(value) for name, value in forecast.row(expected, size, prediction, scale).items()}
        for size, prediction in found
    ]
    return told, expected.untimed


def _expected(planned: Plan) -> tuple[Scale, forecast.Forecast, list[tuple[Size, Prediction | None]]]:
    planned, scale = typically(planned)
    expected = forecast.forecast_of(planned, scale)
    return scale, expected, [(size, expected.prediction(size, scale)) for size in planned.sizes(scale)]


def _large(experiment: Experiment, *, as_json: bool) -> None:
    outlooks = outlook.Outlooks(experiment)
    found = outlooks.all()
    columns = [
        {
            "size_bytes": one.size_bytes,
            "roofline_s": one.roofline_s,
            "predicted_s": one.found.seconds,
            "ratio": one.found.seconds / one.roofline_s,
            "busbw_gbytes_s": one.busbw_gbytes_s,
            "bottleneck": one.found.bottleneck,
            "model": one.found.model,
        }
        for one in found
    ]
    if as_json:
        print(json.dumps([{name: json_value(value) for name, value in row.items()} for row in columns]))
        return
    s = outlooks.site
    _title(s.fabric.name, s.ranks, s.experiment.collective, outlooks.algorithm, s.routing, format_rate(s.nic_mbps))
    print("in the hardware's units: so many ranks are not emulated here")
    print(f"roofline: {outlooks.cut}")
    if outlooks.form:
        print(f"closed form, no link shared: {outlooks.form}")
    print(_HEAD)
    for row, one in zip(columns, found, strict=True):
        _line(row, one.found)
    print(f"model: {found[0].found.model}; alpha: the links' delays, nothing of interfaces, switches or software")


def _title(fabric: str, ranks: int, collective: str, algorithm: str, routing: str, nic: str) -> None:
    print(f"{fabric}, {ranks} ranks, {collective} {algorithm}, {routing}, {nic}")


def _line(row: dict[str, Any], found: Prediction | None) -> None:
    figures = (f"{row['predicted_s'] * 1e6:.1f}", f"{row['ratio']:.3f}", f"{row['busbw_gbytes_s']:.2f}")
    predicted, ratio, busbw = ("N/A" if text == "nan" else text for text in figures)
    ahead = f", {found.ahead:.0%} ahead of the next" if found and _AHEAD <= found.ahead < math.inf else ""
    print(
        f"{format_size(row['size_bytes']):>10} {row['roofline_s'] * 1e6:>14.1f} {predicted:>15} {ratio:>7} {busbw:>13}  "
        f"{found.where if found else ''}{ahead}"
    )
