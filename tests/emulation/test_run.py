"""`run_topo.py`: a run's status, table, JSON and results folder, on small real fabrics.

A busy machine may make a row `degraded` or `invalid`; what is asserted here does not depend on the load.
"""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lab.rows import ITERATION_COLUMNS, LINK_COLUMNS
from tests.emulation.commands import Done, fabric, host_state, run_topo, sizes
from tests.results_folder import COLUMNS, RUN_FILES

# What a loaded machine may do to a row, and nothing else.
LOAD = (
    "CPU", "core", "stood still", "late by", "for the switch thread", "predicted time", "hypervisor", "quantised", "sent again",
    "nothing was seen",
)  # fmt: skip


def complete(folder: Path) -> dict[str, Any]:
    """The manifest of a folder that has everything."""
    assert {f.name for f in folder.iterdir()} == RUN_FILES
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    assert manifest["complete"] is True
    return manifest


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open() as file:
        reader = csv.DictReader(file)
        assert reader.fieldnames == COLUMNS
        return list(reader)


def finished(done: Done, folder: Path) -> list[dict[str, str]]:
    """The rows of a run that did its work, all elements right; nothing but load made them less than ok."""
    found = rows(folder)
    assert done.status == (1 if any(r["verdict"] == "invalid" for r in found) else 0), done.err
    for row in found:
        assert row["wrong"] == "0"
        blamed = [reason for reason in row["reason"].split("; ") if reason and not any(word in reason for word in LOAD)]
        assert blamed == [], row["reason"]
    return found


def sent(folder: Path) -> dict[str, int]:
    """Bytes of the timed iterations on every direction of every link."""
    samples = pd.read_parquet(folder / "links.parquet").groupby("link")["bytes_sent"]
    return {str(link): int(n) for link, n in (samples.max() - samples.min()).items()}


def wire_bytes(payload: float, mtu: int) -> float:
    """With Ethernet, IPv4 and TCP headers, and an acknowledgement the other way for every second frame."""
    mss = mtu - 20 - 32
    return payload * (mtu + 14 + 66 / 2) / mss


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """Four hosts, two sizes, two iterations, as its user would start it under sudo; the folder is not named."""
    cwd = tmp_path_factory.mktemp("run")
    options = (*fabric(spines=2, hosts_per_leaf=2), "-b", "250K", "-e", "500K", "-n", "2", "-w", "1")
    done = run_topo(*options, cwd=cwd, SUDO_UID="65534", SUDO_GID="65534")
    (folder,) = (cwd / "results").iterdir()
    return done, folder


def test_a_run_leaves_a_complete_folder(plain: tuple[Done, Path]) -> None:
    done, folder = plain
    assert folder.name.endswith("-spine-leaf-all_reduce")
    assert f"results: results/{folder.name}" in done.err
    manifest = complete(folder)
    assert manifest["rows"] == 2
    assert manifest["machine"]["datapath"] in ("netdev", "system")
    assert manifest["ranks"] == ["h1", "h2", "h3", "h4"]
    assert [r["size_bytes"] for r in finished(done, folder)] == ["256000", "512000"]


def test_the_tables_have_the_documented_columns(plain: tuple[Done, Path]) -> None:
    _, folder = plain
    results = pd.read_parquet(folder / "results.parquet")
    assert list(results.columns) == COLUMNS
    iterations = pd.read_parquet(folder / "iterations.parquet")
    assert tuple(iterations.columns) == ITERATION_COLUMNS
    assert len(iterations) == 4 and (iterations["wrong"] == 0).all()
    assert tuple(pd.read_parquet(folder / "links.parquet").columns) == LINK_COLUMNS
    nccl = json.loads((folder / "nccl.json").read_text())
    assert [r["size"] for r in nccl["results"]] == [256000, 512000]
    assert (folder / "report.html").read_text().lstrip().lower().startswith("<!doctype html")


