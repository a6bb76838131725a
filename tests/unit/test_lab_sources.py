"""Reading results: ours, nccl-tests' text as terminals and launchers leave it, its JSON, and NCCL's own log."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import LabError
from lab.reporting import nccl, results
from lab.reporting.nccl_debug import ours, read_log
from lab.reporting.sources import parse, read
from lab.rows import IterationRecord
from tests.unit import nccl_outputs
from tests.unit.lab_samples import record, row

OLD_TEXT = """\
#                                                     out-of-place                       in-place
#       size         count      type     time   algbw   busbw  error     time   algbw   busbw  error
     1048576         32768     float    40.00   26.21   22.94  0e+00    40.10   26.15   22.88  0e+00
"""
# `-I 1`: i_min i_max i_p99 i_cv% behind each half.
WITH_STATISTICS = """\
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1
#       size         count      type   redop    root     time   algbw   busbw  #wrong   i_min   i_max   i_p99  i_cv%     time   algbw   busbw  #wrong   i_min   i_max   i_p99  i_cv%
     1048576        262144     float     sum      -1    50.00   20.97   36.70       0   48.00   53.00   53.00   2.00    50.10   20.93   36.63       0   48.00   53.00   53.00   2.00
"""  # noqa: E501


def test_the_table_is_read_by_its_header() -> None:
    source = parse(nccl_outputs.table({2**20: 50.0, 2**21: 80.0}), "mine.txt")
    assert [(size, r.busbw_gbytes_s) for size, r in source.rows.items()] == [(2**20, 39.32), (2**21, 49.15)]
    assert [r.time_s for r in source.rows.values()] == pytest.approx([50e-6, 80e-6])
    assert (source.about, source.skipped) == ({"collective": "all_reduce", "ranks": "16"}, ())
    assert parse(OLD_TEXT, "old.txt").rows[2**20].busbw_gbytes_s == 22.94


def test_statistics_of_iterations_are_those_that_were_printed() -> None:
    """A population deviation of 2 % of 50 us over 20: 1 us x sqrt(20/19) as a sample's."""
    times = parse(WITH_STATISTICS, "x").rows[2**20].times
    assert times is not None
    assert (times.mean, times.std, times.n) == pytest.approx((50e-6, 1e-6 * math.sqrt(20 / 19), 20))


@pytest.mark.parametrize(
    "prefix", ["[1,0]<stdout>:", "[1,0]<stdout>: ", "[prterun-node01-77@1,0]<stdout>:", "0: ", " 0: "]
)
def test_what_launchers_write_before_a_line_is_no_part_of_it(prefix: str) -> None:
    plain = nccl_outputs.table({2**20: 50.0, 2**21: 80.0})
    tagged = "".join(prefix + line + "\n" for line in plain.splitlines())
    assert parse(tagged, "x") == parse(plain, "x")


def test_ranks_are_those_of_one_group() -> None:
    """NCCL_TESTS_SPLIT: two groups of two, whose bandwidths are each group's own."""
    lines = [f"#  Rank {r:2d} Group {r % 2:2d} Pid   1 on  n device  0 [0000:1b:00] H100" for r in range(4)]
    assert parse("\n".join(lines) + nccl_outputs.HEADER + nccl_outputs.row(2**20, 50.0), "x").ranks == 2


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("     4194304       1048576     float     sum", "cut before its numbers"),
        ("     4194304       1048576     float     sum      -1    80.00   26.21   4", "cut within a number"),
        (
            "     4194304       1048576     float     sum      -1    80.00   26.21n01:7:7 [0] NCCL INFO x 1 2 3 4 5",
            "mixed up",
        ),
    ],
)
def test_a_row_that_is_not_whole_is_left_out_and_its_line_told(line: str, why: str) -> None:
    text = nccl_outputs.table({2**20: 50.0})
    source = parse(text + line + "\n", "x")
    assert (list(source.rows), source.skipped) == ([2**20], (len(text.splitlines()) + 1,)), why


def test_a_row_is_found_behind_and_before_what_others_wrote() -> None:
    whole = nccl_outputs.row(2**22, 80.0)
    text = nccl_outputs.preamble() + nccl_outputs.HEADER
    behind = parse(text + "node01:123:456 [0] NCCL INFO comm 0x1 done " + whole, "x")
    before = parse(text + whole.rstrip("\n") + "  node01:123:456 [0] NCCL INFO Abort\n", "x")
    assert behind.rows == before.rows == parse(text + whole, "x").rows
    assert list(behind.rows) == [2**22]


