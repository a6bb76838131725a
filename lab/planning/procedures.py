"""The BMWG drafts' procedures: those that are run, each a file of experiments/bmwg, and those that are not, with the reason.

A file is an experiment, perhaps with a [grid], and a table [procedure]: title; category, 1 to 7 as the drafts number them; about,
what is measured; deviations, a list of what differs from the drafts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.paths import REPOSITORY
from lab.planning.experiment import read_document
from lab.planning.fitting import typically
from lab.planning.grid import Cell, cells_of
from lab.planning.plan import plan
from topologies import Refused, unknown

FOLDER = REPOSITORY / "experiments" / "bmwg"
TABLE = "procedure"
CATEGORIES = {
    1: "Transport", 2: "Congestion", 3: "Load balancing", 4: "Collectives", 5: "Job completion time", 6: "Scale and convergence",
    7: "Soak",
}  # fmt: skip
_KEYS = {"title": str, "category": int, "about": str, "deviations": list}
# Of a run: its fabric, its controller, the ranks' connections, the folder.
_FIXED_S = 8.0

# What the drafts ask for beside that, and why it is not run.
NOT_RUNNABLE: dict[str, str] = {
    "latency distribution, one-way": "the emulator's own latency (about 0.1 ms a switch) stands in place of the hardware's",
    "throughput by binary search (RFC 2544)": "the transports here send reliably and find the rate themselves: their goodput is "
    "measured, no offered load is searched",
    "burst absorption, back-to-back frames (RFC 2544 section 26.4, RFC 9004)": "queues are tc's, of a size that is chosen",
    "PFC under N:1 incast, PFC deadlock resilience": "Linux interfaces and Open vSwitch have no priority flow control",
    "DCQCN convergence of M flows joined by M more": "all flows of a pattern start together: the incast with and without DCQCN "
    "is run in its place",
    "hashing on the BTH": "Open vSwitch's bundle action hashes the 5-tuple: queue pairs differ in their UDP source port",
    "largest N": "the machine's memory and switching budget end it, not the fabric",
    "link failure, spine switch failure, under load": "no experiment fails a link in mid-run: by hand, `cli` has `link A B down`",
}  # fmt: skip


@dataclass(frozen=True)
class Procedure:
    """name: its file's; cells: what is run, one experiment each."""

    name: str
    title: str
    category: int
    about: str
    deviations: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def estimated_s(self) -> float:
        """Of all cells on a typical machine, one after the other; those that cannot be planned cost nothing."""
        return sum(_cell_s(one) for one in self.cells)


def _cell_s(cell: Cell) -> float:
    try:
        planned, scale = typically(plan(cell.experiment))
        return _FIXED_S + scale.emulated_s(planned.load.traffic_s)
    except Refused:
        return 0.0


def procedures(names: Iterable[str] = (), folder: Path = FOLDER, **overrides: object) -> list[Procedure]:
    """Those named, in that order, or all by category. Raises LabError."""
    files = {file.stem: file for file in sorted(folder.glob("*.toml"))}
    for name in names:
        if name not in files:
            raise LabError(unknown("procedure", name, files))
    found = [_read(files[name], overrides) for name in (names or files)]
    return found if names else sorted(found, key=lambda one: (one.category, one.name))


def _read(file: Path, overrides: Mapping[str, object]) -> Procedure:
    document = read_document(file)
    about: dict[str, Any] = document.pop(TABLE, {})
    for key, kind in _KEYS.items():
        if not isinstance(about.get(key), kind):
            raise LabError(f"{file}: [{TABLE}] needs {key}, {'a list' if kind is list else f'as {kind.__name__}'}")
    if about["category"] not in CATEGORIES:
        raise LabError(f"{file}: [{TABLE}] category = {about['category']}: use 1 to {len(CATEGORIES)}")
    cells = cells_of(document, str(file), overrides)
    deviations = tuple(str(text) for text in about["deviations"])
    return Procedure(file.stem, about["title"], about["category"], about["about"], deviations, tuple(cells))
