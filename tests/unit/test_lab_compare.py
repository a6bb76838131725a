"""Comparing results with each other and with nccl-tests' own output, in the forms that it has had."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from lab.errors import LabError
from lab.reporting import nccl, results
from lab.reporting.compare import Source, compare, compare_text, parse
from tests.unit.lab_samples import record, row

# As nccl-tests prints it (values of a real shape, not of a real machine).
TEXT = """\
# nThread 1 nGpus 8 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
# Collective test starting: all_reduce_perf
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    50.00   20.97   36.70       0    50.10   20.93   36.63       0
[1,0]<stdout>:  2097152     524288     float     sum      -1    80.00   26.21   45.88       0    80.10   26.18   45.82       0
     4194304       1048576     float     sum
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 41.2575
"""
OLD_TEXT = """\
#                                                     out-of-place                       in-place
#       size         count      type     time   algbw   busbw  error     time   algbw   busbw  error
     1048576         32768     float    40.00   26.21   22.94  0e+00    40.10   26.15   22.88  0e+00
"""


def test_nccl_tests_text_is_read_by_its_header() -> None:
    source = parse(TEXT, "mine.txt")
    assert {r.size_bytes: (r.time_s, r.busbw_gbytes_s) for r in source.rows.values()} == {
        2**20: (50e-6, 36.70),
        2**21: (80e-6, 45.88),
    }
    assert (source.about, source.skipped) == ({"collective": "all_reduce"}, 1)
    assert parse(OLD_TEXT, "old.txt").rows[2**20].busbw_gbytes_s == 22.94


def test_our_own_forms_say_the_same(tmp_path: Path) -> None:
    run = record(row(), row(size_bytes=2**29, time_s=0.0205, verdict="invalid", reason="x"))
    results.write(tmp_path, run)
    from_csv = parse((tmp_path / "results.csv").read_text(), "csv")
    from_json = parse((tmp_path / "nccl.json").read_text(), "json")
    from_text = parse(nccl.table(run), "text")
    assert from_csv.rows.keys() == from_json.rows.keys() == from_text.rows.keys() == {2**30, 2**29}
    for size, one in from_csv.rows.items():
        for other in (from_json, from_text):
            assert other.rows[size].time_s == pytest.approx(one.time_s)
            assert other.rows[size].verdict == one.verdict


def test_rows_are_matched_by_size_and_invalid_ones_never_compared() -> None:
    mine = results.csv_text([row(busbw_gbytes_s=40.0), row(size_bytes=2**29, verdict="invalid"), row(size_bytes=2**28)])
    theirs = results.csv_text([row(busbw_gbytes_s=50.0, routing="single-path"), row(size_bytes=2**29)])
    text, _ = compare_text(parse(mine, "a"), parse(theirs, "b"))
    assert text.splitlines() == [
        "A: a",
        "B: b",
        "",
        "      size   A time (us)   B time (us)    A busbw    B busbw    B / A",
        "    256MiB       41000.0             -      49.10          -        -",
        "    512MiB       41000.0       41000.0      49.10      49.10        -  A is invalid",
        "      1GiB       41000.0       41000.0      40.00      50.00    1.250",
        "",
        "busbw of B is 1.250 of A's (geometric mean over 1 size)",
    ]


def test_what_makes_them_incomparable_is_said() -> None:
    other = results.csv_text([row(routing="single-path", ranks=8)])
    text, _ = compare_text(parse(results.csv_text([row()]), "a"), parse(other, "b"))
    assert "routing differs: ecmp in A, single-path in B" in text
    assert "ranks differs: 16 in A, 8 in B" in text


def a_step(name: str, **changes: Any) -> Source:
    """A training step's row, which has no bandwidth, as results.csv."""
    step = {"collective": "llama2-7b", "algbw_gbytes_s": math.nan, "busbw_gbytes_s": math.nan}
    return parse(results.csv_text([row(**(step | changes))]), name)


def test_training_steps_are_compared_by_their_times_whatever_each_sends() -> None:
    """0.06 s / 0.04 s = 1.5."""
    mine = a_step("a", algorithm="dp=16", size_bytes=2**30, time_s=0.04)
    theirs = a_step("b", algorithm="tp=4,dp=4", size_bytes=2**29, time_s=0.06)
    text, comparable = compare_text(mine, theirs)
    assert comparable
    assert text.splitlines()[2:] == [
        "algorithm differs: dp=16 in A, tp=4,dp=4 in B",
        "",
        "      size   A time (us)   B time (us)    A busbw    B busbw    B / A",
        "1GiB / 512MiB       40000.0       60000.0          -          -    1.500",
        "",
        "time of B is 1.500 of A's (geometric mean over 1 size)",
    ]


def test_an_invalid_step_is_not_compared_nor_a_step_with_a_collective() -> None:
    assert not compare_text(a_step("a"), a_step("b", verdict="invalid"))[1]
    assert not compare_text(a_step("a"), parse(results.csv_text([row()]), "b"))[1]


def test_a_steps_forms_say_the_same(tmp_path: Path) -> None:
    run = record(row(collective="llama2-7b", algbw_gbytes_s=math.nan, busbw_gbytes_s=math.nan, time_s=0.04))
    results.write(tmp_path, run)
    texts = [(tmp_path / name).read_text() for name in ("results.csv", "nccl.json")]
    for text in (*texts, nccl.table(run)):
        (found,) = parse(text, "x").rows.values()
        assert found.is_step and found.time_s == pytest.approx(0.04)


def test_nothing_in_common_is_no_mean() -> None:
    text, comparable = compare_text(parse(results.csv_text([row()]), "a"), parse(TEXT, "b"))
    assert not comparable
    assert text.endswith("no size was measured validly in both")


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        (results.csv_text([]), "has no rows: nothing was measured, or it is not a result"),
        ("hello\n", "has no rows: nothing was measured, or it is not a result"),
        ("", "has no rows: nothing was measured, or it is not a result"),
        (json.dumps({"results": []}), "has no rows: nothing was measured, or it is not a result"),
        (json.dumps({"other": 1}), "is not nccl-tests JSON: KeyError: 'results'"),
        ("{", "is not nccl-tests JSON: JSONDecodeError: "),
    ],
)
def test_a_file_without_results_is_one_line(tmp_path: Path, content: str, refusal: str) -> None:
    file = tmp_path / "x"
    file.write_text(content)
    with pytest.raises(LabError) as caught:
        compare(file, file)
    assert refusal in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        LabError, match=r"cannot be read: No such file or directory: name a results folder or nccl-tests output$"
    ):
        compare(tmp_path / "no", tmp_path / "no")


def test_a_truncated_row_is_left_out_and_said() -> None:
    whole = results.csv_text([row(), row(size_bytes=2**29)])
    source = parse(whole[: whole.rindex("ring")], "a")
    assert (set(source.rows), source.skipped) == ({2**30}, 1)
    assert "1 unreadable lines of a were left out" in compare_text(source, source)[0]
