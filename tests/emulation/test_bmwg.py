"""A procedure of the drafts from its file to its report, on real fabrics; and two results of it side by side."""

import csv
from pathlib import Path

from lab.commands import bmwg
from lab.planning.procedures import procedures
from tests.emulation.commands import run_topo

PROCEDURE = """
[procedure]
title = "A short one"
category = 4
about = "Two routings."
deviations = ["Two accelerators."]
[grid]
routing = ["ecmp", "single-path"]
[fabric]
topology = "spine-leaf:spines=2,leaves=2,hosts_per_leaf=1"
link_rate = "20Mbit"
[traffic]
min_bytes = "250K"
max_bytes = "250K"
iterations = 3
warmup_iterations = 1
[run]
scale = "1"
"""


def test_a_procedure_runs_and_is_reported(tmp_path: Path) -> None:
    (tmp_path / "short.toml").write_text(PROCEDURE)
    out = tmp_path / "out"
    # 1 where a busy machine made a row invalid.
    assert bmwg.run(["short"], out=str(out), folder=tmp_path) in (0, 1)
    (found,) = procedures(folder=tmp_path)
    cells = [out / "short" / "cells" / cell.key for cell in found.cells]
    text = (out / "report.md").read_text()
    for cell, folder in zip(found.cells, cells, strict=True):
        with (folder / "results.csv").open() as file:
            (row,) = csv.DictReader(file)
        assert row["routing"] == cell.chosen["routing"] and row["wrong"] == "0"
        assert f"| {row['routing']} | 256kB | {row['verdict']} | 3 |" in text
    assert "| open_vswitch |" in text
    assert "<svg" in (out / "report.html").read_text()

    done = run_topo("compare", *map(str, cells), "--svg", str(tmp_path / "both.svg"), cwd=tmp_path)
    assert "routing differs: ecmp in A, single-path in B" in done.out
    assert done.status == (1 if "invalid" in done.out else 0), done.err
    assert (tmp_path / "both.svg").read_text().startswith("<?xml")
