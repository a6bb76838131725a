"""What each rank did over one iteration: a lane each, or a row of pixels where there are many."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch
from numpy.typing import NDArray

from lab.reporting.charts.style import COLOURS, PAPER, SOFT, figure, plain_ticks, styled, svg
from lab.reporting.ranks import RankTimes
from lab.reporting.wording import unit_for
from lab.rows import SPAN_KINDS, RankSpans

_COMPUTE, _SEND, _RECEIVE, _WAIT = range(len(SPAN_KINDS))
# Told apart by lightness too: orange middle, blue dark, light blue, white.
_LOOK = {_COMPUTE: COLOURS[5], _SEND: COLOURS[0], _RECEIVE: "#bcd9ee", _WAIT: PAPER}
_WORDS = {_COMPUTE: "compute", _SEND: "send", _RECEIVE: "receive", _WAIT: "wait"}
_MOST_LANES, _COLUMNS = 64, 1000


def ranks_over_time(spans: RankSpans, times: RankTimes, names: Sequence[str]) -> str:
    """names: of the ranks; longer lists than 64 are drawn without."""
    n = len(names)
    with styled():
        lanes = n <= _MOST_LANES
        height = max(n * (16 if n > 16 else 24), 90) if lanes else min(max(n / 2, 260), 520)
        drawn = figure(height + 96)
        left, right = drawn.subplots(1, 2, width_ratios=[4, 1], sharey=True)
        unit = unit_for([times.whole_s])
        (_lanes if lanes else _pixels)(left, spans, n, unit.seconds)
        left.set_xlim(0, times.whole_s / unit.seconds)
        left.set_xlabel(f"time of the hardware since the iteration began ({unit.name})")
        left.set_title("what each rank did")
        _shares(right, times, n)
        left.set_ylim(n - 0.5, -0.5)
        if lanes:
            left.set_yticks(range(n), names, fontsize=10)
        else:
            left.set_ylabel("rank")
        for axes in (left, right):
            axes.grid(visible=False, axis="y")
        plain_ticks(left, "x", 8)
        shown = sorted({*spans.kind.tolist(), _WAIT})
        handles = [Patch(facecolor=_LOOK[k], edgecolor=SOFT, linewidth=0.6, label=_WORDS[k]) for k in shown]
        drawn.legend(handles=handles, loc="outside upper right", ncols=4)
        return svg(drawn, "ranks", "What each rank did over one iteration")


def _lanes(axes: Axes, spans: RankSpans, n: int, unit_s: float) -> None:
    """Computing in the upper half of a lane, messages in the lower: they may overlap. Without computing, the whole lane."""
    computes = bool((spans.kind == _COMPUTE).any())
    for kind in (_RECEIVE, _SEND, _COMPUTE):
        chosen = spans.kind == kind
        top = np.where(computes and kind != _COMPUTE, 0.0, -0.4)
        bottom = np.where(computes and kind == _COMPUTE, 0.0, 0.4)
        y, x0, x1 = spans.rank[chosen], spans.begin_s[chosen] / unit_s, spans.end_s[chosen] / unit_s
        corners = np.stack(
            [np.stack([x, y + side], axis=1) for x, side in ((x0, top), (x1, top), (x1, bottom), (x0, bottom))], axis=1
        )
        axes.add_collection(PolyCollection(list(corners), facecolor=_LOOK[kind], linewidth=0))
    for rank in range(n):
        axes.axhline(rank + 0.5, color=SOFT, linewidth=0.3)


def _pixels(axes: Axes, spans: RankSpans, n: int, unit_s: float) -> None:
    """One row of pixels per rank; where a rank does several things, the one that comes first in SPAN_KINDS shows."""
    end_s = float(spans.end_s.max(initial=1e-12))
    cells = np.full((n, _COLUMNS), _WAIT)
    for kind in (_RECEIVE, _SEND, _COMPUTE):
        chosen = spans.kind == kind
        edges = np.zeros((n, _COLUMNS + 1), dtype=np.int32)
        first = np.clip(np.rint(spans.begin_s[chosen] / end_s * _COLUMNS), 0, _COLUMNS).astype(int)
        last = np.clip(np.rint(spans.end_s[chosen] / end_s * _COLUMNS), 0, _COLUMNS).astype(int)
        np.add.at(edges, (spans.rank[chosen], first), 1)
        np.add.at(edges, (spans.rank[chosen], last), -1)
        cells[np.cumsum(edges, axis=1)[:, :-1] > 0] = kind
    colours = ListedColormap([_LOOK[kind] for kind in range(len(SPAN_KINDS))])
    axes.grid(visible=False)
    axes.imshow(
        cells, cmap=colours, vmin=-0.5, vmax=len(SPAN_KINDS) - 0.5, aspect="auto",
        extent=(0, end_s / unit_s, n - 0.5, -0.5),
    )  # fmt: skip


def _shares(axes: Axes, times: RankTimes, n: int) -> None:
    whole_s = times.whole_s or 1.0
    overlap = times.compute_s + times.send_s - times.own_s
    left: NDArray[np.float64] = np.zeros(n)
    for kind, part in ((_COMPUTE, times.compute_s), (_SEND, times.send_s - overlap), (_RECEIVE, times.receive_only_s)):
        right = left + part / whole_s * 100
        if n <= _MOST_LANES:
            axes.barh(np.arange(n), right - left, 0.8, left, color=_LOOK[kind], linewidth=0)
        else:
            axes.fill_betweenx(np.arange(n), left, right, color=_LOOK[kind], linewidth=0, step="mid")
        left = right
    axes.set_xlim(0, 100)
    axes.set_title("share of the iteration")
    axes.set_xlabel("%")
    axes.tick_params(labelleft=False)
    plain_ticks(axes, "x", 4)
