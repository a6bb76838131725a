"""Curves of bus bandwidth over size, measured and predicted, in one picture (SVG)."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lab.reporting.sources import Source
from topologies.units import format_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind people can tell apart; markers differ as well, for print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = "osD^vP"


def svg(sources: Sequence[Source], predicted: Mapping[int, float]) -> str:
    """predicted: size -> seconds, of the first. Bus bandwidth where all have one, else time."""
    from matplotlib.figure import Figure

    of_times = any(math.isnan(row.busbw_gbytes_s) for source in sources for row in source.valid)
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for i, source in enumerate(sources):
        rows = source.valid
        values = [row.time_s * 1e6 if of_times else row.busbw_gbytes_s for row in rows]
        axes.plot(
            [row.size_bytes for row in rows], values, color=COLOURS[i % len(COLOURS)], linewidth=1.5,
            marker=MARKERS[i % len(MARKERS)], markersize=5, label=f"{chr(ord('A') + i)}: {source.name}",
        )  # fmt: skip
        bars = [(row.size_bytes, value, row) for row, value in zip(rows, values, strict=True) if row.times]
        errors = [value * row.times.std / row.times.mean for _, value, row in bars if row.times and row.times.n > 1]
        if bars and len(errors) == len(bars):
            axes.errorbar(
                [at for at, _, _ in bars], [value for _, value, _ in bars], errors,
                fmt="none", ecolor=COLOURS[i % len(COLOURS)], capsize=3,
            )  # fmt: skip
    curve = _predicted(sources[0], predicted, of_times)
    if curve:
        axes.plot(*zip(*curve, strict=True), color="black", linestyle="--", linewidth=1.2, label="predicted")
    axes.set_xscale("log", base=2)
    if of_times:
        axes.set_yscale("log")
    sizes = sorted({row.size_bytes for source in sources for row in source.valid})
    every = max(1, math.ceil(len(sizes) / 10))
    axes.set_xticks(sizes[::every], [format_size(size) for size in sizes[::every]], rotation=30, ha="right")
    axes.minorticks_off()
    axes.set_xlabel("size")
    axes.set_ylabel("time (us)" if of_times else "bus bandwidth (GB/s)")
    if not of_times:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.25), frameon=False, fontsize="small")
    return as_svg(figure)


def as_svg(figure: "Figure") -> str:
    """Without a date and with identifiers that follow from the content: the same results give the same file."""
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.hashsalt": "ai-fabric-testbed"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _predicted(source: Source, predicted: Mapping[int, float], of_times: bool) -> list[tuple[int, float]]:
    """Of the sizes at which the first was measured: its factor of bus bandwidth is known from its own row."""
    points = []
    for row in source.valid:
        seconds = predicted.get(row.size_bytes, math.nan)
        if not math.isnan(seconds):
            points.append((row.size_bytes, seconds * 1e6 if of_times else row.busbw_gbytes_s * row.time_s / seconds))
    return points
