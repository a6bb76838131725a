"""Writes a run's folder. An edge: files only; what stands in them is made elsewhere.

Every file is replaced whole, so a reader never sees half of one; writing again after each row is how an interrupted run
keeps its rows. Files made under sudo belong to the user who called it.
"""

import csv
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lab.errors import LabError
from lab.reporting import nccl, tables
from lab.rows import CIRCUIT_COLUMNS, ROW_COLUMNS, CircuitRecord, LinkTotal, RowResult, RunRecord

_LINKS_COLUMNS = ("link", "intf", "bytes_sent", "dropped", "utilisation")


def new_folder(parent: Path, topology: str, collective: str, now: datetime) -> Path:
    """Makes `parent`/<date>-<time>-<topology>-<collective>[-n], never one that exists. Raises LabError."""
    name = re.sub(r"[^\w.-]+", "_", f"{now:%Y%m%d-%H%M%S}-{topology}-{collective}")
    try:
        _make_parents(parent)
        n = 1
        while True:
            folder = parent / (name if n == 1 else f"{name}-{n}")
            try:
                folder.mkdir()
            except FileExistsError:
                n += 1
                continue
            _give_to_user(folder)
            return folder
    except OSError as error:
        raise _unwritable(parent, error) from None


def write(folder: Path, record: RunRecord) -> None:
    """The folder's data, from what the run has so far. Makes the folder where it is missing. Raises LabError."""
    try:
        _make_parents(folder)
        _write(folder / "manifest.json", _json(manifest(record)))
        _write(folder / "results.csv", csv_text(record.rows))
        _write(folder / "nccl.json", _json(nccl.document(record)))
        for name, table in tables.of(record).items():
            _write_parquet(folder / f"{name}.parquet", table)
        if record.circuit_totals:
            _write(folder / "circuits.csv", circuits_text(record.circuits))
    except OSError as error:
        raise _unwritable(folder, error) from None


def write_report(folder: Path) -> Path:
    """report.html, made of what stands in the folder. Raises LabError."""
    # Only who writes a report waits for the plotting library.
    from lab.reporting import recorded, report

    file = folder / "report.html"
    text = report.html(recorded.read(folder))
    try:
        _write(file, text)
    except OSError as error:
        raise LabError(f"{str(file)!r} cannot be written: {error.strerror}") from None
    return file


def write_job(folder: Path, record: RunRecord, program: Mapping[str, Any]) -> None:
    """The files of a run whose traffic was a program's own. Makes the folder where it is missing. Raises LabError."""
    try:
        _make_parents(folder)
        _write(folder / "manifest.json", _json(manifest(record) | {"program": program}))
        _write(folder / "links.csv", links_text(record.link_totals))
        _write_parquet(folder / "links.parquet", tables.link_table(record.links))
    except OSError as error:
        raise _unwritable(folder, error) from None


def _unwritable(folder: Path, error: OSError) -> LabError:
    # Arrow words its errors at length; the number in them is the kernel's.
    reason = os.strerror(error.errno) if error.errno else error
    return LabError(f"results cannot be written to {str(folder)!r}: {reason}: use --out DIR")


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


def _write(path: Path, text: str) -> None:
    _replace(path, lambda part: part.write_text(text, encoding="utf-8"))


def _write_parquet(path: Path, table: pa.Table) -> None:
    _replace(path, lambda part: pq.write_table(table, part))


def _replace(path: Path, write_to: Callable[[Path], object]) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        write_to(part)
        _give_to_user(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _make_parents(folder: Path) -> None:
    """mkdir -p that gives what it makes to the user, and nothing else."""
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    for f in reversed(missing):
        f.mkdir(exist_ok=True)
        _give_to_user(f)


def _give_to_user(path: Path) -> None:
    """sudo(8) says who called it."""
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        os.chown(path, int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID") or -1))
