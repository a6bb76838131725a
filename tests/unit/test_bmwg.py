"""The drafts' procedures as files, and the report of what they gave."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lab import cli
from lab.commands import bmwg as command
from lab.commands import sweep
from lab.errors import LabError
from lab.kpis.summary import TITLES
from lab.machine import probes
from lab.planning.plan import plan
from lab.planning.procedures import CATEGORIES, NOT_RUNNABLE, procedures
from lab.reporting import bmwg_graph, results
from lab.reporting.bmwg import CellResult, ProcedureResult, kpi_table, report
from lab.reporting.documents import Block, Heading, Picture, Points, Table, Text, html, markdown
from lab.reporting.results import manifest
from lab.rows import IterationRecord
from tests.unit.lab_samples import record, row

PROCEDURE = """
[procedure]
title = "Two routings"
category = 4
about = "Both."
deviations = ["Small."]
[grid]
routing = ["ecmp", "single-path"]
[fabric]
topology = "spine-leaf:spines=2,leaves=2,hosts_per_leaf=1"
[run]
scale = "8000"
"""

# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [one.name for one in procedures()])
def test_every_case_of_every_procedure_can_be_planned(name: str) -> None:
    (found,) = procedures([name])
    assert all(plan(cell.experiment).ranks >= 2 for cell in found.cells)
    assert found.deviations and found.category in CATEGORIES
    assert 10 < found.estimated_s < 600


def test_the_drafts_numbers_are_varied() -> None:
    """Q = 1, 4, 8, 16, 32 queue pairs under each hash; N:1 for N up to 15; ranks and jobs change together."""
    by_name = {one.name: one for one in procedures()}
    balancing = [cell.experiment for cell in by_name["load-balancing"].cells]
    assert {e.qps for e in balancing} == {1, 4, 8, 16, 32} and len(balancing) == 15
    assert {cell.experiment.ranks for cell in by_name["incast"].cells} == {3, 5, 9, 16}
    tenants = [cell.experiment for cell in by_name["interference"].cells]
    assert [(e.ranks, e.jobs) for e in tenants] == [(4, 1), (8, 2), (16, 4)]


def test_an_estimate_is_the_traffic_and_what_a_run_costs_beside(tmp_path: Path) -> None:
    """256, 512 and 1024 MiB between 2 ranks at 50 GB/s, 3 times and once to warm up: 0.15 s as the hardware, 8000 / 8000 of it
    here; twice that and 8 s."""
    (tmp_path / "x.toml").write_text(PROCEDURE)
    (found,) = procedures(folder=tmp_path)
    traffic_s = 4 * 1.75 * 2**30 * 8 / 400e9
    assert found.estimated_s == pytest.approx(2 * (8 + traffic_s), rel=0.01)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (PROCEDURE.replace("category = 4", "category = 9"), r"x.toml: \[procedure\] category = 9: use 1 to 7$"),
        (PROCEDURE.replace('about = "Both."', ""), r"x.toml: \[procedure\] needs about, as str$"),
        (PROCEDURE.replace('["Small."]', '"Small."'), r"x.toml: \[procedure\] needs deviations, a list$"),
        (PROCEDURE.replace('["ecmp", "single-path"]', '["ecmp", 3]'), r"x.toml: \[grid\] routing = 3 must be text"),
    ],
)
def test_a_file_that_is_no_procedure_is_one_line(tmp_path: Path, text: str, refusal: str) -> None:
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(LabError, match=refusal):
        procedures(folder=tmp_path)


def test_unknown_names_list_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bmwg", "inkast"]) == 2
    assert "unknown procedure 'inkast'" in (err := capsys.readouterr().err) and "incast" in err


def test_the_list_has_every_procedure_its_time_and_what_is_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bmwg", "--list"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n   {one.name} " in out for one in procedures())
    assert all(f"   {name}: " in out for name in NOT_RUNNABLE)
    assert "6. Scale and convergence: none is run" in out and "all together about " in out


# -- documents --------------------------------------------------------------------------------------------------------


def test_blocks_as_markdown_and_html() -> None:
    blocks: list[Block] = [
        Heading("A & B", 3), Text("x < y"), Points(["one", "two"]), Table(("a|b", "n"), [("p|q", 0.123456), ("r", math.nan)]),
        Picture("fabric", "f.svg", '<?xml version="1.0"?><svg id="s"></svg>'),
    ]  # fmt: skip
    assert markdown(blocks) == (
        "### A & B\n\nx < y\n\n- one\n- two\n\n"
        "| a\\|b | n |\n| --- | --- |\n| p\\|q | 0.1235 |\n| r | N/A |\n\n![fabric](f.svg)\n"
    )
    page = html("T", blocks)
    assert "<h3>A &amp; B</h3>" in page and "<p>x &lt; y</p>" in page and "<li>one</li>" in page
    assert '<td>p|q</td><td class="n">0.1235</td>' in page and "<?xml" not in page and '<svg id="s">' in page


# -- report -----------------------------------------------------------------------------------------------------------


def kpis(**values: Any) -> pd.DataFrame:
    line = dict.fromkeys(TITLES, math.nan) | {"size_bytes": 2**30, "verdict": "ok", "n": 3, "cv_percent": 1.0} | values
    return pd.DataFrame([line])


def case(label: str = "", reason: str = "", **values: Any) -> CellResult:
    chosen: dict[str, object] = {"jobs": int(label)} if label else {}
    return CellResult(label, chosen, "", manifest(record(row())), kpis(**values), {2**30: reason})


def result(*cells: CellResult) -> ProcedureResult:
    return ProcedureResult("x", "Title", "Collectives", "What.", ["Differs."], cells, {"x.svg": "<svg></svg>"})


def of(*results_: ProcedureResult) -> str:
    return markdown(report(results_, {"PFC": "there is none"}, made="today", version="1"))


def test_the_drafts_sections_are_there_in_order() -> None:
    text = of(result(case(jct_mean_s=0.04)))
    sections = [line.partition(". ")[2] for line in text.splitlines() if line.startswith("## ")]
    assert sections == [
        "Fabric identification", "Topology", "Configuration", "Host configuration", "Results", "Anomalies", "Repeatability",
        "Deviations from the drafts",
    ]  # fmt: skip
    assert "100 ns" in text and "| Title | Differs. |" in text and "| PFC | there is none |" in text
    assert "| algorithm (verified) | ring |" in text and "![Title: spine-leaf](x.svg)" in text


def test_figures_that_nobody_has_are_left_out_and_the_others_named() -> None:
    table = kpi_table(result(case(jct_mean_s=0.04), case(jct_mean_s=0.05, mmr=1.5)))
    assert table.columns == ("S (B)", "verdict", "iterations", "JCT mean (s)", "CV (%)", "MMR")
    assert [list(line)[:2] for line in table.rows] == [["1GiB", "ok"], ["1GiB", "ok"]]


def test_interference_is_over_the_job_alone() -> None:
    text = of(
        result(case("1", jct_mean_s=0.04), case("2", jct_mean_s=0.06), case("4", jct_mean_s=1.0, verdict="invalid"))
    )
    assert "| 1 | 0.04 | 1 |" in text and "| 2 | 0.06 | 1.5 |" in text and "| 4 | N/A | N/A |" in text


def test_anomalies_are_verdicts_with_reasons_and_cases_without_results() -> None:
    text = of(result(case(), case(verdict="degraded", reason="late"), CellResult("a=1", {"a": 1}, "refused: no")))
    assert "| Title |  | 1GiB | degraded: late |" in text and "| Title | a=1 |  | refused: no |" in text
    assert "None: every row is ok." in of(result(case(reason="something to know")))


def test_repeatability_counts_valid_iterations_and_names_the_largest_cv() -> None:
    text = of(result(case(cv_percent=2.0), case(cv_percent=7.0), case(cv_percent=90.0, verdict="invalid")))
    assert "| Title | 6 | 2 | 7 | 1 | 1 | run_topo.py bmwg x |" in text


def test_a_procedure_without_a_result_is_an_anomaly_and_no_failure() -> None:
    text = of(result(CellResult("", {}, "failed: no room")))
    assert "| Title |  |  | failed: no room |" in text


def test_the_report_is_written_from_the_folders_of_a_run(tmp_path: Path) -> None:
    """One of two cells has results: 40 ms and 42 ms of 1 GiB."""
    (tmp_path / "x.toml").write_text(PROCEDURE)
    (found,) = procedures(folder=tmp_path)
    times = [
        IterationRecord("all_reduce", "ring", 2**30, False, i, 0.0, 1.0, t, 0, 0, 1.0, 1.0)
        for i, t in enumerate((0.040, 0.042))
    ]
    results.write(tmp_path / "out" / "x" / "cells" / found.cells[0].key, record(row(), iterations=times, complete=True))
    command.write(tmp_path / "out", [found], {("x", found.cells[1].key): "refused: why"})
    text = (tmp_path / "out" / "report.md").read_text()
    assert (
        "| ecmp | 1GiB | ok | 2 | 0.041 |" in text
        and "| Two routings | routing=single-path |  | refused: why |" in text
    )
    assert (tmp_path / "out" / "x.svg").read_text().lstrip().startswith("<")
    assert (tmp_path / "out" / "report.html").read_text().count("<svg") == 2
    assert "<!-- routing=ecmp -->" in (tmp_path / "out" / "x-results.svg").read_text()


def test_a_graph_has_valid_cases_only_and_sizes_where_they_vary() -> None:
    two = pd.concat([kpis(busbw_gbit_s=300.0, size_bytes=2**28), kpis(busbw_gbit_s=390.0)])
    over_sizes = bmwg_graph.svg([CellResult("a", {}, kpis=two), CellResult("b", {}, kpis=kpis(verdict="invalid"))])
    assert "<!-- BusBW (Gbit/s) -->" in over_sizes and "<!-- 256MiB -->" in over_sizes
    assert "<!-- a -->" in over_sizes and "<!-- b -->" not in over_sizes
    times = bmwg_graph.svg([CellResult("a", {}, kpis=kpis(jct_mean_s=0.04, jct_p99_s=0.05))])
    assert "<!-- JCT (ms): mean, whisker to P99 -->" in times
    assert bmwg_graph.svg([CellResult("b", {}, kpis=kpis(verdict="invalid"))]) == ""


def test_a_case_whose_result_is_invalid_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.toml").write_text(PROCEDURE)
    (found,) = procedures(folder=tmp_path)
    folders = [tmp_path / "out" / "x" / "cells" / cell.key for cell in found.cells]
    for folder, verdict in zip(folders, ("ok", "invalid"), strict=True):
        results.write(folder, record(row(verdict=verdict), complete=True))
    there: list[bool] = []

    def run(*_: Any, **__: Any) -> tuple[pd.DataFrame, int]:
        there.extend(folder.exists() for folder in folders)
        return pd.DataFrame({"cell": [], "outcome": []}), 0

    monkeypatch.setattr(sweep, "run", run)
    monkeypatch.setattr(probes, "require_root", lambda: None)
    assert command.run(["x"], out=str(tmp_path / "out"), folder=tmp_path) == 0
    assert there == [True, False]
    assert "not run" in (tmp_path / "out" / "report.md").read_text()
