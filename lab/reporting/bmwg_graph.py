"""A procedure's graph in the drafts' report: bus bandwidth over size where sizes vary, else completion time by case (SVG)."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lab.reporting.bmwg import CellResult
from lab.reporting.overlay import COLOURS, MARKERS, as_svg
from topologies.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABEL = 48


def svg(cells: Sequence[CellResult]) -> str:
    """'' where no case has a valid row: nothing of a network is there to be drawn."""
    valid = {one.label: lines for one in cells if (lines := _valid(one))}
    if not valid:
        return ""
    from matplotlib.figure import Figure

    over_sizes = any(len(lines) > 1 for lines in valid.values()) and not _no_bandwidth(valid.values())
    figure = Figure(figsize=(8, 4 if over_sizes else 1.2 + 0.35 * len(valid)), layout="constrained")
    axes = figure.add_subplot()
    if over_sizes:
        _bandwidths(axes, valid)
    else:
        _times(axes, valid)
    axes.grid(alpha=0.3)
    return as_svg(figure)


def _valid(one: CellResult) -> list[dict[str, Any]]:
    lines = [{str(k): v for k, v in line.items()} for line in one.kpis.to_dict("records")]
    return [line for line in lines if line["verdict"] != "invalid"]


def _no_bandwidth(cells: Any) -> bool:
    return any(math.isnan(line["busbw_gbit_s"]) for lines in cells for line in lines)


def _bandwidths(axes: "Axes", valid: dict[str, list[dict[str, Any]]]) -> None:
    sizes = sorted({line["size_bytes"] for lines in valid.values() for line in lines})
    for i, (label, lines) in enumerate(valid.items()):
        axes.plot(
            [line["size_bytes"] for line in lines], [line["busbw_gbit_s"] for line in lines], label=label[:_LABEL],
            color=COLOURS[i % len(COLOURS)], marker=MARKERS[i // len(COLOURS) % len(MARKERS)],
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [format_size(size) for size in sizes])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("S")
    axes.set_ylabel("BusBW (Gbit/s)")
    axes.legend(fontsize="small", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def _times(axes: "Axes", valid: dict[str, list[dict[str, Any]]]) -> None:
    """The bar is the mean, its whisker reaches to the P99."""
    names = [(label or "all")[:_LABEL] for label in valid]
    means = [1e3 * lines[0]["jct_mean_s"] for lines in valid.values()]
    beyond = [max(0.0, 1e3 * lines[0]["jct_p99_s"] - mean) for lines, mean in zip(valid.values(), means, strict=True)]
    axes.barh(range(len(names)), means, xerr=[[0.0] * len(means), beyond], color=COLOURS[0], capsize=3)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("JCT (ms): mean, whisker to P99")
