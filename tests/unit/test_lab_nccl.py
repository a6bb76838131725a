"""The table and the JSON as nccl-tests writes them (a0b82b22, src/util.cu)."""

import json
import math

import pytest

from lab.kpis import Goodput
from lab.reporting import nccl
from lab.reporting.sources import parse
from lab.rows import InPlace, IterationRecord
from tests.unit.lab_samples import record, row


def test_rows_are_rendered_as_nccl_tests_renders_them() -> None:
    """The published example row: 1 MiB, 123457 us, in-place 123457 us."""
    half = InPlace(0.123457, 0.01, 0.01, 0)
    line = nccl.row_line(
        row(size_bytes=2**20, time_s=0.123457, algbw_gbytes_s=0.01, busbw_gbytes_s=0.01, in_place=half)
    )
    assert line.startswith(
        "     1048576        262144     float     sum      -1   123457    0.01    0.01       0   123457    0.01    0.01       0"
    )


def test_columns_that_did_not_run_are_na_and_ours_stand_to_the_right() -> None:
    assert nccl.row_line(row()) == (
        "  1073741824     268435456     float     sum      -1  41000.0   26.19   49.10       0      N/A     N/A     N/A"
        "     N/A  |     1.018   40700.00  ok"
    )


def test_header_lines() -> None:
    assert nccl.header() == [
        "#",
        "#                                                              out-of-place                       in-place          ",
        (
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  "
            "#wrong  | jct_ratio  predicted  verdict"
        ),
        (
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)  "
            "        |                 (us)  "
        ),
    ]


@pytest.mark.parametrize(
    ("value", "width", "expected"),
    [
        (41000.0, 7, "41000.0"), (1.234, 7, "   1.23"), (9999.994, 7, "9999.99"), (99999.96, 7, " 100000"),
        (12345678.0, 7, "1.2e+07"), (999.994, 6, "999.99"), (123456.7, 6, "123457"), (1234567.0, 6, " 1e+06"), (0.0, 6, "  0.00"),
    ],
)  # fmt: skip
def test_float_str_is_getfloatstr(value: float, width: int, expected: str) -> None:
    assert nccl.float_str(value, width) == expected


@pytest.mark.parametrize(
    ("collective", "count", "redop", "root"),
    [
        ("all_reduce", 2**28, "sum", -1), ("reduce_scatter", 2**24, "sum", -1), ("all_gather", 2**24, "none", -1),
        ("all_to_all", 2**24, "none", -1), ("broadcast", 2**28, "none", 0), ("reduce", 2**28, "sum", 0),
        ("sendrecv", 2**28, "sum", -1), ("gather", 2**24, "none", 0),
        ("scatter", 2**24, "none", 0), ("all_to_all_v", 2**24, "none", -1),
    ],
)  # fmt: skip
def test_count_redop_and_root_by_collective(collective: str, count: int, redop: str, root: int) -> None:
    fields = nccl.row_line(row(collective=collective)).split()
    assert fields[:5] == ["1073741824", str(count), "float", redop, str(root)]


@pytest.mark.parametrize(
    ("collective", "program"),
    [
        ("all_reduce", "all_reduce_perf"), ("all_to_all", "alltoall_perf"), ("all_to_all_v", "alltoallv_perf"),
        ("sendrecv", "sendrecv_perf"), ("reduce_scatter", "reduce_scatter_perf"),
    ],
)  # fmt: skip
def test_programs_are_named_as_nccl_tests_names_its_own(collective: str, program: str) -> None:
    """Its src/Makefile: a file's name and _perf."""
    assert nccl.program(collective) == program
    assert parse(f"# Collective test starting: ./build/{program}\n", "x").about == {"collective": collective}


def test_an_invalid_row_is_not_in_the_average() -> None:
    rows = [row(busbw_gbytes_s=40.0), row(busbw_gbytes_s=50.0), row(busbw_gbytes_s=9.0, verdict="invalid", reason="x")]
    assert nccl.average_busbw(rows) == 45.0
    assert nccl.footer(rows, "all_reduce") == [
        "# 1 of 3 rows are invalid and not in the average",
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 45 ",
        "#",
        "# Collective test concluded: all_reduce_perf",
    ]


def test_both_halves_are_averaged_and_wrong_elements_fail() -> None:
    rows = [row(busbw_gbytes_s=40.0, wrong=7, in_place=InPlace(0.04, 25.0, 50.0, 0))]
    assert nccl.average_busbw(rows) == 45.0
    assert "# Out of bounds values : 1 FAILED" in nccl.footer(rows, "all_reduce")


def test_of_a_row_whose_data_did_not_all_arrive_nothing_is_said_but_its_time() -> None:
    lossy = row(
        wrong=None,
        delivered=0.3,
        verdict="degraded",
        algbw_gbytes_s=math.nan,
        busbw_gbytes_s=math.nan,
        jct_ratio=math.nan,
    )
    words = nccl.row_line(lossy).split()
    # Bandwidths and wrong elements out of place, the half that did not run, and our ratio.
    assert (words[6:9], words[9:13], words[14]) == (["N/A"] * 3, ["N/A"] * 4, "N/A")
    lines = nccl.footer([lossy], "all_reduce")
    assert lines[0] == "# Out of bounds values : 0 OK"
    assert lines[1] == "# Avg bus bandwidth    : N/A: not all of the data arrived "
    assert nccl.document(record(lossy))["results"][0]["out_of_place"]["nwrong"] is None


