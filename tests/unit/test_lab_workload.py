"""A training step as an experiment's traffic: its size, times and bytes, and what is refused."""

import json
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab import cli
from lab.planning.experiment import load
from lab.planning.forecast import Forecast, forecast_of
from lab.planning.plan import Plan, plan
from lab.planning.scale import Budget, Scale, choose_scale
from lab.reporting.nccl import footer, row_line, row_lines
from tests.unit.lab_samples import row
from topologies import Refused
from traffic.workloads.models import parse_model, training_flops
from traffic.workloads.pipeline import bubble_fraction
from traffic.workloads.report import StepReport

RAILS = "rail-optimised:servers=4,gpus_per_server=4,spines=1"
MODEL = "llama2-7b:layers=4,sequence=2048,vocabulary=4096"
SPLIT_3D = "tp=4,pp=2,dp=2"


def planned(**overrides: Any) -> Plan:
    return plan(load(None, {"topology": RAILS, "workload": MODEL} | overrides))


def expected(p: Plan, scale: Scale) -> Forecast:
    return forecast_of(p, scale)


def carried(p: Plan, scale: Scale) -> dict[str, float]:
    """Wire bytes of one step by direction of a link."""
    forecast = expected(p, scale)
    found = forecast.prediction(p.sizes(scale)[0], scale)
    assert found is not None
    fabric = forecast.emulated
    ports = {port.intf: port for link in fabric.links for port in (link.a, link.b)}
    return {fabric.direction(ports[intf]): n for intf, n in found.bytes_by_intf.items()}


def test_the_size_is_what_a_rank_sends() -> None:
    """Data parallel alone: a ring all-reduce of all gradients, 4 bytes each, over 16 ranks."""
    p = planned()
    (size,) = p.sizes(Scale())
    assert size.size_bytes == pytest.approx(2 * 15 / 16 * 4 * parse_model(MODEL).parameters, rel=1e-6)
    assert (p.collective, p.algorithm) == (MODEL, "dp=16")
    (small,) = p.sizes(Scale(40_000, 250))
    # Each of a rank's messages may lose an element.
    sends = np.bincount(p.schedule.src[~p.schedule.is_local]).max()
    assert 0 <= size.size_bytes / 250 - small.emulated_bytes <= 4 * (sends + 1)


def test_without_a_network_a_step_is_its_arithmetic_and_the_pipelines_bubble() -> None:
    """Equal stages up to the head: without it, work / ((1 - bubble) x devices)."""
    model = "llama2-7b:layers=8,vocabulary=1"
    p = planned(
        workload=model, split="pp=4,tp=4", training="microbatches=4", device_flops="500Tflops", efficiency="0.8"
    )
    assert p.workload is not None
    work_s = training_flops(parse_model(model), 4 * 4096) / 16 / 400e12
    assert p.workload.computing_s == pytest.approx(work_s / (1 - bubble_fraction(4, 4)), rel=1e-3)


def test_the_prediction_is_computing_and_what_is_sent_without_overlap() -> None:
    """Two ranks on one switch, gradients behind the backward pass: both times add up."""
    p = planned(topology="spine-leaf:spines=1,leaves=1,hosts_per_leaf=2", split="dp=2", training="overlap=false")
    scale = Scale(8000, 500)
    (size,) = p.sizes(scale)
    forecast = expected(p, scale)
    found = forecast.prediction(size, scale)
    (report,) = forecast.jobs(found, scale)
    model = parse_model(MODEL)
    calc_s = training_flops(model, 2048) / (989e12 / 2)
    # Each rank sends half of the gradients twice; 66 bytes of headers and an acknowledgement for every two frames beside.
    wire = (9014 + 66 / 2) / 8948
    sending_s = 4 * model.parameters * 8 / 400e9 * wire
    assert report.calc_s == pytest.approx(calc_s, rel=1e-6)
    assert report.iteration_s == pytest.approx(calc_s + sending_s, rel=0.005)
    assert report.exposed_s == pytest.approx(sending_s, rel=0.005)
    assert (report.bubble, report.parallel_efficiency) == pytest.approx((0, calc_s / (calc_s + sending_s)), abs=0.005)
    assert found is not None and scale.hardware_s(found.seconds) == pytest.approx(report.iteration_s, rel=1e-3)


