"""Numbers and names as the report writes them. Pure; NaN is a value that does not exist."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

_TIME_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
MISSING = "-"


@dataclass(frozen=True)
class TimeUnit:
    """One unit for all times of a column or an axis."""

    name: str
    seconds: float

    def of(self, seconds: float) -> str:
        """Four digits: 0.04157 s -> '41.57' in ms."""
        return MISSING if math.isnan(seconds) else digits(seconds / self.seconds, 4)


def unit_for(seconds: Iterable[float]) -> TimeUnit:
    """That in which the largest is 1 or more."""
    largest = max((t for t in seconds if not math.isnan(t)), default=0.0)
    return TimeUnit(*next((unit for unit in _TIME_UNITS if largest >= unit[1]), _TIME_UNITS[0 if not largest else -1]))


def duration(seconds: float) -> str:
    """In prose: 0.041 -> '41 ms'."""
    if math.isnan(seconds):
        return MISSING
    unit = unit_for([seconds])
    text = unit.of(seconds)
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit.name}"


def digits(value: float, n: int) -> str:
    """n significant digits without an exponent: 12345.6 -> '12346', 0.01234 -> '0.01234', 41.0 -> '41.00'."""
    if math.isnan(value):
        return MISSING
    if not value:
        return "0"
    before = math.floor(math.log10(abs(value))) + 1
    return f"{value:,.{max(n - before, 0)}f}"


def number(value: float) -> str:
    """'49.10' GB/s and the like."""
    return digits(value, 4)


def ratio(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:.3f}"


def share(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:.1%}"


def count(value: float | None) -> str:
    return MISSING if value is None or math.isnan(value) else f"{value:,.0f}"


def times(factor: float) -> str:
    """'1.018 times'; within half a per mille of one 'just'."""
    return "just" if abs(factor - 1) < 5e-4 else f"{factor:.3f} times"


def plural(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def arrow(link: str) -> str:
    """'leaf1->spine2' -> 'leaf1 → spine2'."""
    return link.replace("->", " → ")


def plain(value: object) -> str:
    """Any value of the manifest."""
    if value is None or value == "":
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or MISSING
    return str(value)
