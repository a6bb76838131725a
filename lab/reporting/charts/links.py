"""Load of the links over time: the hottest as lines, all of them as a heat map."""

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from lab.reporting.charts.style import COLOURS, DASHES, INK, LOAD, SOFT, figure, plain_ticks, shortened, styled, svg
from lab.reporting.series import LinkSeries
from lab.reporting.wording import arrow, unit_for

Floats = NDArray[np.float64]

# So many lines can be told apart by colour and dash.
MOST_LINES = 6
# More rows than these are pooled, so that a row of the picture is at least half a pixel; more columns cannot be seen.
_MOST_ROWS, _MOST_COLUMNS = 1024, 1100
_ROW_PX = 12


def links_over_time(series: LinkSeries) -> str:
    """Rows of the heat map have names while there are few, up to 48."""
    with styled():
        n = len(series.links)
        named = n <= 48
        map_height = n * _ROW_PX + 60 if named else min(max(n / 2, 260), 560)
        drawn = figure(330 + map_height)
        above, below = drawn.subplots(2, 1, sharex=True, height_ratios=[240, map_height])
        unit = unit_for([float(series.edge_s[-1])])
        edges = series.edge_s / unit.seconds
        _lines(above, series, edges)
        for begin, end in series.iterations:
            above.axvspan(begin / unit.seconds, end / unit.seconds, color=SOFT, alpha=0.08, linewidth=0)
        order = _order(series)
        image = below.pcolormesh(
            *_pooled(edges, series.load[order]), cmap=LOAD, vmin=0, vmax=1, rasterized=True, linewidth=0
        )
        below.invert_yaxis()
        below.grid(visible=False)
        if named:
            below.set_yticks(np.arange(n) + 0.5, [arrow(series.links[i]) for i in order], fontsize=9)
        else:
            below.set_yticks([0.5, n - 0.5], ["1", f"{n:,}"])
            below.set_ylabel("link directions, hottest first")
        below.set_title(f"all {n:,} link directions, the hottest on top")
        below.set_xlabel(f"time of the hardware ({unit.name}); grey above: iterations")
        bar = drawn.colorbar(image, ax=below, pad=0.01, fraction=0.03, aspect=30)
        bar.set_ticks([0, 0.25, 0.5, 0.75, 1], labels=["0 %", "25 %", "50 %", "75 %", "100 %"])
        bar.set_label("of the link's rate")
        plain_ticks(above, "x", 8)
        above.set_xlim(edges[0], edges[-1])
        return svg(drawn, "links", f"Load over time: the hottest links as lines, all {n} directions as a heat map")


def _order(series: LinkSeries) -> list[int]:
    return [int(i) for i in np.argsort(-series.mean, kind="stable")]


def _lines(axes: Axes, series: LinkSeries, edges: Floats) -> None:
    middle = (edges[1:] + edges[:-1]) / 2
    hottest = series.hottest(MOST_LINES)
    names = shortened([arrow(series.links[i]) for i in hottest])
    for i, (place, name) in enumerate(zip(hottest, names, strict=True)):
        axes.plot(
            middle,
            series.load[place] * 100,
            color=COLOURS[i % len(COLOURS)],
            linestyle=DASHES[i % len(DASHES)],
            linewidth=1.6,
            label=f"{name} ({series.mean[place]:.0%})",
        )
    axes.axhline(100, color=INK, linewidth=0.8)
    axes.set_ylim(0, 115)
    axes.set_ylabel("% of the link's rate")
    # The legend stands between title and picture.
    axes.set_title("the hottest links, and their mean during iterations", pad=48)
    plain_ticks(axes, "y")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2, ncols=3)


def _pooled(edges: Floats, load: Floats) -> tuple[Floats, Floats, Floats]:
    """Edges and values of a mesh; neighbours share a cell, which has the largest of their rows and the mean of their columns."""
    n, samples = load.shape
    rows = np.unique(np.linspace(0, n, min(n, _MOST_ROWS) + 1).astype(int))
    columns = np.unique(np.linspace(0, samples, min(samples, _MOST_COLUMNS) + 1).astype(int))
    pooled = np.maximum.reduceat(load, rows[:-1], axis=0)
    pooled = np.add.reduceat(pooled, columns[:-1], axis=1) / np.diff(columns)
    return edges[columns], rows.astype(float), pooled
