"""Balance of each stage's parallel links, beside the band that random hashing gives."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from lab.reporting.charts.style import COLOURS, INK, SOFT, figure, plain_ticks, styled, svg
from lab.rows import GroupBalance

_BAND = COLOURS[2]
# Of more switches only the least even ones are shown.
MOST_SWITCHES = 32


def shown(balances: Sequence[GroupBalance]) -> list[GroupBalance]:
    """Those with load, by stage, the least even of each stage first; at most MOST_SWITCHES."""
    loaded = sorted((b for b in balances if b.bytes_sent), key=lambda b: -b.mmr)[:MOST_SWITCHES]
    return sorted(loaded, key=lambda b: (b.stage, -b.mmr))


def balance(balances: Sequence[GroupBalance]) -> str:
    """'' where no switch with parallel links sent anything."""
    chosen = shown(balances)
    if not chosen:
        return ""
    with styled():
        drawn = figure(300)
        left, right = drawn.subplots(1, 2, sharex=True)
        stages: dict[int, list[int]] = defaultdict(list)
        for place, one in enumerate(chosen):
            stages[one.stage].append(place)
        _panel(left, chosen, "mmr", "MMR: busiest link / mean (1 = even)")
        _panel(right, chosen, "jfi", "JFI: Jain's index (1 = even)")
        right.set_ylim(0, 1.1)
        left.set_ylim(0.9, 1.1 * max(left.get_ylim()[1], 1.8))
        for axes in (left, right):
            for places in list(stages.values())[1:]:
                axes.axvline(places[0] - 0.5, color=SOFT, linewidth=0.8, linestyle=":")
            plain_ticks(axes, "y")
        handles, labels = left.get_legend_handles_labels()
        drawn.legend(handles[::-1], labels[::-1], loc="outside upper right", ncols=3)
        return svg(drawn, "balance", "Balance of parallel links by switch, with the band of random hashing")


def _panel(axes: Axes, chosen: Sequence[GroupBalance], name: str, title: str) -> None:
    expected, low, high, value = (
        np.array([getattr(one, f"{name}{suffix}") for one in chosen]) for suffix in ("_expected", "_low", "_high", "")
    )
    x = np.arange(len(chosen))
    width = 0.7
    known = ~np.isnan(expected)
    if known.any():
        # A band of no height would not be seen.
        height = np.maximum(high - low, 0.012)
        axes.bar(
            x[known], height[known], width, low[known] - (height - (high - low))[known] / 2, color=_BAND, alpha=0.25,
            label="95 % of random hashings",
        )  # fmt: skip
        axes.hlines(
            expected[known], x[known] - width / 2, x[known] + width / 2, color=_BAND, linewidth=2, label="their mean"
        )
    axes.plot(x, value, "o", color=INK, markersize=7, label="measured")
    axes.set_title(title)
    crowded = len(chosen) > 10
    axes.set_xticks(x, [one.switch for one in chosen], rotation=90 if crowded else 0, fontsize=10 if crowded else 12)
    axes.set_xlim(-0.6, len(chosen) - 0.4)
    axes.grid(visible=False, axis="x")