@pytest.mark.parametrize("failed", ["N/A", "nan", "-nan", "FAILED"])
def test_a_row_that_failed_is_kept_and_is_no_measurement(failed: str) -> None:
    half = f"  {failed:>7}  {failed:>6}  {failed:>6}  {'N/A':>6}"
    line = f"{2**22:12d}  {2**20:12d}     float     sum      -1{half}{half}\n"
    source = parse(nccl_outputs.table({2**20: 50.0}) + line, "x")
    assert source.rows[2**22].verdict == "invalid" and "no time" in source.rows[2**22].note
    assert [r.size_bytes for r in source.valid] == [2**20]
    short = parse(nccl_outputs.table({2**20: 50.0}) + line.split(half, maxsplit=1)[0] + f"  {failed}\n", "x")
    assert short.rows[2**22].verdict == "invalid" and short.skipped == ()


def test_wrong_elements_are_no_measurement() -> None:
    text = nccl_outputs.preamble() + nccl_outputs.HEADER + nccl_outputs.row(2**20, 50.0, wrong="12")
    (found,) = parse(text, "x").rows.values()
    assert (found.verdict, found.note) == ("invalid", "12 wrong elements")


def test_a_size_that_ran_several_times_is_the_mean_of_what_is_valid() -> None:
    """50, 60 and 70 us, and one with wrong elements: 60 us, and runs scatter by 10 us."""
    text = nccl_outputs.preamble() + nccl_outputs.HEADER
    text += "".join(nccl_outputs.row(2**20, us) for us in (50.0, 60.0, 70.0)) + nccl_outputs.row(2**20, 1.0, wrong="3")
    (found,) = parse(text, "x").rows.values()
    assert found.time_s == pytest.approx(60e-6) and found.note == "mean of 3 rows, 1 invalid left out"
    assert found.times is not None and found.times.std == pytest.approx(10e-6)


def test_tables_of_several_collectives_are_refused() -> None:
    text = nccl_outputs.table({2**20: 50.0}) + nccl_outputs.preamble("all_gather_perf") + nccl_outputs.HEADER
    with pytest.raises(LabError, match=r"'x' has the tables of all_reduce, all_gather, .* a file of its own"):
        parse(text + nccl_outputs.row(2**20, 30.0), "x")


def test_a_table_without_rows_says_so(tmp_path: Path) -> None:
    file = tmp_path / "empty.txt"
    file.write_text(nccl_outputs.preamble() + nccl_outputs.HEADER + nccl_outputs.FOOTER)
    with pytest.raises(LabError, match=r"has no rows: nothing was measured, or it is not a result$"):
        read(file)
    file.write_text(nccl_outputs.preamble() + nccl_outputs.HEADER + "  1048576   262144   float   sum\n")
    with pytest.raises(LabError, match=r"not a result, and 1 lines could not be read$"):
        read(file)


def test_json_of_nccl_tests() -> None:
    half = {"time": 50.0, "alg_bw": 20.97, "bus_bw": 36.7, "nwrong": "N/A"}
    stats = {"times_us": [49.0, 51.0]}
    document = {
        "args": ["./build/alltoall_perf", "-b", "1M"],
        "devices": [{"rank": r, "group": 0} for r in range(8)],
        "results": [
            {"size": 2**20, "out_of_place": half, "out_of_place_per_iter": stats},
            {"size": 2**21, "out_of_place": half | {"time": "nan"}},
            {"size": 2**22, "out_of_place": None},
        ],
    }
    source = parse(json.dumps(document), "x")
    assert source.about == {"ranks": "8", "collective": "all_to_all"}
    assert [(r.size_bytes, r.verdict) for r in source.rows.values()] == [(2**20, ""), (2**21, "invalid")]
    times = source.rows[2**20].times
    assert times is not None and (times.mean, times.n) == pytest.approx((50e-6, 2))


# -- ours -------------------------------------------------------------------------------------------------------------


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
    assert from_csv.ranks == from_json.ranks == from_text.ranks == 16


def test_a_folders_iterations_are_those_out_of_place(tmp_path: Path) -> None:
    iterations = [
        IterationRecord("all_reduce", "ring", 2**30, in_place, i, 0.0, 1.0, t, 0, 0, 1.0, 1.0)
        for i, (t, in_place) in enumerate([(0.040, False), (0.042, False), (0.9, True)])
    ]
    results.write(tmp_path, record(row(), iterations=iterations))
    times = read(tmp_path).rows[2**30].times
    assert times is not None and (times.mean, times.n) == pytest.approx((0.041, 2))
    assert pd.read_parquet(tmp_path / "iterations.parquet").shape[0] == 3
    (tmp_path / "iterations.parquet").unlink()
    assert read(tmp_path).rows[2**30].times is None


def test_a_steps_forms_say_the_same(tmp_path: Path) -> None:
    run = record(row(collective="llama2-7b", algbw_gbytes_s=math.nan, busbw_gbytes_s=math.nan, time_s=0.04))
    results.write(tmp_path, run)
    texts = [(tmp_path / name).read_text() for name in ("results.csv", "nccl.json")]
    for text in (*texts, nccl.table(run)):
        (found,) = parse(text, "x").rows.values()
        assert found.is_step and found.time_s == pytest.approx(0.04)


