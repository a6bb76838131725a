#!/usr/bin/env python3
"""The project's performance figures, each measured beside its peer: `sudo python3 scripts/bench.py`.

Every figure is measured in a process of its own with a deadline; what it built is gone when that process is. Run it on a
machine that does nothing else: what disturbs a figure stands in its note.
"""

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

if TYPE_CHECKING:
    from benchmarks.figure import Figure

_PROGRAM = "bench.py"
_GRACE_S = 45.0


@dataclass(frozen=True)
class Group:
    """Figures that are measured together. measure: 'module:function' of benchmarks; needs: commands it cannot do without."""

    measure: str
    deadline_s: float
    about: str
    needs: tuple[str, ...] = ()


GROUPS = {
    "default": Group("collectives:default", 200, "run_topo.py as it is: 60 s from command to table, every row ok"),
    "jct50": Group("collectives:jct50", 420, "ring all-reduce, 16 hosts at 50 Mbit/s, against roofline and prediction"),
    "jct100": Group("collectives:jct100", 420, "the same at 100 Mbit/s"),
    "accuracy": Group("predicted:accuracy", 3600, "five fabrics x four algorithms at 20 Mbit/s, against their predictions"),
    "bottleneck": Group("bottleneck:bottleneck", 1800, "links named as bottlenecks made twice as fast, and others"),
    "predict": Group("predicted:predict", 900, "predictions of 16 384 ranks, and of 1024 by the fluid model"),
    "model": Group("collectives:model", 1200, "each algorithm at 20 Mbit/s, against its prediction"),
    "engine": Group("engine:engine", 120, "small messages over loopback; a schedule of 1024 ranks built and checked"),
    "goodput": Group("goodput:goodput", 240, "one TCP flow at 50 and 100 Mbit/s, against iperf3", ("iperf3",)),
    "packets": Group("packets:packets", 240, "RoCEv2 frames sent and received, against Scapy and tcpreplay", ("tcpreplay",)),
    "mpi": Group("mpi:mpi", 900, "one all-reduce of 1, 4 and 16 MiB, against Open MPI and gloo on the same hosts"),
    "failover": Group("failover:failover", 180, "packets lost when an uplink goes down under load, and when it is back"),
    "remote-failure": Group("failover:remote_failure", 180, "the same when a spine's link to another leaf goes down"),
    "faults": Group("faults:faults", 2400, "40 faults planted at random by another process: are they named?", ("iptables",)),
    "clean": Group("faults:clean", 1200, "20 runs without a fault: is one called anything but ok?"),
    "sampler": Group("sampler:sampler", 240, "CPU share of the monitor of 1024 links"),
    "adversarial": Group("adversarial:adversarial", 1500, "minimal, Valiant and UGAL on a dragonfly, against their bounds"),
    "break-even": Group("circuits:break_even", 3600, "when a change of circuits pays, at two scales"),
    "steady": Group("steady:steady", 120, "threads and open files after 5 iterations and after 50"),
    "rules": Group("rules:rules", 60, "CPU time to compute all rules of 1024 hosts, and those after a failure"),
    "schedulers": Group("schedulers:schedulers", 120, "CPU time of circuit schedulers on a 128 x 128 demand matrix"),
    "describe": Group("described:describe", 120, "a dragonfly of 16 512 hosts described, its memory; six fabrics compared"),
    "dragonfly": Group("bringup:dragonfly", 240, "72 hosts on 36 routers: from the command to the rules; stock Mininet"),
    "bringup": Group("bringup:bringup", 900, "1024 links and 512 hosts up and down, and their memory, against stock Mininet"),
}  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """0: every figure passes; 1: one does not; 2: refused; 130/143: interrupted, what was measured is shown."""
    parser = argparse.ArgumentParser(prog=f"scripts/{_PROGRAM}", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="which figures (default: all); see --list")
    parser.add_argument("--list", action="store_true", help="say what can be measured, and end")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures to a file as well")
    parser.add_argument("--quick", action="store_true", help="smaller and fewer: does it work, not how fast it is")
    arguments = parser.parse_intermixed_args(argv)
    if arguments.list:
        print("\n".join(f"{name:<14} {group.about}" for name, group in GROUPS.items()))
        return 0
    names = list(dict.fromkeys(arguments.names)) or list(GROUPS)
    if refusal := _refusal(names):
        print(f"{_PROGRAM}: {refusal}", file=sys.stderr)
        return 2
    return _measure_all(names, quick=arguments.quick, file=arguments.json)