def test_megatron_3d_on_rails() -> None:
    """Tensor parallel stays in the servers, data and pipeline parallel on their rails: no byte on a spine, and on each NIC what
    these two axes send."""
    p, scale = planned(split=SPLIT_3D, training="microbatches=2"), Scale(40_000, 500)
    links = carried(p, scale)
    assert sum(n for link, n in links.items() if "spine" in link) == 0
    wire, acks = 9014 / 8948, 66 / 2 / 8948
    model = parse_model(MODEL)
    # Two layers, and the first stage's embedding, on a quarter of the hidden width; norms are whole.
    parameters = 2 * ((model.attention_weights + model.mlp_weights) // 4 + 2 * 4096) + 4096 * 4096 // 4
    activations = 2048 * 4096 * 2
    # All-reduce of gradients between two ranks: as much as they are. Stage 0 sends two microbatches' activations.
    sent = 4 * parameters + 2 * activations
    # Stage 1 acknowledges them, and sends as many gradients.
    received = 4 * parameters + 2 * activations
    assert links["s1g1->leaf1"] == pytest.approx((sent * wire + received * acks) / 500, rel=0.01)
    # 4 all-reduces a layer and microbatch, and the embedding's; 1.5 x the activations each.
    inside = 1.5 * activations * (4 * 2 + 1) * 2
    assert links["s1g1->hb1"] == pytest.approx(inside * (wire + acks) / 500, rel=0.01)


def test_a_step_of_a_real_model_is_scaled_into_its_time() -> None:
    """Calculations count: without them the scale would be ten times as fine."""
    p = planned(split=SPLIT_3D, training="microbatches=4", efficiency="0.05", time_limit="60s")
    scale = choose_scale(p.load, Budget(120_000), 60)
    assert p.workload is not None
    lower_s = p.workload.computing_s * 4 * scale.time_dilation
    assert 0.2 * 48 < lower_s <= 48


def test_jobs_side_by_side_are_reported_each() -> None:
    p, scale = planned(split="tp=4,dp=2", jobs=2), Scale(40_000, 500)
    forecast = expected(p, scale)
    (size,) = p.sizes(scale)
    first, second = forecast.jobs(forecast.prediction(size, scale), scale)
    assert first.iteration_s == pytest.approx(second.iteration_s, rel=0.02)
    assert first.calc_s == pytest.approx(second.calc_s)
    assert p.algorithm == "tp=4,dp=2 x 2"


def test_a_straggler_delays_the_step() -> None:
    step = planned(split=SPLIT_3D).workload
    slow = planned(split=SPLIT_3D, stragglers="ranks=1,factor=1,delay_us=5000").workload
    assert step is not None and slow is not None
    assert 0.004 < slow.computing_s - step.computing_s <= 0.005 + 1e-9


def test_an_algorithm_is_for_the_collectives_that_know_it() -> None:
    p = planned(split="tp=4,dp=4", algorithm="hierarchical")
    assert p.algorithm == "hierarchical tp=4,dp=4"
    assert {part.collective for part in p.schedule.parts} == {"all_reduce"}


def test_too_many_operations_have_bytes_but_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    p, scale = planned(split=SPLIT_3D), Scale(40_000, 500)
    known = carried(p, scale)
    for module in ("lab.model.predictor", "lab.planning.forecast"):
        monkeypatch.setattr(f"{module}.MAX_STEP_SENDS", 100)
    forecast = expected(p, scale)
    found = forecast.prediction(p.sizes(scale)[0], scale)
    assert found is not None and math.isnan(found.seconds) and forecast.jobs(found, scale) == ()
    assert "operations are more than the 100" in forecast.untimed
    assert carried(p, scale) == known


def test_the_table_shows_no_bandwidth() -> None:
    report = StepReport(0.05, 0.02, 0.03, 0.01, 0.02, 0.4, 2 / 3, 0.39)
    made = row(collective=MODEL, algbw_gbytes_s=math.nan, busbw_gbytes_s=math.nan, time_s=0.05, jobs=(report,))
    assert row_line(made).split()[5:9] == ["50000.0", "N/A", "N/A", "0"]
    assert row_lines(made)[1] == (
        "#   iteration 50ms: computing 20ms, communication 30ms of which exposed 10ms, idle 20ms (bubble 40.0%); "
        "parallel efficiency 0.390"
    )
    assert any("N/A: a training step has none" in line for line in footer([made], MODEL))


def test_predict_prints_json_without_nan(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--topology", RAILS, "--workload", MODEL, "--split", SPLIT_3D, "--json")
    assert cli.main(["predict", *options]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    assert line["busbw_gbytes_s"] is None
    assert line["predicted_s"] > line["roofline_s"] > line["calc_s"] > 0


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"workload": "gpt5"}, "unknown model 'gpt5': choose from gpt3-175b, "),
        ({"split": "tp=4,pp=2"}, "tp=4 x cp=1 x dp=1 x pp=2 is 8 ranks, not 16: the product must be the number of ranks"),
        ({"split": "dp=16,tp=3,ranks=2"}, "split 'dp=16,tp=3,ranks=2': unknown parameter 'ranks': choose from "),
        ({"split": "pp=16"}, "pp=16 does not divide the model's 4 layers: choose pp from 1, 2, 4"),
        ({"jobs": 3}, "--jobs 3 do not divide 16 ranks: every job needs as many as the others"),
        ({"jobs": 16}, "on one rank each sends nothing: use a --split over several ranks"),
        ({"training": "overlap=maybe"}, "training: overlap='maybe' must be true or false"),
        ({"stragglers": "ranks=17"}, "17 stragglers of 16 ranks: use 0 to 16"),
        ({"collective": "all_reduce"}, "collective (--collective) is not for a workload, whose model and split say"),
        ({"channels": 2}, "channels (--channels) is not for a workload"),
        ({"slice_bytes": "1M"}, "slice_bytes (--slice-bytes) is not for a workload"),
        # 2 x 4 layers x 10^9 x 16 ranks; all 1.05 x 10^9 parameters in messages of one, on each rank.
        ({"training": "microbatches=1000000000"}, "are 128000000000 passes through a layer, more than the 500000 of a step"),
        ({"training": "bucket_parameters=1"}, "messages of gradients, more than the 500000 of a step: use larger ones"),
        ({"training": "microbatch_size=1000000000000"}, "bytes are more than any collective sends (1024TiB)"),
        ({"workload": f"llama2-7b:vocabulary={'9' * 20}"}, "bytes are more than any collective sends (1024TiB)"),
        ({"stragglers": "ranks=1,factor=1e300"}, "s of computing is more than 1e+06 s: use a smaller model"),
        ({"stragglers": "ranks=1,delay_us=1e300"}, "a step of 1e+294 s of computing is more than 1e+06 s"),
        ({"efficiency": "1e-300"}, "s of computing is more than 1e+06 s"),
        ({"min_bytes": "1G"}, "min_bytes (-b) is not for a workload"),
        ({"workload": None, "jobs": 2}, "--jobs is not for all_reduce: use it with --workload MODEL"),
        ({"algorithm": "square"}, "unknown algorithm 'square': choose from "),
        ({"algorithm": "parameter-server"}, "needs 1 helpers beside its 16 ranks, and a training step has none"),
        ({"device_flops": "989"}, "--device-flops: device rate '989' is not a positive number with a unit: write it like 989T"),
        ({"efficiency": "150%"}, "--efficiency = '150%' is not a share: use one above 0 and up to 1, like 0.5"),
        ({"scale": "40000:10000000000"}, "at size_scale 1e+10 nothing is left to send: use a smaller --scale RATE:SIZE"),
        (
            {"topology": "rail-only:servers=4,gpus_per_server=4", "split": SPLIT_3D, "placement": "random"},
            "that the scale-out network of rail-only does not join",
        ),
    ],
)  # fmt: skip
def test_refusals(overrides: dict[str, Any], text: str) -> None:
    with pytest.raises(Refused) as refusal:
        planned(**overrides)
    assert text in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_reports_follow_the_operations_times() -> None:
    """Everything begins at once and takes 1 s: every rank computes all the time, and nothing that it sends is exposed."""
    made = planned(split=SPLIT_3D).workload
    assert made is not None
    n = len(made.planned.schedule)
    (report,) = made.reports(np.zeros(n, np.int64), np.full(n, 10**9))
    assert (report.iteration_s, report.calc_s, report.exposed_s, report.idle_s) == pytest.approx((1.0, 1.0, 0.0, 0.0))


