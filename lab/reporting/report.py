"""report.html: one file that opens offline and says what ran, what came out, and whether to believe it.

Pure text building over a record as `recorded.read` gives it, so that the same folder makes the same report at any time.
"""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from lab.reporting import balance_view, circuit_view, link_view, pieces, rank_view, result_view
from lab.reporting.answer import main_row
from lab.reporting.page import page
from lab.reporting.ranks import rank_times
from lab.reporting.wording import arrow, duration
from lab.rows import NO_PREDICTION, RowResult, RunRecord
from topologies.fabric import Fabric
from topologies.units import format_rate, format_size

# An iteration so much slower than the median one is worth a line.
_SLOW = 1.25


def html(record: RunRecord) -> str:
    """The whole document. Works for a run without rows."""
    fabric = Fabric.from_dict(record.fabric)
    row = main_row(record.rows)
    totals = [t for t in record.link_totals if row and t.size_bytes == row.size_bytes]
    spans = next((s for s in record.spans if row and s.size_bytes == row.size_bytes), None)
    names = rank_view.rank_names(record, spans)
    times = rank_times(spans, len(names)) if spans else None
    circuits = circuit_view.pictures(record, fabric)
    body = "".join((
        result_view.heading(record, row, totals, times),
        result_view.results(record.rows),
        link_view.fabric(record, fabric, totals),
        circuits and pieces.section("Circuits over time", "circuits", circuits),
        result_view.curves(record),
        link_view.over_time(record, fabric, row, totals),
        balance_view.section(record, fabric, row),
        rank_view.section(spans, times, names),
        circuit_view.totals(record),
        _anomalies(record),
        _scaling(record.scale),
        _manifest(record),
    ))  # fmt: skip
    return page(f"{record.experiment['collective']} on {record.fabric['fabric']}", body, scripted=bool(circuits))


# -- what to know ---------------------------------------------------------------------------------------------------


def _anomalies(record: RunRecord) -> str:
    unpredicted = [escape(note) for note in record.notes if note.startswith(NO_PREDICTION)]
    found = [*_of_rows(record.rows), *_slow_iterations(record), *unpredicted]
    text = pieces.bullets(found) or pieces.paragraph("None: every check held, nothing was lost or sent again.")
    return pieces.section(
        "Verdict and anomalies", "anomalies", text, _findings(record.findings), result_view.packets(record.rows)
    )


def _findings(findings: Sequence[Mapping[str, Any]]) -> str:
    """What was wrong with the fabric or beside it, causes first."""
    if not findings:
        return ""
    cells = [(format_size(f["size_bytes"]), f["kind"], arrow(f["element"]), f["detail"]) for f in findings]
    head = ("size", "what", "where", "seen by")
    return "<h3>What was wrong, and where</h3>" + pieces.table(head, cells, text_columns=(1, 2, 3))


def _of_rows(rows: Sequence[RowResult]) -> Iterator[str]:
    for r in rows:
        mark = pieces.marked(f"{format_size(r.size_bytes)}: {r.verdict}", r.verdict)
        odd = [
            f"{n:,} {what}"
            for n, what in (
                (r.wrong or 0, "elements wrong"), (r.dropped_fabric, "frames dropped in the fabric"),
                (r.dropped_host, "frames dropped at hosts"), (r.retransmits, "segments sent again"),
            )
            if n
        ]  # fmt: skip
        said = "; ".join(filter(None, (r.reason, ", ".join(odd))))
        if said or r.verdict != "ok":
            yield f"{mark}: {escape(said)}"


def _slow_iterations(record: RunRecord) -> Iterator[str]:
    for r in record.rows:
        for i in record.iterations:
            if i.size_bytes == r.size_bytes and not i.in_place and i.time_s > _SLOW * r.time_p50_s:
                host = record.hosts[i.slowest_rank] if i.slowest_rank < len(record.hosts) else "a helper"
                yield escape(
                    f"{format_size(r.size_bytes)}: iteration {i.iteration + 1} took {duration(i.time_s)}, "
                    f"{i.time_s / r.time_p50_s:.2f} times the median; the last to finish was rank {i.slowest_rank} ({host})"
                )


def _scaling(scale: Mapping[str, Any]) -> str:
    """The three factors, and what they leave as it is."""
    nic = scale["nic_mbps"]
    scaled = (
        f"rates / {scale['rate_scale']:,g}: a link of {format_rate(nic)} runs at {format_rate(nic / scale['rate_scale'])} here",
        f"sizes / {scale['size_scale']:,g}: 1GiB is {format_size(2**30 / scale['size_scale'])} here",
        f"times x {scale['time_dilation']:,g}: 1 ms takes {duration(scale['time_dilation'] / 1e3)} here",
    )
    unscaled = (
        "packets per message: there are fewer, by the factor of sizes, since frames keep their size",
        "queue depth in packets, and the share of bytes that are acknowledgements and headers",
        "round trips per message of the transport's control loops (congestion windows, rate steps): fewer, as packets are",
        "this machine's own latency, about 0.1 ms, which the time dilation divides",
        "clocks: good to microseconds here, not to the 100 ns that the BMWG drafts ask of a test instrument",
    )
    return pieces.section(
        "What scales, and what does not",
        "scaling",
        pieces.bullets(map(escape, scaled)),
        pieces.paragraph("Not scaled:"),
        pieces.bullets(map(escape, unscaled)),
    )


def _manifest(record: RunRecord) -> str:
    f = record.fabric
    figures = {k: v for k, v in f.items() if k not in ("graph", "parameters") and not isinstance(v, Mapping)}
    run = {"command": " ".join(record.command), "started": record.started, "ended": record.ended, "complete": record.complete,
           "rows": len(record.rows), "helpers": record.helpers, "roofline": record.roofline, "ranks": record.hosts}  # fmt: skip
    grid = (
        pieces.facts("Experiment", record.experiment),
        pieces.facts("Fabric", {**f["parameters"], **figures}),
        pieces.facts("Machine", _flat(record.machine)),
        pieces.facts("Run", run),
    )
    return pieces.section(
        "Manifest",
        "manifest",
        pieces.folded("What ran, on what: manifest.json", f'<div class="grid">{"".join(grid)}</div>'),
    )


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in facts.items():
        flat |= _flat(value, f"{prefix}{key} ") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
