"""Faults planted by another process on elements drawn at random: is a run's first finding the fault's kind and element?

And runs into which nothing was planted: is one of them called anything but `ok`?
"""

import csv
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks import machine
from benchmarks.figure import Figure, Target, figure
from lab.machine import sandbox
from topologies import topology
from topologies.fabric import Fabric, Port

DRAWS, CLEAN_RUNS = 40, 20
_RIGHT, _CLEAN = Target("ours", low=0.95), Target("ours", 0, 0)
_RATE = 20
_SPINE_LEAF = "spine-leaf:spines=2,leaves=2,hosts_per_leaf=2"
_OCS = "ocs-leaf:leaves=3,hosts_per_leaf=1,uplinks=2,ocs=2"
_SIZE = "1100K"
_PLANTING = Path(__file__).with_name("planting.py")
_PROGRAM = Path(__file__).with_name("ring_program.py")
_DEADLINE_S = 120.0
_PLANT_AT = "iteration 2/"


@dataclass(frozen=True)
class Fault:
    """words: for planting.py. kind, elements: the run has to name the kind and one of the elements; outside: planted beside the
    lab, not in it; program: the run is of a program."""

    kind: str
    elements: tuple[str, ...]
    words: tuple[str, ...]
    fabric: str = _SPINE_LEAF
    outside: bool = False
    program: bool = False


@dataclass
class Outcome:
    """said: what the run said first of what it found; all: everything."""

    fault: Fault
    said: str
    all: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        if self.fault.kind == "CPU hog":
            # Others may use more; the finding names those who use most.
            return self.said.startswith(self.fault.kind) and self.fault.elements[0] in self.said
        return any(self.said.startswith(f"{self.fault.kind} {element}") for element in self.fault.elements)


# -- drawing --------------------------------------------------------------------------------------------------------


def draw(kinds: Sequence[str], n: int, seed: int) -> list[Fault]:
    """Kinds in turn, elements at random."""
    source = random.Random(seed)
    return [KINDS[kinds[i % len(kinds)]](source) for i in range(n)]


def _build(name: str) -> Fabric:
    return topology(name).build().with_links(rate_mbps=_RATE)


def _label(fabric: Fabric, port: Port) -> str:
    return f"{fabric.direction(port)} ({port.intf})"


def _any_port(source: random.Random) -> tuple[Fabric, Port]:
    fabric = _build(_SPINE_LEAF)
    return fabric, source.choice([port for link in fabric.links for port in link.ports])


def _used_port(source: random.Random) -> tuple[Fabric, Port]:
    """Of a switch, toward a host, where traffic is whatever the paths are."""
    fabric = _build(_SPINE_LEAF)
    return fabric, source.choice([fabric.peer(fabric.scale_out_port(host.name)) for host in fabric.hosts])


def _unshaped(source: random.Random) -> Fault:
    fabric, port = _any_port(source)
    return Fault("unshaped link", (_label(fabric, port),), ("unshaped", port.intf))


def _half_rate(source: random.Random) -> Fault:
    fabric, port = _any_port(source)
    return Fault("slow link", (_label(fabric, port),), ("half_rate", port.intf, str(_RATE)))


def _lossy(source: random.Random) -> Fault:
    fabric, port = _used_port(source)
    how = source.choice(("silent", "loud", "host"))
    words = ("lossy_host", fabric.peer(port).node) if how == "host" else ("lossy_filter", port.intf, how)
    return Fault("lossy link", (_label(fabric, port),), words)


def _hog(source: random.Random) -> Fault:
    return Fault("CPU hog", ("",), ("hog",), outside=source.random() < 0.5)


def _slow_rank(source: random.Random) -> Fault:
    rank = source.randrange(4)
    return Fault("slow rank", (f"{rank} (h{rank + 1})",), ("stopped", f"RANK={rank}"), program=True)


def _wiring(source: random.Random) -> Fault:
    """Two cables of a leaf to the spines: crossed at their far ends, or in each other's port."""
    fabric = _build(_SPINE_LEAF)
    leaf = source.choice([switch for switch in fabric.switches if switch.role == "leaf"])
    ports = [own for own, far, _ in fabric.neighbours(leaf.name) if not fabric.node(far.node).is_host]
    a, b = source.sample(ports, 2)
    elements = tuple(fabric.label(fabric.link_of(port.intf)) for port in (a, b))
    words: tuple[str, ...]
    if source.random() < 0.5:
        words = ("replugged", leaf.name, a.intf, str(a.number), b.intf, str(b.number), str(_RATE))
    else:
        words = ("crossed", a.intf, fabric.peer(a).intf, b.intf, fabric.peer(b).intf, str(_RATE))
    return Fault("wrong wiring", elements, words)


def _dark(source: random.Random) -> Fault:
    """The light that enters an optical switch at one of its ports goes nowhere."""
    fabric = _build(_OCS)
    own, far, _ = source.choice([x for s in fabric.switches if s.role == "ocs" for x in fabric.neighbours(s.name)])
    return Fault(
        "dark circuit", (f"{far.node}:{far.number}->",), ("dark_rules", own.node, str(own.number)), fabric=_OCS
    )


