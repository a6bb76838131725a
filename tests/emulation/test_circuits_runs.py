"""`run_topo.py` over optical circuits: static ones, a scheduler's, a plan file's; and what stands in the results."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.emulation.commands import run_topo, sizes
from tests.emulation.test_run import finished, rows
from tests.results_folder import RUN_FILES

# Three leaves in a ring both ways; 1 Mbyte at 20 Mbit/s is 0.4 s.
PURE = ("--topology", "ocs-leaf:leaves=3,hosts_per_leaf=1,uplinks=2,ocs=2", "--scale", "1", "--link-rate", "20Mbit")
HYBRID = (
    "--topology",
    "ocs-leaf:leaves=3,hosts_per_leaf=1,uplinks=1,ocs=1,spines=1",
    "--scale",
    "1",
    "--link-rate",
    "20Mbit",
)
PLAN = """
slice = "300ms"
[[slices]]
circuits = ["leaf1 - leaf2"]
[[slices]]
circuits = ["leaf1 - leaf2"]
[[slices]]
circuits = ["leaf2 - leaf3"]
"""


def circuits(folder: Path) -> list[dict[str, str]]:
    assert {f.name for f in folder.iterdir()} == RUN_FILES | {"circuits.csv", "circuits.parquet"}
    with (folder / "circuits.csv").open() as file:
        return list(csv.DictReader(file))


def total(folder: Path) -> dict[str, Any]:
    (found,) = json.loads((folder / "manifest.json").read_text())["circuits"]
    return dict(found)


def test_static_circuits_are_up_before_the_first_packet_and_predicted(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    done = run_topo(*PURE, *sizes("1M"), "--out", str(folder), cwd=tmp_path)
    (row,) = finished(done, folder)
    assert row["routing"] == "circuits:ring-permutations"
    assert float(row["predicted_s"]) > 0
    found = circuits(folder)
    # Each leaf has two uplinks: strides 1 and 2 of three leaves.
    assert sorted((one["source"], one["target"]) for one in found) == [
        ("leaf1:2", "leaf2:2"), ("leaf1:3", "leaf3:3"), ("leaf2:2", "leaf3:2"), ("leaf2:3", "leaf1:3"), ("leaf3:2", "leaf1:2"),
        ("leaf3:3", "leaf2:3"),
    ]  # fmt: skip
    sums = total(folder)
    assert (sums["set_up"], sums["duty_cycle"], sums["bytes_by_packets"]) == (0, 1.0, 0)
    # The ring: each of three ranks sends 2 x 2/3 of the buffer over a circuit, and acknowledgements come back.
    assert sums["bytes_by_circuits"] > 3 * 2 * 2 / 3 * 2**20
    assert sums["bytes_by_circuits"] == sum(int(one["bytes_sent"]) for one in found)
    assert "Circuits and dark times</h2>" in (folder / "report.html").read_text()


def test_a_scheduler_s_circuits_change_while_it_runs(tmp_path: Path) -> None:
    """A hybrid, so that whatever is dark, or has no circuit, goes by the spine."""
    folder, options = (
        tmp_path / "out",
        ("--circuits", "round-robin:slice=300ms", "--dark", "20ms", "--in-the-dark", "divert"),
    )
    done = run_topo(*HYBRID, *options, *sizes("4M"), "--out", str(folder), cwd=tmp_path)
    (row,) = rows(folder)
    assert (row["wrong"], row["predicted_s"], row["routing"]) == ("0", "", "circuits:round-robin:slice=300ms")
    assert "no prediction: circuits change while it runs" in done.out
    assert "circuits set while it ran" in row["reason"]
    found, sums = circuits(folder), total(folder)
    # Two slices in turn, in each of them three circuits, one way; what changes was dark for 20 ms.
    assert len({one["up_s"] for one in found}) >= 3
    assert all(float(one["achieved_dark_us"]) >= float(one["requested_dark_us"]) == 20_000 for one in found)
    assert sums["planned_duty_cycle"] == pytest.approx(280 / 300)
    assert sums["bytes_by_circuits"] > 0 and sums["bytes_by_packets"] > 0
    # Ended with the traffic: the last circuit was set within a slice of its end.
    times = [float(one["down_s"]) for one in found]
    assert max(times) - max(float(one["up_s"]) for one in found) < 1.0


def test_what_is_sent_in_the_dark_is_held(tmp_path: Path) -> None:
    """No other way and nothing lost: what waits needs no segment sent again, but where TCP loses patience."""
    options = ("--circuits", "round-robin:slice=400ms", "--dark", "20ms", "--in-the-dark", "hold")
    done = run_topo(*HYBRID, *options, *sizes("4M"), "--out", "out", cwd=tmp_path)
    (row,) = rows(tmp_path / "out")
    assert row["wrong"] == "0" and "circuits set while it ran" in done.out
    sums = total(tmp_path / "out")
    assert sums["set_up"] > 0 and sums["bytes_by_circuits"] > 0
    # Of frames with data, 9014 bytes and more, none; the gates' probes are 60 bytes each.
    assert sums["bytes_lost"] < 9014 * sums["set_up"]
    (audit,) = [line for line in done.err.splitlines() if "interfaces shaped" in line][:1]
    assert audit.split("] ")[1].split()[0].split("/")[0] == audit.split("] ")[1].split()[0].split("/")[1]


def test_a_plan_file_changes_only_what_changes(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    options = ("--circuits", "plan.toml", "--dark", "20ms", "--in-the-dark", "divert")
    done = run_topo(*HYBRID, *options, *sizes("4M"), "--out", "out", cwd=tmp_path)
    assert "no prediction" in done.out
    found = circuits(tmp_path / "out")
    # leaf1 - leaf2 stays for two slices of 300 ms; each whole one is longer than one of them.
    whole = [one for one in found if one["source"] == "leaf1:3"][:-1]
    assert whole and all(float(one["down_s"]) - float(one["up_s"]) > 0.4 for one in whole)
    assert total(tmp_path / "out")["planned_duty_cycle"] == pytest.approx(1 - 2 * 20 / 900)


def test_a_program_of_ones_own_runs_over_circuits(tmp_path: Path) -> None:
    words = ("exec", *PURE, "--out", "out", "--", "sh", "-c", "ping -q -c 2 -i 0.2 h$((RANK % 3 + 1)) > /dev/null")
    assert run_topo(*words, cwd=tmp_path).status in (0, 1)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["program"]["exit_codes"] == [0, 0, 0]
    assert (manifest["experiment"]["circuits"], manifest["experiment"]["dark"]) == ("ring-permutations", "3d-mems")
