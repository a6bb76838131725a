"""What every figure needs of the machine: a job in a sandbox, the command as a user runs it, processes and their load."""

import csv
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from lab.machine import sandbox
from topologies import syscalls

ROOT = Path(__file__).resolve().parents[2]
RUN_TOPO = ROOT / "run_topo.py"
_GRACE_S = 40.0
_SENDER_NICENESS = -10
_LOOK_S = 1.0
# Of all cores: below, what others do does not show in a figure.
_QUIET_CORES = 0.15


def inside(job: Callable[[], Mapping[str, Any]], fabric: str) -> dict[str, Any]:
    """What `job` returns, from a sandbox of its own. At most a pipe's 64 kB of it."""
    read, write = os.pipe()

    def work() -> int:
        os.write(write, json.dumps(job()).encode())
        return 0

    status = sandbox.run(work, about=sandbox.about(fabric=fabric, doing="scripts/bench.py"))
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    if status or not text:
        raise SystemExit(f"bench.py: the measurement in the sandbox ended with status {status}")
    result: dict[str, Any] = json.loads(text)
    return result


def prefer() -> None:
    """Let the calling thread, and what it starts, send when it is time, whatever else runs."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _SENDER_NICENESS)


def start(*arguments: object, python: str) -> "subprocess.Popen[str]":
    """`run_topo.py` as a process; it ends with this one. Its stderr, where progress is told, is the caller's to read."""
    return subprocess.Popen(
        [python, str(RUN_TOPO), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(syscalls.die_with_parent, signal.SIGTERM),  # noqa: PLW1509 (no thread runs when it starts)
    )


def run(*arguments: object, python: str, deadline_s: float) -> tuple[float, list[dict[str, str]]]:
    """One run of run_topo.py: wall seconds from the command to its end, and the rows of its results.csv."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        began = time.monotonic()
        process = start(*arguments, "--out", folder, python=python)
        try:
            _, complaints = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"bench.py: run_topo.py was not done after {deadline_s:g} s") from None
        finally:
            end(process)
        wall_s = time.monotonic() - began
        file = Path(folder) / "results.csv"
        if not file.exists():
            raise SystemExit(
                f"bench.py: run_topo.py wrote no results (status {process.returncode}): {complaints[-500:]}"
            )
        with file.open(newline="") as text:
            return wall_s, list(csv.DictReader(text))


def complaint(row: Mapping[str, str]) -> str:
    """Why a row of results.csv is not `ok`; '' where it is."""
    return "" if row["verdict"] == "ok" else f"{row['verdict']}: {row['reason']}"


def end(process: "subprocess.Popen[str]") -> None:
    """SIGTERM, then SIGKILL; nothing to one that has ended."""
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# -- processes --------------------------------------------------------------------------------------------------------


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


def memory_bytes(pids: Iterable[int]) -> tuple[int, int]:
    """(PSS, RSS) of the processes together; PSS counts a shared page once, divided among those who share it."""
    pss = rss = 0
    for pid in pids:
        with suppress(OSError):
            fields = dict(
                line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if ":" in line
            )
            pss += int(fields["Pss"].split()[0]) * 1024
            rss += int(fields["Rss"].split()[0]) * 1024
    return pss, rss


def namespaces(pids: Iterable[int]) -> set[str]:
    """The PID, mount and network namespaces that the processes are in: 'net:[4026531840]'."""
    found = set()
    for pid in pids:
        for kind in ("pid", "mnt", "net"):
            with suppress(OSError):
                found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
    return found


def all_pids() -> list[int]:
    return [int(p.name) for p in Path("/proc").glob("[0-9]*")]


# -- load -------------------------------------------------------------------------------------------------------------


def disturbance() -> str:
    """What other processes do right now, while this one waits a second; '' when that is next to nothing."""
    before = _busy_s()
    time.sleep(_LOOK_S)
    cores = (_busy_s() - before) / _LOOK_S
    if cores < _QUIET_CORES:
        return ""
    return f"other processes used {cores:.1f} of {os.cpu_count()} cores just before (load {os.getloadavg()[0]:.1f})"


def _busy_s() -> float:
    """CPU seconds of all cores since boot (proc(5): user, nice, system, idle, iowait, irq, softirq, steal)."""
    ticks = [int(x) for x in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