KINDS: dict[str, Callable[[random.Random], Fault]] = {
    "unshaped link": _unshaped,
    "half-rate link": _half_rate,
    "lossy link": _lossy,
    "CPU hog": _hog,
    "slow rank": _slow_rank,
    "wrong wiring": _wiring,
    "dark circuit": _dark,
}


# -- running --------------------------------------------------------------------------------------------------------


def faults(*, quick: bool) -> list[Figure]:
    """The share of draws in which the first finding is the planted one."""
    seed = int(os.environ.get("BENCH_SEED", "1"))
    kinds = list(KINDS)
    outcomes = [suffer(fault) for fault in draw(kinds, len(kinds) if quick else DRAWS, seed)]
    right = Counter(outcome.fault.kind for outcome in outcomes if outcome.is_right)
    total = Counter(outcome.fault.kind for outcome in outcomes)
    wrong = [f"{' '.join(o.fault.words)} was called {o.said or 'nothing'}" for o in outcomes if not o.is_right]
    note = "; ".join([", ".join(f"{kind} {right[kind]}/{n}" for kind, n in total.items()), f"seed {seed}", *wrong])
    return [figure("faults named first", sum(right.values()) / len(outcomes), "of draws", _RIGHT, note=note)]


def clean(*, quick: bool) -> list[Figure]:
    """Runs without a fault: how many are called anything but ok for a reason that is not there. Who else uses the CPU may be."""
    alarms, others = [], 0
    for _ in range(3 if quick else CLEAN_RUNS):
        with _running(Fault("", (), ())) as (process, folder):
            process.wait(_DEADLINE_S)
            row, kinds = (
                _row(folder),
                [one["kind"] for one in json.loads((folder / "manifest.json").read_text())["findings"]],
            )
        beside = "CPU hog" in kinds or "other labs used" in row["reason"]
        others += beside
        if set(kinds) - {"CPU hog"} or (row["verdict"] != "ok" and not beside):
            alarms.append(f"{row['verdict']}: {row['reason']}")
    note = "; ".join([f"{others} with other processes on the machine, which their reasons name", *alarms])
    return [figure("clean runs, false alarms", len(alarms), "runs", _CLEAN, note=note)]


def suffer(fault: Fault) -> Outcome:
    """One run with one fault."""
    with _running(fault) as (process, folder):
        _await(folder.with_suffix(".err"), "ranks of" if fault.program else _PLANT_AT, process)
        with _plant(fault, process.pid) as planted:
            if fault.kind == "CPU hog":
                assert planted.stdout
                pid = planted.stdout.readline().decode().strip()
                fault = replace(fault, elements=(f"{Path(sys.executable).name[:15]} ({pid})",))
            try:
                process.wait(_DEADLINE_S)
            finally:
                planted.kill()
        if not (folder / "manifest.json").exists():
            print(folder.with_suffix(".err").read_text(), file=sys.stderr)
            return Outcome(fault, "")
        found = json.loads((folder / "manifest.json").read_text())["findings"]
        texts = [f"{one['kind']} {one['element']}: {one['detail']}" for one in found]
        said = texts[0] if texts else ""
        reason = (
            _program(folder)["reason"]
            if fault.program
            else _row(folder)["reason"]
            if (folder / "results.csv").exists()
            else ""
        )
    print(f"{' '.join(fault.words)}: {said} [{reason[:80]}]", file=sys.stderr, flush=True)
    return Outcome(fault, said, texts)


def _options(fault: Fault) -> list[str]:
    common = ["--topology", fault.fabric, "--scale", "1", "--link-rate", f"{_RATE}Mbit"]
    if fault.program:
        return ["exec", *common, "--timeout", "60s"]
    return [*common, "-b", _SIZE, "-e", _SIZE, "-n", "6", "-w", "0"]


@contextmanager
def _running(fault: Fault) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """The run's process and its folder; what it says on standard error is beside that."""
    with tempfile.TemporaryDirectory(prefix="bench-") as parent:
        folder = Path(parent) / "out"
        words = [*_options(fault), "--out", str(folder)]
        if fault.program:
            words += ["--", sys.executable, str(_PROGRAM), "5"]
        with folder.with_suffix(".err").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, str(machine.RUN_TOPO), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
            )
        try:
            yield process, folder
        finally:
            process.terminate()
            process.wait(_DEADLINE_S)


def _plant(fault: Fault, pid: int) -> "subprocess.Popen[bytes]":
    entered = [] if fault.outside else ["nsenter", "-t", str(_lab_of(pid)), "-n", "-p", "-m"]
    return subprocess.Popen([*entered, sys.executable, str(_PLANTING), *fault.words], stdout=subprocess.PIPE)


def _lab_of(pid: int) -> int:
    """The first process of the sandbox that descends from a command."""
    family = set(machine.family(pid))
    return next(made.init_pid for made in sandbox.labs() if made.init_pid in family)


def _await(file: Path, text: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + _DEADLINE_S
    while not re.search(re.escape(text), file.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"bench.py: the run did not come to {text!r}: {file.read_text()[-500:]}")
        time.sleep(0.05)


def _row(folder: Path) -> dict[str, str]:
    with (folder / "results.csv").open(newline="") as text:
        return list(csv.DictReader(text))[-1]


def _program(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / "manifest.json").read_text())["program"]
    return found
