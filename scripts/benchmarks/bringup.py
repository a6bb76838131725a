"""Fabrics up and down, and the memory they take, against stock Mininet."""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any

from benchmarks import machine
from benchmarks.figure import Figure, Target, figure, joined
from benchmarks.networks import ours_s, stock
from topologies import Fabric, topology
from topologies.spine_leaf import SpineLeaf

_SPINES, _LEAVES, _HOSTS_PER_LEAF, _QUICK_LEAVES = 16, 32, 16, 4
_RATE_MBPS = 50
_FASTER = Target("ratio", low=15)
_TEARDOWN = Target("ours", high=3)
_MEMORY_GIB = Target("ours", high=3)
_START_DEADLINE_S, _END_DEADLINE_S = 120.0, 60.0
_COMMAND = Target("ours", high=10)
_BUILT_FASTER = Target("ratio", low=10)
# A run with a rank on every host, until it is ended.
_SENDING = ("--link-rate", f"{_RATE_MBPS}Mbit", "--scale", 1, "-b", "1M", "-e", "1M", "-n", 1000)
# How long the ranks send before the lab is weighed.
_LOAD_S = 3.0


def bringup(*, quick: bool) -> list[Figure]:
    """Ours before stock Mininet and twice after it, so that what changes on the machine meanwhile shows."""
    spec = SpineLeaf(_SPINES, _QUICK_LEAVES if quick else _LEAVES, _HOSTS_PER_LEAF)
    fabric = spec.build().with_links(rate_mbps=_RATE_MBPS)
    size = _size(fabric)
    ours = [ours_s(fabric)["up"]]
    life = _life_of_a_run(spec)
    peer = stock(fabric, _RATE_MBPS)
    ours += [ours_s(fabric)["up"], ours_s(fabric)["up"]]
    median = statistics.median(ours)
    gib = 1 << 30
    return [
        figure(
            "bring-up", median, "s", _FASTER, peer=peer["up_s"], ratio=peer["up_s"] / median,
            note=f"{size}; ours with controller and rules: {ours[0]:.1f} s before the peer, {ours[1]:.1f} and "
            f"{ours[2]:.1f} s after; peer: stock Mininet without a controller",
        ),
        figure(
            "teardown", life["down_s"], "s", _TEARDOWN, peer=peer["down_s"], ratio=life["down_s"] / peer["down_s"],
            note=joined(f"from SIGTERM until no process is left, status {life['status']}", str(life["left"])),
        ),
        figure(
            "memory", life["pss"] / gib, "GiB", _MEMORY_GIB, peer=peer["pss"] / gib,
            note=f"PSS under traffic, RSS {life['rss'] / gib:.2f} GiB; peer: stock Mininet, idle, no controller, "
            f"RSS {peer['rss'] / gib:.2f} GiB",
        ),
    ]  # fmt: skip


def dragonfly(*, quick: bool) -> list[Figure]:
    """From the command to confirmed rules; and its links alone, before and after stock Mininet builds the same."""
    name = "dragonfly:g=3" if quick else "dragonfly"
    fabric = topology(name).build().with_links(rate_mbps=_RATE_MBPS)
    command_s = _command_s(name)
    ours = [ours_s(fabric)["built"]]
    peer = stock(fabric, _RATE_MBPS)
    ours += [ours_s(fabric)["built"], ours_s(fabric)["built"]]
    median = statistics.median(ours)
    return [
        figure(
            "dragonfly, from command", command_s, "s", _COMMAND,
            note=f"{_size(fabric)}; run_topo.py until its first message, a moment after all rules are confirmed",
        ),
        figure(
            "dragonfly, built", median, "s", _BUILT_FASTER, peer=peer["up_s"], ratio=peer["up_s"] / median,
            note=f"shaped and audited, no controller on either side; ours: {ours[0]:.2f} s before the peer, {ours[1]:.2f} and "
            f"{ours[2]:.2f} s after; peer: stock Mininet",
        ),
    ]  # fmt: skip


def _size(fabric: Fabric) -> str:
    return f"{len(fabric.hosts)} hosts, {len(fabric.switches)} switches, {len(fabric.links)} links"


def _command_s(name: str) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        began = time.monotonic()
        process = machine.start("--topology", name, *_SENDING, "--out", folder, python=sys.executable)
        try:
            _await_traffic(process)
            return time.monotonic() - began
        finally:
            machine.end(process)


def _life_of_a_run(spec: SpineLeaf) -> dict[str, Any]:
    """run_topo.py with a rank on every host: weighed while they send, then asked to end."""
    name = f"spine-leaf:spines={spec.spines},leaves={spec.leaves},hosts_per_leaf={spec.hosts_per_leaf}"
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        process = machine.start("--topology", name, *_SENDING, "--out", folder, python=sys.executable)
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
