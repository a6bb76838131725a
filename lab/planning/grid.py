"""A grid of experiments: an experiment file with one more table, [grid], whose settings have lists. Pure.

Every combination of the lists is a cell. The first setting varies slowest, so that a table of cells reads from left to right.
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
    file = str(path)
    document = read_document(Path(path))
    axes = _axes(file, document.pop(TABLE, None))
    given = {key: value for key, value in overrides.items() if value is not None}
    for key in given:
        if key in axes:
            raise LabError(f"{SETTINGS[key].option}: [{TABLE}] of {file} varies {key}: leave one of them out")
    base = from_document(document, file)
    cells: dict[str, Cell] = {}
    for values in product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        where = {key: f"{file}: [{TABLE}] {key}" for key in axes}
        cell = Cell(chosen, from_settings(base, {**given, **chosen}, where))
        cells.setdefault(cell.key, cell)
    return list(cells.values())


def _axes(file: str, table: object) -> dict[str, list[Any]]:
    if not isinstance(table, Mapping) or not table:
        raise LabError(f"{file}: a sweep needs a table [{TABLE}] with lists, such as routing = ['ecmp', 'single-path']")
    cells = 1
    for key, values in table.items():
        if key not in SETTINGS:
            raise LabError(f"{file}: {unknown(f'setting in [{TABLE}]', key, SETTINGS)}")
        if not isinstance(values, list) or not values:
            raise LabError(f"{file}: [{TABLE}] {key} = {values!r} must be a list with a value or more")
        cells *= len(values)
    if cells > MAX_CELLS:
        raise LabError(f"{file}: [{TABLE}] has {cells} cells, at most {MAX_CELLS} are run: use shorter lists")
    return dict(table)
