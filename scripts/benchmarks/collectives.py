"""A whole run, judged by its own table: the default experiment, and ring all-reduce against roofline and prediction."""

import shutil
import sys
from collections.abc import Mapping

from benchmarks import machine
from benchmarks.figure import Figure, Target, figure, joined
from lab.machine import budget
from lab.planning.experiment import Experiment

_SECONDS = Target("ours", high=60)
_ALL = Target("ratio", 1, 1)
_PREDICTED = Target("ratio", 0.98, 1.02)
_MODEL = Target("ratio", 0.97, 1.03)
_ONE_SWITCH = "spine-leaf:spines=1,leaves=1,hosts_per_leaf=8"
_RAILS = "rail-optimised:servers=4,gpus_per_server=4"
_FABRIC = "spine-leaf:spines=2,leaves=4,hosts_per_leaf=4"


def default(*, quick: bool) -> list[Figure]:
    """`python3 run_topo.py`, as a user types it."""
    known = budget.known(Experiment.mtu) is not None
    wall_s, rows = machine.run(python=shutil.which("python3") or sys.executable, deadline_s=180)
    ok = [row for row in rows if row["verdict"] == "ok"]
    note = "" if known else "this machine's first run: it measured the switching budget as well"
    return [
        figure("default, command to table", wall_s, "s", _SECONDS, note=note),
        figure("default, rows ok", len(ok), "rows", _ALL, peer=len(rows), note=joined(*map(_verdict, rows))),
    ]


def jct50(*, quick: bool) -> list[Figure]:
    return _jct(50, 1.05, quick)


def jct100(*, quick: bool) -> list[Figure]:
    return _jct(100, 1.10, quick)


def _jct(rate_mbps: int, most: float, quick: bool) -> list[Figure]:
    fabric = ("--topology", _FABRIC, "--link-rate", f"{rate_mbps}Mbit", "--scale", "1", "--mtu", "9000")
    traffic = ("--collective", "all_reduce", "--algorithm", "ring", "--routing", "ecmp")
    sizes = ("-b", "10M", "-e", "40M", "-f", "4", "-n", 1 if quick else 3, "-w", 1)
    _, rows = machine.run(*fabric, *traffic, *sizes, python=sys.executable, deadline_s=400)
    name = f"all-reduce {rate_mbps} Mbit/s"
    first = rows[0]
    measured, roofline = float(first["time_s"]), float(first["roofline_s"])
    ratio = figure(f"{name} / roofline", measured, "s", Target("ratio", high=most), peer=roofline, note=_spread(first))
    return [ratio, *(_predicted(name, row) for row in rows)]


def model(*, quick: bool) -> list[Figure]:
    """Measured over predicted, algorithm by algorithm, with messages of 100 ms and more."""
    collectives = (
        ("all_reduce", "ring"), ("all_reduce", "halving-doubling"), ("all_reduce", "double-binary-tree"),
        ("all_to_all", "pairwise"),
    )  # fmt: skip
    runs = [
        (where, fabric, *c) for where, fabric in (("switch", _ONE_SWITCH), ("fabric", _FABRIC)) for c in collectives
    ]
    runs += [("rails", _RAILS, "all_reduce", "hierarchical"), ("rails", _RAILS, "all_to_all", "hierarchical")]
    figures = []
    for where, fabric, collective, algorithm in runs[:1] if quick else runs:
        traffic = ("--collective", collective, "--algorithm", algorithm, "-b", "5M", "-e", "5M", "-n", 3, "-w", 1)
        network = ("--topology", fabric, "--link-rate", "20Mbit", "--scale", "1")
        _, (row,) = machine.run(*network, *traffic, python=sys.executable, deadline_s=300)
        measured, predicted = float(row["time_s"]), float(row["predicted_s"] or "nan")
        name = f"{where}, {algorithm}" + (" a2a" if collective == "all_to_all" else "")
        figures.append(figure(name, measured, "s", _MODEL, peer=predicted, note=_spread(row)))
    return figures


def _predicted(name: str, row: Mapping[str, str]) -> Figure:
    measured, predicted = float(row["time_s"]), float(row["predicted_s"] or "nan")
    size = f"{int(row['size_bytes']) >> 20}M"
    return figure(f"{name} {size} / model", measured, "s", _PREDICTED, peer=predicted, note=_spread(row))


def _spread(row: Mapping[str, str]) -> str:
    spread = f"{row['iterations']} iterations, deviation {float(row['cv'] or 'nan'):.1%}"
    return joined(spread if int(row["iterations"]) > 1 else "", _verdict(row))


def _verdict(row: Mapping[str, str]) -> str:
    return "" if row["verdict"] == "ok" else f"{int(row['size_bytes']) >> 20} MiB is {row['verdict']}: {row['reason']}"