def hb_domain_step_s(g: int) -> dict[str, float]:
    """The command of docs/workloads.md."""
    p = planned(
        topology=f"rail-optimised:servers={64 // g},gpus_per_server={g},spines=8", workload="llama2-7b:layers=2",
        split="tp=8,dp=8", algorithm="hierarchical",
    )  # fmt: skip
    scale = Scale(10_000, 10)
    forecast = expected(p, scale)
    (report,) = forecast.jobs(forecast.prediction(p.sizes(scale)[0], scale), scale)
    return vars(report)


def test_the_documented_gain_of_hb_domains() -> None:
    """Rows 8 and 16 of the table. From one data parallel rank in a domain to two, (1.75 - 0.75) S less over 400 Gbit/s, and S
    more over 3.6 Tbit/s."""
    table = (Path(__file__).resolve().parents[2] / "docs" / "workloads.md").read_text()
    found_rows = re.finditer(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \|", table, re.MULTILINE)
    rows = {int(m[1]): (float(m[2]), float(m[3])) for m in found_rows}
    assert list(rows) == [8, 16, 32, 64]
    found = {g: hb_domain_step_s(g) for g in (8, 16)}
    for g, report in found.items():
        assert (report["iteration_s"] * 1e3, report["exposed_s"] * 1e3) == pytest.approx(rows[g], rel=2e-3)
    model = parse_model("llama2-7b:layers=2")
    per_rank = (2 * (model.attention_weights + model.mlp_weights) + 2 * model.vocabulary * model.hidden) / 8
    gradients = 4 * (per_rank + 5 * model.hidden)
    saved_s = gradients * (9014 + 66 / 2) / 8948 * (8 / 400e9 - 8 / 3600e9)
    assert found[8]["iteration_s"] - found[16]["iteration_s"] == pytest.approx(saved_s, rel=0.02)
    gains = [a[0] - b[0] for a, b in pairwise(rows.values())]
    assert gains == sorted(gains, reverse=True)
