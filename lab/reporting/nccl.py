"""nccl-tests' terminal table and JSON, so that people's scripts and NVIDIA's tools read our results unchanged.

Formats: NVIDIA/nccl-tests a0b82b22 (2.19.6), src/util.cu; the printf formats stand beside the code that follows them.
Times and bandwidths are the hardware's. What nccl-tests does not know stands to the right of its columns or in comments.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lab.kpis import IterationStats, iteration_stats
from lab.planning.workload import step_lines
from lab.rows import DATAPATHS, InPlace, IterationRecord, RowResult, RunRecord
from topologies.units import format_rate, format_size

VERSION = "2.19.6"
JSON_FILE_VERSION = 3
ELEMENT_BYTES = 4
ELEMENT_TYPE = "float"
_REDUCING = ("all_reduce", "reduce_scatter", "reduce", "sendrecv")
_ROOTED = ("broadcast", "reduce", "gather", "scatter", "incast")
# The `count` column is per rank or per peer for these, S / n: each rank's part of the whole.
_DIVIDED = ("reduce_scatter", "all_gather", "all_to_all", "all_to_all_v", "gather", "scatter")
# Its programs that are called otherwise than the collective.
PROGRAMS = {"all_to_all": "alltoall", "all_to_all_v": "alltoallv"}

_HEAD = "# %10s  %12s  %8s  %6s  %6s"
_HEAD_TAIL = "  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s "
# Our own columns, to the right.
_OWN = " | %9s  %9s  %s"


def float_str(value: float, width: int) -> str:
    """getFloatStr: the most decimals, at most two, that fit the width; else an exponent."""
    for form in (f"%{width}.2f", f"%{width}.1f", f"%{width}.0f"):
        text = form % value
        if len(text) <= width:
            return text
    return (f"%{width}.1e" if width >= 7 else f"%{width}.0e") % value


def program(collective: str) -> str:
    """nccl-tests' name for the benchmark of a collective."""
    return f"{PROGRAMS.get(collective, collective)}_perf"


def collective_of(program_name: str) -> str:
    """The other way: 'alltoall_perf' -> 'all_to_all'; of a program that is not known, its own name."""
    name = program_name.removesuffix("_perf")
    return next((ours for ours, theirs in PROGRAMS.items() if theirs == name), name)


def count(row: RowResult) -> int:
    """Elements: the buffer's, or for collectives that divide it each rank's part."""
    parts = row.ranks if row.collective in _DIVIDED else 1
    return row.size_bytes // (ELEMENT_BYTES * parts)


def _redop(collective: str) -> str:
    return "sum" if collective in _REDUCING else "none"


def _root(collective: str) -> int:
    return 0 if collective in _ROOTED else -1


# -- the terminal table ---------------------------------------------------------------------------------------------


def preamble(record: RunRecord) -> list[str]:
    """What nccl-tests prints before the table, then what is emulated, in comment lines."""
    e = record.experiment
    sweep = (e["min_bytes"], e["max_bytes"], e["step_factor"], "factor")
    lines = [
        f"# nccl-tests version {VERSION}-format nccl-headers=0 nccl-library=0",
        f"# Collective test starting: {program(e['collective'])}",
        "# nThread 1 nGpus 1 minBytes %d maxBytes %d step: %d(%s) " % sweep
        + "warmup iters: %d iters: %d agg iters: %d " % (e["warmup_iterations"], e["iterations"], 1)
        + "validation: %d graph: %d unalign: %d" % (1, 0, 0),
        "#",
        "# Using devices",
    ]
    lines += (
        "#  Rank %2d Group %2d Pid %6d on %10s device %2d [%04x:%02x:%02x] %s"
        % (d["rank"], d["group"], d["pid"], d["hostname"], d["device"], 0, 0, 0, d["device_info"])
        for d in _devices(record)
    )
    return [*lines, "#", *(f"# {line}" for line in scale_lines(record))]


