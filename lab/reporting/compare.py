"""Two results side by side: two results folders, or one and a user's own nccl-tests output (text or `-J` JSON).

Pure but for `read`. Rows are matched by size; an invalid row is shown and never compared. Training steps have no bandwidth:
their times are compared, also where another split or algorithm makes them send another size.
"""

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.reporting.nccl import PROGRAMS
from topologies.units import format_size

# The BMWG drafts: results are comparable only where these are the same.
COMPARABLE = ("fabric", "routing", "collective", "algorithm", "transport", "ranks", "placement")
_MPI_PREFIX = re.compile(r"^\[\d+,\d+\]<std(?:out|err)>:\s*")


@dataclass(frozen=True)
class Row:
    """Hardware units: seconds, GB/s (1e9), NaN where there is none. verdict: '' where the source gives none."""

    size_bytes: int
    time_s: float
    algbw_gbytes_s: float
    busbw_gbytes_s: float
    verdict: str = ""

    @property
    def is_step(self) -> bool:
        """A training step's, which computes as well."""
        return self.time_s > 0 and math.isnan(self.busbw_gbytes_s)


@dataclass(frozen=True)
class Source:
    """name: what the user called it; about: what is known of COMPARABLE; skipped: lines that could not be read."""

    name: str
    rows: Mapping[int, Row]
    about: Mapping[str, str] = field(default_factory=dict)
    skipped: int = 0


def compare(a: Path, b: Path) -> tuple[str, bool]:
    """The comparison of two paths, as text for the terminal, and whether any size could be compared. Raises LabError."""
    return compare_text(read(a), read(b))


# -- reading --------------------------------------------------------------------------------------------------------


def read(path: Path) -> Source:
    """A results folder, its results.csv, nccl-tests' text or nccl-tests' JSON."""
    file = path / "results.csv" if path.is_dir() else path
    try:
        text = file.read_text(errors="replace")
    except OSError as error:
        raise LabError(
            f"{str(path)!r} cannot be read: {error.strerror}: name a results folder or nccl-tests output"
        ) from None
    source = parse(text, str(path))
    if not source.rows:
        raise LabError(f"{str(path)!r} has no rows: nothing was measured, or it is not a result")
    return source


def parse(text: str, name: str) -> Source:
    """What kind of result a text is shows in its first characters."""
    if text.lstrip().startswith("{"):
        return _from_json(text, name)
    if text.startswith("fabric,"):
        return _from_csv(text, name)
    return _from_nccl_text(text, name)


def _from_csv(text: str, name: str) -> Source:
    rows, skipped, about = [], 0, {}
    for line in csv.DictReader(text.splitlines()):
        try:
            rows.append(
                Row(
                    int(line["size_bytes"]),
                    _float(line["time_s"]),
                    _float(line["algbw_gbytes_s"]),
                    _float(line["busbw_gbytes_s"]),
                    line["verdict"] or "unknown",
                )
            )
            about = {key: line[key] for key in COMPARABLE}
        except (KeyError, TypeError, ValueError):
            skipped += 1
    return Source(name, {r.size_bytes: r for r in rows}, about, skipped)


def _from_json(text: str, name: str) -> Source:
    try:
        results: list[dict[str, Any]] = json.loads(text)["results"]
        rows = [_json_row(result) for result in results if result.get("out_of_place")]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LabError(f"{name!r} is not nccl-tests JSON: {type(error).__name__}: {error}") from None
    return Source(name, {r.size_bytes: r for r in rows})


def _json_row(result: Mapping[str, Any]) -> Row:
    half = result["out_of_place"]
    time_s = float(half["time"]) / 1e6
    return Row(
        int(result["size"]), time_s, float(half["alg_bw"]), float(half["bus_bw"]), str(result.get("verdict", ""))
    )


def _from_nccl_text(text: str, name: str) -> Source:
    """Columns stand where the header says: older versions lack some of them."""
    columns: dict[str, int] = {}
    rows: list[Row] = []
    about: dict[str, str] = {}
    skipped = 0
    for raw in text.splitlines():
        line = _MPI_PREFIX.sub("", raw).strip()
        if line.startswith("#"):
            columns = _header(line) or columns
            about |= _collective(line)
        elif columns and line[:1].isdecimal():
            try:
                rows.append(_text_row(line.split(), columns))
            except (IndexError, ValueError):
                skipped += 1
    return Source(name, {r.size_bytes: r for r in rows}, about, skipped)


