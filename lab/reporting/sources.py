"""What was measured, from whatever holds it: a results folder, its results.csv, nccl-tests' text or its `-J` JSON.

Pure but for `read`. A row that cannot be read is counted with its line; one that failed is kept and says so.
"""

import csv
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from lab.errors import LabError
from lab.kpis.intervals import Sample, sample
from lab.reporting import nccl_text
from lab.reporting.nccl import collective_of
from lab.reporting.nccl_debug import NO_LOG, Log, read_log

# What must not be compared: no network made it; some of the data did not come.
_NOT_COMPARED = ("invalid", "incomplete")
# The BMWG drafts: results are comparable only where these are the same.
COMPARABLE = ("fabric", "routing", "collective", "algorithm", "transport", "ranks", "placement")


@dataclass(frozen=True)
class Row:
    """Hardware units: seconds, GB/s (1e9), NaN where there is none. verdict: '' where the source gives none, 'invalid' or
    'incomplete' what must not be compared; note: why, or what else to know; times: of the iterations, where
    they are known."""

    size_bytes: int
    time_s: float
    algbw_gbytes_s: float
    busbw_gbytes_s: float
    verdict: str = ""
    note: str = ""
    times: Sample | None = None

    @property
    def is_step(self) -> bool:
        """A training step's, which computes as well."""
        return self.time_s > 0 and math.isnan(self.busbw_gbytes_s)

    @property
    def is_valid(self) -> bool:
        return self.verdict not in _NOT_COMPARED and self.time_s > 0


@dataclass(frozen=True)
class Source:
    """name: what the user called it; about: what is known of COMPARABLE; skipped: lines that could not be read, 1-based; log:
    what NCCL_DEBUG wrote into it."""

    name: str
    rows: Mapping[int, Row]
    about: Mapping[str, str] = field(default_factory=dict)
    skipped: tuple[int, ...] = ()
    log: Log = NO_LOG

    @property
    def ranks(self) -> int | None:
        return int(self.about["ranks"]) if "ranks" in self.about else self.log.ranks

    @property
    def valid(self) -> list[Row]:
        return [row for _, row in sorted(self.rows.items()) if row.is_valid and row.size_bytes]


def read(path: Path) -> Source:
    """Raises LabError."""
    file = path / "results.csv" if path.is_dir() else path
    try:
        text = file.read_text(errors="replace")
    except OSError as error:
        raise LabError(
            f"{str(path)!r} cannot be read: {error.strerror}: name a results folder or nccl-tests output"
        ) from None
    source = parse(text, str(path), _iterations(path) if path.is_dir() else {})
    if not source.rows and not source.log.sizes:
        skipped = f", and {len(source.skipped)} lines could not be read" if source.skipped else ""
        raise LabError(f"{str(path)!r} has no rows: nothing was measured, or it is not a result{skipped}")
    return source


def _iterations(folder: Path) -> dict[int, list[float]]:
    """Size -> times of the iterations out of place, s; nothing where the folder has none."""
    import pandas as pd

    try:
        table = pd.read_parquet(folder / "iterations.parquet", columns=["size_bytes", "in_place", "time_s"])
    except (OSError, ValueError, KeyError):
        return {}
    times = table[~table["in_place"]].groupby("size_bytes")["time_s"]
    return {int(str(size)): [float(t) for t in of_size] for size, of_size in times}


def parse(text: str, name: str, iterations: Mapping[int, Sequence[float]] | None = None) -> Source:
    """What kind of result a text is shows in its first characters. iterations: of a folder's results.csv."""
    if text.lstrip().startswith("{"):
        return _from_json(text, name)
    if text.startswith("fabric,"):
        return _from_csv(text, name, iterations or {})
    return _from_nccl_text(text, name)


# -- our own ----------------------------------------------------------------------------------------------------------


def _from_csv(text: str, name: str, iterations: Mapping[int, Sequence[float]]) -> Source:
    rows, skipped, about = [], [], {}
    for number, line in enumerate(csv.DictReader(text.splitlines()), 2):
        try:
            size = int(line["size_bytes"])
            times = sample(iterations[size]) if size in iterations else None
            time_s, algbw, busbw = (_float(line[key]) for key in ("time_s", "algbw_gbytes_s", "busbw_gbytes_s"))
            came = float(line.get("delivered") or 1)
            rows.append(_whole(Row(size, time_s, algbw, busbw, line["verdict"] or "unknown", times=times), came))
            about = {key: line[key] for key in COMPARABLE}
        except (KeyError, TypeError, ValueError):
            skipped.append(number)
    return Source(name, by_size(rows), about, tuple(skipped))


