"""Reducers and parameter servers on real links: the sums are right, and links carry what the algorithm says.

NICs at 20 Mbit/s, eight ranks below two leaves. A busy machine may make a row less than `ok`; what is asserted here does not
depend on the load.
"""

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.emulation.commands import run_topo, sizes

MTU, SIZE = 9000, 480_000
OPTIONS = ("--topology", "spine-leaf:leaves=2", "--scale", "1", "--link-rate", "20Mbit", *sizes(str(SIZE)))


def measured(tmp_path: Path, algorithm: str, *options: str) -> tuple[dict[str, str], dict[str, int], dict[str, Any]]:
    """The row, all elements of it right; the timed iteration's bytes by link direction; the manifest."""
    out = tmp_path / algorithm
    done = run_topo("--algorithm", algorithm, *options, *OPTIONS, "--out", str(out), cwd=tmp_path)
    assert done.status in (0, 1), done.err
    with (out / "results.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["algorithm"], row["ranks"], row["wrong"], row["iterations"]) == (algorithm, "8", "0", "1")
    assert "where the schedule sends" not in row["reason"]
    samples = pd.read_parquet(out / "links.parquet").groupby("link")["bytes_sent"]
    links = {str(link): int(n) for link, n in (samples.max() - samples.min()).items()}
    return row, links, json.loads((out / "manifest.json").read_text())


def wire_bytes(row: dict[str, str], payload: float, acknowledged: float) -> Any:
    """What a link's direction carries: payload, and the acknowledgements of what goes the other way."""
    mss = MTU - 20 - 32
    n_bytes = payload * (MTU + 14) / mss + acknowledged / mss * 66 / 2
    return pytest.approx(n_bytes, abs=0.05 * n_bytes + (2 + int(row["retransmits"])) * (MTU + 14))


def test_reducers_send_the_buffer_once_over_every_link_of_their_tree(tmp_path: Path) -> None:
    """Each leaf's reducer hears four ranks and the spine's."""
    row, links, manifest = measured(tmp_path, "in-network")
    for link in ("h1->leaf1", "leaf2->h8", "leaf1->spine1", "spine1->leaf2"):
        assert links[link] == wire_bytes(row, SIZE, SIZE)
    for link, n in (("leaf1->reducer1", 5), ("reducer2->leaf2", 5), ("spine1->reducer3", 2)):
        assert links[link] == wire_bytes(row, n * SIZE, n * SIZE)
    assert links["leaf1->spine2"] < SIZE / 10
    assert float(row["roofline_s"]) == pytest.approx(SIZE * 8 / 20e6)
    assert "busbw may be 1.75 times the link rate" in manifest["roofline"]
    assert (
        manifest["helpers"] == "reducer1 at leaf1 (100Mbit), reducer2 at leaf2 (100Mbit), reducer3 at spine1 (40Mbit)"
    )
    assert manifest["ranks"] == [f"h{i}" for i in range(1, 9)]


def test_a_server_gets_every_buffer_and_sends_as_many(tmp_path: Path) -> None:
    """At the second leaf, as asked. Two serial phases of n S / B, which is n^2 / (n - 1) = 9.1 times the ring: here with bounds
    that hold on a busy machine."""
    row, links, _ = measured(tmp_path, "parameter-server", "--helpers-at", "leaf2")
    for link in ("leaf2->server1", "server1->leaf2"):
        assert links[link] == wire_bytes(row, 8 * SIZE, 8 * SIZE)
    assert links["h1->leaf1"] == wire_bytes(row, SIZE, SIZE)
    ring, _, _ = measured(tmp_path, "ring")
    assert 9.1 / 2 < float(row["time_s"]) / float(ring["time_s"]) < 9.1 * 2