def test_times_and_bandwidths_belong_together(plain: tuple[Done, Path]) -> None:
    _, folder = plain
    for row in rows(folder):
        seconds, size = float(row["time_s"]), float(row["size_bytes"])
        assert float(row["algbw_gbytes_s"]) == pytest.approx(size / seconds / 1e9)
        assert float(row["busbw_gbytes_s"]) == pytest.approx(size / seconds / 1e9 * 1.5)
        assert float(row["roofline_s"]) == pytest.approx(size * 8 * 1.5 / 20e6)
        # No machine is faster than its links; a bucket's burst is the only head start, and these messages are short.
        assert 0.8 < float(row["jct_ratio"]) < 30
        assert 0.8 < float(row["predicted_s"]) / float(row["roofline_s"]) < 2


def test_the_terminal_shows_nccl_tests_table(plain: tuple[Done, Path]) -> None:
    done, _ = plain
    lines = [line.split() for line in done.out.splitlines() if line and not line.startswith("#")]
    assert [(line[0], line[1], line[2], line[3]) for line in lines] == [
        ("256000", "64000", "float", "sum"),
        ("512000", "128000", "float", "sum"),
    ]


def test_the_results_belong_to_the_user_of_sudo(plain: tuple[Done, Path]) -> None:
    _, folder = plain
    assert {(f.stat().st_uid, f.stat().st_gid) for f in (folder.parent, folder, *folder.iterdir())} == {(65534, 65534)}


