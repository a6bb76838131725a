"""One collective by several algorithms: which are run, and the table of all."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from lab.commands import algorithms, launch
from lab.planning.experiment import Experiment, load
from lab.reporting import results
from lab.rows import json_value
from tests.unit.lab_samples import row
from topologies import Refused
from traffic import COLLECTIVES


def asked(**settings: Any) -> Experiment:
    return load(None, {"min_bytes": "64M", "max_bytes": "64M"} | settings)


def chosen(**settings: Any) -> tuple[list[str | None], dict[str, str]]:
    found, left_out = algorithms.each(asked(**settings))
    return [one.experiment.algorithm for one in found], left_out


def test_one_name_or_none_is_not_several() -> None:
    assert not algorithms.are_several(asked())
    assert not algorithms.are_several(asked(algorithm="ring"))
    assert algorithms.are_several(asked(algorithm="ring,direct"))
    assert algorithms.are_several(asked(algorithm="all"))


def test_names_are_run_in_their_order_and_once() -> None:
    assert chosen(collective="all_gather", algorithm="direct, ring,direct") == (["direct", "ring"], {})


def test_all_are_all_that_the_fabric_can_run() -> None:
    names, left_out = chosen(algorithm="all")
    assert {*names, *left_out} == COLLECTIVES["all_reduce"].keys()
    why = "spine-leaf has no HB domains"
    assert left_out == {"hierarchical": why, "rail-ring": why}


def test_on_rails_that_nothing_joins_the_others_are_left_out_with_their_pairs() -> None:
    names, left_out = chosen(algorithm="all", topology="rail-only")
    assert "hierarchical" in names and "ring" in left_out
    assert left_out["ring"].startswith(
        "all_reduce by ring has 4 of 16 pairs that the scale-out network of rail-only does not"
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"algorithm": "ring,rnig"}, "unknown algorithm of all_reduce 'rnig'"),
        ({"algorithm": "ring,"}, "unknown algorithm of all_reduce ''"),
        ({"algorithm": "all", "collective": "all_reduced"}, "unknown collective 'all_reduced'"),
        (
            {"algorithm": "all", "collective": "gather", "min_bytes": "4", "max_bytes": "4"},
            "no algorithm of gather can be run so; direct: -b 4B leaves gather over 16 ranks nothing to send",
        ),
        ({"algorithm": "all", "collective": "incast"}, "unknown algorithm of incast 'all'"),
        ({"algorithm": "ring,double-binary-tree", "topology": "rail-only"}, "all_reduce by ring has 4 of 16 pairs"),
    ],
)
def test_what_was_asked_for_by_name_is_refused(settings: dict[str, str], words: str) -> None:
    with pytest.raises(Refused, match=words):
        chosen(**settings)


def test_the_table_is_sorted_by_size_and_time() -> None:
    names = ("size_bytes", "algorithm", "time_s", "busbw_gbytes_s", "jct_ratio", "predicted_s", "verdict")
    values = (
        (2**20, "slow", "0.003", 1, 3, "", "ok"),
        (2**20, "fast", "0.001", 3, 1, 0.001, "degraded"),
        (2**10, "slow", "0.002", 1, 2, 0.002, "ok"),
    )
    rows = [dict(zip(names, row, strict=True)) for row in values]
    head, *lines = algorithms.table(rows)
    assert [line.split()[1:4] for line in lines] == [
        ["1KiB", "slow", "2000.0"], ["1MiB", "fast", "1000.0"], ["1MiB", "slow", "3000.0"],
    ]  # fmt: skip
    assert [line.split()[-2:] for line in lines] == [["2000.0", "ok"], ["1000.0", "degraded"], ["N/A", "ok"]]
    assert head.split()[:3] == ["#", "size", "algorithm"]


def test_what_the_emulator_was_in_the_way_of_does_not_stand_as_the_fastest() -> None:
    common = {"size_bytes": 2**20, "busbw_gbytes_s": "", "jct_ratio": "", "predicted_s": ""}
    found = [("none", "", "degraded"), ("best", 0.001, "invalid"), ("good", 0.002, "ok"), ("slow", 0.003, "degraded")]
    rows = [common | {"algorithm": name, "time_s": time_s, "verdict": verdict} for name, time_s, verdict in found]
    _, *lines = algorithms.table(rows)
    assert [line.split()[2] for line in lines[:2]] == ["good", "slow"]
    assert {line.split()[2] for line in lines[2:]} == {"none", "best"}


def test_predictions_as_json_are_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    algorithms.predict(asked(algorithm="ring,parameter-server"), as_json=True)
    ring, server = json.loads(capsys.readouterr().out)
    assert (ring["algorithm"], server["algorithm"]) == ("ring", "parameter-server")
    # n^2 / (n - 1) for 16 ranks (serial phases), within the headers' and the latency's part.
    assert server["predicted_s"] / ring["predicted_s"] == pytest.approx(256 / 15, rel=0.05)


@pytest.mark.parametrize("n", [4, 8, 16])
@pytest.mark.parametrize("size", ["1MB", "10MB"])
def test_the_ring_loses_two_latencies_for_each_step_more_whatever_the_size(
    n: int, size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """T(ring) - T(halving-doubling) = 2 (n - 1 - log2 n) alpha on one switch, where alpha is a message's way over two links.
    Of two delays, so that only what grows with alpha is left."""

    def difference_s(delay: str) -> float:
        algorithms.predict(
            asked(
                algorithm="ring,halving-doubling", topology=f"spine-leaf:spines=1,leaves=1,hosts_per_leaf={n}",
                delay=delay, scale="1", link_rate="1Gbit", min_bytes=size, max_bytes=size,
            ),
            as_json=True,
        )  # fmt: skip
        ring, halving = json.loads(capsys.readouterr().out)
        return float(ring["predicted_s"] - halving["predicted_s"])

    assert difference_s("20ms") - difference_s("10ms") == pytest.approx(
        2 * (n - 1 - math.log2(n)) * 2 * 10e-3, rel=1e-3
    )


def ran(monkeypatch: pytest.MonkeyPatch, out: Path, statuses: dict[str, int | Refused]) -> int:
    """--algorithm with these names; each run leaves one row, returns its status or is refused."""

    def run(one: Experiment, *, out: str, output: str, publish: int | None) -> int:
        status = statuses[str(one.algorithm)]
        if isinstance(status, Refused):
            raise status
        Path(out).mkdir(parents=True)
        (Path(out) / "results.csv").write_text(results.csv_text([row(algorithm=one.algorithm, mmr=math.nan)]))
        return status

    monkeypatch.setattr(launch, "run", run)
    return algorithms.run(asked(algorithm=",".join(statuses)), out=str(out), as_json=True, publish=None)


def test_rows_of_several_runs_are_json_as_those_of_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert ran(monkeypatch, tmp_path / "out", {"ring": 0, "in-network": 1}) == 1
    first, second = json.loads(capsys.readouterr().out)
    assert (first["algorithm"], second["algorithm"]) == ("ring", "in-network")
    wanted = {n: json_value(v) for n, v in row(algorithm="ring", mmr=math.nan).columns().items()}
    assert first == wanted


def test_a_folder_in_use_is_refused_before_the_first_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "in-network").mkdir()
    (tmp_path / "in-network" / "kept").touch()
    with pytest.raises(Refused, match="in-network: exists and is not an empty folder"):
        ran(monkeypatch, tmp_path, {"ring": 0, "in-network": 0})
    assert not (tmp_path / "ring").exists()
    with pytest.raises(Refused, match="--out '' names no folder"):
        algorithms.run(asked(algorithm="ring,in-network"), out="", as_json=True, publish=None)


def test_a_run_that_is_refused_after_others_does_not_take_their_rows_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """3, not 2: something was created."""
    assert ran(monkeypatch, tmp_path, {"ring": 0, "in-network": Refused("too large"), "parameter-server": 1}) == 3
    said = capsys.readouterr()
    assert [line["algorithm"] for line in json.loads(said.out)] == ["ring", "parameter-server"]
    assert "run_topo.py: in-network: too large" in said.err