def _refusal(names: Sequence[str]) -> str:
    from lab.machine import probes

    if unknown := [name for name in names if name not in GROUPS]:
        return f"unknown figure {unknown[0]!r}; known: {' '.join(GROUPS)}"
    if os.geteuid() != 0:
        return f"needs root: run it as `sudo {sys.executable} {' '.join(sys.argv)}`"
    probes.complete_path()
    missing = {tool for name in names for tool in GROUPS[name].needs if shutil.which(tool) is None}
    missing |= set(probes.missing_tools())
    return f"missing {', '.join(sorted(missing))}: run `sudo scripts/setup.sh`" if missing else ""


def _measure_all(names: Sequence[str], *, quick: bool, file: Path | None) -> int:
    from benchmarks import figure

    figures: list[Figure] = []
    status = 0
    signal.signal(signal.SIGTERM, _terminate)
    try:
        for name in names:
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            figures += _bounded(name, quick)
            _write(file, figures, quick, complete=name == names[-1])
    except KeyboardInterrupt:
        status = 130
    except SystemExit as terminated:
        status = int(terminated.code or 0)
    if figures:
        print(figure.table(figures))
    return status or int(not all(f.passed for f in figures))


def _terminate(signum: int, frame: object) -> None:
    """Once: a second signal, to the whole process group for one, would interrupt the cleaning up."""
    signal.signal(signum, signal.SIG_IGN)
    raise SystemExit(128 + signum)


def _bounded(name: str, quick: bool) -> "list[Figure]":
    """A group's figures, measured in a child; a child that fails has said why, one that hangs is ended."""
    from benchmarks import figure

    group = GROUPS[name]
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(group, quick, theirs, os.getpid()))
    child.start()
    theirs.close()
    try:
        if not ours.poll(group.deadline_s):
            return [figure.failed(name, f"not done after {group.deadline_s:g} s")]
        figures: list[Figure] = ours.recv()
        return figures
    except EOFError:
        return [figure.failed(name, "could not be measured: the reason stands above")]
    finally:
        child.terminate()
        child.join(_GRACE_S)
        if child.is_alive():
            child.kill()
            child.join()


def _child(group: Group, quick: bool, result: Connection, parent: int) -> None:
    import importlib
    from dataclasses import replace

    from benchmarks.figure import joined
    from benchmarks.machine import disturbance
    from topologies import syscalls

    syscalls.die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, _terminate)
    # Ctrl-C reaches the parent, which ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getppid() != parent:
        return
    before = disturbance()
    module, function = group.measure.split(":")
    measure: Callable[..., list[Figure]] = getattr(importlib.import_module(f"benchmarks.{module}"), function)
    result.send([replace(f, note=joined(f.note, before)) for f in measure(quick=quick)])


def _write(file: Path | None, figures: "Sequence[Figure]", quick: bool, *, complete: bool) -> None:
    from benchmarks.figure import as_json
    from lab.machine import probes

    if file is None:
        return
    about = {
        "measured": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "complete": complete,
        "quick": quick,
        "cpu": probes.cpu_model(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "open_vswitch": probes.open_vswitch_version(),
    }
    file.write_text(json.dumps({**about, "figures": as_json(figures)}, indent=1) + "\n")


if __name__ == "__main__":
    import run_topo

    run_topo.enter_environment(__file__)
    sys.exit(main(sys.argv[1:]))