def test_json_and_out(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "er"
    done = run_topo(*fabric(), *sizes("64K"), "--json", "--out", str(folder), cwd=tmp_path)
    (row,) = json.loads(done.out)
    assert list(row) == COLUMNS
    assert row["wrong"] == 0 and row["ranks"] == 2
    # One link each way between two leaves: nothing to balance, and JSON has no NaN.
    assert row["mmr"] is None and row["jfi"] is None
    complete(folder)
    finished(done, folder)
    assert not (tmp_path / "results").exists()


def test_a_full_disk_is_one_line_and_the_rows_stay_on_the_terminal(tmp_path: Path) -> None:
    """16 KiB hold some of the files only."""
    (tmp_path / "out").mkdir()
    small = ("unshare", "--mount", "bash", "-c", 'mount -t tmpfs -o size=16k tmpfs out && "$@"', "bash")
    done = run_topo(*fabric(), *sizes("64K"), "--out", "out", cwd=tmp_path, under=small)
    assert done.status == 3
    # Beside what happened, and what a busy machine adds.
    said = [line for line in done.err.splitlines() if not line.startswith(("[", "run_topo.py: found: "))]
    reason = f"results cannot be written to '{tmp_path}/out': No space left on device: use --out DIR"
    assert said == [f"run_topo.py: failed and cleaned up: {reason}"]
    assert len([line for line in done.out.splitlines() if line and not line.startswith("#")]) == 1


@pytest.mark.parametrize("ending", ["| head -1", "> /dev/full", "<&-", ">&-", "2>&-"])
def test_streams_that_take_no_more_cost_no_row(tmp_path: Path, ending: str) -> None:
    """pipefail gives the run's status, whatever `head` says."""
    shell = ("bash", "-c", f'set -o pipefail; "$@" {ending}', "bash")
    done = run_topo(*fabric(), *sizes("64K"), "--out", "out", cwd=tmp_path, under=shell)
    finished(done, tmp_path / "out")
    complete(tmp_path / "out")
    assert "Traceback" not in done.err


def test_the_datapath_is_said_once(plain: tuple[Done, Path]) -> None:
    done, _ = plain
    assert len([line for line in done.out.splitlines() if re.match(r"# Open vSwitch [\d.]+, \w+ datapath", line)]) == 1


RUNS: dict[str, tuple[tuple[str, ...], int, int]] = {
    # name: (options, ranks, mtu)
    "two ranks, one spine": (fabric(), 2, 9000),
    "three ranks": ((*fabric(spines=2, leaves=3), "--placement", "random", "--routing", "ecmp-polarised"), 3, 9000),
    "five of six ranks": (
        (*fabric(spines=2, hosts_per_leaf=3), "--ranks", "5", "--placement", "strided", "--routing", "single-path"), 5, 9000,
    ),
    "parallel links": ((*fabric(spines=1, links_per_pair=2), "--addressing", "l2", "--in-place"), 2, 9000),
    "Ethernet's MTU": ((*fabric(spines=2, hosts_per_leaf=2), "--mtu", "1500", "--routing", "ecmp-group"), 4, 1500),
    "reduce_scatter": ((*fabric(leaves=3), "--collective", "reduce_scatter", "--seed", "7"), 3, 9000),
    "all_gather": ((*fabric(spines=2, links_per_pair=2), "--collective", "all_gather"), 2, 9000),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_every_rank_sends_what_the_ring_says(tmp_path: Path, name: str) -> None:
    options, n, mtu = RUNS[name]
    done = run_topo(*options, *sizes("300K"), "--out", str(tmp_path / "out"), cwd=tmp_path)
    (row,) = finished(done, tmp_path / "out")
    manifest = complete(tmp_path / "out")
    assert (int(row["ranks"]), len(set(manifest["ranks"]))) == (n, n)
    passes = (2 if row["collective"] == "all_reduce" else 1) * (2 if "--in-place" in options else 1)
    payload = passes * (n - 1) / n * int(row["emulated_bytes"])
    carried = sent(tmp_path / "out")
    # TCP may probe a tail or send a segment twice on a busy machine: a frame more, never a flow more.
    stray = (2 + int(row["retransmits"])) * (mtu + 14)

    def as_planned(n_bytes: float) -> Any:
        return pytest.approx(n_bytes, abs=0.05 * n_bytes + stray)

    leaf_of = {link.split("->")[0]: link.split("->")[1] for link in carried if link.startswith("h")}
    for host in manifest["ranks"]:
        assert carried[f"{host}->{leaf_of[host]}"] == as_planned(wire_bytes(payload, mtu)), host
        assert carried[f"{leaf_of[host]}->{host}"] == as_planned(wire_bytes(payload, mtu)), host
    for host in set(leaf_of) - set(manifest["ranks"]):
        assert carried[f"{host}->{leaf_of[host]}"] == 0
    # Every message between leaves crosses one uplink, and no other; a ring crosses as often as its neighbours differ.
    hops = zip(manifest["ranks"], manifest["ranks"][1:] + manifest["ranks"][:1], strict=True)
    crossings = sum(leaf_of[a] != leaf_of[b] for a, b in hops)
    up = sum(n_bytes for link, n_bytes in carried.items() if link.startswith("leaf") and "->spine" in link)
    assert up == as_planned(wire_bytes(payload, mtu) * crossings)


def test_the_default_experiment_is_refused_nothing(tmp_path: Path) -> None:
    """What the first command of every user does, but shorter: scale = auto, 16 ranks, all iterations."""
    before = host_state()
    done = run_topo("-b", "64M", "-e", "64M", "-n", "1", "-w", "0", "--time-limit", "8s", cwd=tmp_path)
    (folder,) = (tmp_path / "results").iterdir()
    (row,) = finished(done, folder)
    assert int(row["ranks"]) == 16 and float(row["rate_scale"]) > 1
    assert host_state() == before


def test_a_user_s_own_files(tmp_path: Path) -> None:
    """A topology, a policy and an experiment from the current directory, which is not the repository."""
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from controller.policies.single_path import single_path\n"
        "from topologies.spine_leaf import SpineLeaf\n"
        "@dataclass(frozen=True)\n"
        "class Mine(SpineLeaf):\n"
        "    spines: int = 1\n"
        "    leaves: int = 2\n"
        "    hosts_per_leaf: int = 1\n"
        "def mine(fabric, down=frozenset()):\n"
        "    return single_path(fabric, down)\n"
    )
    (tmp_path / "mine.toml").write_text(
        '[fabric]\ntopology = "./mine.py:Mine"\nlink_rate = "20Mbit"\n[routing]\nrouting = "./mine.py:mine"\n'
        '[traffic]\nmin_bytes = "64K"\nmax_bytes = "64K"\niterations = 1\n[run]\nscale = "1"\n'
    )
    done = run_topo("mine.toml", "--out", "out", cwd=tmp_path)
    (row,) = finished(done, tmp_path / "out")
    assert row["routing"] == "./mine.py:mine"
