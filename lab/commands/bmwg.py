"""`bmwg`: procedures of the BMWG drafts, each case in a sandbox of its own, and the drafts' report of them."""

import shutil
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pandas as pd

from lab import terminal
from lab.commands import launch, sweep
from lab.kpis.summary import summary
from lab.machine import probes
from lab.planning.grid import Cell
from lab.planning.procedures import CATEGORIES, FOLDER, NOT_RUNNABLE, Procedure, procedures
from lab.planning.site import fabric_of
from lab.reporting import bmwg, bmwg_graph, files
from lab.reporting.documents import html, markdown
from lab.reporting.folder import Results, is_complete
from topologies import drawing
from topologies.units import format_duration

ALL = "all"
_INTERRUPTED = 130


def show() -> int:
    """`bmwg --list`, and what happens when nothing is named."""
    found = procedures()
    widest = max(len(one.name) for one in found)
    for category, title in CATEGORIES.items():
        of_it = [one for one in found if one.category == category]
        terminal.show(f"{category}. {title}" + ("" if of_it else ": none is run, see below"))
        for one in of_it:
            cases = f"{len(one.cells)} case{'s' * (len(one.cells) > 1)}"
            terminal.show(f"   {one.name:<{widest}}  {cases:>8}  about {_minutes(one.estimated_s)}  {one.title}")
    total = sum(one.estimated_s for one in found)
    terminal.show(f"all together about {_minutes(total)}: run_topo.py bmwg NAME ... or {ALL}", "", "not run:")
    terminal.show(*(f"   {name}: {why}" for name, why in NOT_RUNNABLE.items()))
    return 0


def run(names: Sequence[str], *, out: str | None, folder: Path = FOLDER) -> int:
    """Runs the named procedures and writes report.md and report.html after each. What has valid results in `out` is not run
    again. Returns the worst status, 130 when interrupted. Raises LabError."""
    chosen = procedures(() if list(names) == [ALL] else names, folder)
    probes.require_root()
    place = Path(out or Path("results") / "bmwg").expanduser().resolve()
    launch.require_writable(place)
    status = 0
    for n, one in enumerate(chosen, 1):
        _forget_invalid(place / one.name, one.cells)
        terminal.warn(f"{one.name} ({n} of {len(chosen)}, about {_minutes(one.estimated_s)}): {one.title}")
        table, ended = sweep.run(one.cells, place / one.name)
        status = max(status, ended)
        outcomes = dict(zip(table["cell"], table["outcome"], strict=True))
        write(place, chosen[:n], {(one.name, key): str(text) for key, text in outcomes.items()})
        if ended == _INTERRUPTED:
            break
    terminal.warn(f"report: {place / 'report.html'}, {place / 'report.md'}")
    return status


def _forget_invalid(place: Path, cells: Sequence[Cell]) -> None:
    """A case in which the emulator was in the way has no result: it is run again."""
    for cell in cells:
        folder = place / "cells" / cell.key
        if is_complete(folder) and (Results(folder).rows["verdict"] == "invalid").any():
            shutil.rmtree(folder)


def write(place: Path, chosen: Sequence[Procedure], outcomes: dict[tuple[str, str], str]) -> None:
    """The report of what has results in `place`. outcomes: (procedure, cell's key) -> why it has none. Raises LabError."""
    results = [_result(place, one, outcomes) for one in chosen]
    made = datetime.now().astimezone().isoformat(timespec="seconds")
    blocks = bmwg.report(results, NOT_RUNNABLE, made=made, version=_version())
    try:
        for result in results:
            for name, svg in result.drawings.items():
                files.write_text(place / name, svg)
            if result.graph:
                files.write_text(place / result.graph_file, result.graph)
        files.write_text(place / "report.md", markdown(blocks))
        files.write_text(place / "report.html", html("AI fabric benchmark", blocks))
    except OSError as error:
        raise files.unwritable(place, error) from None


def _result(place: Path, one: Procedure, outcomes: dict[tuple[str, str], str]) -> bmwg.ProcedureResult:
    cells = [_cell(place / one.name / "cells" / c.key, c, outcomes.get((one.name, c.key), "")) for c in one.cells]
    drawings = {f"{one.name}.svg": drawing.svg(fabric_of(one.cells[0].experiment))}
    return bmwg.ProcedureResult(
        one.name, one.title, CATEGORIES[one.category], one.about, one.deviations, cells, drawings, bmwg_graph.svg(cells)
    )


def _cell(folder: Path, cell: Cell, outcome: str) -> bmwg.CellResult:
    if not is_complete(folder):
        return bmwg.CellResult(cell.label, cell.chosen, outcome or "not run")
    found = Results(folder)
    rows = found.rows
    figures = summary(
        rows,
        found.iterations,
        found.links,
        hosts=found.manifest["ranks"],
        nic_gbit=found.manifest["scale"]["nic_mbps"] / 1e3,
    )
    reasons = dict(zip(rows["size_bytes"].tolist(), rows["reason"].fillna("").tolist(), strict=True))
    return bmwg.CellResult(cell.label, cell.chosen, "", found.manifest, pd.DataFrame(figures), reasons)


def _minutes(seconds: float) -> str:
    return f"{round(seconds / 60)} min" if seconds >= 90 else format_duration(round(seconds))


def _version() -> str:
    """Of the package where it is installed; a checkout that is run in place need not be."""
    try:
        return version("ai-fabric-testbed")
    except PackageNotFoundError:
        return "(a checkout)"
