"""One all-reduce by our replay, by Open MPI and by PyTorch over gloo, on the same emulated hosts."""

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import machine
from benchmarks.figure import Figure, Target, failed, figure
from traffic import COLLECTIVES

_FABRIC = (
    "--topology", "spine-leaf:spines=2,leaves=2,hosts_per_leaf=4", "--link-rate", "50Mbit", "--scale", "1", "--mtu", "9000",
)  # fmt: skip
# Those that send over the hosts' own links alone, and run on any fabric.
_ALGORITHMS = tuple(
    name for name in ("ring", "halving-doubling", "recursive-doubling") if name in COLLECTIVES["all_reduce"]
)
_NOT_SLOWER = Target("ratio", high=1.0)
_DEADLINE_S = 240.0
_PYTHON = "/usr/bin/python3"
_EXAMPLES = machine.ROOT / "examples"
# MiB -> seconds, and what the verdict said of them.
_Seconds = dict[int, tuple[float, str]]
_SECONDS = re.compile(r"bytes, \d+ ranks: ([\d.]+) s")


def mpi(*, quick: bool) -> list[Figure]:
    """Ours by the faster of its algorithms at each size; the medians of the same number of repetitions."""
    sizes_mib, repetitions = ([1], 1) if quick else ([1, 4, 16], 3)
    ours: dict[str, _Seconds] = {algorithm: _ours(algorithm, sizes_mib, repetitions) for algorithm in _ALGORITHMS}
    return [*_against_mpi(ours, sizes_mib, repetitions), *_against_gloo(ours, sizes_mib, repetitions)]


def _ours(algorithm: str, sizes_mib: Sequence[int], repetitions: int) -> _Seconds:
    sweep = ("-b", f"{sizes_mib[0]}M", "-e", f"{sizes_mib[-1]}M", "-f", 4, "-n", repetitions, "-w", 1)
    traffic = ("--collective", "all_reduce", "--algorithm", algorithm)
    _, rows = machine.run(*_FABRIC, *traffic, *sweep, python=sys.executable, deadline_s=_DEADLINE_S)
    return {int(row["size_bytes"]) >> 20: (float(row["time_p50_s"]), row["verdict"]) for row in rows}


def _against_mpi(ours: dict[str, _Seconds], sizes_mib: Sequence[int], repetitions: int) -> list[Figure]:
    compiler, launcher = (shutil.which(tool) for tool in ("mpicc.openmpi", "mpirun.openmpi"))
    if not compiler or not launcher:
        return [failed("all-reduce / Open MPI", "missing: apt-get install openmpi-bin libopenmpi-dev gcc")]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        made = str(Path(folder) / "allreduce")
        subprocess.run([compiler, "-O2", str(_EXAMPLES / "allreduce.c"), "-o", made], check=True, timeout=60)
        theirs = {mib: _theirs(repetitions, mib, "--mpi", "--", launcher, made) for mib in sizes_mib}
    return _figures("Open MPI", ours, theirs)


def _against_gloo(ours: dict[str, _Seconds], sizes_mib: Sequence[int], repetitions: int) -> list[Figure]:
    found = subprocess.run([_PYTHON, "-c", "import torch.distributed"], capture_output=True, timeout=60, check=False)
    if found.returncode:
        return [failed("all-reduce / gloo", "missing: apt-get install --no-install-recommends python3-torch")]
    script = str(_EXAMPLES / "allreduce_torch.py")
    return _figures("gloo", ours, {mib: _theirs(repetitions, mib, "--", _PYTHON, script) for mib in sizes_mib})


def _theirs(repetitions: int, mib: int, *words: str) -> tuple[float, str]:
    """The median of what the program printed, and the verdict on the whole run."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        options = ("--timeout", f"{_DEADLINE_S:g}s", "--out", folder)
        done = subprocess.run(
            [
                sys.executable,
                str(machine.RUN_TOPO),
                "exec",
                *_FABRIC,
                *options,
                *words,
                str(mib << 20),
                str(repetitions),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S + 60,
            check=False,
        )
        seconds = [float(text) for text in _SECONDS.findall(done.stdout)]
        if len(seconds) != repetitions:
            raise SystemExit(f"bench.py: {words[-1]} of {mib} MiB: status {done.returncode}: {done.stderr[-500:]}")
        manifest = json.loads((Path(folder) / "manifest.json").read_text())
    return statistics.median(seconds), manifest["program"]["verdict"]


def _figures(peer: str, ours: dict[str, _Seconds], theirs: _Seconds) -> list[Figure]:
    made = []
    for mib, (their_s, their_verdict) in theirs.items():
        our_s = min(seconds[mib][0] for seconds in ours.values())
        each = ", ".join(f"{name} {s[mib][0]:.3f} s ({s[mib][1]})" for name, s in ours.items())
        note = f"8 hosts at 50 Mbit/s; ours: {each}; peer's run: {their_verdict}"
        made.append(figure(f"all-reduce {mib} MiB / {peer}", our_s, "s", _NOT_SLOWER, peer=their_s, note=note))
    return made
