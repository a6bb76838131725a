"""The sections on results: the answer in words, the table, the curves. Pure text building."""

import math
from collections.abc import Sequence
from html import escape

from lab.reporting import pieces
from lab.reporting.answer import answer
from lab.reporting.charts.bandwidth import bandwidth
from lab.reporting.pieces import Cell
from lab.reporting.ranks import RankTimes
from lab.reporting.wording import MISSING, TimeUnit, arrow, count, duration, number, plural, ratio, share, unit_for
from lab.rows import LinkTotal, RowResult, RunRecord
from topologies.units import format_size


def heading(record: RunRecord, row: RowResult | None, totals: Sequence[LinkTotal], ranks: RankTimes | None) -> str:
    e, f = record.experiment, record.fabric
    algorithm = f" ({e['algorithm']})" if e.get("algorithm") else ""
    found = answer(record, row, totals, ranks)
    title = f"{e['collective']}{algorithm} on {f['fabric']}, {plural(len(record.hosts), 'rank')}"
    banner = (
        ""
        if record.complete
        else pieces.paragraph("This run did not complete: it shows what had been measured.", "banner")
    )
    said = " ".join(filter(None, found.sentences))
    return (
        f"<header><h1>{escape(title)}</h1>{pieces.paragraph(record.started, 'soft')}</header>\n{banner}"
        f'<div class="answer {found.level}" id="answer"><p class="verdict">{escape(found.headline)}</p>'
        f"{pieces.paragraph(said)}{pieces.paragraph(found.reason) if found.reason else ''}</div>\n{_cards(row)}"
    )


def _cards(row: RowResult | None) -> str:
    if row is None or row.verdict == "invalid":
        return ""
    size = format_size(row.size_bytes)
    cards = [
        (duration(row.time_s), f"time of an iteration at {size}"),
        (f"{number(row.busbw_gbytes_s)} GB/s", f"busbw at {size}"),
        (ratio(row.jct_ratio), "JCT ratio (1 = roofline)"),
        (ratio(_unexplained(row)), "measured / predicted"),
    ]
    shown_ = [(value, what) for value, what in cards if not value.startswith(MISSING)]
    inner = "".join(f'<div class="card"><b>{escape(v)}</b><span>{escape(what)}</span></div>' for v, what in shown_)
    return f'<div class="cards">{inner}</div>\n'


def _unexplained(row: RowResult) -> float:
    return row.time_s / row.predicted_s if row.predicted_s > 0 else math.nan


def results(rows: Sequence[RowResult]) -> str:
    if not rows:
        return pieces.section("Results", "results", pieces.paragraph("No row was measured."))
    unit = unit_for(t for r in rows for t in (r.time_s, r.time_p99_s, r.roofline_s, r.predicted_s))
    head = (
        "size", "verdict", f"time ({unit.name})", f"P50 ({unit.name})", f"P95 ({unit.name})", f"P99 ({unit.name})", "CV",
        "algbw (GB/s)", "busbw (GB/s)", f"roofline ({unit.name})", "JCT ratio", f"predicted ({unit.name})",
        "measured / predicted", "wrong", "dropped", "resent", "bottleneck",
    )  # fmt: skip
    about = (
        "Times, sizes and bandwidths are the hardware's: measured times are divided by the time dilation. time: mean of the "
        "iterations; JCT ratio: time / roofline; GB = 10⁹ bytes."
    )
    return pieces.section(
        "Results",
        "results",
        pieces.paragraph(about, "soft"),
        pieces.table(head, [_result_cells(r, unit) for r in rows], text_columns=(1, 16)),
        _steps(rows),
    )


def _result_cells(r: RowResult, unit: TimeUnit) -> tuple[Cell | str, ...]:
    return (
        _of(r, "size_bytes", format_size(r.size_bytes)), Cell(r.verdict, r.verdict, "verdict", r.verdict),
        *(_of(r, name, unit.of(getattr(r, name))) for name in ("time_s", "time_p50_s", "time_p95_s", "time_p99_s")),
        _of(r, "cv", share(r.cv)), _of(r, "algbw_gbytes_s", number(r.algbw_gbytes_s)),
        _of(r, "busbw_gbytes_s", number(r.busbw_gbytes_s)), _of(r, "roofline_s", unit.of(r.roofline_s)),
        _of(r, "jct_ratio", ratio(r.jct_ratio)), _of(r, "predicted_s", unit.of(r.predicted_s)), ratio(_unexplained(r)),
        _of(r, "wrong", count(r.wrong)), count(r.dropped_fabric + r.dropped_host), _of(r, "retransmits", count(r.retransmits)),
        _of(r, "bottleneck", arrow(r.bottleneck) or MISSING),
    )  # fmt: skip


def _of(row: RowResult, name: str, text: str) -> Cell:
    """A cell that says which column of results.csv it shows, with what stands there."""
    value = getattr(row, name)
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return Cell(text, "", name, "" if missing else value)


def _steps(rows: Sequence[RowResult]) -> str:
    """What a training step's time is made of."""
    steps = [r for r in rows if not math.isnan(r.calc_s)]
    if not steps:
        return ""
    unit = unit_for(r.time_s for r in steps)
    names = ("calc_s", "communication_s", "exposed_s")
    head = (
        "size", *(f"{what} ({unit.name})" for what in ("computing", "communication", "exposed communication")),
        "pipeline bubble", "parallel efficiency", "MFU",
    )  # fmt: skip
    cells: list[tuple[Cell | str, ...]] = [
        (
            format_size(r.size_bytes), *(_of(r, name, unit.of(getattr(r, name))) for name in names),
            *(_of(r, name, share(getattr(r, name))) for name in ("bubble", "parallel_efficiency", "mfu")),
        )
        for r in steps
    ]  # fmt: skip
    return "<h3>The training step, means over its jobs</h3>" + pieces.table(head, cells)


def curves(record: RunRecord) -> str:
    drawn = bandwidth(record.rows, record.iterations)
    if not drawn:
        return ""
    caption = (
        f"Roofline: no latency, no headers: {record.roofline}. Predicted: with headers, acknowledgements, store-and-forward and "
        "shared links. The wide bar behind a mark spans the fastest to the slowest iteration. Hollow marks are invalid rows."
    )
    return pieces.section(
        "Measured beside predicted", "bandwidth", pieces.figure(drawn, caption, "bandwidth-over-size")
    )


def packets(rows: Sequence[RowResult]) -> str:
    """What packets met, and links that mark; NAKs, CNPs and timeouts are RoCEv2's."""
    if not any(r.out_of_order or r.naks or r.cnps or r.timeouts or r.ecn_marked or r.delivered < 1 for r in rows):
        return ""
    names = ("dropped_fabric", "dropped_host", "retransmits", "out_of_order", "naks", "cnps", "timeouts")
    head = (
        "size", "dropped in the fabric", "at hosts", "resent", "out of order", "NAKs", "CNPs", "timeouts", "frames ECN-marked",
        "data delivered",
    )  # fmt: skip
    cells: list[tuple[Cell | str, ...]] = [
        (
            format_size(r.size_bytes), *(_of(r, name, count(getattr(r, name))) for name in names),
            share(r.ecn_marked / r.ecn_seen if r.ecn_seen else math.nan), _of(r, "delivered", share(r.delivered)),
        )
        for r in rows
    ]  # fmt: skip
    return "<h3>Packets lost, overtaken and marked</h3>" + pieces.table(head, cells)