def scale_lines(record: RunRecord) -> list[str]:
    """The fabric, and what the machine emulates beside what the hardware would be."""
    fabric, s = record.fabric, record.scale
    here = format_rate(s["nic_mbps"] / s["rate_scale"])
    factors = f"rates / {s['rate_scale']:g}, sizes / {s['size_scale']:g}, times x {s['time_dilation']:g}"
    choices = f"routing {record.experiment['routing']}, transport {record.experiment['transport']}"
    domains = f", {fabric['hb_domains']} HB domains of {fabric['hb_domain_size']}" if fabric["hb_domains"] else ""
    return [
        f"Fabric: {fabric['fabric']}, {fabric['hosts']} hosts{domains}, {fabric['switches']} switches; {choices}",
        *_rocev2(record.machine),
        *_tcp_spread(record.machine),
        f"Emulated: {factors}: a {format_rate(s['nic_mbps'])} link runs at {here} here",
        "time, algbw and busbw are the hardware's: the measured time / time_dilation",
        *([f"Helpers: {record.helpers}"] if record.helpers else []),
        f"roofline of jct_ratio: {record.roofline}",
        f"Open vSwitch {record.machine['open_vswitch']}, {DATAPATHS[record.machine['datapath']]}",
        *_delays(record.machine),
    ]


def _rocev2(machine: Mapping[str, Any]) -> Iterator[str]:
    if "rocev2_path_mtu" in machine:
        what = ("queue_pairs", "path_mtu", "recovery", "congestion_control", "spread")
        qps, path_mtu, recovery, control, spread = (machine[f"rocev2_{name}"] for name in what)
        yield (
            f"RoCEv2: {qps} queue pair{'s' * (qps != '1')} per connection, path MTU {path_mtu}, {recovery}, "
            f"congestion control {control}, spread by {spread}"
        )
        if (lossless := machine.get("rocev2_lossless", "none")) != "none":
            yield f"lossless by {lossless}"


def _tcp_spread(machine: Mapping[str, Any]) -> Iterator[str]:
    if "tcp_spread" in machine:
        gap = f" after {machine['tcp_flowlet_gap_ns'] / 1e6:g} ms" if "tcp_flowlet_gap_ns" in machine else ""
        yield (
            f"TCP: spread by {machine['tcp_spread']}{gap}, over {machine['tcp_entropy']} source ports that programs of the hosts "
            "write and restore"
        )


def _delays(machine: Mapping[str, Any]) -> Iterator[str]:
    if machine.get("delays") == "impairment hop":
        carries = machine["hop_frames_per_s"]
        known = "" if carries is None else f", which carries {carries:,.0f} frames/s with a core of its own"
        yield f"links are delayed by the impairment hop, one process{known}"


def _devices(record: RunRecord) -> Iterator[dict[str, Any]]:
    for rank, host in enumerate(record.hosts):
        info = f"emulated {format_rate(record.scale['nic_mbps'])} NIC"
        yield {
            "rank": rank, "group": 0, "pid": 0, "hostname": host, "device": 0, "device_hex": "0000:00:00",
            "device_info": info,
        }  # fmt: skip


def header() -> list[str]:
    """The three lines above the rows. `_HEAD` and `_HEAD_TAIL` are writeResultHeader's formats."""
    times = ("time", "algbw", "busbw", "#wrong")
    units = ("(us)", "(GB/s)", "(GB/s)", "")
    return [
        "#",
        _HEAD % ("", "", "", "", "") + "           out-of-place                       in-place          ",
        _HEAD % ("size", "count", "type", "redop", "root")
        + _HEAD_TAIL % (*times, *times)
        + _OWN % ("jct_ratio", "predicted", "verdict"),
        _HEAD % ("(B)", "(elements)", "", "", "")
        + _HEAD_TAIL % (*units, *units)
        + _OWN % ("", "(us)", ""),
    ]  # fmt: skip


