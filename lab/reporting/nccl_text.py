"""nccl-tests' terminal table, as it comes out of mpirun, srun and a shared terminal.

Columns stand where the header says: older versions lack some of them, `-I 1` adds others. Other ranks' lines stand between
and sometimes within rows; what is left of such a row is read if its columns are whole, else its line is told.
"""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from lab.kpis.intervals import Sample, printed_sample
from lab.reporting.nccl import collective_of

# mpirun --tag-output (`[1,0]<stdout>:`, `[prterun-host-1@1,0]<stdout>: `), srun --label (`0: `).
_PREFIX = re.compile(r"^(?:\[[^\]\s]*\d,\d+\]\s?<std(?:out|err)>\s?:\s?|\s*\d+:\s)")
_STARTS = re.compile(r"# Collective test starting: \S*?(\w+_perf)")
_RANK = re.compile(r"#\s+Rank\s+\d+\s+(?:Group\s+(\d+)\s+)?Pid")
_ITERATIONS = re.compile(r"\biters: (\d+) agg iters: (\d+)")
_TYPES = (
    "int8|uint8|int32|uint32|int64|uint64|half|float|double|bfloat16|fp8_e4m3|fp8_e5m2|float8_e4m3|float8_e5m2|char|int"
)
# `size count type`, at the begin of a line or behind what another process wrote into it.
_ROW = re.compile(rf"(?:^|(?<=\s))\d+\s+\d+\s+(?:{_TYPES})\s.*")
# What stands in a column without a number.
_NOTHING = ("N/A", "nan", "NaN", "-nan", "inf", "FAILED", "failed")
# The columns of the first half, out of place.
_WANTED = ("size", "time", "algbw", "busbw", "#wrong", "i_cv%")


@dataclass(frozen=True)
class TextRow:
    """Seconds and GB/s, NaN where there is no number; wrong: elements, 0 in older versions, which print the largest
    error."""

    size_bytes: int
    time_s: float
    algbw_gbytes_s: float
    busbw_gbytes_s: float
    wrong: float
    verdict: str
    times: Sample | None


@dataclass(frozen=True)
class Table:
    """collectives: of each test that began, by our names; ranks: of one group, None = not said; skipped: lines."""

    rows: tuple[TextRow, ...]
    collectives: tuple[str, ...]
    ranks: int | None
    skipped: tuple[int, ...]


@dataclass(frozen=True)
class _Header:
    """at: title -> place, of the first half; half: where the second half begins; n: of all columns."""

    at: dict[str, int]
    half: int
    n: int


def read_table(text: str) -> Table:
    """Never fails: what cannot be read is in `skipped`."""
    header: _Header | None = None
    rows: list[TextRow] = []
    collectives: dict[str, None] = {}
    of_group: dict[str, int] = defaultdict(int)
    skipped: list[int] = []
    iterations = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = _PREFIX.sub("", raw).strip()
        if line.startswith("#"):
            header = _header(line) or header
            iterations = _iterations(line) or iterations
            if started := _STARTS.match(line):
                collectives[collective_of(started[1])] = None
            elif device := _RANK.match(line):
                of_group[device[1] or "0"] += 1
        elif header and (row := _ROW.search(line)):
            try:
                rows.append(_row(row[0], header, iterations))
            except (IndexError, ValueError):
                skipped.append(number)
    return Table(tuple(rows), tuple(collectives), max(of_group.values(), default=None), tuple(skipped))


def _header(line: str) -> _Header | None:
    titles = line.lstrip("#").split("|")[0].split()
    if titles[:2] != ["size", "count"] or "time" not in titles:
        return None
    half = titles.index("time", titles.index("time") + 1) if titles.count("time") > 1 else len(titles)
    return _Header({t: titles.index(t) for t in _WANTED if t in titles[:half]}, half, len(titles))


def _iterations(line: str) -> int:
    """Those that were timed apart: several that are aggregated have one time."""
    found = _ITERATIONS.search(line)
    return int(found[1]) // max(int(found[2]), 1) if found else 0


def _row(text: str, header: _Header, iterations: int) -> TextRow:
    """Raises ValueError or IndexError where the columns are not whole. A line that ends within its first half is not: its last
    number may have lost digits."""
    theirs, _, ours = text.partition(" | ")
    fields = theirs.split()
    if len(fields) < header.n and len(fields) <= header.half and not _failed(fields):
        raise ValueError(f"{len(fields)} columns of {header.n}")
    size = int(fields[header.at["size"]])
    time_s, algbw, busbw, wrong, cv = (
        _at(fields, header.at.get(title)) for title in ("time", "algbw", "busbw", "#wrong", "i_cv%")
    )
    time_s /= 1e6
    times = printed_sample(time_s, cv / 100, iterations) if iterations > 1 and cv >= 0 else None
    verdict = ours.split()[-1] if ours.split() else ""
    return TextRow(size, time_s, algbw, busbw, wrong if "#wrong" in header.at else 0.0, verdict, times)


def _failed(fields: Sequence[str]) -> bool:
    return fields[-1] in _NOTHING


def _at(fields: Sequence[str], place: int | None) -> float:
    """NaN where a column says that there is nothing; a row that failed may end early."""
    if place is None or (place >= len(fields) and _failed(fields)) or fields[place] in _NOTHING:
        return math.nan
    return float(fields[place])
