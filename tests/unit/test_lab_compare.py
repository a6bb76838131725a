"""Comparing results with each other, and with what a fabric should give."""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.commands import compare
from lab.errors import LabError
from lab.planning.experiment import Experiment
from lab.planning.plan import Plan, plan
from lab.reporting import results
from lab.reporting.compare import compare_text
from lab.reporting.overlay import svg
from lab.reporting.sources import Source, parse
from tests.unit import nccl_outputs
from tests.unit.lab_samples import row

# 16 ranks on one switch at 400 Gbit/s: each sends 1.875 S at 50 GB/s, in frames of 9014 with 8948 of payload, and an
# acknowledgement of 66 for every second frame that it gets.
ONE_SWITCH = "spine-leaf:spines=1,leaves=1,hosts_per_leaf=16"

NO_ITERATIONS = "95 %: N/A without iterations to estimate from, as a results folder, nccl-tests' -J and -I 1 have them"


def ring_s(size: float) -> float:
    return 1.875 * size * (9014 + 33) / 8948 / 50e9


def of_rows(name: str, *rows: Any) -> Source:
    return parse(results.csv_text(rows), name)


def run(capsys: pytest.CaptureFixture[str], *names: object, **options: str) -> tuple[int, list[str]]:
    """Status and lines of `compare`."""
    given = dict.fromkeys(("fabric", "svg", "link_rate", "routing", "algorithm", "ranks")) | options
    first, *others = map(str, names)
    status = compare.run(argparse.Namespace(a=first, others=others, **given))
    return status, capsys.readouterr().out.splitlines()


# -- results ----------------------------------------------------------------------------------------------------------


def test_rows_are_matched_by_size_and_invalid_ones_never_compared() -> None:
    """B takes 0.8 of A's time: 1.25 of its bandwidth."""
    mine = of_rows("a", row(), row(size_bytes=2**29, verdict="invalid"), row(size_bytes=2**28))
    theirs = of_rows(
        "b",
        *(
            row(routing="single-path", **c)
            for c in ({"time_s": 0.0328, "busbw_gbytes_s": 61.375}, {"size_bytes": 2**29})
        ),
    )
    text, _ = compare_text([mine, theirs])
    assert text.splitlines() == [
        "A: a",
        "B: b",
        "routing differs: ecmp in A, single-path in B",
        "",
        "  size  A time (us)  B time (us)  A busbw  B busbw  B / A  95 %",
        "256MiB      41000.0            -    49.10        -      -   N/A",
        "512MiB      41000.0      41000.0    49.10    49.10      -   N/A  A is invalid",
        "  1GiB      41000.0      32800.0    49.10    61.38  1.250   N/A",
        NO_ITERATIONS,
        "",
        "busbw of B is 1.250 of A's (geometric mean over 1 size)",
    ]


def test_an_interval_stands_where_iterations_are_known() -> None:
    """Means 11 and 5.5 ms; 2 x and / 1.73876, as calculated by hand in test_kpis_intervals."""
    sizes = {2**30: [0.010, 0.012]}, {2**30: [0.005, 0.006]}
    a, b = (
        parse(results.csv_text([row(time_s=sum(s[2**30]) / 2)]), name, s) for name, s in zip("ab", sizes, strict=True)
    )
    text, _ = compare_text([a, b])
    assert "  2.000  [1.150, 3.478]" in text
    assert "95 % intervals: Student's t" in text


def test_bandwidths_follow_from_times_not_from_two_decimals() -> None:
    """1 KiB in 30 and 40 us: busbw prints 0.06 and 0.05, times say 0.75."""
    a, b = (parse(nccl_outputs.table({2**10: us}), name) for us, name in ((30.0, "a"), (40.0, "b")))
    assert "  0.750  " in compare_text([a, b])[0]


def test_ranks_that_differ_change_the_factor_of_bandwidth() -> None:
    """The same time over 8 ranks: 1.75 / 1.875 of the bus bandwidth."""
    text, _ = compare_text([of_rows("a", row()), of_rows("b", row(ranks=8))])
    assert "ranks differs: 16 in A, 8 in B" in text
    assert "  0.933  " in text


def test_three_results_are_each_compared_with_the_first() -> None:
    text, comparable = compare_text([of_rows(n, row(time_s=0.041 * f)) for n, f in (("a", 1), ("b", 2), ("c", 0.5))])
    assert comparable
    assert text.splitlines()[-2:] == [
        "busbw of B is 0.500 of A's (geometric mean over 1 size)",
        "busbw of C is 2.000 of A's (geometric mean over 1 size)",
    ]


def test_nothing_in_common_is_no_mean() -> None:
    text, comparable = compare_text([of_rows("a", row()), parse(nccl_outputs.table({2**20: 50.0}), "b")])
    assert not comparable
    assert text.endswith("no size was measured validly in both A and B")