def _header(line: str) -> dict[str, int]:
    """Title -> column, the first (out-of-place) half's."""
    titles = line.lstrip("#").split("|")[0].split()
    if titles[:2] != ["size", "count"]:
        return {}
    return {title: titles.index(title) for title in ("size", "time", "algbw", "busbw") if title in titles}


def _collective(line: str) -> dict[str, str]:
    match = re.match(r"# Collective test starting: \S*?(\w+)_perf", line)
    names = {program: collective for collective, program in PROGRAMS.items()}
    return {"collective": names.get(match.group(1), match.group(1))} if match else {}


def _text_row(fields: Sequence[str], at: Mapping[str, int]) -> Row:
    ours = fields[fields.index("|") + 1 :] if "|" in fields else []
    time_s = float(fields[at["time"]]) / 1e6
    algbw, busbw = (_float(fields[at[key]]) for key in ("algbw", "busbw"))
    return Row(int(fields[at["size"]]), time_s, algbw, busbw, ours[-1] if ours else "")


def _float(text: str) -> float:
    return math.nan if text in ("", "N/A") else float(text)


# -- comparing ------------------------------------------------------------------------------------------------------


def compare_text(a: Source, b: Source) -> tuple[str, bool]:
    """Rows of both by size, with B / A of the bus bandwidth, of training steps the times; and what makes them incomparable, if
    anything. False: no size was measured validly in both."""
    lines = [f"A: {a.name}", f"B: {b.name}", *_differences(a, b), *_skipped(a), *_skipped(b), ""]
    lines.append(
        f"{'size':>10}  {'A time (us)':>12}  {'B time (us)':>12}  {'A busbw':>9}  {'B busbw':>9}  {'B / A':>7}"
    )
    ratios = []
    pairs = _pairs(a, b)
    of_steps = all(row is None or row.is_step for pair in pairs for row in pair)
    for mine, theirs in pairs:
        ratio = _ratio(mine, theirs, of_steps)
        ratios += [] if math.isnan(ratio) else [ratio]
        lines.append(_line(mine, theirs, ratio))
    lines.append("")
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        what = "time" if of_steps else "busbw"
        lines.append(
            f"{what} of B is {mean:.3f} of A's (geometric mean over {len(ratios)} size{'s' * (len(ratios) > 1)})"
        )
    else:
        lines.append("no size was measured validly in both")
    return "\n".join(lines), bool(ratios)


def _pairs(a: Source, b: Source) -> list[tuple[Row | None, Row | None]]:
    """By size; one step stands beside the other, whatever each sends."""
    mine, theirs = list(a.rows.values()), list(b.rows.values())
    if len(mine) == len(theirs) == 1 and mine[0].is_step and theirs[0].is_step:
        return [(mine[0], theirs[0])]
    return [(a.rows.get(size), b.rows.get(size)) for size in sorted(a.rows.keys() | b.rows.keys())]


def _line(mine: Row | None, theirs: Row | None, ratio: float) -> str:
    times = [f"{row.time_s * 1e6:12.1f}" if row else f"{'-':>12}" for row in (mine, theirs)]
    widths = [f"{row.busbw_gbytes_s:9.2f}" if row and not row.is_step else f"{'-':>9}" for row in (mine, theirs)]
    sizes = " / ".join(dict.fromkeys(format_size(row.size_bytes) for row in (mine, theirs) if row))
    notes = [
        f"{name} is {row.verdict}"
        for name, row in (("A", mine), ("B", theirs))
        if row and row.verdict not in ("", "ok")
    ]
    shown = "-" if math.isnan(ratio) else f"{ratio:.3f}"
    return "  ".join((f"{sizes:>10}", *times, *widths, f"{shown:>7}", ", ".join(notes))).rstrip()


def _ratio(mine: Row | None, theirs: Row | None, of_steps: bool) -> float:
    if mine is None or theirs is None or "invalid" in (mine.verdict, theirs.verdict):
        return math.nan
    if of_steps:
        return theirs.time_s / mine.time_s
    comparable = mine.busbw_gbytes_s > 0 and theirs.busbw_gbytes_s > 0
    return theirs.busbw_gbytes_s / mine.busbw_gbytes_s if comparable else math.nan


def _differences(a: Source, b: Source) -> Iterator[str]:
    for key in COMPARABLE:
        mine, theirs = a.about.get(key), b.about.get(key)
        if mine is not None and theirs is not None and mine != theirs:
            yield f"{key} differs: {mine} in A, {theirs} in B"


def _skipped(source: Source) -> Iterator[str]:
    if source.skipped:
        yield f"{source.skipped} unreadable lines of {source.name} were left out"
