"""Reads a results folder back into a record. An edge: files only.

What older folders do not have is empty; what only a running experiment knows (both halves of nccl-tests' table, each job's
figures) stays behind in nccl.json, and of the counters over time only the bytes are read.
"""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lab.errors import LabError
from lab.reporting.files import MANIFEST, REMEDY, read_manifest
from lab.rows import (
    SPAN_KINDS,
    CircuitRecord,
    CircuitTotal,
    GroupBalance,
    IterationRecord,
    LinkSamples,
    LinkTotal,
    RankSpans,
    RowResult,
    RunRecord,
)

Column = NDArray[Any]


def read(folder: Path) -> RunRecord:
    """Raises LabError where it is no run's folder, or a file in it cannot be read."""
    told = _manifest(folder)
    return RunRecord(
        experiment=told["experiment"],
        fabric=told["fabric"],
        scale=told["scale"],
        machine=told["machine"],
        hosts=tuple(told["ranks"]),
        helpers=told.get("helpers", ""),
        command=tuple(told["command"]),
        roofline=told["roofline"],
        started=told["started"],
        ended=told["ended"],
        complete=told["complete"],
        rows=_records(folder, "results", RowResult),
        iterations=_records(folder, "iterations", IterationRecord),
        links=_link_samples(_table(folder, "links")),
        link_totals=_records(folder, "link_totals", LinkTotal),
        balance=_records(folder, "balance", GroupBalance),
        spans=_spans(_table(folder, "spans")),
        notes=list(told.get("notes", ())),
        findings=list(told.get("findings", ())),
        circuits=_records(folder, "circuits", CircuitRecord),
        circuit_totals=[CircuitTotal(**one) for one in told.get("circuits", ())],
    )


def _manifest(folder: Path) -> Mapping[str, Any]:
    told = read_manifest(folder)
    if "program" in told:
        raise LabError(f"{str(folder)!r} is of a program that `exec` ran, which has no rows to report: {REMEDY}")
    missing = {"experiment", "fabric", "scale", "machine", "ranks", "roofline", "complete"} - told.keys()
    if missing:
        raise LabError(f"{str(folder / MANIFEST)!r} does not say {', '.join(sorted(missing))}: {REMEDY}")
    return told


def _table(folder: Path, name: str) -> pa.Table | None:
    file = folder / f"{name}.parquet"
    try:
        return pq.read_table(file, partitioning=None) if file.exists() else None
    except (OSError, pa.ArrowException) as error:
        raise LabError(f"{str(file)!r} cannot be read: {str(error).splitlines()[0]}") from None


def _records(folder: Path, name: str, record: type) -> list[Any]:
    table = _table(folder, name)
    return [] if table is None else [record(**line) for line in table.to_pylist()]


def _link_samples(table: pa.Table | None) -> list[LinkSamples]:
    """All windows as one: every sample has all interfaces, in the same order."""
    if table is None or not len(table):
        return []
    at_s = table["at_s"].to_numpy()
    n = int(np.argmax(at_s != at_s[0])) or len(at_s)
    intfs, links, kinds = (tuple(table[column].slice(0, n).to_pylist()) for column in ("intf", "link", "kind"))
    return [LinkSamples(at_s[::n], intfs, links, kinds, table["bytes_sent"].to_numpy().reshape(-1, n))]


def _spans(table: pa.Table | None) -> list[RankSpans]:
    """One for each row of the run."""
    if table is None or not len(table):
        return []
    columns = {name: table[name].to_numpy() for name in ("rank", "begin_s", "end_s")}
    kinds = table["kind"].combine_chunks().dictionary_encode()
    place = np.array([SPAN_KINDS.index(kind) for kind in kinds.dictionary.to_pylist()])
    kind = place[kinds.indices.to_numpy()]
    row = np.stack([table[name].to_numpy() for name in ("size_bytes", "iteration", "resolution_s")])
    edges = [0, *(np.flatnonzero((row[:, 1:] != row[:, :-1]).any(axis=0)) + 1).tolist(), len(table)]
    return [_one_row(row[:, a], slice(a, b), kind, columns) for a, b in pairwise(edges)]


def _one_row(row: Column, part: slice, kind: Column, columns: Mapping[str, Column]) -> RankSpans:
    rank, begin_s, end_s = (columns[name][part] for name in ("rank", "begin_s", "end_s"))
    return RankSpans(int(row[0]), int(row[1]), float(row[2]), rank, kind[part], begin_s, end_s)
