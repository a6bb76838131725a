"""Two sites with 1 ms between them: in the round trip of a ping, and in an all-reduce that crosses it at every other step.

A hundred times slower than the hardware, so that what a busy machine adds is small beside 100 ms.
"""

import csv
import json
import re
from pathlib import Path

import pandas as pd
import pytest

from tests.emulation.commands import run_topo, sizes, terminal

_ONE_WAY_MS, _DILATION = 1.0, 100
# 5 Mbit/s here. Ethernet's MTU, because 36 of its frames in a step's message take less time than the delay.
_SITES = (
    "--topology", "multi-dc:site=spine-leaf(spines=1;leaves=1;hosts_per_leaf=2),links_per_pair=1",
    "--scale", f"80000:{80_000 // _DILATION}", "--mtu", "1500",
)  # fmt: skip


def test_the_round_trip_is_twice_the_delay_between_sites_and_none_within(tmp_path: Path) -> None:
    """A busy machine makes frames late, never early: the quickest of some shows the delay."""
    with terminal("cli", *_SITES, cwd=tmp_path) as prompt:
        prompt.says("mininet> ", 60)
        between, within = (
            [float(ms) for ms in re.findall(r"time=([\d.]+) ms", prompt.types(f"s1h1 ping -n -c 15 -i 0.1 {other}"))]
            for other in ("s2h1", "s1h2")
        )
        prompt.press("exit\n")
        prompt.ended(60)
    assert (len(between), len(within)) == (15, 15)
    assert min(between) == pytest.approx(2 * _ONE_WAY_MS * _DILATION, rel=0.05)
    assert min(within) < 0.05 * min(between)


def test_a_collective_takes_the_predicted_time(tmp_path: Path) -> None:
    """A message is about as long as the window that TCP first offers, so another round trip at a step would show."""
    done = run_topo(*_SITES, *sizes("160M", iterations=5, warmup=2), "--out", "out", cwd=tmp_path)
    assert done.status in (0, 1), done.err
    with (tmp_path / "out" / "results.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["wrong"] == "0"
    quickest_s = pd.read_parquet(tmp_path / "out" / "iterations.parquet")["time_s"].min()
    # Six steps, of which three cross.
    assert quickest_s - float(row["roofline_s"]) > 3 * _ONE_WAY_MS / 1e3 * 0.95
    assert quickest_s == pytest.approx(float(row["predicted_s"]), rel=0.1)
    machine = json.loads((tmp_path / "out" / "manifest.json").read_text())["machine"]
    assert machine["delays"] in ("netem", "impairment hop")
    if machine["delays"] == "impairment hop":
        assert "links are delayed by the impairment hop" in done.out
        assert machine["hop_frames_per_s"] > 1000
