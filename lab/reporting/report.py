"""report.html: one file that opens offline and says what ran, what came out, and whether to believe it. Pure text building."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from lab.kpis import jfi, mmr, parallel_uplinks
from lab.reporting import charts, timeline_chart
from lab.rows import CircuitTotal, LinkTotal, RowResult, RunRecord
from topologies import drawing
from topologies.fabric import Fabric
from topologies.units import format_rate, format_size

_MOST_LINKS, _MOST_GROUPS = 20, 12

_STYLE = """
:root { --ink: #1f2933; --soft: #52606d; --line: #d9e0e7; --ok: #1b7f4b; --degraded: #a15c00; --invalid: #b42318; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, "Segoe UI", sans-serif; color: var(--ink); background: #f6f8fa; margin: 0; }
main { max-width: 1240px; margin: 0 auto; padding: 28px 30px 60px; background: #fff; min-height: 100vh; }
h1 { font-size: 25px; line-height: 1.25; margin: 0 0 4px; font-weight: 650; }
h2 { font-size: 17px; margin: 36px 0 8px; padding-bottom: 5px; border-bottom: 1px solid var(--line); font-weight: 650; }
p { margin: 6px 0; max-width: 90ch; }
.soft { color: var(--soft); }
.banner { padding: 9px 14px; border-radius: 6px; margin: 14px 0; background: #fdeceb; color: var(--invalid); }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 18px 0 4px; }
.card { flex: 1 1 170px; border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; }
.card b { display: block; font-size: 22px; font-weight: 650; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; width: 100%; }
th { text-align: right; font-weight: 600; color: var(--soft); padding: 5px 7px; border-bottom: 2px solid var(--line);
  vertical-align: bottom; white-space: nowrap; }
td { text-align: right; padding: 5px 7px; border-bottom: 1px solid var(--line); white-space: nowrap; vertical-align: top; }
th.text, td.text { text-align: left; }
td.wide { white-space: normal; min-width: 170px; text-align: left; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(330px, 1fr)); gap: 4px 36px; }
.mark { font-weight: 650; }
.ok { color: var(--ok); } .degraded { color: var(--degraded); } .invalid { color: var(--invalid); }
figure { margin: 10px 0; } figcaption { color: var(--soft); font-size: 13px; }
svg { max-width: 100%; height: auto; }
@media print { body { background: #fff; } main { padding: 0; } }
"""


def html(record: RunRecord) -> str:
    """The whole document. Works for a run without rows."""
    fabric = Fabric.from_dict(record.fabric)
    e = record.experiment
    title = f"{e['collective']} on {record.fabric['fabric']}"
    sections = (
        _heading(record),
        _results(record.rows),
        _transport(record.rows),
        _bandwidth(record),
        _picture(record, fabric),
        _circuits(record),
        _links(record, fabric),
        _what_ran(record),
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><main>\n{''.join(sections)}</main></body></html>\n"
    )


# -- sections -------------------------------------------------------------------------------------------------------


def _heading(record: RunRecord) -> str:
    e, f = record.experiment, record.fabric
    algorithm = record.rows[0].algorithm if record.rows else e.get("algorithm") or "its own algorithm"
    links = ", ".join(f"{n} {kind}" for kind, n in f["links"].items())
    text = (
        f"<h1>{escape(e['collective'])} ({escape(algorithm)}) on {escape(f['fabric'])}, {len(record.hosts)} ranks</h1>"
        f"<p class='soft'>{escape(e['transport'])} over {escape(e['routing'])}, {escape(e['placement'])} placement; "
        f"{f['hosts']} hosts, {f['switches']} switches, {links} links. "
        f"{escape(record.started)}</p>"
    )
    if not record.complete:
        text += "<p class='banner'>This run did not complete: the rows below are what it had measured.</p>"
    return text + _cards(record.rows)


def _cards(rows: Sequence[RowResult]) -> str:
    valid = [r for r in rows if r.verdict != "invalid"]
    counts = {level: sum(r.verdict == level for r in rows) for level in ("ok", "degraded", "invalid")}
    verdicts = ", ".join(f"{n} {level}" for level, n in counts.items() if n) or "no rows"
    cards = [(verdicts, "verdict of the rows")]
    if valid:
        best = max(valid, key=lambda r: r.size_bytes)
        size = format_size(best.size_bytes)
        cards += [
            (f"{_number(best.busbw_gbytes_s)} GB/s", f"busbw at {size}"),
            (_ratio(best.jct_ratio), f"JCT ratio at {size} (1.00 = roofline)"),
            (
                _ratio(best.time_s / best.predicted_s if best.predicted_s else math.nan),
                f"measured / predicted at {size}",
            ),
        ]
    inner = "".join(
        f"<div class='card'><b>{escape(value)}</b><span>{escape(what)}</span></div>" for value, what in cards
    )
    return f"<div class='cards'>{inner}</div>"


def _results(rows: Sequence[RowResult]) -> str:
    if not rows:
        return "<h2>Results</h2><p>No row was measured.</p>"
    head = (
        "size", "verdict", "time", "p99", "cv", "algbw GB/s", "busbw GB/s", "roofline", "JCT ratio", "predicted",
        "meas/pred", "wrong", "resent", "bottleneck",
    )  # fmt: skip
    return (
        "<h2>Results</h2><p class='soft'>Hardware units: measured times are divided by the time dilation.</p>"
        + _table(head, [_result_cells(r) for r in rows], text_columns=(1, 13))
        + _reasons(rows)
    )


def _result_cells(r: RowResult) -> tuple[str, ...]:
    unexplained = r.time_s / r.predicted_s if r.predicted_s else math.nan
    return (
        format_size(r.size_bytes), f"<span class='mark {r.verdict}'>{r.verdict}</span>",
        _duration(r.time_s), _duration(r.time_p99_s),
        _share(r.cv), _number(r.algbw_gbytes_s), _number(r.busbw_gbytes_s), _duration(r.roofline_s), _ratio(r.jct_ratio),
        _duration(r.predicted_s), _ratio(unexplained), "N/A" if r.wrong is None else str(r.wrong),
        str(r.retransmits), escape(r.bottleneck),
    )  # fmt: skip


def _transport(rows: Sequence[RowResult]) -> str:
    """What packets met; NAKs, CNPs and timeouts are RoCEv2's."""
    if not any(r.out_of_order or r.naks or r.cnps or r.timeouts for r in rows):
        return ""
    head = ("size", "dropped in the fabric", "at hosts", "resent", "out of order", "NAKs", "CNPs", "timeouts")
    cells = [
        (
            format_size(r.size_bytes),
            *map(str, (r.dropped_fabric, r.dropped_host, r.retransmits, r.out_of_order, r.naks, r.cnps, r.timeouts)),
        )
        for r in rows
    ]
    return "<h2>Packets lost, overtaken and marked</h2>" + _table(head, cells)


def _reasons(rows: Sequence[RowResult]) -> str:
    lines = [
        f"<li><span class='mark {r.verdict}'>{format_size(r.size_bytes)} is {r.verdict}</span>: {escape(r.reason)}</li>"
        for r in rows
        if r.reason
    ]
    return f"<ul>{''.join(lines)}</ul>" if lines else ""


def _bandwidth(record: RunRecord) -> str:
    if not record.rows:
        return ""
    return (
        f"<h2>Bus bandwidth over size</h2><figure>{charts.busbw_over_size(record.rows)}"
        f"<figcaption>Roofline: no latency, no headers: {escape(record.roofline)}. "
        "Predicted: headers, acknowledgements, store-and-forward and shared links. "
        "Hollow marks are invalid rows.</figcaption></figure>"
    )


def _picture(record: RunRecord, fabric: Fabric) -> str:
    totals = _shown_totals(record)
    load = {t.intf: t.utilisation for t in totals} if totals else None
    caption = (
        f"Each link in the colour of its busier direction, during {format_size(totals[0].size_bytes)}. Point at a link for both."
        if totals
        else "No link counters were recorded."
    )
    return f"<h2>Fabric</h2><figure>{drawing.svg(fabric, load)}<figcaption>{caption}</figcaption></figure>"


def _shown_totals(record: RunRecord) -> list[LinkTotal]:
    """Those of the largest size: the one least disturbed by starts and ends."""
    largest = max((t.size_bytes for t in record.link_totals), default=0)
    return [t for t in record.link_totals if t.size_bytes == largest]


def _circuits(record: RunRecord) -> str:
    if not record.circuit_totals:
        return ""
    e, largest = record.experiment, max(total.size_bytes for total in record.circuit_totals)
    dilation = record.scale["time_dilation"]
    head = (
        "size", "circuits set", "dark for longer than asked", "dark asked", "longest", "duty cycle planned", "measured",
        "slices late by", "bytes by circuits", "by packets", "lost in the dark",
    )  # fmt: skip
    drawn = timeline_chart.timeline([one for one in record.circuits if one.size_bytes == largest], dilation)
    return (
        f"<h2>Circuits</h2><p class='soft'>{escape(e['circuits'])} on {escape(e['dark'])}; in the dark: "
        f"{escape(e['in_the_dark'])}. A circuit set is one way.</p>"
        + _table(head, [_circuit_cells(total, dilation) for total in record.circuit_totals])
        + f"<figure>{drawn}<figcaption>Circuits during {format_size(largest)}, by the uplink that sends: black is dark, red dark "
        "for longer than asked. All stand in circuits.csv.</figcaption></figure>"
    )


def _circuit_cells(t: CircuitTotal, dilation: float) -> tuple[str, ...]:
    changed = t.shortest_slice_us > 0

    def time(emulated_us: float) -> str:
        return _duration(emulated_us / 1e6 / dilation) if changed else "-"

    return (
        format_size(t.size_bytes), str(t.set_up), str(t.unmet), time(t.requested_dark_us), time(t.worst_dark_us),
        _share(t.planned_duty_cycle), _share(t.duty_cycle), time(t.late_us), f"{t.bytes_by_circuits:,}",
        f"{t.bytes_by_packets:,}", f"{t.bytes_lost:,}",
    )  # fmt: skip


def _links(record: RunRecord, fabric: Fabric) -> str:
    totals = _shown_totals(record)
    if not totals:
        return ""
    notes = "".join(f"<p>{escape(note)}</p>" for note in record.notes)
    inside = [t for t in totals if t.kind == "scale-up"]
    network = [t for t in totals if t.kind != "scale-up"]
    return (
        f"<h2>Balance over parallel links</h2>{_balance(totals, fabric)}{notes}"
        + _busiest("Busiest links" + (" of the network" if inside else ""), network)
        + (_busiest("Busiest links inside HB domains", inside) if inside else "")
    )


def _busiest(title: str, totals: Sequence[LinkTotal]) -> str:
    busiest = sorted(totals, key=lambda t: -t.utilisation)[:_MOST_LINKS]
    left = len(totals) - len(busiest)
    more = f"<p class='soft'>{left} more link directions stand in links.parquet.</p>" if left else ""
    head = ("link", "interface", "bytes", "planned", "counted / planned", "utilisation", "dropped")
    together = f"<p class='soft'>All together {sum(t.bytes_sent for t in totals):,} bytes.</p>"
    return f"<h2>{title}</h2>{together}{_table(head, [_link_cells(t) for t in busiest], text_columns=(0, 1))}{more}"


def _link_cells(t: LinkTotal) -> tuple[str, ...]:
    counted = t.bytes_sent / t.planned_bytes if t.planned_bytes else math.nan
    return (
        escape(t.link), escape(t.intf), f"{t.bytes_sent:,}", f"{t.planned_bytes:,.0f}", _ratio(counted),
        _share(t.utilisation), str(t.dropped),
    )  # fmt: skip


def _balance(totals: Iterable[LinkTotal], fabric: Fabric) -> str:
    groups = parallel_uplinks(fabric)
    if not groups:
        return "<p class='soft'>No switch of this fabric has parallel links to a next tier.</p>"
    sent = defaultdict(float, {t.intf: float(t.bytes_sent) for t in totals})
    loads = {switch: [sent[p.intf] for p in ports] for switch, ports in groups.items()}
    worst = sorted(loads, key=lambda s: -(mmr(loads[s]) if sum(loads[s]) else 0.0))[:_MOST_GROUPS]
    rows = [
        (escape(s), str(len(loads[s])), f"{sum(loads[s]):,.0f}", _ratio(mmr(loads[s])), _ratio(jfi(loads[s])))
        for s in worst
    ]
    return (
        "<p class='soft'>MMR: most loaded / mean, 1.00 is even. JFI: Jain's index, 1.00 is even.</p>"
        + _table(("switch", "uplinks", "bytes", "MMR", "JFI"), rows, text_columns=(0,))
        + (
            f"<p class='soft'>{len(loads) - len(worst)} more switches are more even.</p>"
            if len(loads) > len(worst)
            else ""
        )
    )


def _what_ran(record: RunRecord) -> str:
    s, f = record.scale, record.fabric
    nic = s["nic_mbps"]
    scale = {
        "rates": f"/ {s['rate_scale']:,g}: {format_rate(nic)} is {format_rate(nic / s['rate_scale'])} here",
        "sizes": f"/ {s['size_scale']:,g}: 1GiB is {format_size(2**30 / s['size_scale'])} here",
        "times": f"x {s['time_dilation']:,g}: 1 ms is {_duration(s['time_dilation'] / 1e3)} here",
        "does not scale": "packets per message, the acknowledgements' share, queue depth in packets; clocks here are good to "
        "microseconds, not to the 100 ns that the drafts ask of a test instrument",
    }
    figures = {k: v for k, v in f.items() if k not in ("graph", "parameters") and not isinstance(v, Mapping)}
    command = f"<p class='soft'>{escape(' '.join(record.command))}</p>" if record.command else ""
    return (
        f"<h2>What ran</h2>{command}<div class='grid'>"
        + _facts("Scale", scale)
        + _facts("Experiment", record.experiment)
        + _facts("Fabric", {**f["parameters"], **figures})
        + _facts("Machine", _flat(record.machine))
        + "</div>"
    )


# -- pieces ---------------------------------------------------------------------------------------------------------


def _facts(title: str, facts: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td class='text'>{escape(str(key))}</td><td class='wide'>{escape(_plain(value))}</td></tr>"
        for key, value in facts.items()
    )
    return f"<div><p class='mark'>{escape(title)}</p><table>{rows}</table></div>"


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key} ")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _plain(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return str(value)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], text_columns: Iterable[int] = ()) -> str:
    """Cells are HTML already."""
    text = set(text_columns)
    classes = [" class='text'" if i in text else "" for i in range(len(head))]
    top = "".join(f"<th{c}>{escape(h)}</th>" for h, c in zip(head, classes, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{c}>{v}</td>" for v, c in zip(row, classes, strict=True)) + "</tr>" for row in rows
    )
    return f"<div class='scroll'><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def _number(value: float, digits: int = 4) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}g}"


def _ratio(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"


def _duration(seconds: float) -> str:
    """0.041 -> '41 ms'."""
    if math.isnan(seconds):
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
