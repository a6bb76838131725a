"""Traffic patterns on a real fabric: two leaves, two hosts each, 20 Mbit/s, every row right and its goodput beside it."""

import csv
from pathlib import Path

import pandas as pd
import pytest

from tests.emulation.commands import fabric, run_topo, sizes
from traffic import PATTERNS

SIZE = 250_000
# What the busiest NIC carries, at least, of what one host sends.
LEAST_FACTOR = {"permutation": 1, "uniform_random": 1, "group_shift": 1, "incast": 3}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_runs_as_a_collective_does(pattern: str, tmp_path: Path) -> None:
    options = ["--collective", pattern, "--flows-per-host", "4", "--out", str(tmp_path / "out")]
    options += ["--group-size", "2"] if pattern == "group_shift" else []
    done = run_topo(*fabric(spines=2, hosts_per_leaf=2), *options, *sizes(str(SIZE)), cwd=tmp_path)
    assert done.status in (0, 1), done.err
    with (tmp_path / "out" / "results.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["collective"], row["algorithm"], row["wrong"], row["iterations"]) == (pattern, "direct", "0", "1")
    # No NIC carries its part faster than at its rate, but for the shapers' first burst of a frame at every hop.
    least_s = LEAST_FACTOR[pattern] * (SIZE - 4 * 9014) * 8 / 20e6
    assert float(row["predicted_s"]) >= least_s and float(row["time_s"]) >= least_s
    assert "->" in row["bottleneck"]
    iterations = pd.read_parquet(tmp_path / "out" / "iterations.parquet")
    (mean,), (worst,) = iterations["sender_share_mean"], iterations["sender_share_worst"]
    assert 0 < worst <= mean <= SIZE / (SIZE - 4 * 9014)
    (goodput,) = [line for line in done.out.splitlines() if "of its link's rate" in line]
    assert f"a sending host got {mean:.3f} of its link's rate, the worst {worst:.3f}" in goodput