def test_unreadable_rows_are_said() -> None:
    whole = results.csv_text([row(), row(size_bytes=2**29)])
    source = parse(whole[: whole.rindex("ring")], "a")
    assert "1 unreadable row of a was left out: line 3" in compare_text([source, source])[0]


def a_step(name: str, **changes: Any) -> Source:
    """A training step's row, which has no bandwidth."""
    step = {"collective": "llama2-7b", "algbw_gbytes_s": math.nan, "busbw_gbytes_s": math.nan}
    return of_rows(name, row(**(step | changes)))


def test_training_steps_are_compared_by_their_times_whatever_each_sends() -> None:
    """0.06 s / 0.04 s = 1.5."""
    mine = a_step("a", algorithm="dp=16", size_bytes=2**30, time_s=0.04)
    theirs = a_step("b", algorithm="tp=4,dp=4", size_bytes=2**29, time_s=0.06)
    text, comparable = compare_text([mine, theirs])
    assert comparable
    assert text.splitlines()[2:] == [
        "algorithm differs: dp=16 in A, tp=4,dp=4 in B",
        "",
        "         size  A time (us)  B time (us)  A busbw  B busbw  B / A  95 %",
        "1GiB / 512MiB      40000.0      60000.0        -        -  1.500   N/A",
        NO_ITERATIONS,
        "",
        "time of B is 1.500 of A's (geometric mean over 1 size)",
    ]


def test_an_invalid_step_is_not_compared_nor_a_step_with_a_collective() -> None:
    assert not compare_text([a_step("a"), a_step("b", verdict="invalid")])[1]
    assert not compare_text([a_step("a"), of_rows("b", row())])[1]


# -- beside a prediction ----------------------------------------------------------------------------------------------


def test_a_cluster_as_predicted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text(nccl_outputs.sweep(ring_s))
    status, lines = run(capsys, tmp_path / "mine.txt", fabric=ONE_SWITCH)
    assert status == 0
    assert lines[1].startswith(
        "predicted: all_reduce of 16 ranks on spine-leaf, 400Gbit a NIC, ecmp, tcp in frames of 9000"
    )
    assert lines[2].startswith("algorithm: ring, assumed: the output does not say")
    assert lines[-1] == "A is as predicted: within 15% at all 6 sizes"
    ratios = [float(line.split()[4]) for line in lines if "iB  " in line[:8]]
    # What is not in the closed form: a frame is forwarded whole by the switch, and a step's last frame is short.
    assert ratios == pytest.approx([1] * 6, abs=0.05) and ratios[-1] == pytest.approx(1, abs=1e-3)