def test_a_row_of_which_data_was_lost_is_not_compared_whatever_holds_it(tmp_path: Path) -> None:
    lost = row(algbw_gbytes_s=math.nan, busbw_gbytes_s=math.nan, wrong=None, delivered=0.9, transport="udp")
    results.write(tmp_path, run := record(lost))
    texts = (*((tmp_path / name).read_text() for name in ("results.csv", "nccl.json")), nccl.table(run))
    for text in texts:
        (found,) = parse(text, "x").rows.values()
        assert not found.is_valid and "of the data came" in found.note
    assert parse(texts[0], "x").rows[2**30].note == "90.00% of the data came"


def test_a_truncated_csv_row_is_left_out_and_said() -> None:
    whole = results.csv_text([row(), row(size_bytes=2**29)])
    source = parse(whole[: whole.rindex("ring")], "a")
    assert (set(source.rows), source.skipped) == ({2**30}, (3,))


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
        read(file)
    assert refusal in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        LabError, match=r"cannot be read: No such file or directory: name a results folder or nccl-tests output$"
    ):
        read(tmp_path / "no")


# -- NCCL's log -------------------------------------------------------------------------------------------------------


LOG = """\
node01:1:9 [0] NCCL INFO NCCL version 2.26.5+cuda12.9
[1,3]<stdout>:node01:4:9 [3] NCCL INFO ncclCommInitRank comm 0x55d0 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 1b000 - Init START
node01:1:9 [0] NCCL INFO Channel 00/04 :    0   1   2   3   4   5   6   7   8   9  10  11  12  13  14  15
node01:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC
node01:1:9 [0] NCCL INFO AllReduce: 4 Bytes -> Algo 0 proto 0 time 30.1
node01:1:9 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo 0 proto 2 time 61.5
node01:1:9 [0] NCCL INFO AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..3}
node01:1:9 [0] NCCL INFO Broadcast: 8 Bytes -> Algo 1 proto 0 time 9.0
node01:1:9 [0] NCCL INFO AllRed
"""


def test_a_log_says_ranks_channels_and_algorithms_by_size() -> None:
    log = read_log(LOG)
    assert (log.ranks, log.channels, log.collective) == (16, 4, "all_reduce")
    assert log.sizes == (4, 2**20, 2**30)
    # By ratio: 16 MiB is 16 times 1 MiB, 1 GiB is 64 times that.
    assert [log.algorithm(size) for size in (2**10, 2**24, 2**26)] == ["tree", "tree", "ring"]
    assert [ours(name) for name in ("tree", "ring", "NVLS", "pat")] == [
        "double-binary-tree",
        "ring",
        "in-network",
        None,
    ]


def test_calls_are_counted_in_bytes_of_the_whole() -> None:
    """2^20 bfloat16 of an all-reduce are 2 MiB; of an all-gather over 8 ranks, 16 MiB."""
    call = (
        "n:1:1 [0] NCCL INFO {}: opCount 1f sendbuff 0x7f recvbuff 0x7f count 1048576 datatype 9 op 0 root 0 comm 0x5 [nranks=8] "
        "stream 0x1"
    )
    assert read_log(call.format("AllReduce")).sizes == (2**21,)
    assert read_log(call.format("AllGather")).sizes == (2**24,)
    assert read_log(call.format("AllReduce")).ranks == 8


def test_a_forced_algorithm_and_a_log_that_says_nothing() -> None:
    assert read_log("n:1:1 [0] NCCL INFO NCCL_ALGO set by environment to Tree.").algorithm(2**20) == "Tree"
    assert read_log("n:1:1 [0] NCCL INFO NCCL_ALGO set by environment to ^Tree.").algorithm(2**20) is None
    empty = read_log("hello\nNCCL INFO cut")
    assert (empty.ranks, empty.channels, empty.collective, empty.algorithm(1)) == (None, None, None, None)


WHOLE = nccl_outputs.table({2**k: 50.0 * k for k in range(10, 16)}) + LOG


@settings(max_examples=40)
@given(st.data())
def test_no_text_is_too_broken_to_be_read(data: st.DataObject) -> None:
    """Lines cut, doubled and written into each other: what is read was written so, and the rest is left out."""
    lines = WHOLE.splitlines()
    broken = []
    for line in lines:
        how = data.draw(st.sampled_from(("whole", "whole", "cut", "mixed", "twice", "gone")))
        other = data.draw(st.sampled_from(lines)) if how == "mixed" else ""
        at = data.draw(st.integers(0, len(line))) if how in ("cut", "mixed") else len(line)
        broken += {"twice": [line, line], "gone": []}.get(how, [line[:at] + other])
    try:
        source = parse("\n".join(broken), "x")
    except LabError:
        return
    for size, found in source.rows.items():
        assert not found.is_valid or size in {2**k for k in range(10, 16)}
        assert not found.is_valid or round(found.time_s * 1e6) == 50 * (size.bit_length() - 1)
