"""The functions of lab, and a sweep, over real fabrics; the notebook of examples/ is run as it stands."""

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import lab
from tests.emulation.commands import ROOT, run_topo

SMALL = {
    "topology": "spine-leaf:spines=2,leaves=2,hosts_per_leaf=1", "link_rate": "20Mbit", "scale": "1", "min_bytes": "200k",
    "max_bytes": "400k", "iterations": 2, "warmup_iterations": 0,
}  # fmt: skip


def test_a_run_gives_its_tables(tmp_path: Path) -> None:
    """Of two ranks' all-reduce each sends its size once: 2 (n - 1) / n = 1."""
    results = lab.run(lab.load(**SMALL), out=tmp_path / "out")
    assert list(results.rows["size_bytes"]) == [200 * 1024, 400 * 1024]
    assert list(results.rows["wrong"]) == [0, 0]
    # A bucket's burst and a frame of each message are free.
    assert (results.rows["time_s"] > 0.9 * results.rows["size_bytes"] * 8 / 20e6).all()
    assert len(results.iterations) == 4
    sent = results.links.groupby("link")["bytes_sent"].agg(lambda n: n.max() - n.min())
    assert sent["h1->leaf1"] >= 2 * (200 + 400) * 1024
    assert results.complete and results.manifest["experiment"]["topology"] == SMALL["topology"]
    again = lab.read(tmp_path / "out")
    pd.testing.assert_frame_equal(again.rows, results.rows)


def test_what_cannot_be_is_refused_with_the_command_lines_words(tmp_path: Path) -> None:
    with pytest.raises(lab.LabError, match="exists and is not an empty folder"):
        lab.run(lab.load(**SMALL), out=ROOT)
    with pytest.raises(lab.LabError, match="unknown setting 'topologie'"):
        lab.load(topologie="fat-tree")


def test_a_sweep_runs_every_cell_and_again_none(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    settings = "".join(
        f"{key} = {value!r}\n" for key, value in SMALL.items() if key not in ("topology", "link_rate", "scale")
    )
    file.write_text(
        f"[grid]\nrouting = ['ecmp', 'single-path', 'valiant']\n[fabric]\ntopology = {SMALL['topology']!r}\n"
        f"link_rate = '20Mbit'\n[traffic]\n{settings}[run]\nscale = '1'\n"
    )
    command = ("sweep", str(file), "--out", str(tmp_path / "out"), "--json")
    done = run_topo(*command, cwd=tmp_path)
    table = json.loads(done.out)
    assert [(line["routing"], line["size_bytes"]) for line in table] == [
        ("ecmp", 200 * 1024), ("ecmp", 400 * 1024), ("single-path", 200 * 1024), ("single-path", 400 * 1024), ("valiant", None),
    ]  # fmt: skip
    assert {line["wrong"] for line in table[:4]} == {0}
    assert table[4]["outcome"].startswith("refused: ")
    assert done.status == int(any(line["verdict"] == "invalid" for line in table))
    again = run_topo(*command, cwd=tmp_path)
    assert json.loads(again.out) == table
    assert "3 cells: 0 to run, 1 refused" in again.err


def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "examples" / "ring_or_halving_doubling.ipynb").read_text())
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "notebook", "exec"), names)
    for name, results in names["measured"].items():
        assert list(results.rows["algorithm"]) == [name]
        assert list(results.rows["wrong"]) == [0]
    assert len(os.listdir("results")) == 2
