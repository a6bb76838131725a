"""Whether a run's size stays the same: threads and open files of the process that drives it."""

import os
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.figure import Figure, Target, figure
from lab.measuring import run as the_run
from lab.planning.experiment import load
from lab.planning.forecast import forecast_of
from lab.planning.plan import plan
from lab.planning.scale import Scale
from lab.progress import Progress

_EARLY, _LATE = 5, 50
_EQUAL = Target("ratio", 1, 1)


def steady(*, quick: bool) -> list[Figure]:
    """Threads and open files of the process that drives a run, after its 5th and its 50th iteration."""
    settings = {
        "topology": "spine-leaf:spines=1,leaves=2,hosts_per_leaf=2", "link_rate": "100Mbit", "scale": "1",
        "min_bytes": "256K", "max_bytes": "256K", "iterations": _LATE + 1, "warmup_iterations": 0,
    }  # fmt: skip
    expected = forecast_of(plan(load(None, settings)), Scale())

    def job() -> dict[str, Any]:
        counting, said = _Counting(), StringIO()
        with tempfile.TemporaryDirectory(prefix="bench-") as folder, redirect_stdout(said), redirect_stderr(said):
            the_run.run(expected, Scale(), folder=Path(folder), output="json", progress=counting)
        if _LATE not in counting.counts:
            raise RuntimeError(f"the run did not get to iteration {_LATE}: {said.getvalue()}")
        return {str(after): counts for after, counts in counting.counts.items()}

    counts = machine.inside(job, expected.emulated.name)
    early, late = counts[str(_EARLY)], counts[str(_LATE)]
    note = f"ours: after iteration {_LATE}; peer: after iteration {_EARLY}"
    return [
        figure(f"steady, {what}", late[i], "", _EQUAL, peer=early[i], note=note)
        for i, what in enumerate(("threads", "open files"))
    ]


class _Counting(Progress):
    """Told before each iteration, it counts what the process holds."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.counts: dict[int, tuple[int, int]] = {}

    def step(self, text: str) -> None:
        for after in (_EARLY, _LATE):
            if f"iteration {after + 1}/" in text:
                self.counts[after] = _held()


def _held() -> tuple[int, int]:
    """(threads, open files): the fewest of several counts, since the watching thread opens files for moments."""
    counts = []
    for _ in range(20):
        counts.append((len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))))
        time.sleep(0.003)
    return min(threads for threads, _ in counts), min(files for _, files in counts)
