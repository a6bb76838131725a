"""How long `run_topo.py describe` takes for a large fabric, and how much memory; and to compare several."""

import os
import subprocess
import sys
import time

from benchmarks import machine
from benchmarks.figure import Figure, Target, figure

# 16 512 hosts, 2064 routers in 129 groups; the smaller one 1056 hosts.
_LARGE, _QUICK = "dragonfly:a=16,p=8,h=8,g=129", "dragonfly:a=8,p=4,h=4,g=33"
_COMPARED = ("spine-leaf", "three-tier", "fat-tree", "dragonfly", "rail-optimised", "torus")
_ACCELERATORS, _RADIX = 2048, 64
_TIME = Target("ours", high=20)
_MEMORY_GIB = Target("ours", high=2)


def describe(*, quick: bool) -> list[Figure]:
    """Each from the command to its end."""
    name = _QUICK if quick else _LARGE
    one_s, one_bytes = _described("--topology", name)
    all_s, _ = _described("--compare", *_COMPARED, "--accelerators", str(_ACCELERATORS), "--radix", str(_RADIX))
    compared = f"{len(_COMPARED)} fabrics for {_ACCELERATORS} accelerators at radix {_RADIX}"
    return [
        figure("describe, time", one_s, "s", _TIME, note=name),
        figure("describe, memory", one_bytes / (1 << 30), "GiB", _MEMORY_GIB, note="largest resident size"),
        figure("describe, compare", all_s, "s", _TIME, note=compared),
    ]


def _described(*arguments: str) -> tuple[float, int]:
    """Wall seconds, and the process's largest resident size in bytes."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, str(machine.RUN_TOPO), "describe", *arguments], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"bench.py: describe {' '.join(arguments)} ended with status {process.returncode}")
    return time.monotonic() - began, used.ru_maxrss * 1024
