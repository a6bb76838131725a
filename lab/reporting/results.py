"""Writes a run's folder. An edge: files only; what stands in them is made elsewhere.

Every file is replaced whole, so a reader never sees half of one; writing again after each row is how an interrupted run
keeps its rows. Files made under sudo belong to the user who called it.
"""

import csv
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.reporting import files, nccl, tables
from lab.rows import CIRCUIT_COLUMNS, ROW_COLUMNS, CircuitRecord, LinkTotal, RowResult, RunRecord

_LINKS_COLUMNS = ("link", "intf", "bytes_sent", "dropped", "utilisation")


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
    """The folder's data, from what the run has so far. Makes the folder where it is missing. Raises LabError."""
    try:
        files.make_parents(folder)
        files.write_text(folder / "manifest.json", _json(manifest(record)))
        files.write_text(folder / "results.csv", csv_text(record.rows))
        files.write_text(folder / "nccl.json", _json(nccl.document(record)))
        for name, table in tables.of(record).items():
            files.write_parquet(folder / f"{name}.parquet", table)
        if record.circuit_totals:
            files.write_text(folder / "circuits.csv", circuits_text(record.circuits))
    except OSError as error:
        raise files.unwritable(folder, error) from None


def write_prediction(folder: Path, stated: Mapping[str, Any]) -> str:
    """prediction.json, before anything is measured; returns its SHA-256. Makes the folder where it is missing.

    Raises LabError.
    """
    text = _json(dict(stated))
    try:
        files.make_parents(folder)
        files.write_text(folder / "prediction.json", text)
    except OSError as error:
        raise files.unwritable(folder, error) from None
    return hashlib.sha256(text.encode()).hexdigest()


def write_report(folder: Path) -> Path:
    """report.html, made of what stands in the folder. Raises LabError."""
    # Only who writes a report waits for the plotting library.
    from lab.reporting import recorded, report

    file = folder / "report.html"
    text = report.html(recorded.read(folder))
    try:
        files.write_text(file, text)
    except OSError as error:
        raise LabError(f"{str(file)!r} cannot be written: {error.strerror}") from None
    return file


def write_job(folder: Path, record: RunRecord, program: Mapping[str, Any]) -> None:
    """The files of a run whose traffic was a program's own. Makes the folder where it is missing. Raises LabError."""
    try:
        files.make_parents(folder)
        files.write_text(folder / "manifest.json", _json(manifest(record) | {"program": program}))
        files.write_text(folder / "links.csv", links_text(record.link_totals))
        files.write_parquet(folder / "links.parquet", tables.link_table(record.links))
        files.write_parquet(folder / "cpu.parquet", tables.cpu_table(record.cpu))
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
        **({"prediction_sha256": record.prediction_sha256} if record.prediction_sha256 else {}),
        "machine": record.machine,
        "ranks": list(record.hosts),
        "helpers": record.helpers,
        "findings": record.findings,
        "fabric": record.fabric,
        "notes": record.notes,
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


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=1, default=str) + "\n"
