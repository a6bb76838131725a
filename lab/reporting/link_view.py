"""The sections on links: the fabric in the colours of its load, load over time, the busiest links. Pure text building."""

import math
from collections.abc import Sequence

import numpy as np

from lab.reporting import pieces
from lab.reporting.charts.links import links_over_time
from lab.reporting.series import link_series
from lab.reporting.wording import arrow, count, duration, ratio, share
from lab.rows import LinkTotal, RowResult, RunRecord
from topologies import drawing
from topologies.fabric import Fabric
from topologies.units import format_size

_MOST_LINKS = 20
_HEAD = ("link", "interface", "bytes", "planned bytes", "counted / planned", "utilisation", "dropped")


def fabric(record: RunRecord, fabric: Fabric, totals: Sequence[LinkTotal]) -> str:
    load = {t.intf: t.utilisation for t in totals} if totals else None
    caption = (
        f"Each link in the colour and width of its busier direction's utilisation, over the iterations of "
        f"{format_size(totals[0].size_bytes)}. Point at a link for both directions."
        if totals
        else "No link counters were recorded."
    )
    return pieces.section("Fabric", "fabric", pieces.figure(drawing.svg(fabric, load), caption, "fabric-drawn"))


def over_time(record: RunRecord, fabric: Fabric, row: RowResult | None, totals: Sequence[LinkTotal]) -> str:
    """With the table of the busiest; '' where no counter was read."""
    if not totals:
        return ""
    inside = [t for t in totals if t.kind == "scale-up"]
    network = [t for t in totals if t.kind != "scale-up"]
    return pieces.section(
        "Links over time",
        "links",
        _series(record, fabric, row),
        _busiest("Busiest links" + (" of the network" if inside else ""), network),
        _busiest("Busiest links inside HB domains", inside) if inside else "",
    )


def _series(record: RunRecord, fabric: Fabric, row: RowResult | None) -> str:
    scale = record.scale
    rates = {p.intf: link.rate_mbps / scale["rate_scale"] for link in fabric.links for p in link.ports}
    found = (
        link_series(
            record.links[0], record.iterations, rates, size_bytes=row.size_bytes, time_dilation=scale["time_dilation"]
        )
        if row and record.links
        else None
    )
    if found is None:
        return pieces.paragraph("Too few counter samples were taken to draw load over time.", "soft")
    interval_s = float(found.edge_s[-1] - found.edge_s[0]) / (len(found.edge_s) - 1)
    read_s = float(np.median(np.diff(record.links[0].at_s)))
    caption = (
        f"Means over {duration(interval_s)} of the hardware's time, from counters that are read every {read_s:.1f} s here: "
        "shorter bursts are averaged. Where a reading came late, an interval may show more than 100 %."
    )
    return pieces.figure(links_over_time(found), caption, "links-over-time")


def _busiest(title: str, totals: Sequence[LinkTotal]) -> str:
    busiest = sorted(totals, key=lambda t: -t.utilisation)[:_MOST_LINKS]
    left = len(totals) - len(busiest)
    about = f"All together {sum(t.bytes_sent for t in totals):,} bytes." + (
        f" {left:,} more link directions stand in link_totals.parquet." if left else ""
    )
    rows = [_cells(t) for t in busiest]
    return f"<h3>{title}</h3>{pieces.paragraph(about, 'soft')}{pieces.table(_HEAD, rows, text_columns=(0, 1))}"


def _cells(t: LinkTotal) -> tuple[str, ...]:
    counted = t.bytes_sent / t.planned_bytes if t.planned_bytes else math.nan
    planned = t.planned_bytes or math.nan
    return (
        arrow(t.link),
        t.intf,
        count(t.bytes_sent),
        count(planned),
        ratio(counted),
        share(t.utilisation),
        count(t.dropped),
    )