def row_line(row: RowResult) -> str:
    """writeBenchmarkLinePreamble "%12li  %12li  %8s  %6s  %6s", then each half "  %7s  %6s  %6s  %6g", then ours."""
    root = f"{_root(row.collective):6d}"
    line = "%12d  %12d  %8s  %6s  %6s" % (row.size_bytes, count(row), ELEMENT_TYPE, _redop(row.collective), root)
    out_of_place = InPlace(row.time_s, row.algbw_gbytes_s, row.busbw_gbytes_s, row.wrong)
    line += _half(out_of_place) + _half(row.in_place)
    predicted = "N/A" if math.isnan(row.predicted_s) else float_str(row.predicted_s * 1e6, 9).strip()
    return line + " " + _OWN % ("N/A" if math.isnan(row.jct_ratio) else f"{row.jct_ratio:.3f}", predicted, row.verdict)


def _half(half: InPlace | None) -> str:
    if half is None:
        return "  %7s  %6s  %6s  %6s" % ("N/A", "N/A", "N/A", "N/A")
    algbw, busbw = ("N/A" if math.isnan(x) else float_str(x, 6) for x in (half.algbw_gbytes_s, half.busbw_gbytes_s))
    wrong = "N/A" if half.wrong is None else "%g" % half.wrong
    return "  %7s  %6s  %6s  %6s" % (float_str(half.time_s * 1e6, 7), algbw, busbw, wrong)


def row_lines(row: RowResult) -> list[str]:
    """The row, and what does not fit its columns as comments, which a parser of the table skips."""
    steps = [f"#   {line}" for line in step_lines(row.jobs)]
    return [row_line(row), *steps, *_goodput_lines(row), *_reason_lines(row)]


def _goodput_lines(row: RowResult) -> list[str]:
    """What a pattern is run for."""
    if row.goodput is None:
        return []
    g = row.goodput
    mean, least, most, together = (
        format_rate(float(f"{mbps:.3g}")) for mbps in (g.flow_mean_mbps, g.flow_min_mbps, g.flow_max_mbps, g.all_mbps)
    )
    size, shares = (
        format_size(row.size_bytes),
        f"{g.sender_mean:.3f} of its link's rate, the worst {g.sender_worst:.3f}",
    )
    sustained = "" if math.isnan(g.sustained) else f", {g.sustained:.3f} while all were sending"
    return [
        f"#   {size}: a sending host got {shares}{sustained}; a flow {mean} ({least} to {most}), all together {together}"
    ]


def _reason_lines(row: RowResult) -> list[str]:
    """Why a row is not ok, and what to know of one that is."""
    if not row.reason:
        return []
    return [f"#   {format_size(row.size_bytes)} is {row.verdict}: {reason}" for reason in row.reason.split("; ")]


def average_busbw(rows: Iterable[RowResult]) -> float:
    """Mean over rows and both halves, as nccl-tests; an invalid row is no measurement and does not count, a training step has
    no such bandwidth. GB/s."""
    values: list[float] = []
    for row in rows:
        if row.verdict != "invalid" and not math.isnan(row.busbw_gbytes_s):
            values.append(row.busbw_gbytes_s)
            if row.in_place is not None:
                values.append(row.in_place.busbw_gbytes_s)
    return sum(values) / len(values) if values else math.nan


def out_of_bounds(rows: Iterable[RowResult]) -> int:
    """Checks that found wrong elements: nccl-tests counts halves, not elements."""
    return sum(bool(row.wrong) + bool(row.in_place and row.in_place.wrong) for row in rows)


def footer(rows: Sequence[RowResult], collective: str) -> list[str]:
    """writeResultFooter: "# %-20s : %d %s" and "# %-20s : %g %s"."""
    bad = out_of_bounds(rows)
    average = average_busbw(rows)
    excluded = sum(row.verdict == "invalid" for row in rows)
    none = "N/A: a training step has none"
    if excluded == len(rows):
        none = "N/A: no valid row"
    elif any(row.wrong is None for row in rows):
        none = "N/A: not all of the data arrived"
    return [
        *([f"# {excluded} of {len(rows)} rows are invalid and not in the average"] if excluded else []),
        "# %-20s : %d %s" % ("Out of bounds values", bad, "FAILED" if bad else "OK"),
        "# %-20s : %s " % ("Avg bus bandwidth", none if math.isnan(average) else f"{average:g}"),
        "#",
        f"# Collective test concluded: {program(collective)}",
    ]


