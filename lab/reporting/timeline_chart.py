"""Circuits over time as inline SVG: a lane for each uplink, a bar for each circuit that left by it. Pure text building."""

import math
from collections.abc import Sequence
from html import escape

from lab.rows import CircuitRecord

_W, _LEFT, _RIGHT, _TOP, _BOTTOM, _LANE = 1000, 92, 128, 8, 40, 17
_INK, _SOFT, _DARK, _UNMET = "#1f2933", "#52606d", "#1f2933", "#b42318"
# Wong, "Points of view: Color blindness" (Nature Methods 2011), without black; again from the first for more ends.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
_MOST_LANES, _MOST_BARS, _MOST_KEYS = 72, 1500, 16


def timeline(circuits: Sequence[CircuitRecord], time_dilation: float) -> str:
    """Of one row, from its begin on; hardware times."""
    lanes = list(dict.fromkeys(sorted((one.source for one in circuits), key=_natural)))
    shown = [one for one in circuits if one.source in set(lanes[:_MOST_LANES])][:_MOST_BARS]
    if not shown:
        return "<p>No circuit was up.</p>"
    targets = list(dict.fromkeys(sorted((_switch(one.target) for one in shown), key=_natural)))
    colour = {target: _COLOURS[i % len(_COLOURS)] for i, target in enumerate(targets)}
    picture = _Picture(lanes[:_MOST_LANES], shown, time_dilation)
    parts = [part for one in shown for part in picture.bar(one, colour[_switch(one.target)])]
    parts += [*picture.axes(), *_key(targets, colour)]
    if len(lanes) > _MOST_LANES:
        parts.append(_text(_LEFT, picture.height - 4, f"{len(lanes) - _MOST_LANES} more uplinks", _SOFT))
    inner = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {_W} {picture.height}" role="img" aria-label="Circuits over time" '
        f'font-family="system-ui, sans-serif" font-size="11">{inner}</svg>'
    )


class _Picture:
    """Maps (time, uplink) to the picture."""

    def __init__(self, lanes: Sequence[str], circuits: Sequence[CircuitRecord], time_dilation: float) -> None:
        self._lane = {source: i for i, source in enumerate(lanes)}
        self._dilation = time_dilation
        self._begin_s = min(one.up_s - _dark_s(one) for one in circuits)
        # Of more bars than are shown the last ones end where the first of the others would begin.
        self._end_s = max(one.down_s for one in circuits)
        self._base = _TOP + len(lanes) * _LANE
        self.height = max(self._base, _TOP + min(len(lanes), _MOST_KEYS) * 18) + _BOTTOM

    def x(self, at_s: float) -> float:
        span_s = max(self._end_s - self._begin_s, 1e-9)
        return _LEFT + (at_s - self._begin_s) / span_s * (_W - _LEFT - _RIGHT)

    def bar(self, one: CircuitRecord, colour: str) -> list[str]:
        y = _TOP + self._lane[one.source] * _LANE
        light = f"{one.source} to {one.target} over {one.ocs}: {self._ms(one.down_s - one.up_s)} ms, {one.bytes_sent:,} bytes"
        parts = [self._rect(one.up_s, one.down_s, y, colour, light)]
        if _dark_s(one):
            dark = f"dark for {self._ms(_dark_s(one))} ms, {self._ms(one.requested_dark_us / 1e6)} ms were asked for"
            parts.append(self._rect(one.up_s - _dark_s(one), one.up_s, y, _DARK if one.met else _UNMET, dark))
        return parts

    def _rect(self, start_s: float, end_s: float, y: float, colour: str, title: str) -> str:
        left, right = self.x(start_s), self.x(end_s)
        return (
            f'<rect x="{left:.2f}" y="{y + 2}" width="{max(right - left, 0.3):.2f}" height="{_LANE - 4}" fill="{colour}">'
            f"<title>{escape(title)}</title></rect>"
        )

    def _ms(self, emulated_s: float) -> str:
        return f"{emulated_s / self._dilation * 1e3:.4g}"

    def axes(self) -> list[str]:
        lines = [_text(_LEFT - 8, _TOP + i * _LANE + 12, source, _INK, "end") for source, i in self._lane.items()]
        for i in range(6):
            at_s = self._begin_s + (self._end_s - self._begin_s) * i / 5
            lines.append(_text(self.x(at_s), self._base + 16, self._ms(at_s - self._begin_s), _SOFT, "middle"))
        lines.append(_text((_LEFT + _W - _RIGHT) / 2, self._base + 33, "ms of the hardware's time", _SOFT, "middle"))
        return lines


def _key(targets: Sequence[str], colour: dict[str, str]) -> list[str]:
    lines = []
    for i, target in enumerate(targets[:_MOST_KEYS]):
        x, y = _W - _RIGHT + 16, _TOP + i * 18
        lines.append(f'<rect x="{x}" y="{y + 2}" width="12" height="12" fill="{colour[target]}"/>')
        lines.append(_text(x + 18, y + 12, f"to {target}", _INK))
    return lines


def _text(x: float, y: float, text: str, colour: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _dark_s(one: CircuitRecord) -> float:
    return 0.0 if math.isnan(one.achieved_dark_us) else one.achieved_dark_us / 1e6


def _switch(cable: str) -> str:
    return cable.rpartition(":")[0]


def _natural(text: str) -> tuple[int | str, ...]:
    """leaf2 before leaf10."""
    digits = "".join(c if c.isdigit() else " " for c in text).split()
    return (*map(int, digits), text)
