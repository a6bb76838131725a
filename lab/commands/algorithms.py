"""One collective by several algorithms, one after the other, and a table of all with the fastest first.

`--algorithm all`, or names with commas between. Each runs in a sandbox of its own and writes a folder of its own.
"""

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, get_args, get_type_hints

import traffic
from lab import terminal
from lab.commands import predicting
from lab.errors import LabError
from lab.planning.experiment import Experiment
from lab.planning.plan import Plan, plan
from lab.planning.reach import FORWARDING
from lab.reporting import results
from lab.rows import Output, RowResult
from topologies import Refused
from topologies.units import format_size
from traffic.collectives.rail_ring import NAME as RAIL_RING
from traffic.placement import hb_domains

ALL = "all"
# Without HB domains they are others.
_OF_DOMAINS = (FORWARDING, RAIL_RING)
_FAILED, _INTERRUPTED = 3, (130, 143)
_TYPES = get_type_hints(RowResult)


def are_several(experiment: Experiment) -> bool:
    return experiment.algorithm is not None and (experiment.algorithm == ALL or "," in experiment.algorithm)


def each(experiment: Experiment) -> tuple[list[Plan], dict[str, str]]:
    """The experiment by each of its algorithms; of `all`, those that cannot be run on this fabric stand in the second with the
    reason. Refuses names that do not exist, or cannot be run where they are asked for by name; and `all` where none can."""
    text = str(experiment.algorithm)
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    if text == ALL:
        names = list(traffic.COLLECTIVES.get(experiment.collective, ())) or [ALL]
    found, left_out = [], {}
    for name in names:
        try:
            planned = plan(replace(experiment, algorithm=name))
        except Refused as refusal:
            if text != ALL or names == [ALL]:
                raise
            left_out[name] = str(refusal)
            continue
        if text == ALL and name in _OF_DOMAINS and not hb_domains(planned.fabric, planned.members):
            left_out[name] = f"{planned.fabric.name} has no HB domains"
        else:
            found.append(planned)
    if not found:
        first, reason = next(iter(left_out.items()))
        raise LabError(f"no algorithm of {experiment.collective} can be run so; {first}: {reason}")
    return found, left_out


def run(experiment: Experiment, *, out: str | None, as_json: bool, publish: int | None) -> int:
    """Returns the worst exit status of the runs; ends with the first that was interrupted."""
    from lab.commands import launch

    plans, left_out = each(experiment)
    chosen = [planned.experiment for planned in plans]
    if not out:
        launch.results_folder(out)
    folder = Path(out).expanduser().resolve() if out else _new_folder(plans[0])
    # All before the first run, not when it is each one's turn.
    for one in chosen:
        launch.results_folder(str(folder / str(one.algorithm)))
    output: Output = "nothing" if as_json else "table"
    statuses: list[int] = []
    for one in chosen:
        terminal.warn(f"{one.collective} by {one.algorithm}")
        try:
            statuses.append(launch.run(one, out=str(folder / str(one.algorithm)), output=output, publish=publish))
        except Refused as refusal:
            if not statuses:
                raise
            terminal.warn(f"run_topo.py: {one.algorithm}: {refusal}")
            statuses.append(_FAILED)
        if statuses[-1] in _INTERRUPTED:
            break
    rows = [row for one in chosen for row in _rows(folder / str(one.algorithm) / "results.csv")]
    if as_json:
        terminal.show(json.dumps(rows))
    else:
        terminal.show(*table(rows), *_omissions(left_out))
    return max(statuses)


def predict(experiment: Experiment, *, as_json: bool) -> None:
    plans, left_out = each(experiment)
    rows = [{"algorithm": one.experiment.algorithm, **row} for one in plans for row in predicting.rows(one)]
    if as_json:
        terminal.show(json.dumps(rows))
        return
    shown = [{**row, "time_s": row["predicted_s"], "jct_ratio": row["ratio"]} for row in rows]
    terminal.show(*table(shown), *_omissions(left_out))


def table(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """By size, and within a size by time, what is invalid or has no time last; comment lines, as the rows stand above as
    nccl-tests prints them."""
    found = sorted(rows, key=_place)
    lines = [
        f"# {'size':>10}  {'algorithm':<24} {'time (us)':>12} {'busbw (GB/s)':>13} {'jct_ratio':>10} {'predicted (us)':>15}"
    ]
    for row in found:
        numbers = (
            _number(row["time_s"]) * 1e6, _number(row["busbw_gbytes_s"]), _number(row["jct_ratio"]),
            _number(row["predicted_s"]) * 1e6,
        )  # fmt: skip
        lines.append(
            f"# {format_size(int(row['size_bytes'])):>10}  {row['algorithm']:<24} "
            + "{:>12} {:>13} {:>10} {:>15}".format(*map(_shown, numbers, (1, 2, 3, 1)))
            + f"  {row.get('verdict', '')}"
        )
    return [line.rstrip() for line in lines]


def _omissions(left_out: Mapping[str, str]) -> list[str]:
    return [f"# left out: {name}: {reason}" for name, reason in left_out.items()]


def _place(row: Mapping[str, Any]) -> tuple[int, bool, float]:
    """The emulator's own time is no algorithm's: it must not stand as the fastest."""
    time_s = _number(row["time_s"])
    without = row.get("verdict") == "invalid" or math.isnan(time_s)
    return int(row["size_bytes"]), without, 0.0 if math.isnan(time_s) else time_s


def _shown(number: float, decimals: int) -> str:
    return "N/A" if math.isnan(number) else f"{number:.{decimals}f}"


def _number(text: object) -> float:
    """An empty field is a value that does not exist."""
    return math.nan if text in ("", None) else float(str(text))


def _typed(name: str, text: str) -> object:
    """A column's value as `--json` of one run has it; None where there is none."""
    kinds = {_TYPES[name], *get_args(_TYPES[name])} & {int, float}
    if not kinds:
        return text
    return kinds.pop()(text) if text else None


def _new_folder(planned: Plan) -> Path:
    now = datetime.now().astimezone()
    return results.new_folder(Path("results"), planned.fabric.name, f"{planned.experiment.collective}-algorithms", now)


def _rows(file: Path) -> Sequence[dict[str, Any]]:
    """No rows where the run failed before its first, which it has said."""
    try:
        with file.open() as lines:
            return [{name: _typed(name, text) for name, text in line.items()} for line in csv.DictReader(lines)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LabError(f"results {str(file)!r} cannot be read: {error.strerror}") from None