def table(record: RunRecord) -> str:
    """The whole output, as one text."""
    rows = [line for row in record.rows for line in row_lines(row)]
    return (
        "\n".join((*preamble(record), *header(), *rows, *footer(record.rows, record.experiment["collective"]))) + "\n"
    )


# -- nccl.json ------------------------------------------------------------------------------------------------------


def document(record: RunRecord) -> dict[str, Any]:
    """The JSON of `-J`: the keys that tools/analyze_perf_json.py reads, flags as the texts "true" and "false"."""
    bad, average = out_of_bounds(record.rows), average_busbw(record.rows)
    return {
        "version": JSON_FILE_VERSION,
        "start_time": record.started,
        "args": list(record.command),
        "env": [],
        "nccl_version": 0,
        "config": _config(record.experiment),
        "devices": list(_devices(record)),
        "results": [_result(row, record) for row in record.rows],
        "out_of_bounds": {"count": bad, "okay": _flag(bad == 0)},
        "average_bus_bandwidth": {"bandwidth": _number(average), "okay": "unchecked"},
        "errors": [],
        "end_time": record.ended,
    }


def _config(experiment: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "nthreads": 1,
        "ngpus": 1,
        "minimum_bytes": experiment["min_bytes"],
        "maximum_bytes": experiment["max_bytes"],
        "step_factor": experiment["step_factor"],
        "warmup_iters": experiment["warmup_iterations"],
        "iterations": experiment["iterations"],
        "aggregated_iterations": 1,
        "validation": 1,
        "graph": 0,
        "blocking_collectives": _flag(True),
        "per_iter_timing": _flag(True),
        "per_iter_skip": 0,
        "parallel_init": _flag(False),
    }


def _result(row: RowResult, record: RunRecord) -> dict[str, Any]:
    mine = [i for i in record.iterations if (i.size_bytes, i.algorithm) == (row.size_bytes, row.algorithm)]
    result: dict[str, Any] = {
        "size": row.size_bytes,
        "count": count(row),
        "type": ELEMENT_TYPE,
        "redop": _redop(row.collective),
        "root": f"{_root(row.collective):6d}",
    }
    halves = (InPlace(row.time_s, row.algbw_gbytes_s, row.busbw_gbytes_s, row.wrong), row.in_place)
    for half, name in zip(halves, ("out_of_place", "in_place"), strict=True):
        result[name] = None if half is None else _half_document(half)
        times = [i for i in mine if i.in_place == (name == "in_place")]
        if half is not None and times:
            result[f"{name}_per_iter"] = _per_iteration(times)
    return {
        **result,
        "actual_iterations": row.iterations,
        "experiment_name": "",
        "verdict": row.verdict,
        "reason": row.reason,
    }


def _half_document(half: InPlace) -> dict[str, Any]:
    return {
        "time": _number(half.time_s * 1e6),
        "alg_bw": _number(half.algbw_gbytes_s),
        "bus_bw": _number(half.busbw_gbytes_s),
        "nwrong": half.wrong,
    }


def _per_iteration(iterations: Sequence[IterationRecord]) -> dict[str, Any]:
    times_us = [i.time_s * 1e6 for i in iterations]
    stats: IterationStats = iteration_stats(times_us)
    return {
        "skipped_iterations": 0,
        "min_us": stats.min,
        "max_us": stats.max,
        "avg_us": stats.mean,
        "p50_us": stats.p50,
        "p95_us": stats.p95,
        "p99_us": stats.p99,
        "stdev_us": stats.std,
        "cv_pct": stats.cv * 100,
        "times_us": times_us,
    }


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _number(value: float) -> float | str:
    """JSON has no NaN: nccl-tests writes the text."""
    return "nan" if math.isnan(value) else value
