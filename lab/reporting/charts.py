"""Line charts as inline SVG, without a library. Pure text building."""

import math
from collections.abc import Sequence

from lab.rows import RowResult
from topologies.units import format_size

_W, _H = 1000, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 150, 16, 44
_INK, _SOFT, _GRID = "#1f2933", "#52606d", "#e4e9ee"
_MEASURED, _PREDICTED, _ROOFLINE = "#1f5fa8", "#c77d0a", "#7b8794"


def busbw_over_size(rows: Sequence[RowResult]) -> str:
    """Measured, predicted and roofline bus bandwidth (GB/s) over message size (log scale)."""
    rows = sorted((r for r in rows if not math.isnan(r.busbw_gbytes_s)), key=lambda r: r.size_bytes)
    if not rows:
        return "<p>No row has a bandwidth.</p>"
    roofline = [r.busbw_gbytes_s * r.time_s / r.roofline_s for r in rows if r.roofline_s > 0]
    predicted = [r.busbw_gbytes_s * r.time_s / r.predicted_s for r in rows if r.predicted_s > 0]
    chart = _Chart([r.size_bytes for r in rows], max((*roofline, *predicted, *(r.busbw_gbytes_s for r in rows))))
    parts = [*chart.axes()]
    if len(roofline) == len(rows):
        parts += chart.line(roofline, _ROOFLINE, dash="6 4")
    if len(predicted) == len(rows):
        parts += chart.line(predicted, _PREDICTED)
    measured = [r.busbw_gbytes_s for r in rows]
    parts += chart.line(measured, _MEASURED, width=2.4)
    parts += (chart.mark(r.size_bytes, r.busbw_gbytes_s, hollow=r.verdict == "invalid", title=_title(r)) for r in rows)
    parts += _key((("measured", _MEASURED, ""), ("predicted", _PREDICTED, ""), ("roofline", _ROOFLINE, "6 4")))
    inner = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {_W} {_H}" role="img" aria-label="Bus bandwidth over size" font-family="system-ui, sans-serif" '
        f'font-size="12">{inner}</svg>'
    )


def _title(r: RowResult) -> str:
    return f"{format_size(r.size_bytes)}: {r.busbw_gbytes_s:.4g} GB/s, {r.verdict}"


class _Chart:
    """Maps (size, GB/s) to the picture."""

    def __init__(self, sizes: Sequence[int], highest: float) -> None:
        self.sizes = sizes
        self.step = _nice(highest * 1.08 / 5)
        self.top = self.step * math.ceil(highest * 1.04 / self.step)
        # One size alone stands in the middle.
        alone = sizes[0] == sizes[-1]
        self.low = sizes[0] / 2 if alone else float(sizes[0])
        self.high = sizes[0] * 2.0 if alone else float(sizes[-1])

    def x(self, size: float) -> float:
        share = math.log(size / self.low) / math.log(self.high / self.low)
        return _LEFT + 18 + share * (_W - _LEFT - _RIGHT - 36)

    def y(self, value: float) -> float:
        return _H - _BOTTOM - value / self.top * (_H - _TOP - _BOTTOM)

    def axes(self) -> list[str]:
        lines = []
        for i in range(round(self.top / self.step) + 1):
            y = self.y(i * self.step)
            lines.append(f'<line x1="{_LEFT}" x2="{_W - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_GRID}"/>')
            lines.append(
                f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{_SOFT}">{i * self.step:g}</text>'
            )
        every = math.ceil(len(self.sizes) / 12)
        for size in self.sizes[::every]:
            text = format_size(size)
            lines.append(
                f'<text x="{self.x(size):.1f}" y="{_H - 22}" text-anchor="middle" fill="{_SOFT}">{text}</text>'
            )
        lines.append(
            f'<text x="{(_LEFT + _W - _RIGHT) / 2:.0f}" y="{_H - 4}" text-anchor="middle" fill="{_SOFT}">size</text>'
        )
        middle = (_H - _BOTTOM + _TOP) / 2
        lines.append(
            f'<text transform="translate(13 {middle:.0f}) rotate(-90)" text-anchor="middle" fill="{_SOFT}">busbw, GB/s</text>'
        )
        return lines

    def line(self, values: Sequence[float], colour: str, width: float = 1.6, dash: str = "") -> list[str]:
        points = [(self.x(s), self.y(v)) for s, v in zip(self.sizes, values, strict=True)]
        if len(points) == 1:
            points = [(points[0][0] - 60, points[0][1]), (points[0][0] + 60, points[0][1])]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        return [
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dash}"/>'
        ]

    def mark(self, size: float, value: float, hollow: bool, title: str) -> str:
        fill = "#fff" if hollow else _MEASURED
        return (
            f'<circle cx="{self.x(size):.1f}" cy="{self.y(value):.1f}" r="4.5" fill="{fill}" stroke="{_MEASURED}" '
            f'stroke-width="2"><title>{title}</title></circle>'
        )


def _key(entries: Sequence[tuple[str, str, str]]) -> list[str]:
    lines = []
    for i, (text, colour, dash) in enumerate(entries):
        x, y = _W - _RIGHT + 18, _TOP + 14 + i * 22
        lines.append(
            f'<line x1="{x}" x2="{x + 26}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2.4" stroke-dasharray="{dash}"/>'
        )
        lines.append(f'<text x="{x + 34}" y="{y + 4}" fill="{_INK}">{text}</text>')
    return lines


def _nice(value: float) -> float:
    """The next 1, 2 or 5 x 10^k."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= value * 0.999)
