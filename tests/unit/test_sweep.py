"""A grid of experiments: which cells a file has, which of them run, and the one table of all."""

from pathlib import Path

import pandas as pd
import pytest

from lab import cli
from lab.commands import cell, sweep
from lab.commands.cell import Outcome
from lab.planning.experiment import Experiment
from lab.planning.grid import Cell, load_grid
from lab.reporting import results
from tests.unit.lab_samples import record, row
from topologies import Refused

GRID = """
[grid]
routing = ["ecmp", "single-path"]
min_bytes = ["1M", "2M"]
[traffic]
max_bytes = "2M"
[run]
seed = 7
"""


def grid_of(tmp_path: Path, text: str = GRID, **overrides: object) -> list[Cell]:
    file = tmp_path / "grid.toml"
    file.write_text(text)
    return load_grid(file, overrides)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["sweep", *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1
    return err


# -- cells ------------------------------------------------------------------------------------------------------------


def test_cells_are_all_combinations_the_first_setting_slowest(tmp_path: Path) -> None:
    cells = grid_of(tmp_path)
    assert [one.chosen for one in cells] == [
        {"routing": "ecmp", "min_bytes": "1M"},
        {"routing": "ecmp", "min_bytes": "2M"},
        {"routing": "single-path", "min_bytes": "1M"},
        {"routing": "single-path", "min_bytes": "2M"},
    ]
    assert [(one.experiment.routing, one.experiment.min_bytes) for one in cells] == [
        ("ecmp", 2**20), ("ecmp", 2**21), ("single-path", 2**20), ("single-path", 2**21),
    ]  # fmt: skip
    assert {(one.experiment.max_bytes, one.experiment.seed) for one in cells} == {(2**21, 7)}
    assert len({one.key for one in cells}) == 4


def test_the_command_line_is_laid_over_what_does_not_vary(tmp_path: Path) -> None:
    assert {one.experiment.seed for one in grid_of(tmp_path, seed="9")} == {9}


def test_a_cell_has_the_same_key_in_another_grid_and_for_another_spelling(tmp_path: Path) -> None:
    known = {one.key for one in grid_of(tmp_path)}
    other = grid_of(
        tmp_path, GRID.replace('["1M", "2M"]', '["1MiB", "4M"]').replace('max_bytes = "2M"', "max_bytes = '2097152'")
    )
    assert [one.key in known for one in other] == [True, False, True, False]


def test_two_spellings_of_one_value_are_one_cell(tmp_path: Path) -> None:
    assert len(grid_of(tmp_path, '[grid]\nmin_bytes = ["1M", "1MiB", 1048576]\n')) == 1


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("[grid]\nrouting = []\n", (), ("[grid] routing = []", "a list with a value or more")),
        ("[grid]\nrouting = 'ecmp'\n", (), ("[grid] routing", "list")),
        ("[grid]\nroute = ['ecmp']\n", (), ("setting in [grid] 'route'", "routing")),
        ("[grid]\nmtu = [9000, 12]\n", (), ("[grid] mtu = 12", "use")),
        ("[grid]\n", (), ("a table [grid]",)),
        ("[traffic]\ncollective = 'all_reduce'\n", (), ("a table [grid]",)),
        ("[grid]\nseed = [1, 2]\n", ("--seed", "3"), ("--seed", "varies seed")),
        (f"[grid]\nseed = {list(range(200))}\nranks = {list(range(2, 102))}\n", (), ("20000 cells", "10000")),
    ],
)  # fmt: skip
def test_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(text)
    line = refused(capsys, str(file), *arguments)
    assert all(word in line for word in words)


def test_without_a_file_an_example_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "experiments/sweep-routing.toml" in refused(capsys)


# -- predictions -------------------------------------------------------------------------------------------------------


def test_predicted_says_of_each_cell_what_predict_says_of_it(tmp_path: Path) -> None:
    """A ring keeps its neighbours: with one flow an uplink, more spines change nothing and twice the rate halves the time."""
    table = sweep.predicted(
        grid_of(
            tmp_path,
            "[grid]\nlink_rate = ['100Gbit', '200Gbit']\nrouting = ['ecmp', 'valiant']\n[traffic]\nmin_bytes = '256M'\n"
            "max_bytes = '256M'\n[run]\nscale = '8000:16'\n",
        )
    )
    assert list(table["link_rate"]) == ["100Gbit", "100Gbit", "200Gbit", "200Gbit"]
    slow, fast = table["predicted_s"][0], table["predicted_s"][2]
    assert slow / fast == pytest.approx(2.0, rel=0.01)
    assert table["predicted_s"].isna().tolist() == [False, True, False, True]
    assert all("valiant" in text and text.startswith("refused:") for text in table["outcome"][[1, 3]])


# -- runs -------------------------------------------------------------------------------------------------------------


