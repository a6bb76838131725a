"""Bus bandwidth over size beside roofline and prediction, and how far from both the times are."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from lab.reporting.charts.style import COLOURS, INK, PAPER, SOFT, figure, plain_ticks, styled, svg
from lab.rows import IterationRecord, RowResult
from topologies.units import format_size

_MOST_SIZES = 10
_MEASURED, _PREDICTED = COLOURS[0], COLOURS[1]


def bandwidth(rows: Sequence[RowResult], iterations: Sequence[IterationRecord]) -> str:
    """Left: GB/s over size, with the fastest and slowest iteration of each; right: measured time over predicted and roofline.
    Training steps have no bandwidth: their times stand left. '' without rows."""
    rows = sorted((r for r in rows if not math.isnan(r.time_s)), key=lambda r: r.size_bytes)
    if not rows:
        return ""
    with styled():
        drawn = figure(330)
        left, right = drawn.subplots(1, 2, width_ratios=[3, 2])
        _rates(left, rows, iterations)
        _ratios(right, rows)
        return svg(drawn, "bandwidth", "Bus bandwidth over size, and measured time over predicted time and roofline")


def _rates(axes: Axes, rows: Sequence[RowResult], iterations: Sequence[IterationRecord]) -> None:
    steps = any(math.isnan(r.busbw_gbytes_s) for r in rows)
    # busbw x time is the same number of bytes for all three.
    bytes_ = {r.size_bytes: 1e3 if steps else r.busbw_gbytes_s * r.time_s for r in rows}

    def value(row: RowResult, seconds: float) -> float:
        return seconds * 1e3 if steps else bytes_[row.size_bytes] / seconds if seconds > 0 else math.nan

    sizes = [r.size_bytes for r in rows]
    alone = len(set(sizes)) == 1
    for name, colour, dash, marker, seconds in (
        ("roofline", SOFT, "--", "", [r.roofline_s for r in rows]),
        ("predicted", _PREDICTED, "-.", "D", [r.predicted_s for r in rows]),
        ("measured", _MEASURED, "-", "o", [r.time_s for r in rows]),
    ):
        values = [value(r, s) for r, s in zip(rows, seconds, strict=True)]
        if all(map(math.isnan, values)):
            continue
        if alone and not marker:
            axes.axhline(values[0], color=colour, linestyle=dash, label=name)
            continue
        axes.plot(sizes, values, color=colour, linestyle=dash, label=name, marker=marker, markersize=7, linewidth=2)
    for row in rows:
        spread = [i.time_s for i in iterations if i.size_bytes == row.size_bytes and not i.in_place]
        if spread:
            ends = value(row, max(spread)), value(row, min(spread))
            axes.vlines(row.size_bytes, min(ends), max(ends), color=_MEASURED, linewidth=5, alpha=0.35)
        if row.verdict == "invalid":
            axes.plot(row.size_bytes, value(row, row.time_s), "o", ms=8, mfc=PAPER, mec=_MEASURED, mew=2)
    axes.set_title("iteration time over size" if steps else "busbw over size")
    axes.set_ylabel("time (ms)" if steps else "busbw (GB/s)")
    _size_axis(axes, sizes)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.08)
    plain_ticks(axes, "y")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0)


def _ratios(axes: Axes, rows: Sequence[RowResult]) -> None:
    sizes = [r.size_bytes for r in rows]
    lines = (
        (
            "measured / predicted",
            _PREDICTED,
            "D",
            [r.time_s / r.predicted_s if r.predicted_s else math.nan for r in rows],
        ),
        ("JCT ratio (/ roofline)", SOFT, "s", [r.jct_ratio for r in rows]),
    )
    axes.axhspan(0.95, 1.05, color=COLOURS[2], alpha=0.15, linewidth=0, label="within 5 %")
    axes.axhline(1, color=INK, linewidth=0.8)
    known = [1.0]
    for name, colour, marker, values in lines:
        if not all(map(math.isnan, values)):
            axes.plot(sizes, values, color=colour, marker=marker, label=name, linewidth=2, markersize=7)
            known += [v for v in values if not math.isnan(v)]
    axes.set_title("measured time, as a ratio")
    axes.set_ylabel("ratio (1 = as computed)")
    _size_axis(axes, sizes)
    low, high = min(*known, 0.9), max(*known, 1.1)
    axes.set_ylim(low - 0.05 * (high - low), high + 0.45 * (high - low))
    plain_ticks(axes, "y")
    axes.legend(loc="upper right", fontsize=11)


def _size_axis(axes: Axes, sizes: Sequence[int]) -> None:
    shown = list(dict.fromkeys(sizes))
    shown = shown[:: -(-len(shown) // _MOST_SIZES)]
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([format_size(size) for size in shown])
    axes.set_xlim(min(sizes) / 1.5, max(sizes) * 1.5)
    axes.set_xlabel("size")
