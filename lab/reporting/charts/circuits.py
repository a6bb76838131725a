"""Circuits over time: a lane for each uplink, a bar for each circuit that left by it, black where it was dark."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.patches import Patch

from lab.reporting.charts.style import INK, PAPER, figure, plain_ticks, styled, svg
from lab.reporting.wording import unit_for
from lab.rows import CircuitRecord

_UNMET = "#d55e00"
_FILLS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#f0e442")
_HATCHES = ("", "///", "...", "xxx")
MOST_LANES, MOST_BARS, _MOST_KEYS, _LANE_PX = 64, 1500, 24, 18


@dataclass(frozen=True)
class Timeline:
    """picture: SVG; end_s: hardware seconds from the begin of what is shown to its end; left, right, above, below: the margins
    of begin, end, the first and the last lane in the picture, as shares of its width and height; `right` from the left."""

    picture: str
    end_s: float
    left: float
    right: float
    above: float
    below: float


def shown(circuits: Sequence[CircuitRecord]) -> list[CircuitRecord]:
    """As many as can be drawn: of the first uplinks, the earliest."""
    lanes = lanes_of(circuits)[:MOST_LANES]
    return sorted((one for one in circuits if one.source in set(lanes)), key=lambda one: one.up_s)[:MOST_BARS]


def lanes_of(circuits: Sequence[CircuitRecord]) -> list[str]:
    return sorted({one.source for one in circuits}, key=natural)


def begin_of(circuits: Sequence[CircuitRecord]) -> float:
    """Emulated seconds since the run's start of the first thing that is drawn."""
    return min(one.up_s - dark_s(one) for one in circuits)


def timeline(circuits: Sequence[CircuitRecord], time_dilation: float) -> Timeline:
    """Of one row; those that `shown` gives, at least one."""
    lanes, origin_s = lanes_of(circuits), begin_of(circuits)
    end_s = (max(one.down_s for one in circuits) - origin_s) / time_dilation
    look = looks(circuits)
    with styled():
        unit = unit_for([end_s])
        keys = min(len(look), _MOST_KEYS) + 2
        drawn = figure(max(len(lanes) * _LANE_PX, keys * 18) + 84)
        axes = drawn.subplots()
        for one in circuits:
            lane, (fill, hatch) = lanes.index(one.source), look[switch(one.target)]
            up, down, dark = (
                (t / time_dilation / unit.seconds) for t in (one.up_s - origin_s, one.down_s - origin_s, dark_s(one))
            )
            axes.broken_barh(
                [(up, down - up)], (lane - 0.4, 0.8), facecolor=fill, hatch=hatch, edgecolor=PAPER, linewidth=0
            )
            if dark:
                black = INK if one.met else _UNMET
                axes.broken_barh([(up - dark, dark)], (lane - 0.4, 0.8), facecolor=black, hatch=None if one.met else "xxxx",
                                 edgecolor=INK, linewidth=0)  # fmt: skip
        axes.set_xlim(0, end_s / unit.seconds)
        axes.set_ylim(len(lanes) - 0.5, -0.5)
        axes.set_yticks(range(len(lanes)), lanes, fontsize=10)
        axes.grid(visible=False, axis="y")
        axes.set_title("circuits by the uplink that sends")
        axes.set_xlabel(f"time of the hardware ({unit.name})")
        plain_ticks(axes, "x", 8)
        handles = [Patch(facecolor=f, hatch=h, edgecolor=PAPER, label=f"to {t}") for t, (f, h) in look.items()][
            :_MOST_KEYS
        ]
        handles += [
            Patch(facecolor=INK, label="dark"),
            Patch(facecolor=_UNMET, hatch="xxxx", edgecolor=INK, label="dark for too long"),
        ]
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0)
        picture = svg(drawn, "circuits", "Circuits over time")
        box = axes.get_position()
    return Timeline(picture, end_s, float(box.x0), float(box.x1), 1 - float(box.y1), float(box.y0))


def looks(circuits: Sequence[CircuitRecord]) -> dict[str, tuple[str, str]]:
    """Fill and hatch of what leads to each switch."""
    targets = sorted({switch(one.target) for one in circuits}, key=natural)
    return {t: (_FILLS[i % len(_FILLS)], _HATCHES[i // len(_FILLS) % len(_HATCHES)]) for i, t in enumerate(targets)}


def dark_s(one: CircuitRecord) -> float:
    return 0.0 if math.isnan(one.achieved_dark_us) else one.achieved_dark_us / 1e6


def switch(cable: str) -> str:
    """'leaf1:5' -> 'leaf1'."""
    return cable.rpartition(":")[0]


def natural(text: str) -> tuple[int | str, ...]:
    """leaf2 before leaf10."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text))
