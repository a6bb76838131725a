"""A large fabric up and down, against stock Mininet; the memory it takes; and whether a run's size stays the same."""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import IO, Any

from benchmarks import machine
from benchmarks.figure import Figure, Target, figure, joined
from lab import run as the_run
from lab.bringup import lab_up
from lab.experiment import load
from lab.forecast import forecast_of
from lab.plan import plan
from lab.progress import Progress
from lab.sandbox import OVS_RUN_DIR
from lab.scale import Scale
from topologies import ovs_daemons
from topologies.fabric import Fabric
from topologies.spine_leaf import SpineLeaf

_SPINES, _LEAVES, _HOSTS_PER_LEAF, _QUICK_LEAVES = 16, 32, 16, 4
_RATE_MBPS = 50
_FASTER = Target("ratio", low=15)
_TEARDOWN = Target("ours", high=3)
_MEMORY_GIB = Target("ours", high=3)
_START_DEADLINE_S, _END_DEADLINE_S = 120.0, 60.0
# How long the ranks send before the lab is weighed.
_LOAD_S = 3.0


def bringup(*, quick: bool) -> list[Figure]:
    """Ours before stock Mininet and twice after it, so that what changes on the machine meanwhile shows."""
    spec = SpineLeaf(_SPINES, _QUICK_LEAVES if quick else _LEAVES, _HOSTS_PER_LEAF)
    fabric = spec.build().with_links(rate_mbps=_RATE_MBPS)
    size = f"{len(fabric.hosts)} hosts, {len(fabric.switches)} switches, {len(fabric.links)} links"
    ours = [_ours_up_s(fabric)]
    life = _life_of_a_run(spec)
    stock = machine.inside(lambda: _stock(fabric), f"stock Mininet, {size}")
    ours += [_ours_up_s(fabric), _ours_up_s(fabric)]
    median = statistics.median(ours)
    gib = 1 << 30
    return [
        figure(
            "bring-up", median, "s", _FASTER, peer=stock["up_s"], ratio=stock["up_s"] / median,
            note=f"{size}; ours with controller and rules: {ours[0]:.1f} s before the peer, {ours[1]:.1f} and "
            f"{ours[2]:.1f} s after; peer: stock Mininet without a controller",
        ),
        figure(
            "teardown", life["down_s"], "s", _TEARDOWN, peer=stock["down_s"], ratio=life["down_s"] / stock["down_s"],
            note=joined(f"from SIGTERM until no process is left, status {life['status']}", str(life["left"])),
        ),
        figure(
            "memory", life["pss"] / gib, "GiB", _MEMORY_GIB, peer=stock["pss"] / gib,
            note=f"PSS under traffic, RSS {life['rss'] / gib:.2f} GiB; peer: stock Mininet, idle, no controller, "
            f"RSS {stock['rss'] / gib:.2f} GiB",
        ),
    ]  # fmt: skip


def _ours_up_s(fabric: Fabric) -> float:
    """From an empty sandbox to rules confirmed by every switch."""

    def job() -> dict[str, Any]:
        began = time.monotonic()
        with lab_up(fabric, policy="ecmp", mtu=9000, progress=Progress(quiet=True)):
            return {"up_s": time.monotonic() - began}

    return float(machine.inside(job, fabric.name)["up_s"])


def _stock(fabric: Fabric) -> dict[str, Any]:
    """The same fabric as Mininet's own classes make it; runs inside a sandbox."""
    from mininet.link import TCLink
    from mininet.log import setLogLevel
    from mininet.net import Mininet
    from mininet.node import OVSSwitch

    # Its constructor would write sysctls of the whole machine; what they are for, enough open files, is done here.
    Mininet.inited = True
    # Each of its links makes the kernel warn of HTB's quantum.
    setLogLevel("critical")
    ovs_daemons.raise_open_file_limit()
    began = time.monotonic()
    ovs_daemons.start_daemons(OVS_RUN_DIR)
    switch = partial(OVSSwitch, datapath="user", failMode="secure")
    net = Mininet(switch=switch, link=partial(TCLink, bw=_RATE_MBPS), controller=None, autoStaticArp=False)
    numbers = {s.name: f"s{i + 1}" for i, s in enumerate(fabric.switches)}
    for host in fabric.hosts:
        net.addHost(host.name)
    for name in numbers.values():
        net.addSwitch(name)
    for link in fabric.links:
        net.addLink(numbers.get(link.a.node, link.a.node), numbers.get(link.b.node, link.b.node))
    net.start()
    up_s = time.monotonic() - began
    pss, rss = machine.memory_bytes(machine.all_pids())
    began = time.monotonic()
    net.stop()
    return {"up_s": up_s, "down_s": time.monotonic() - began, "pss": pss, "rss": rss}


def _life_of_a_run(spec: SpineLeaf) -> dict[str, Any]:
    """run_topo.py with a rank on every host: weighed while they send, then asked to end."""
    topology = f"spine-leaf:spines={spec.spines},leaves={spec.leaves},hosts_per_leaf={spec.hosts_per_leaf}"
    arguments = ("--topology", topology, "--link-rate", f"{_RATE_MBPS}Mbit", "--scale", 1, "-b", "1M", "-e", "1M")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        process = machine.start(*arguments, "-n", 1000, "--out", folder, python=sys.executable)
        try:
            _await_traffic(process)
            time.sleep(_LOAD_S)
            pids = machine.family(process.pid)
            held = machine.namespaces(pids) - machine.namespaces([os.getpid()])
            pss, rss = machine.memory_bytes(pids)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            process.wait(_END_DEADLINE_S)
            left = _left(pids, held)
            while left and time.monotonic() < began + _END_DEADLINE_S:
                time.sleep(0.01)
                left = _left(pids, held)
            down_s = time.monotonic() - began
        finally:
            machine.end(process)
    return {"pss": pss, "rss": rss, "down_s": down_s, "status": process.returncode, "left": left}


def _await_traffic(process: "subprocess.Popen[str]") -> None:
    """Read the command's progress until the first iteration; what follows is read too, so that its pipe never fills."""
    assert process.stderr is not None
    timer = threading.Timer(_START_DEADLINE_S, process.terminate)
    timer.start()
    said = ""
    try:
        for said in process.stderr:
            if "warm-up" in said:
                threading.Thread(target=_drain, args=(process.stderr,), daemon=True).start()
                return
    finally:
        timer.cancel()
    raise SystemExit(f"bench.py: run_topo.py sent nothing within {_START_DEADLINE_S:g} s: {said}")


def _drain(stream: IO[str]) -> None:
    for _ in stream:
        pass


def _left(pids: list[int], held: set[str]) -> str:
    """Which of the lab's processes, and of its namespaces, are still there; '' = none."""
    alive = sum(Path(f"/proc/{pid}").exists() for pid in pids)
    kept = held & machine.namespaces(machine.all_pids())
    return f"left: {alive} processes, {len(kept)} namespaces" if alive or kept else ""


# -- steady -----------------------------------------------------------------------------------------------------------

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
            the_run.run(expected, Scale(), folder=Path(folder), as_json=True, progress=counting)
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
