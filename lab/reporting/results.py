"""Writes a run's folder. An edge: files only; what stands in them is made elsewhere.

Writing again after each row is how an interrupted run keeps its rows.
"""

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lab.reporting import files, nccl, report
from lab.rows import (
    CIRCUIT_COLUMNS,
    CPU_COLUMNS,
    ITERATION_COLUMNS,
    LINK_COLUMNS,
    ROW_COLUMNS,
    CircuitRecord,
    CpuSamples,
    IterationRecord,
    LinkSamples,
    LinkTotal,
    RowResult,
    RunRecord,
)

_TYPES = {int: pa.int64(), int | None: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
_LINK_SCHEMA = pa.schema(
    [
        ("at_s", pa.float64()),
        *((name, pa.string()) for name in ("intf", "link", "kind")),
        *((name, pa.int64()) for name in ("bytes_sent", "packets_sent", "queue_bytes", "queue_drops")),
    ]
)
_CPU_SCHEMA = pa.schema([("at_s", pa.float64()), ("component", pa.string()), ("cpu_s", pa.float64())])
_LINKS_COLUMNS = ("link", "intf", "bytes_sent", "dropped", "utilisation")
assert tuple(_LINK_SCHEMA.names) == LINK_COLUMNS
assert tuple(_CPU_SCHEMA.names) == CPU_COLUMNS


def new_folder(parent: Path, topology: str, collective: str, now: datetime) -> Path:
    """Makes `parent`/<date>-<time>-<topology>-<collective>[-n], never one that exists. Raises LabError."""
    name = re.sub(r"[^\w.-]+", "_", f"{now:%Y%m%d-%H%M%S}-{topology}-{collective}")
    try:
        files.make_parents(parent)
        n = 1
        while True:
            folder = parent / (name if n == 1 else f"{name}-{n}")
            try:
                folder.mkdir()
            except FileExistsError:
                n += 1
                continue
            files.give_to_user(folder)
            return folder
    except OSError as error:
        raise files.unwritable(parent, error) from None


def write(folder: Path, record: RunRecord) -> None:
    """All of the folder's files, from what the run has so far. Makes the folder where it is missing. Raises LabError."""
    try:
        files.make_parents(folder)
        files.write_text(folder / "manifest.json", _json(manifest(record)))
        files.write_text(folder / "results.csv", csv_text(record.rows))
        files.write_text(folder / "nccl.json", _json(nccl.document(record)))
        files.write_text(folder / "report.html", report.html(record))
        files.write_parquet(folder / "results.parquet", row_table(record.rows))
        files.write_parquet(folder / "iterations.parquet", iteration_table(record.iterations))
        files.write_parquet(folder / "links.parquet", link_table(record.links))
        files.write_parquet(folder / "cpu.parquet", cpu_table(record.cpu))
        if record.circuit_totals:
            files.write_text(folder / "circuits.csv", circuits_text(record.circuits))
            files.write_parquet(folder / "circuits.parquet", circuit_table(record.circuits))
    except OSError as error:
        raise files.unwritable(folder, error) from None


def write_job(folder: Path, record: RunRecord, program: Mapping[str, Any]) -> None:
    """The files of a run whose traffic was a program's own. Makes the folder where it is missing. Raises LabError."""
    try:
        files.make_parents(folder)
        files.write_text(folder / "manifest.json", _json(manifest(record) | {"program": program}))
        files.write_text(folder / "links.csv", links_text(record.link_totals))
        files.write_parquet(folder / "links.parquet", link_table(record.links))
        files.write_parquet(folder / "cpu.parquet", cpu_table(record.cpu))
    except OSError as error:
        raise files.unwritable(folder, error) from None


def manifest(record: RunRecord) -> dict[str, Any]:
    """What ran, on what, as what: enough to run it again and to compare it."""
    return {
        "complete": record.complete,
        "started": record.started,
        "ended": record.ended,
        "command": list(record.command),
        "rows": len(record.rows),
        "experiment": record.experiment,
        "scale": record.scale,
        "roofline": record.roofline,
        "machine": record.machine,
        "ranks": list(record.hosts),
        "helpers": record.helpers,
        "findings": record.findings,
        "fabric": record.fabric,
        **({"circuits": [asdict(total) for total in record.circuit_totals]} if record.circuit_totals else {}),
    }


def csv_text(rows: Iterable[RowResult]) -> str:
    """Header and rows; a value that does not exist is an empty field."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(ROW_COLUMNS)
    for row in rows:
        writer.writerow("" if isinstance(v, float) and math.isnan(v) else v for v in row.columns().values())
    return text.getvalue()


def links_text(totals: Iterable[LinkTotal]) -> str:
    """Header, and a line for each direction of each link."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_LINKS_COLUMNS)
    writer.writerows([getattr(total, name) for name in _LINKS_COLUMNS] for total in totals)
    return text.getvalue()


def circuits_text(circuits: Iterable[CircuitRecord]) -> str:
    """Header, and a line for each way of each circuit while it was up."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CIRCUIT_COLUMNS)
    for one in circuits:
        values = (getattr(one, name) for name in CIRCUIT_COLUMNS)
        writer.writerow("" if isinstance(v, float) and math.isnan(v) else v for v in values)
    return text.getvalue()


def circuit_table(circuits: Sequence[CircuitRecord]) -> pa.Table:
    return pa.Table.from_pylist([asdict(one) for one in circuits], _schema(CircuitRecord, CIRCUIT_COLUMNS))


def row_table(rows: Sequence[RowResult]) -> pa.Table:
    return pa.Table.from_pylist([row.columns() for row in rows], _schema(RowResult, ROW_COLUMNS))


def iteration_table(iterations: Sequence[IterationRecord]) -> pa.Table:
    names = ITERATION_COLUMNS
    return pa.Table.from_pylist(
        [{n: getattr(i, n) for n in names} for i in iterations], _schema(IterationRecord, names)
    )


def link_table(windows: Sequence[LinkSamples]) -> pa.Table:
    """Long form: one line per sample and interface, interfaces in the fabric's order within a sample."""
    tables = [_link_window(w) for w in windows]
    return pa.concat_tables(tables) if tables else _LINK_SCHEMA.empty_table()


def _link_window(w: LinkSamples) -> pa.Table:
    samples, n = w.bytes_sent.shape
    places = np.tile(np.arange(n, dtype=np.int32), samples)
    columns = [
        pa.array(np.repeat(w.at_s, n)),
        *(
            pa.DictionaryArray.from_arrays(places, pa.array(names, pa.string())).cast(pa.string())
            for names in (w.intfs, w.links, w.kinds)
        ),
        pa.array(w.bytes_sent.reshape(-1)),
        pa.array(w.packets_sent.reshape(-1)) if w.packets_sent.size else pa.nulls(samples * n, pa.int64()),
        *(_at_samples(w, seen) for seen in (w.queue_bytes, w.queue_drops)),
    ]
    return pa.Table.from_arrays(columns, schema=_LINK_SCHEMA)


def _at_samples(w: LinkSamples, seen: NDArray[np.int64]) -> pa.Array:
    """What was read less often stands at the sample that followed it; null elsewhere, and where it was not seen."""
    found = np.full(w.bytes_sent.shape, -1, np.int64)
    at = np.searchsorted(w.at_s, w.queue_at_s)
    known = np.flatnonzero(at < len(w.at_s))
    found[at[known]] = seen[known]
    return pa.array(found.reshape(-1), mask=found.reshape(-1) < 0)


def cpu_table(windows: Sequence[CpuSamples]) -> pa.Table:
    """Long form: one line per reading and component."""
    lines = [
        (at_s, name, cpu_s)
        for w in windows
        for at_s, row in zip(w.at_s.tolist(), w.cpu_s.tolist(), strict=True)
        for name, cpu_s in zip(w.components, row, strict=True)
    ]
    return pa.Table.from_pylist([dict(zip(CPU_COLUMNS, line, strict=True)) for line in lines], _CPU_SCHEMA)


def _schema(record: type, names: Iterable[str]) -> pa.Schema:
    """From the dataclass's own types, so that a table without rows has its columns' types all the same."""
    types = record.__annotations__
    return pa.schema([(name, _TYPES.get(types[name], pa.string())) for name in names])


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=1, default=str) + "\n"
