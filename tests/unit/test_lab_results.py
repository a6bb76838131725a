"""A results folder: exact columns, no row is no accident, never half a file."""

import csv
import errno
import json
import os
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from lab.errors import LabError
from lab.reporting import results
from lab.rows import IterationRecord, LinkSamples
from tests.results_folder import COLUMNS, FILES
from tests.unit.lab_samples import record, row
from topologies import Fabric, topology

NOW = datetime(2026, 1, 5, 10, 11, 12, tzinfo=timezone.utc)


def test_the_folder_has_its_files_and_columns(tmp_path: Path) -> None:
    iterations = [
        IterationRecord("all_reduce", "ring", 2**30, False, i, 1.0, 5.1, 0.041, 3, 0, 0.9, 0.8) for i in range(3)
    ]
    links = LinkSamples(
        np.array([0.0, 0.1]),
        ("h1-eth0", "leaf1-eth1"),
        ("h1->leaf1", "leaf1->h1"),
        ("scale-out", "scale-out"),
        np.array([[0, 0], [7, 9]]),
        packets_sent=np.array([[0, 0], [1, 2]]),
        queue_at_s=np.array([0.05]),
        queue_bytes=np.array([[-1, 9014]]),
        queue_drops=np.array([[-1, 3]]),
    )
    results.write(
        tmp_path, record(row(), row(mmr=float("nan"), verdict="degraded"), iterations=iterations, links=[links])
    )
    assert {f.name for f in tmp_path.iterdir()} == FILES - {"report.html"}
    assert results.write_report(tmp_path) == tmp_path / "report.html"
    assert {f.name for f in tmp_path.iterdir()} == FILES
    lines = list(csv.reader((tmp_path / "results.csv").read_text().splitlines()))
    assert lines[0] == COLUMNS and len(lines) == 3
    assert lines[2][COLUMNS.index("mmr")] == ""
    table = pq.read_table(tmp_path / "results.parquet")
    assert table.column_names == COLUMNS and table.num_rows == 2
    assert pq.read_table(tmp_path / "iterations.parquet").num_rows == 3
    assert pq.read_table(tmp_path / "links.parquet").to_pylist()[2:] == [
        {
            "at_s": 0.1,
            "intf": "h1-eth0",
            "link": "h1->leaf1",
            "kind": "scale-out",
            "bytes_sent": 7,
            "packets_sent": 1,
            "queue_bytes": None,
            "queue_drops": None,
        },
        {
            "at_s": 0.1,
            "intf": "leaf1-eth1",
            "link": "leaf1->h1",
            "kind": "scale-out",
            "bytes_sent": 9,
            "packets_sent": 2,
            "queue_bytes": 9014,
            "queue_drops": 3,
        },
    ]


def test_a_run_without_rows_still_writes_readable_files(tmp_path: Path) -> None:
    results.write(tmp_path, record())
    assert (tmp_path / "results.csv").read_text() == ",".join(COLUMNS) + "\n"
    for name in ("results", "iterations", "links", "link_totals", "balance", "spans"):
        assert pq.read_table(tmp_path / f"{name}.parquet").num_rows == 0
    assert pq.read_table(tmp_path / "results.parquet").schema.field("time_s").type == "double"
    assert json.loads((tmp_path / "manifest.json").read_text())["complete"] is False
    assert "No row was measured" in results.write_report(tmp_path).read_text()


def test_the_manifest_can_rebuild_the_fabric(tmp_path: Path) -> None:
    results.write(tmp_path, record(row(), complete=True))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["complete"] is True and manifest["rows"] == 1
    assert Fabric.from_dict(manifest["fabric"]) == topology("spine-leaf").build()


def test_folders_are_never_reused(tmp_path: Path) -> None:
    names = [results.new_folder(tmp_path / "results", "./my fabric", "all_reduce", NOW).name for _ in range(3)]
    assert names == [f"20260105-101112-._my_fabric-all_reduce{n}" for n in ("", "-2", "-3")]


def test_an_unwritable_place_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        LabError, match=r"^results cannot be written to '.*/file/results': Not a directory: use --out DIR$"
    ):
        results.new_folder(tmp_path / "file" / "results", "x", "y", NOW)


def test_a_full_disk_is_refused_in_one_line_and_leaves_the_file_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results.write(tmp_path, record(row()))
    before = {f.name: f.read_bytes() for f in tmp_path.iterdir()}

    def half(path: Path, text: str, encoding: str) -> int:
        path.write_bytes(text.encode(encoding)[: len(text) // 2])
        raise OSError(errno.ENOSPC, "whatever a library makes of it")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(LabError, match=r"^results cannot be written to '.*': No space left on device: use --out DIR$"):
        results.write(tmp_path, record(row(), row()))
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_belong_to_the_user_who_called_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1235")
    folder = results.new_folder(tmp_path / "results", "x", "y", NOW)
    results.write(folder, record(row()))
    owned = [folder.parent, folder, *folder.iterdir()]
    assert {(f.stat().st_uid, f.stat().st_gid) for f in owned} == {(1234, 1235)}
    assert tmp_path.stat().st_uid != 1234
