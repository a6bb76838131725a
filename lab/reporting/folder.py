"""A results folder, read. An edge: files in, pandas tables out; its columns are those of lab/rows.py."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from lab.errors import LabError
from lab.reporting import files


@dataclass(frozen=True)
class Results:
    """One run's folder. Its tables are read when they are asked for."""

    folder: Path

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What ran, on what: versions, scale, the experiment as resolved."""
        return files.read_manifest(self.folder)

    @property
    def complete(self) -> bool:
        """Whether the run went to its end."""
        return bool(self.manifest["complete"])

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One row per size: lab.rows.RowResult's columns, hardware units."""
        return self._table("results.parquet")

    @cached_property
    def iterations(self) -> pd.DataFrame:
        """One row per timed iteration: lab.rows.IterationRecord's columns."""
        return self._table("iterations.parquet")

    @cached_property
    def links(self) -> pd.DataFrame:
        """Counters of every egress interface over time, emulated."""
        return self._table("links.parquet")

    def _table(self, name: str) -> pd.DataFrame:
        try:
            return pd.read_parquet(self.folder / name)
        except (OSError, pa.ArrowInvalid) as error:
            raise LabError(f"results {str(self.folder / name)!r} cannot be read: {error}") from None


def is_complete(folder: Path) -> bool:
    return (folder / files.MANIFEST).exists() and Results(folder).complete


def place(folder: Path, fill: Callable[[Path], None]) -> None:
    """Has `fill` make the folder, and gives it its name when it is whole."""
    part = folder.with_name(f".{folder.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        files.make_parents(part)
        fill(part)
        for directory, _, names in os.walk(part):
            for name in names:
                files.give_to_user(Path(directory) / name)
        part.rename(folder)
    except OSError as error:
        raise files.unwritable(folder, error) from None


def write_table(folder: Path, stem: str, table: pd.DataFrame) -> None:
    """`stem`.csv and `stem`.parquet; a value that does not exist is an empty field."""
    try:
        files.make_parents(folder)
        files.write_text(folder / f"{stem}.csv", table.to_csv(index=False))
        # What varies may hold numbers beside names: a column of parquet has one type.
        typed = table.convert_dtypes()
        mixed = [name for name in typed if typed[name].dtype == object]
        files.write_parquet(folder / f"{stem}.parquet", pa.Table.from_pandas(typed.astype(dict.fromkeys(mixed, str))))
    except OSError as error:
        raise files.unwritable(folder, error) from None
