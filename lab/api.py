"""What the commands do, as functions: for notebooks and programs of the user's own.

    import lab

    experiment = lab.load(topology="fat-tree:k=4", min_bytes="256M", max_bytes="1G")
    lab.predict(experiment)                 # pandas, no root
    results = lab.run(experiment)           # root: a sandbox of its own, as on the command line
    results.rows[["size_bytes", "time_s", "busbw_gbytes_s", "jct_ratio", "verdict"]]

Settings have the names that they have in an experiment's file and, with dashes, on the command line. What cannot be is refused
with lab.LabError or another topologies.Refused, whose text is the command line's line.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.errors import LabError

if TYPE_CHECKING:
    import pandas as pd

    from lab.planning.experiment import Experiment
    from lab.reporting.folder import Results


def load(file: Path | str | None = None, /, **settings: object) -> "Experiment":
    """An experiment of a TOML file (None = experiments/default.toml) with settings laid over it, as text or values."""
    from lab.planning import experiment

    return experiment.load(file, settings)


def describe(experiment: "Experiment") -> dict[str, Any]:
    """What `run_topo.py describe --json` prints: counts, bisection, diameter, cost, and the graph."""
    from lab.planning.site import site
    from topologies.describe import describe as described

    return dict(described(site(experiment).fabric))


def predict(experiment: "Experiment") -> "pd.DataFrame":
    """What the model expects: one row per size, hardware units; the columns of `run_topo.py predict --json`. No root."""
    import pandas as pd

    from lab.commands import predicting
    from lab.planning.plan import plan

    return pd.DataFrame(predicting.rows(plan(experiment)))


def run(experiment: "Experiment", out: Path | str | None = None) -> "Results":
    """Runs it as the command line does, in a process and a sandbox of its own, and gives its tables.

    out: the results folder, new or empty; None = results/<date>-<topology>-<collective> in the current directory. A row whose
    `verdict` is invalid is no network result. Raises LabError where the run is refused, fails or is interrupted. Needs root.
    """
    from datetime import datetime

    from lab.commands import cell, launch
    from lab.planning.plan import plan
    from lab.reporting import results
    from lab.reporting.folder import Results, place

    planned = plan(experiment)
    folder = launch.results_folder(None if out is None else str(out))
    launch.require_writable(folder or Path("results").resolve())
    outcome = cell.run(experiment)
    if outcome.status not in (0, 1):
        raise LabError(outcome.reason)
    if folder is None:
        now = datetime.now().astimezone()
        folder = results.new_folder(Path("results"), planned.fabric.name, planned.collective, now)
    place(folder, outcome.unpack)
    return Results(folder)


def read(folder: Path | str) -> "Results":
    """The results of a run that was made before."""
    from lab.reporting.folder import Results

    return Results(Path(folder))


def sweep(
    file: Path | str,
    out: Path | str,
    *,
    at_a_time: int = 1,
    dask: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> "pd.DataFrame":
    """Every cell of a file's [grid], in one table; what has results in `out` is not run again. Needs root where it runs.

    at_a_time: cells on this machine; dask: the address of a cluster's scheduler, whose workers run them instead.
    """
    from lab.commands import sweep as sweeping
    from lab.planning.grid import load_grid

    table, _ = sweeping.run(load_grid(file, settings or {}), Path(out), at_a_time=at_a_time, dask=dask)
    return table
