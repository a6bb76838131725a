"""How files of a results folder are written, and its manifest read. An edge.

Every file is replaced whole, so a reader never sees half of one. Files made under sudo belong to the user who called it.
"""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lab.errors import LabError

MANIFEST = "manifest.json"
REMEDY = "name a folder that a run has written"


def write_text(path: Path, text: str) -> None:
    _replace(path, lambda part: part.write_text(text, encoding="utf-8"))


def write_bytes(path: Path, pieces: Iterable[bytes]) -> None:
    def write_to(part: Path) -> None:
        with part.open("wb") as file:
            file.writelines(pieces)

    _replace(path, write_to)


def write_parquet(path: Path, table: pa.Table) -> None:
    _replace(path, lambda part: pq.write_table(table, part))


def _replace(path: Path, write_to: Callable[[Path], object]) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        write_to(part)
        give_to_user(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def make_parents(folder: Path) -> None:
    """mkdir -p that gives what it makes to the user, and nothing else."""
    missing = [f for f in (folder, *folder.parents) if not f.exists()]
    for f in reversed(missing):
        f.mkdir(exist_ok=True)
        give_to_user(f)


def give_to_user(path: Path) -> None:
    """sudo(8) says who called it."""
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        os.chown(path, int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID") or -1))


def unwritable(folder: Path, error: OSError) -> LabError:
    # Arrow words its errors at length; the number in them is the kernel's.
    reason = os.strerror(error.errno) if error.errno else error
    return LabError(f"results cannot be written to {str(folder)!r}: {reason}: use --out DIR")


def read_manifest(folder: Path) -> dict[str, Any]:
    """Raises LabError where there is none that can be read."""
    file = folder / MANIFEST
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise LabError(f"{str(file)!r} cannot be read: {error.strerror}: {REMEDY}") from None
    except ValueError as error:
        raise LabError(f"{str(file)!r} is not JSON: {error}: {REMEDY}") from None
