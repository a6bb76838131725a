"""A figure: what was measured, what it is compared with, and whether it holds. Data in, data and text out."""

import math
import statistics
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Judged = Literal["ours", "ratio"]


@dataclass(frozen=True)
class Target:
    """The interval in which `ours`, or the ratio, has to be; both ends are allowed."""

    of: Judged
    low: float = -math.inf
    high: float = math.inf

    def holds(self, value: float) -> bool:
        """NaN, a value that does not exist, never holds."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.of} = {self.high:g}"
        if math.isinf(self.low):
            return f"{self.of} <= {self.high:g}"
        if math.isinf(self.high):
            return f"{self.of} >= {self.low:g}"
        return f"{self.of} {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Figure:
    """One line of the table. ours, peer: in `unit`; peer and ratio None = there is nothing to compare with."""

    name: str
    ours: float | None
    peer: float | None
    unit: str
    ratio: float | None
    target: str
    passed: bool
    note: str = ""


def figure(
    name: str,
    ours: float,
    unit: str,
    target: Target,
    *,
    peer: float | None = None,
    ratio: float | None = None,
    note: str = "",
) -> Figure:
    """A figure judged by its target. ratio: where it is not ours / peer."""
    if ratio is None and peer:
        ratio = ours / peer
    judged = ours if target.of == "ours" else ratio
    passed = judged is not None and target.holds(judged)
    return Figure(name, ours, peer, unit, ratio, str(target), passed, note)


def failed(name: str, reason: str) -> Figure:
    """What stands in the table for a measurement that gave no number."""
    return Figure(name, None, None, "", None, "", False, reason)


@dataclass(frozen=True)
class Pairs:
    """Measured alternately: (ours, peer) again and again, so that what disturbs one disturbs the other too."""

    ours: tuple[float, ...]
    peer: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.ours, self.peer, strict=True)]

    def figure(self, name: str, unit: str, target: Target, note: str = "") -> Figure:
        """Medians, and the median of the pairs' ratios, whose spread goes into the note."""
        ratios = self.ratios
        spread = f"{len(ratios)} pairs, ratio {min(ratios):.3f} to {max(ratios):.3f}"
        return figure(
            name,
            statistics.median(self.ours),
            unit,
            target,
            peer=statistics.median(self.peer),
            ratio=statistics.median(ratios),
            note=joined(spread, note),
        )


def joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


# -- numbered packets -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Losses:
    """Of one flow: packets that did not arrive, and the longest time between two sent ones that did with a gap between."""

    lost: int
    longest_gap_s: float


def losses(sent_at_s: Sequence[float], arrived: Iterable[int], start_s: float, end_s: float) -> Losses:
    """Of the packets sent in [start_s, end_s). sent_at_s: by sequence number; arrived: sequence numbers, any order."""
    got = set(arrived)
    window = [number for number, at in enumerate(sent_at_s) if start_s <= at < end_s]
    missing = [number for number in window if number not in got]
    longest, last = 0.0, -1
    for number in missing:
        if number <= last:
            continue
        first = last = number
        while last < len(sent_at_s) and last not in got:
            last += 1
        before = sent_at_s[max(first - 1, 0)]
        longest = max(longest, sent_at_s[min(last, len(sent_at_s) - 1)] - before)
    return Losses(len(missing), longest)


# -- text -------------------------------------------------------------------------------------------------------------

_NOTE_WIDTH = 110


def table(figures: Sequence[Figure]) -> str:
    """A line for each figure, its note below it."""
    head = f"{'figure':<28} {'ours':>10} {'peer':>10} {'unit':<8} {'ratio':>8}  {'target':<22} result"
    lines = [head, "-" * len(head)]
    for f in figures:
        result = "pass" if f.passed else "FAIL"
        lines.append(
            f"{f.name:<28} {_number(f.ours):>10} {_number(f.peer):>10} {f.unit:<8} {_number(f.ratio):>8}  "
            f"{f.target:<22} {result}"
        )
        lines += textwrap.wrap(f.note, _NOTE_WIDTH, initial_indent="    ", subsequent_indent="    ")
    passed = sum(f.passed for f in figures)
    return "\n".join([*lines, f"{passed} of {len(figures)} pass"])


def _number(value: float | None) -> str:
    """Four digits that matter."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def as_json(figures: Iterable[Figure]) -> list[dict[str, Any]]:
    """JSON has no NaN: a value that does not exist is null."""
    return [{k: None if v != v else v for k, v in asdict(f).items()} for f in figures]  # noqa: PLR0124
