"""`sweep FILE`: every cell of a grid, each in a sandbox of its own, and one table of all. Again after an interruption it goes on
where it stopped: a cell whose results are there is not run again.

The cells go to an executor: threads of this process, each of which waits for one run, or the workers of a Dask cluster.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from lab import terminal
from lab.commands import cell as cells
from lab.commands import launch, predicting
from lab.errors import LabError
from lab.planning.fitting import typically
from lab.planning.forecast import forecast_of
from lab.planning.grid import Cell
from lab.planning.plan import plan
from lab.reporting.folder import Results, is_complete, place, write_table
from topologies import Refused
from topologies.errors import one_line
from topologies.units import format_size

_DONE, _FAILED, _INTERRUPTED = (0, 1), 3, 130
# Of the table on the terminal, behind what varies; the files have all.
_SHOWN = ("size_bytes", "time_s", "busbw_gbytes_s", "jct_ratio", "predicted_s", "ratio", "verdict", "outcome")
_STEM = "sweep"
_ANSWER_S = 10.0


def predicted(grid: Sequence[Cell]) -> pd.DataFrame:
    """What the model expects of every cell: the columns that vary, those of `predict --json`, and `outcome`. No root."""
    lines: list[dict[str, Any]] = []
    for one in grid:
        try:
            rows, gap = predicting.rows_and_gap(plan(one.experiment))
            outcome = f"no prediction: {gap}" if gap else ""
            lines += ({**one.chosen, **row, "outcome": outcome} for row in rows)
        except Refused as refusal:
            lines.append({**one.chosen, "outcome": f"refused: {refusal}"})
    return pd.DataFrame(lines)


def run(grid: Sequence[Cell], folder: Path, *, at_a_time: int = 1, dask: str | None = None) -> tuple[pd.DataFrame, int]:
    """Runs what has no results yet, and writes `folder`/sweep.csv and .parquet after every cell. Returns the table of all
    cells, a row for each size, and the exit status: the worst of the cells', 130 when interrupted.

    at_a_time: cells on this machine; dask: the address of a cluster's scheduler instead.
    """
    launch.require_writable(folder)
    refusals = _refusals(grid)
    waiting = [one for one in grid if one.key not in refusals and not _is_done(folder, one)]
    if refusals and len(refusals) == len(grid):
        raise LabError(f"no cell can be run; the first: {next(iter(refusals.values()))}")
    terminal.warn(f"{len(grid)} cells: {len(waiting)} to run, {len(refusals)} refused, the others have results")
    failures: dict[str, str] = {}
    status = 0
    try:
        with _executor(at_a_time, dask) as executor:
            for one, outcome in _in_turn(executor, waiting):
                if outcome.folder and outcome.status in _DONE:
                    _keep(folder, one, outcome)
                else:
                    failures[one.key] = outcome.reason
                status = max(status, outcome.status if outcome.status in _DONE else _FAILED)
                write_table(folder, _STEM, _table(grid, folder, refusals, failures))
    except KeyboardInterrupt:
        status = _INTERRUPTED
        terminal.warn("interrupted: what has results stays; the same command goes on")
    table = _table(grid, folder, refusals, failures)
    write_table(folder, _STEM, table)
    if status == 0 and "verdict" in table and (table["verdict"] == "invalid").any():
        status = 1
    return table, status


def show(table: pd.DataFrame, grid: Sequence[Cell]) -> None:
    """On the terminal: what varies and the main figures, times in us."""
    varied = list(grid[0].chosen)
    columns = [
        name for name in (*varied, *_SHOWN) if name in table and (name in varied or table[name].astype(bool).any())
    ]
    shown = table[columns].copy()
    for name in ("time_s", "predicted_s", "roofline_s"):
        if name in shown:
            shown[name] *= 1e6
    notes = [
        "# " + ", ".join(f"{name}={line[name]}" for name in varied) + f": {line['outcome']}"
        for line in table.to_dict("records")
        if line["outcome"]
    ]
    if "size_bytes" in shown:
        shown["size_bytes"] = ["N/A" if pd.isna(n) else format_size(int(n)) for n in shown["size_bytes"]]
    if "outcome" in shown:
        shown["outcome"] = shown["outcome"].str.partition(":")[0]
    shown = shown.rename(
        columns={
            "time_s": "time (us)",
            "predicted_s": "predicted (us)",
            "size_bytes": "size",
            "busbw_gbytes_s": "busbw (GB/s)",
            "outcome": "",
        }
    )
    terminal.show(shown.to_string(index=False, na_rep="N/A", float_format=lambda x: f"{x:.6g}"), *notes)


def as_json(table: pd.DataFrame) -> str:
    """NaN as null."""
    return str(table.to_json(orient="records"))


def _refusals(grid: Sequence[Cell]) -> dict[str, str]:
    """Before the first run, not when it is each one's turn."""
    found: dict[str, str] = {}
    for one in grid:
        try:
            planned = plan(one.experiment)
            forecast_of(*typically(planned))
        except Refused as refusal:
            found[one.key] = f"refused: {refusal}"
    return found