def test_latency_is_named_with_the_sizes_that_it_decides(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text(nccl_outputs.sweep(lambda size: ring_s(size) + 150e-6))
    _, lines = run(capsys, tmp_path / "mine.txt", fabric=ONE_SWITCH)
    assert [line.split()[0] for line in lines if line.endswith("* slower")] == ["1MiB", "4MiB", "16MiB"]
    assert lines[-3] == "* A leaves the prediction by more than 15% at 3 of 6 sizes: 1MiB, 4MiB, 16MiB"
    assert lines[-1].startswith("  latency-bound at small sizes: a constant of 15")


def test_a_link_rate_of_ones_own_and_a_slow_link(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """On NICs of 200 Gbit/s everything takes twice as long: as predicted for them, twice the prediction for 400."""
    (tmp_path / "mine.txt").write_text(nccl_outputs.sweep(lambda size: 2 * ring_s(size)))
    assert run(capsys, tmp_path / "mine.txt", fabric=ONE_SWITCH, link_rate="200Gbit")[1][-1].startswith("A is as pre")
    _, lines = run(capsys, tmp_path / "mine.txt", fabric=ONE_SWITCH)
    assert any("slower by a constant factor of 1.9" in x or "slower by a constant factor of 2.0" in x for x in lines)


def test_the_log_says_the_algorithm_and_another_one_is_named_where_it_fits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """NCCL says ring; what was measured is recursive doubling: log2(16) = 4 times S, not 1.875 S."""
    log = "n:1:1 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo 1 proto 2 time 61.5\n"
    (tmp_path / "mine.txt").write_text(log + nccl_outputs.sweep(lambda size: ring_s(size) * 4 / 1.875))
    _, lines = run(capsys, tmp_path / "mine.txt", fabric=ONE_SWITCH)
    assert "algorithm: as the log says at each size: ring; ring for what is not ours" in lines
    assert lines[lines.index("candidate causes, the best fit first:") + 1].startswith(
        "  wrong algorithm: as recursive-doubling at every size"
    )


def collisions(experiment: Experiment, sizes: Sequence[int], *, points: int = 8) -> tuple[Plan, np.ndarray[Any, Any]]:
    """In place of the model: one connection a pair collides where messages are long, one hash for all takes four times as long,
    other algorithms twice."""
    seconds = np.array([ring_s(size) for size in sizes])
    seconds = np.where((experiment.channels == 1) & (np.array(sizes) > 2**24), 1.9, 1) * seconds
    seconds *= 4 if experiment.routing == "ecmp-polarised" else 1
    return plan(replace(experiment, algorithm="ring")), seconds * (1 if experiment.algorithm == "ring" else 2)


@pytest.mark.parametrize(
    ("measured", "cause"),
    [
        (lambda size: ring_s(size) * (1.9 if size > 2**24 else 1), "few QPs: as with one connection"),
        (lambda size: ring_s(size) * 4, "polarisation: as when every switch hashes alike"),
        (lambda size: ring_s(size) * 2 + 1e-4, "wrong algorithm: as "),
    ],
)
def test_a_planted_cause_is_named_first(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    measured: Callable[[int], float],
    cause: str,
) -> None:
    """NCCL's log says four channels."""
    monkeypatch.setattr(compare, "curve", collisions)
    ring = "n:1:1 [0] NCCL INFO Channel {:02d}/04 :    " + "   ".join(map(str, range(16))) + "\n"
    (tmp_path / "mine.txt").write_text("".join(map(ring.format, range(4))) + nccl_outputs.sweep(measured))
    _, lines = run(capsys, tmp_path / "mine.txt", fabric=ONE_SWITCH)
    assert "4 channels" in lines[1]
    first = lines[next(i for i, line in enumerate(lines) if line.startswith("candidate cause")) + 1]
    assert first.startswith(f"  {cause}")


def test_a_log_without_a_table_is_predicted_and_said_to_be_unmeasured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = "n:1:1 [0] NCCL INFO comm 0x5 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0\n"
    log += "n:1:1 [0] NCCL INFO AllReduce: 1073741824 Bytes -> Algo 1 proto 2 time 61.5\n"
    (tmp_path / "log.txt").write_text(log)
    status, lines = run(capsys, tmp_path / "log.txt", fabric=ONE_SWITCH)
    assert status == 1
    (found,) = [line for line in lines if line.startswith("1GiB")]
    assert found.split()[:2] == ["1GiB", "N/A"] and found.endswith("A: not measured")
    assert float(found.split()[3]) == pytest.approx(ring_s(2**30) * 1e6, rel=1e-3)
    assert lines[-1] == "no size of A was both measured validly and predicted"


def test_an_experiment_file_names_the_fabric(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "fabric.toml").write_text(f'[fabric]\ntopology = "{ONE_SWITCH}"\nlink_rate = "100Gbit"\n')
    (tmp_path / "mine.txt").write_text(nccl_outputs.sweep(lambda size: 4 * ring_s(size)))
    _, lines = run(capsys, tmp_path / "mine.txt", fabric=str(tmp_path / "fabric.toml"))
    assert lines[-1].startswith("A is as predicted")


@pytest.mark.parametrize(
    ("text", "options", "refusal"),
    [
        (nccl_outputs.HEADER + nccl_outputs.row(2**20, 50.0), {}, "does not say which collective it is of"),
        (
            "# Collective test starting: all_reduce_perf\n" + nccl_outputs.HEADER + nccl_outputs.row(2**20, 50.0),
            {},
            "does not say how many ranks it is of: keep its lines '#  Rank ...', or give --ranks N",
        ),
        (
            nccl_outputs.preamble("hypercube_perf") + nccl_outputs.HEADER + nccl_outputs.row(2**20, 50.0),
            {},
            "is of hypercube, which no prediction is made for: choose from all_reduce",
        ),
        (nccl_outputs.sweep(ring_s), {"algorithm": "rings"}, "unknown algorithm of all_reduce 'rings'"),
        (nccl_outputs.sweep(ring_s), {"fabric": "spine-leaf:spines=1,leaves=1,hosts_per_leaf=4"}, "16"),
        (nccl_outputs.sweep(ring_s), {"fabric": "no-such"}, "unknown topology 'no-such'"),
    ],
)
def test_what_cannot_be_predicted_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, options: dict[str, str], refusal: str
) -> None:
    (tmp_path / "mine.txt").write_text(text)
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        run(capsys, tmp_path / "mine.txt", **({"fabric": ONE_SWITCH} | options))
    assert refusal in str(caught.value)


def test_one_result_alone_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(LabError, match="one result alone: name another to compare it with, or --fabric"):
        run(capsys, tmp_path / "mine.txt")


def test_the_picture_has_every_curve_and_is_the_same_each_time() -> None:
    a = parse(nccl_outputs.sweep(ring_s), "mine.txt")
    drawn, again = (svg([a, of_rows("folder", row())], {size: ring_s(size) for size in a.rows}) for _ in range(2))
    assert drawn == again
    assert drawn.startswith("<?xml") and drawn.rstrip().endswith("</svg>")
    assert all(
        f"<!-- {text} -->" in drawn for text in ("A: mine.txt", "B: folder", "predicted", "bus bandwidth (GB/s)")
    )
