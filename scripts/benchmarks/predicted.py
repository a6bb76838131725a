"""How long `run_topo.py predict` takes and how much memory; and measured over predicted, fabric by fabric."""

import os
import statistics
import subprocess
import sys
from collections.abc import Sequence

from benchmarks import machine
from benchmarks.figure import Figure, Target, figure

_OUTLINED_S, _FLUID_S = Target("ours", high=10), Target("ours", high=30)
_MEMORY_GIB = Target("ours", high=2)
_MEDIAN, _WORST = Target("ours", high=0.05), Target("ours", high=0.12)
_LARGE = (
    ("fat-tree", "fat-tree:k=42", 16384),
    ("spine-leaf", "spine-leaf:spines=32,leaves=512,hosts_per_leaf=32", 16384),
    ("dragonfly", "dragonfly:a=16,p=8,h=8,g=129", 16384),
    ("rail-optimised", "rail-optimised:servers=1022,gpus_per_server=16,spines=16", 16352),
)
_OF_LARGE = (("all_reduce", "ring"), ("all_reduce", "hierarchical"), ("all_to_all", "pairwise"))
_MEASURED = (
    "spine-leaf:spines=2,leaves=4,hosts_per_leaf=4", "fat-tree:k=4", "dragonfly:a=2,p=2,h=1,g=3", "rail-optimised",
    "ocs-leaf:leaves=4,hosts_per_leaf=4",
)  # fmt: skip
_ALGORITHMS = (
    ("all_reduce", "ring"), ("all_reduce", "double-binary-tree"), ("all_reduce", "halving-doubling"),
    ("all_to_all", "pairwise"),
)  # fmt: skip


def predict(*, quick: bool) -> list[Figure]:
    """CPU seconds from the command to its end: what else the machine does is not the model's."""
    figures = []
    for name, fabric, ranks in _LARGE[:1] if quick else _LARGE:
        for collective, algorithm in _OF_LARGE:
            cpu_s, _ = _predicted(fabric, ranks, collective, algorithm, "1G")
            figures.append(figure(f"{name} {ranks}, {algorithm}", cpu_s, "s", _OUTLINED_S))
    for collective, algorithm in () if quick else (("all_reduce", "ring"), ("all_to_all", "pairwise")):
        cpu_s, used = _predicted("fat-tree:k=16", 1024, collective, algorithm, "16G")
        figures.append(figure(f"fluid 1024, {algorithm}", cpu_s, "s", _FLUID_S))
        figures.append(figure(f"fluid 1024, {algorithm}, memory", used / (1 << 30), "GiB", _MEMORY_GIB))
    return figures


def accuracy(*, quick: bool) -> list[Figure]:
    """Rows that are not `ok` are shown and not counted."""
    figures, errors = [], []
    for fabric in _MEASURED[:1] if quick else _MEASURED:
        for collective, algorithm in _ALGORITHMS[:1] if quick else _ALGORITHMS:
            traffic = ("--collective", collective, "--algorithm", algorithm, "-b", "5M", "-e", "5M", "-n", 2, "-w", 1)
            network = ("--topology", fabric, "--link-rate", "20Mbit", "--scale", "1")
            _, (row,) = machine.run(*network, *traffic, python=sys.executable, deadline_s=300)
            measured, predicted = float(row["time_s"]), float(row["predicted_s"] or "nan")
            note = machine.complaint(row)
            name = f"{fabric.partition(':')[0]}, {algorithm}"
            figures.append(figure(name, measured, "s", Target("ratio", 0.88, 1.12), peer=predicted, note=note))
            errors += [abs(measured / predicted - 1)] if row["verdict"] == "ok" else []
    n = f"{len(errors)} of {len(figures)} rows are ok"
    median, worst = (statistics.median(errors), max(errors)) if errors else (float("nan"), float("nan"))
    return [
        *figures,
        figure("median error of ok rows", median, "", _MEDIAN, note=n),
        figure("worst error of ok rows", worst, "", _WORST, note=n),
    ]


def _predicted(fabric: str, ranks: int, collective: str, algorithm: str, size: str) -> tuple[float, int]:
    """CPU seconds, and the process's largest resident size in bytes."""
    what: Sequence[str] = ("--topology", fabric, "--ranks", str(ranks), "--collective", collective)
    command = [
        sys.executable,
        str(machine.RUN_TOPO),
        "predict",
        *what,
        "--algorithm",
        algorithm,
        "-b",
        size,
        "-e",
        size,
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"bench.py: {' '.join(command)} ended with status {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