def _whole(row: Row, came: float) -> Row:
    """Time until a part of the data had come is no time of a collective. came: the share."""
    if came == 1 or row.verdict == "invalid":
        return row
    return replace(row, verdict="incomplete", note=f"{came:.2%} of the data came")


# -- nccl-tests' ------------------------------------------------------------------------------------------------------


def _from_json(text: str, name: str) -> Source:
    try:
        document: dict[str, Any] = json.loads(text)
        results: list[dict[str, Any]] = document["results"]
        rows = [_json_row(result) for result in results if result.get("out_of_place")]
        about = _json_about(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LabError(f"{name!r} is not nccl-tests JSON: {type(error).__name__}: {error}") from None
    return Source(name, by_size(rows), about)


def _json_row(result: Mapping[str, Any]) -> Row:
    half = result["out_of_place"]
    times_us = (result.get("out_of_place_per_iter") or {}).get("times_us") or []
    wrong = _number(half.get("nwrong", 0))
    return checked(
        Row(
            int(result["size"]),
            _number(half["time"]) / 1e6,
            _number(half["alg_bw"]),
            _number(half["bus_bw"]),
            str(result.get("verdict", "")),
            times=sample([float(t) / 1e6 for t in times_us]) if times_us else None,
        ),
        wrong,
    )


def _json_about(document: Mapping[str, Any]) -> dict[str, str]:
    """Ranks of the largest group: NCCL_TESTS_SPLIT runs groups side by side, and bandwidths are of each."""
    of_group: dict[object, int] = defaultdict(int)
    for device in document.get("devices") or ():
        of_group[device.get("group", 0)] += 1
    about = {"ranks": str(max(of_group.values()))} if of_group else {}
    programs = [argument for argument in document.get("args") or () if str(argument).endswith("_perf")]
    return about | ({"collective": collective_of(Path(str(programs[0])).name)} if programs else {})


def _from_nccl_text(text: str, name: str) -> Source:
    found = nccl_text.read_table(text)
    if len(found.collectives) > 1:
        raise LabError(
            f"{name!r} has the tables of {', '.join(found.collectives)}, whose rows of one size are not the same: "
            "give each in a file of its own"
        )
    rows = [
        checked(Row(r.size_bytes, r.time_s, r.algbw_gbytes_s, r.busbw_gbytes_s, r.verdict, times=r.times), r.wrong)
        for r in found.rows
    ]
    log = read_log(text)
    ranks = found.ranks or log.ranks
    about = {"ranks": str(ranks)} if ranks else {}
    about |= {"collective": found.collectives[0]} if found.collectives else {}
    return Source(name, by_size(rows), about, found.skipped, log)


def checked(row: Row, wrong: float) -> Row:
    """A row without a time, or whose result is wrong, is no measurement. wrong: NaN = not checked."""
    if not row.time_s > 0:
        return replace(row, verdict="invalid", note="failed: no time")
    if wrong > 0:
        return replace(row, verdict="invalid", note=f"{wrong:g} wrong elements")
    if math.isnan(wrong) and math.isnan(row.busbw_gbytes_s):
        return replace(row, verdict="incomplete", note="no bandwidth: not all of the data came")
    return row


def by_size(rows: Iterable[Row]) -> dict[int, Row]:
    """A size that was measured several times has the mean of what is valid of it."""
    ordered = sorted(rows, key=lambda row: row.size_bytes)
    return {size: _together(list(same)) for size, same in groupby(ordered, key=lambda row: row.size_bytes)}


def _together(rows: Sequence[Row]) -> Row:
    valid = [row for row in rows if row.is_valid]
    if len(valid) < 2:
        return (valid or list(rows))[0]
    left_out = f", {len(rows) - len(valid)} invalid left out" if len(valid) < len(rows) else ""
    return replace(
        valid[0],
        time_s=fmean(row.time_s for row in valid),
        algbw_gbytes_s=fmean(row.algbw_gbytes_s for row in valid),
        busbw_gbytes_s=fmean(row.busbw_gbytes_s for row in valid),
        verdict=max((row.verdict for row in valid), key=lambda verdict: verdict not in ("", "ok")),
        note=f"mean of {len(valid)} rows{left_out}",
        # Of the runs, not of the iterations within one: those do not show how runs differ.
        times=sample([row.time_s for row in valid]),
    )


def _float(text: str) -> float:
    return math.nan if text in ("", "N/A") else float(text)


def _number(value: object) -> float:
    """JSON of nccl-tests has texts where there is no number."""
    try:
        return float(str(value))
    except ValueError:
        return math.nan
