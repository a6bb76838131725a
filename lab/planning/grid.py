"""A grid of experiments: an experiment file with one more table, [grid], whose settings have lists. Pure.

Every combination of the lists is a cell; settings that change together stand in one key, "ranks+jobs" = [[4, 1], [8, 2]]. The
first setting varies slowest, so that a table of cells reads from left to right.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.planning.experiment import SETTINGS, Experiment, from_document, from_settings, read_document
from topologies import unknown

TABLE = "grid"
JOIN = "+"
MAX_CELLS = 10_000


@dataclass(frozen=True)
class Cell:
    """chosen: the grid's settings, as written in the file."""

    chosen: Mapping[str, object]
    experiment: Experiment

    @property
    def key(self) -> str:
        """Of all settings: a cell whose key is known has been run, in whatever grid that was."""
        text = json.dumps(self.experiment.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.chosen.items())


def load_grid(path: Path | str, overrides: Mapping[str, object]) -> list[Cell]:
    """The cells of a file, with what the command line gave in place of the file's own settings.

    overrides: setting's key -> text or value; None = not given. Raises LabError, one line, also for a value of the grid that
    no experiment can have; whether a cell's settings go together is not looked at here.
    """
    # A file without the table is refused as one with an empty one.
    return cells_of({TABLE: None, **read_document(Path(path))}, str(path), overrides)


def cells_of(document: Mapping[str, Any], file: str, overrides: Mapping[str, object]) -> list[Cell]:
    """Of a parsed file, which without [grid] is one cell. As `load_grid`."""
    axes = _axes(file, document[TABLE]) if TABLE in document else {}
    given = {key: value for key, value in overrides.items() if value is not None}
    varied = [key for keys in axes for key in keys]
    for key in given:
        if key in varied:
            raise LabError(f"{SETTINGS[key].option}: [{TABLE}] of {file} varies {key}: leave one of them out")
    base = from_document({table: content for table, content in document.items() if table != TABLE}, file)
    cells: dict[str, Cell] = {}
    for values in product(*axes.values()):
        chosen = {
            key: value for keys, of in zip(axes, values, strict=True) for key, value in zip(keys, of, strict=True)
        }
        where = {key: f"{file}: [{TABLE}] {key}" for key in varied}
        cell = Cell(chosen, from_settings(base, {**given, **chosen}, where))
        cells.setdefault(cell.key, cell)
    return list(cells.values())


def _axes(file: str, table: object) -> dict[tuple[str, ...], list[tuple[Any, ...]]]:
    """Settings that change together -> their values."""
    if not isinstance(table, Mapping) or not table:
        raise LabError(f"{file}: a sweep needs a table [{TABLE}] with lists, such as routing = ['ecmp', 'single-path']")
    axes: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    cells = 1
    for text, values in table.items():
        keys = tuple(text.split(JOIN))
        for key in keys:
            if key not in SETTINGS:
                raise LabError(f"{file}: {unknown(f'setting in [{TABLE}]', key, SETTINGS)}")
        if not isinstance(values, list) or not values:
            raise LabError(f"{file}: [{TABLE}] {text} = {values!r} must be a list with a value or more")
        if len(keys) > 1 and not all(isinstance(v, list) and len(v) == len(keys) for v in values):
            raise LabError(f"{file}: [{TABLE}] {text} = {values!r} must be lists of {len(keys)} values each")
        axes[keys] = [tuple(v) if len(keys) > 1 else (v,) for v in values]
        cells *= len(values)
    if cells > MAX_CELLS:
        raise LabError(f"{file}: [{TABLE}] has {cells} cells, at most {MAX_CELLS} are run: use shorter lists")
    return axes
