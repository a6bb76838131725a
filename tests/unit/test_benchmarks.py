"""The pure parts of scripts/bench.py: what passes, what a pair of measurements says, which packets count as lost."""

import importlib
import json
import math
import subprocess
from pathlib import Path

import pytest

import bench
from benchmarks.figure import Figure, Losses, Pairs, Target, as_json, failed, figure, joined, losses, table

AT_MOST = Target("ratio", high=1.05)


@pytest.mark.parametrize(
    ("target", "text", "passing", "failing"),
    [
        (AT_MOST, "ratio <= 1.05", [1.05, 0.0], [1.0501, math.nan]),
        (Target("ratio", low=15), "ratio >= 15", [15.0], [14.9]),
        (Target("ours", 0, 0), "ours = 0", [0.0], [1.0, -1.0]),
        (Target("ratio", 0.98, 1.02), "ratio 0.98 to 1.02", [0.98, 1.02], [0.97, 1.03]),
    ],
)
def test_a_target_is_an_interval_with_its_ends(
    target: Target, text: str, passing: list[float], failing: list[float]
) -> None:
    assert str(target) == text
    assert all(map(target.holds, passing))
    assert not any(map(target.holds, failing))


def test_the_ratio_is_ours_to_the_peers_unless_given() -> None:
    assert figure("x", 2, "s", AT_MOST, peer=4) == Figure("x", 2, 4, "s", 0.5, "ratio <= 1.05", True)
    assert figure("x", 2, "s", AT_MOST, peer=4, ratio=2).passed is False


def test_a_target_of_ours_ignores_the_peer() -> None:
    assert figure("x", 2, "s", Target("ours", high=3), peer=1).passed
    assert not figure("x", 4, "s", Target("ours", high=3), peer=8).passed


@pytest.mark.parametrize("peer", [None, 0.0, math.nan])
def test_without_a_peer_no_ratio_passes(peer: float | None) -> None:
    assert not figure("x", 2, "s", AT_MOST, peer=peer).passed


def test_pairs_are_compared_one_by_one() -> None:
    """The second pair was disturbed as a whole, the third in one half: the median of the ratios is neither's."""
    pairs = Pairs(ours=(100, 50, 99), peer=(100, 50, 66))
    found = pairs.figure("goodput", "Mbit/s", Target("ratio", low=0.99), "peer: iperf3")
    assert (found.ours, found.peer, found.ratio, found.passed) == (99, 66, 1.0, True)
    assert found.note == "3 pairs, ratio 1.000 to 1.500; peer: iperf3"


def test_notes_that_say_nothing_leave_no_mark() -> None:
    assert joined("", "a", "", "b") == "a; b"


SENT = [float(n) for n in range(10)]


@pytest.mark.parametrize(
    ("arrived", "lost", "gap"),
    [
        (range(10), 0, 0.0),
        ([9, 8, 7, 6, 5, 4, 3, 2, 1, 0], 0, 0.0),
        ([0, 1, 2, 3, 6, 7, 8, 9], 2, 3.0),
        ([0, 2, 3, 4, 9], 5, 5.0),
        ([0, 1, 2], 7, 7.0),
        ([], 10, 9.0),
    ],
)
def test_packets_lost_and_the_longest_time_without_one(arrived: list[int], lost: int, gap: float) -> None:
    assert losses(SENT, arrived, 0, 100) == Losses(lost, gap)


def test_only_packets_sent_in_the_window_count() -> None:
    assert losses(SENT, [0, 1, 4, 5, 7, 8, 9], 5, 100).lost == 1
    assert losses(SENT, [0, 1, 4, 5, 7, 8, 9], 0, 3).lost == 1


def test_the_table_says_what_failed_and_why() -> None:
    text = table([figure("a", 0.52, "s", AT_MOST, peer=0.5, note="two runs"), failed("b", "not done after 5 s")])
    lines = text.splitlines()
    assert lines[2].split() == ["a", "0.52", "0.5", "s", "1.04", "ratio", "<=", "1.05", "pass"]
    assert lines[3] == "    two runs"
    assert lines[4].split() == ["b", "-", "-", "-", "FAIL"]
    assert lines[5:] == ["    not done after 5 s", "1 of 2 pass"]


def test_json_has_no_nan() -> None:
    (found,) = json.loads(json.dumps(as_json([figure("x", math.nan, "s", AT_MOST, peer=1.0)])))
    assert found["ours"] is None
    assert found["ratio"] is None
    assert found["passed"] is False


# -- the command ------------------------------------------------------------------------------------------------------

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench.py"


def started(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([BENCH, *arguments], capture_output=True, text=True, check=False, timeout=60)


def test_the_list_needs_no_root_and_names_every_figure() -> None:
    done = started("--list")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [*bench.GROUPS]


def test_an_unknown_figure_is_refused_in_one_line() -> None:
    done = started("jct50", "jct51")
    assert done.returncode == 2
    assert done.stderr == f"bench.py: unknown figure 'jct51'; known: {' '.join(bench.GROUPS)}\n"


@pytest.mark.parametrize("name", bench.GROUPS)
def test_every_figure_has_a_function_that_measures_it(name: str) -> None:
    module, function = bench.GROUPS[name].measure.split(":")
    assert callable(getattr(importlib.import_module(f"benchmarks.{module}"), function))