def test_without_a_valid_row_there_is_no_average() -> None:
    assert math.isnan(nccl.average_busbw([]))
    assert "# Avg bus bandwidth    : N/A: no valid row " in nccl.footer([row(verdict="invalid")], "all_reduce")


def test_reasons_are_comments() -> None:
    assert nccl.row_lines(row(verdict="invalid", reason="a; b"))[1:] == [
        "#   1GiB is invalid: a",
        "#   1GiB is invalid: b",
    ]
    text = nccl.table(record(row(verdict="degraded", reason="late")))
    data = [line.split() for line in text.splitlines() if not line.startswith("#")]
    assert len(data) == 1 and len(data[0]) == 17


def test_preamble_names_every_rank_and_the_scale() -> None:
    lines = nccl.preamble(record(row()))
    assert lines[1] == "# Collective test starting: all_reduce_perf"
    assert lines[2] == (
        "# nThread 1 nGpus 1 minBytes 268435456 maxBytes 1073741824 step: 2(factor) warmup iters: 1 iters: 3 agg iters: 1 "
        "validation: 1 graph: 0 unalign: 0"
    )
    assert lines[5] == "#  Rank  0 Group  0 Pid      0 on         h1 device  0 [0000:00:00] emulated 400Gbit NIC"
    assert sum(line.startswith("#  Rank") for line in lines) == 16
    assert any("a 400Gbit link runs at 50Mbit here" in line for line in lines)
    assert "# Open vSwitch 3.1.0, userspace datapath (this kernel has no openvswitch module)" in lines


def test_json_has_the_keys_that_nvidias_reader_uses() -> None:
    """tools/analyze_perf_json.py reads config, results and their per-iteration times."""
    times = [0.040, 0.042, 0.041]
    iterations = [
        IterationRecord("all_reduce", "ring", 2**30, False, i, 0.0, t * 125, t, 3, 0, 0.9, 0.8)
        for i, t in enumerate(times)
    ]
    data = json.loads(json.dumps(nccl.document(record(row(), iterations=iterations))))
    assert list(data) == [
        "version", "start_time", "args", "env", "nccl_version", "config", "devices", "results", "out_of_bounds",
        "average_bus_bandwidth", "errors", "end_time",
    ]  # fmt: skip
    result = data["results"][0]
    assert result["out_of_place"] == {"time": 41000.0, "alg_bw": 26.19, "bus_bw": 49.1, "nwrong": 0}
    assert result["in_place"] is None
    stats = result["out_of_place_per_iter"]
    assert stats["times_us"] == pytest.approx([40000, 42000, 41000])
    assert (stats["min_us"], stats["max_us"], stats["p99_us"]) == pytest.approx((40000, 42000, 42000))
    assert stats["avg_us"] == pytest.approx(41000) and stats["cv_pct"] == pytest.approx(100 * math.sqrt(2 / 3) / 41)
    assert (result["root"], result["redop"], result["actual_iterations"]) == ("    -1", "sum", 3)
    assert data["out_of_bounds"] == {"count": 0, "okay": "true"}


def test_a_run_without_rows_still_has_a_document_and_a_table() -> None:
    assert json.loads(json.dumps(nccl.document(record())))["average_bus_bandwidth"]["bandwidth"] == "nan"
    assert nccl.table(record()).endswith("# Collective test concluded: all_reduce_perf\n")


def test_a_pattern_has_a_line_of_goodput() -> None:
    measured = row(collective="incast", goodput=Goodput(0.066123, 0.0655, 26_123.0, 25_000.0, 27_000.0, 394_321.0))
    assert nccl.row_line(measured).split()[4] == "0"
    (line,) = nccl.row_lines(measured)[1:]
    assert line == (
        "#   1GiB: a sending host got 0.066 of its link's rate, the worst 0.066; a flow 26.1Gbit (25Gbit to 27Gbit), "
        "all together 394Gbit"
    )


def test_the_preamble_says_how_tcp_s_packets_are_spread() -> None:
    made = record()
    assert not any("TCP: spread" in line for line in nccl.preamble(made))
    made.machine = {**made.machine, "tcp_spread": "flowlet", "tcp_entropy": 64, "tcp_flowlet_gap_ns": 2_500_000}
    line = "# TCP: spread by flowlet after 2.5 ms, over 64 source ports that programs of the hosts write and restore"
    assert line in nccl.preamble(made)


def test_the_preamble_says_how_rocev2_sends() -> None:
    sent = {
        "rocev2_queue_pairs": "4", "rocev2_path_mtu": "1024", "rocev2_recovery": "selective repeat",
        "rocev2_congestion_control": "dcqcn", "rocev2_spread": "packet",
    }  # fmt: skip
    made = record()
    assert not any("RoCEv2" in line for line in nccl.preamble(made))
    made.machine = {**made.machine, **sent}
    assert (
        "# RoCEv2: 4 queue pairs per connection, path MTU 1024, selective repeat, congestion control dcqcn, spread by packet"
    ) in nccl.preamble(made)
    assert not any("lossless" in line for line in nccl.preamble(made))
    made.machine = {**made.machine, "rocev2_lossless": "end-to-end credits in place of PFC, 9 to 33 packets each"}
    assert "# lossless by end-to-end credits in place of PFC, 9 to 33 packets each" in nccl.preamble(made)