def _in_turn(executor: Executor, waiting: Sequence[Cell]) -> Iterator[tuple[Cell, cells.Outcome]]:
    began = time.monotonic()
    futures = {executor.submit(cells.run, one.experiment): one for one in waiting}
    try:
        for n, future in enumerate(as_completed(futures), 1):
            one, outcome = futures[future], _outcome(future)
            spent = time.monotonic() - began
            left = spent / n * (len(waiting) - n)
            how = {0: "done", 1: "invalid"}.get(outcome.status, f"failed: {outcome.reason}")
            terminal.warn(f"[{n}/{len(waiting)}] {one.label}: {how}" + (f"; about {left:.0f} s left" if left else ""))
            yield one, outcome
    finally:
        for future in futures:
            future.cancel()


def _outcome(future: Future[cells.Outcome]) -> cells.Outcome:
    """A worker that was lost, or where the code cannot run, costs its cell and no other."""
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, Exception):
        raise error
    return cells.Outcome(_FAILED, f"{type(error).__name__}: {one_line(str(error))}", b"")


@contextmanager
def _executor(at_a_time: int, dask: str | None) -> Iterator[Executor]:
    if dask is None:
        with ThreadPoolExecutor(at_a_time) as pool:
            yield pool
        return
    try:
        import distributed
    except ImportError:
        raise LabError(
            "--dask needs the package distributed: run .venv/bin/pip install -c constraints.txt distributed"
        ) from None
    try:
        # The package is typed in part.
        client: Any = distributed.Client(dask, timeout=_ANSWER_S)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise LabError(f"--dask {dask}: no scheduler answers: {error}") from None
    with client:
        # The code that runs is the workers' own; results come back as bytes.
        yield client.get_executor(pure=False, retries=0)


def _folder_of(folder: Path, one: Cell) -> Path:
    return folder / "cells" / one.key


def _is_done(folder: Path, one: Cell) -> bool:
    return is_complete(_folder_of(folder, one))


def _keep(folder: Path, one: Cell, outcome: cells.Outcome) -> None:
    place(_folder_of(folder, one), outcome.unpack)


def _table(
    grid: Sequence[Cell], folder: Path, refusals: Mapping[str, str], failures: Mapping[str, str]
) -> pd.DataFrame:
    parts: list[pd.DataFrame] = []
    for one in grid:
        outcome = refusals.get(one.key) or failures.get(one.key, "")
        if not outcome and _is_done(folder, one):
            rows = Results(_folder_of(folder, one)).rows
        else:
            rows = pd.DataFrame([{"outcome": outcome or "not run"}])
        for name, value in reversed(list(one.chosen.items())):
            rows = rows.drop(columns=name, errors="ignore")
            rows.insert(0, name, [value] * len(rows))
        parts.append(rows.assign(cell=one.key, outcome=rows.get("outcome", "")))
    return pd.concat(parts, ignore_index=True)