class Runs:
    """In place of runs: a folder with one row each, whose time is the smallest size's bytes; what went wrong where asked."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.done: list[Experiment] = []
        self.broken: set[str] = set()
        self.verdict = "ok"

    def __call__(self, experiment: Experiment) -> Outcome:
        self.done.append(experiment)
        if experiment.routing in self.broken:
            return Outcome(3, "[ 1.0 s] a step\nrun_topo.py: failed and cleaned up: the switch stopped\n", b"")
        folder = self.scratch / str(len(self.done))
        made = record(rows=[row(time_s=float(experiment.min_bytes), verdict=self.verdict)])
        made.complete = True
        results.write(folder, made)
        return Outcome(int(self.verdict == "invalid"), "", cell.packed(folder))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    fake = Runs(tmp_path / "scratch")
    monkeypatch.setattr(cell, "run", fake)
    return fake


def test_one_table_of_all_cells(tmp_path: Path, runs: Runs) -> None:
    table, status = sweep.run(grid_of(tmp_path), tmp_path / "out")
    assert status == 0 and len(runs.done) == 4
    assert list(table["time_s"]) == [2.0**20, 2.0**21, 2.0**20, 2.0**21]
    assert list(table.columns[:2]) == ["routing", "min_bytes"]
    written = pd.read_csv(tmp_path / "out" / "sweep.csv")
    assert list(written["time_s"]) == list(table["time_s"])
    assert list(pd.read_parquet(tmp_path / "out" / "sweep.parquet")["time_s"]) == list(table["time_s"])


def test_again_it_runs_only_what_has_no_results(tmp_path: Path, runs: Runs) -> None:
    runs.broken = {"single-path"}
    table, status = sweep.run(grid_of(tmp_path), tmp_path / "out")
    assert status == 3
    assert list(table["outcome"]) == ["", "", *["failed and cleaned up: the switch stopped"] * 2]
    runs.broken, runs.done = set(), []
    table, status = sweep.run(grid_of(tmp_path), tmp_path / "out")
    assert status == 0
    assert sorted(one.routing for one in runs.done) == ["single-path", "single-path"]
    assert list(table["outcome"]) == [""] * 4


def test_an_invalid_row_is_kept_as_such_and_said_by_the_exit_status(tmp_path: Path, runs: Runs) -> None:
    runs.verdict = "invalid"
    table, status = sweep.run(grid_of(tmp_path), tmp_path / "out")
    assert status == 1 and set(table["verdict"]) == {"invalid"}
    runs.done = []
    _, status = sweep.run(grid_of(tmp_path), tmp_path / "out")
    assert status == 1 and not runs.done


def test_cells_that_cannot_be_do_not_stop_the_others(tmp_path: Path, runs: Runs) -> None:
    table, status = sweep.run(grid_of(tmp_path, "[grid]\nrouting = ['valiant', 'ecmp']\n"), tmp_path / "out")
    assert status == 0 and [one.routing for one in runs.done] == ["ecmp"]
    assert table["outcome"][0].startswith("refused:") and table["outcome"][1] == ""


def test_a_grid_without_a_cell_that_can_be_is_refused(tmp_path: Path, runs: Runs) -> None:
    with pytest.raises(Refused, match="valiant"):
        sweep.run(grid_of(tmp_path, "[grid]\nrouting = ['valiant']\n"), tmp_path / "out")
    assert not (tmp_path / "out").exists() and not runs.done


def test_an_interrupt_keeps_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    def second_is_interrupted(experiment: Experiment) -> Outcome:
        if runs.done:
            raise KeyboardInterrupt
        return runs(experiment)

    monkeypatch.setattr(cell, "run", second_is_interrupted)
    table, status = sweep.run(grid_of(tmp_path), tmp_path / "out")
    assert status == 130
    assert list(table["outcome"]) == ["", "not run", "not run", "not run"]


def test_a_worker_that_is_lost_costs_its_cell_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: Runs
) -> None:
    def first_is_lost(experiment: Experiment) -> Outcome:
        if (experiment.routing, experiment.min_bytes) == ("ecmp", 2**20):
            raise ConnectionError("the worker\nis gone")
        return runs(experiment)

    monkeypatch.setattr(cell, "run", first_is_lost)
    table, status = sweep.run(grid_of(tmp_path), tmp_path / "out")
    assert status == 3
    assert list(table["outcome"]) == ["ConnectionError: the worker is gone", "", "", ""]


def test_the_workers_of_a_dask_cluster_run_them_as_well(tmp_path: Path, runs: Runs) -> None:
    distributed = pytest.importorskip("distributed", reason="needs the package distributed: run scripts/setup.sh")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, protocol="tcp", host="127.0.0.1"
    ) as cluster:
        table, status = sweep.run(grid_of(tmp_path), tmp_path / "out", dask=cluster.scheduler_address)
    assert status == 0
    assert list(table["time_s"]) == [2.0**20, 2.0**21, 2.0**20, 2.0**21]


def test_a_scheduler_that_does_not_answer_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    monkeypatch.setattr(sweep, "_ANSWER_S", 0.3)
    pytest.importorskip("distributed", reason="needs the package distributed: run scripts/setup.sh")
    with pytest.raises(Refused, match=r"--dask tcp://127\.0\.0\.1:1: no scheduler"):
        sweep.run(grid_of(tmp_path), tmp_path / "out", dask="tcp://127.0.0.1:1")
