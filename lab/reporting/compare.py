"""Results side by side, and beside what a fabric should give: the table and what follows from it, as text. Pure.

Rows are matched by size; an invalid row is shown and never compared. Training steps have no bandwidth: their times are
compared, also where another split or algorithm makes them send another size.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lab.kpis.intervals import METHOD, Sample, ratio_interval
from lab.reporting.causes import TOLERANCE, Hypothesis, candidates, leaves
from lab.reporting.sources import COMPARABLE, Row, Source
from topologies.units import format_size
from traffic import TrafficError
from traffic.conventions import bus_factor

_LINES_NAMED = 8
# Interval -> (low, high) of the ratio.
Interval = tuple[float, float] | None


@dataclass(frozen=True)
class Expected:
    """What a fabric should give. about: sentences on what was predicted; seconds: by size; others: what else the fabric could
    do, computed only where the measured curve leaves this one: sizes -> hypotheses."""

    about: Sequence[str]
    seconds: Mapping[int, float]
    others: Callable[[Sequence[int]], Sequence[Hypothesis]]


@dataclass
class _Table:
    """Right-aligned columns; the last one is text."""

    titles: list[str]
    lines: list[list[str]] = field(default_factory=list)

    def text(self) -> list[str]:
        widths = [max(map(len, column)) for column in zip(self.titles, *self.lines, strict=True)]
        aligned = (
            "  ".join(cell.rjust(w) for cell, w in zip(line[:-1], widths[:-1], strict=True))
            + (f"  {line[-1]}" if line[-1] else "")
            for line in (self.titles, *self.lines)
        )
        return [line.rstrip() for line in aligned]


def compare_text(sources: Sequence[Source], expected: Expected | None = None) -> tuple[str, bool]:
    """The comparison, and whether any size could be compared. All are compared with the first; expected: the first as well."""
    named = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", sources, strict=False))
    lines = [f"{letter}: {source.name}" for letter, source in named.items()]
    lines += [text for letter in list(named)[1:] for text in _differences(named["A"], named[letter], letter)]
    lines += [text for source in sources for text in _skipped(source)]
    lines += expected.about if expected else []
    body, comparable = _compared(named, expected)
    return "\n".join((*lines, "", *body)), comparable


def _compared(named: Mapping[str, Source], expected: Expected | None) -> tuple[list[str], bool]:
    of_steps = all(row.is_step for source in named.values() for row in source.rows.values())
    matched = _matched(named)
    others = list(named)[1:]
    titles = ["size", *(f"{x} time (us)" for x in named), *(f"{x} busbw" for x in named)]
    titles += [title for x in others for title in (f"{x} / A", "95 %")]
    titles += ["predicted (us)", "A / predicted", "95 %"] if expected else []
    table = _Table([*titles, ""])
    found: dict[str, list[float]] = {x: [] for x in others}
    left = _leaving(named["A"], expected) if expected else {}
    for rows in matched:
        cells = [_sizes(rows), *(_time(rows.get(x)) for x in named), *(_busbw(rows.get(x)) for x in named)]
        for x in others:
            ratio, interval = _ratio(named, rows, x, of_steps)
            found[x] += [] if math.isnan(ratio) else [ratio]
            cells += [_number(ratio), _interval(interval)]
        cells += _beside(rows.get("A"), expected) if expected else []
        marks = [left[row.size_bytes]] if (row := rows.get("A")) and row.size_bytes in left else []
        table.lines.append([*cells, ", ".join((*marks, *_notes(rows)))])
    comparable = any(found.values()) or bool(expected and _usable(named["A"], expected))
    lines = [*table.text(), *(_on_intervals(table) if comparable else ()), ""]
    lines += [_mean(x, found[x], "time" if of_steps else "busbw") for x in others]
    lines += _explained(named["A"], expected, left) if expected else []
    return lines, comparable


def _on_intervals(table: _Table) -> list[str]:
    shown = [cell for line in table.lines for cell in line[:-1]]
    if any(cell.startswith("[") for cell in shown):
        return [f"{METHOD}; they say nothing of another run's paths"]
    return ["95 %: N/A without iterations to estimate from, as a results folder, nccl-tests' -J and -I 1 have them"]


def _matched(named: Mapping[str, Source]) -> list[dict[str, Row]]:
    """Rows by source, size by size; one step stands beside the other, whatever each sends."""
    alone = {x: next(iter(source.rows.values())) for x, source in named.items() if len(source.rows) == 1}
    if len(alone) == len(named) > 1 and all(row.is_step for row in alone.values()):
        return [alone]
    sizes = sorted({size for source in named.values() for size in source.rows})
    return [{x: source.rows[size] for x, source in named.items() if size in source.rows} for size in sizes]


def _ratio(named: Mapping[str, Source], rows: Mapping[str, Row], x: str, of_steps: bool) -> tuple[float, Interval]:
    """Of steps time over time; else of bus bandwidths, from times where it can be: printed ones have two decimals."""
    mine, theirs = rows.get("A"), rows.get(x)
    if not (mine and theirs and mine.is_valid and theirs.is_valid):
        return math.nan, None
    if of_steps:
        return theirs.time_s / mine.time_s, _scaled(theirs.times, mine.times, 1.0)
    factors = [_factor(named[y]) for y in ("A", x)]
    if None not in factors and mine.size_bytes:
        of_factors = float(factors[1] or 0) / float(factors[0] or 1)
        return mine.time_s / theirs.time_s * of_factors, _scaled(mine.times, theirs.times, of_factors)
    if mine.busbw_gbytes_s > 0 and theirs.busbw_gbytes_s > 0:
        ratio = theirs.busbw_gbytes_s / mine.busbw_gbytes_s
        return ratio, _scaled(mine.times, theirs.times, ratio * theirs.time_s / mine.time_s)
    return math.nan, None


def _scaled(above: Sample | None, below: Sample | None, factor: float) -> Interval:
    found = ratio_interval(above, below) if above and below else None
    return found and (found[0] * factor, found[1] * factor)


def _factor(source: Source) -> float | None:
    """busbw / algbw; None where the collective or the ranks are not known, or it is no collective."""
    if not source.ranks or "collective" not in source.about:
        return None
    try:
        return bus_factor(source.about["collective"], source.ranks)
    except TrafficError:
        return None


# -- beside a prediction ------------------------------------------------------------------------------------------------


def _usable(source: Source, expected: Expected) -> list[Row]:
    return [row for row in source.valid if not math.isnan(expected.seconds.get(row.size_bytes, math.nan))]


def _leaving(source: Source, expected: Expected) -> dict[int, str]:
    """Size -> 'slower' or 'faster', of those at which the measured curve leaves the predicted one."""
    rows = _usable(source, expected)
    measured = np.array([row.time_s for row in rows])
    predicted = np.array([expected.seconds[row.size_bytes] for row in rows])
    return {
        row.size_bytes: "* slower" if row.time_s > p else "* faster"
        for row, p, left in zip(rows, predicted, leaves(measured, predicted), strict=True)
        if left
    }


def _beside(row: Row | None, expected: Expected) -> list[str]:
    predicted = expected.seconds.get(row.size_bytes, math.nan) if row else math.nan
    shown = "N/A" if math.isnan(predicted) else f"{predicted * 1e6:.1f}"
    if row is None or not row.is_valid or math.isnan(predicted):
        return [shown, "N/A", "N/A"]
    return [shown, _number(row.time_s / predicted), _interval(_scaled(row.times, Sample(1, 0, 10**9), 1 / predicted))]


def _explained(source: Source, expected: Expected, left: Mapping[int, str]) -> list[str]:
    rows = _usable(source, expected)
    if not rows:
        return ["no size of A was both measured validly and predicted"]
    if not left:
        return [f"A is as predicted: within {TOLERANCE:.0%} at all {len(rows)} sizes"]
    sizes = [row.size_bytes for row in rows]
    at = ", ".join(format_size(size) for size in left) if len(left) <= _LINES_NAMED else _span(left)
    measured = np.array([row.time_s for row in rows])
    predicted = np.array([expected.seconds[size] for size in sizes])
    causes = candidates(measured, predicted, lambda: expected.others(sizes))
    return [
        f"* A leaves the prediction by more than {TOLERANCE:.0%} at {len(left)} of {len(rows)} sizes: {at}",
        "candidate causes, the best fit first:" if len(causes) > 1 else "candidate cause:",
        *(f"  {cause}" for cause in causes),
    ]


def _span(sizes: Mapping[int, str]) -> str:
    return f"{format_size(min(sizes))} to {format_size(max(sizes))}"


# -- cells --------------------------------------------------------------------------------------------------------------


def _sizes(rows: Mapping[str, Row]) -> str:
    return " / ".join(dict.fromkeys(format_size(row.size_bytes) for row in rows.values()))


def _time(row: Row | None) -> str:
    return "-" if row is None else "N/A" if math.isnan(row.time_s) else f"{row.time_s * 1e6:.1f}"


def _busbw(row: Row | None) -> str:
    if row is None or row.is_step:
        return "-"
    return "N/A" if math.isnan(row.busbw_gbytes_s) else f"{row.busbw_gbytes_s:.2f}"


def _number(ratio: float) -> str:
    return "-" if math.isnan(ratio) else f"{ratio:.3f}"


def _interval(interval: Interval) -> str:
    return "N/A" if interval is None else f"[{interval[0]:.3f}, {interval[1]:.3f}]"


def _notes(rows: Mapping[str, Row]) -> list[str]:
    said = []
    for x, row in rows.items():
        if row.verdict not in ("", "ok"):
            said.append(f"{x} is {row.verdict}" + (f" ({row.note})" if row.note else ""))
        elif row.note:
            said.append(f"{x}: {row.note}")
    return said


def _mean(x: str, ratios: Sequence[float], what: str) -> str:
    if not ratios:
        return f"no size was measured validly in both A and {x}"
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"{what} of {x} is {mean:.3f} of A's (geometric mean over {len(ratios)} size{'s' * (len(ratios) > 1)})"


def _differences(a: Source, b: Source, letter: str) -> Iterator[str]:
    for key in COMPARABLE:
        mine, theirs = a.about.get(key), b.about.get(key)
        if mine is not None and theirs is not None and mine != theirs:
            yield f"{key} differs: {mine} in A, {theirs} in {letter}"


def _skipped(source: Source) -> Iterator[str]:
    if source.skipped:
        n = len(source.skipped)
        lines = ", ".join(map(str, source.skipped[:_LINES_NAMED])) + (", ..." if n > _LINES_NAMED else "")
        yield (
            f"{n} unreadable row{'s' * (n > 1)} of {source.name} {'were' if n > 1 else 'was'} left out: line{'s' * (n > 1)} "
            f"{lines}"
        )
