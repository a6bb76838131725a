"""Faults planted from outside while a run is going: no such row may pass as `ok`, and its reason names the fault.

A busy machine adds reasons of its own, which is right; what is asserted is that the planted fault's is there.
"""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.faults import KINDS, draw, suffer
from tests.emulation.commands import Started, fabric, inside, of_lab, sizes, started
from tests.emulation.test_run import rows
from tests.emulation.waiting import wait_for

FABRIC = fabric(spines=2, hosts_per_leaf=2)
# Ten iterations of 0.3 s; the fault comes after the second.
TEN = sizes("500K", iterations=10)
MESSAGE = re.compile(
    r"wrong wiring|(?:unshaped|slow|fast|misshaped|lossy) link|link down|dark circuit|slow rank|"
    r"bytes where the schedule sends|stood still|was stopped|inside Open vSwitch|outside the fabric"
)


def faulty(tmp_path: Path, plant: Callable[[Started], None]) -> dict[str, str]:
    """The row of a run into which `plant` put a fault."""
    with started(*FABRIC, *TEN, "--out", "out", cwd=tmp_path) as run:
        run.says("iteration 3/10")
        plant(run)
        done = run.ended(60)
    assert done.status in (0, 1), done.err
    (row,) = rows(tmp_path / "out")
    print(f"{row['verdict']}: {row['reason']} [bottleneck {row['bottleneck']}]")
    assert row["wrong"] == "0"
    return row


def switch_ports(lab: int) -> list[str]:
    return sorted(re.findall(r"\b((?:leaf|spine)\d+-eth\d+)", inside(lab, "cat /proc/net/dev")))


def process(lab: int, program: str) -> int:
    """The one whose command line names the program."""
    (found,) = [p for p in of_lab(lab) if program in Path(f"/proc/{p}/cmdline").read_text().split("\0")]
    return found


def standstill_s(folder: Path) -> float:
    """How long the run went on after the last byte that a switch sent."""
    links = pd.read_parquet(folder / "links.parquet")
    sent = links[links["link"].str.match("leaf|spine")].groupby("at_s")["bytes_sent"].sum()
    return float(sent.index[-1] - sent.index[sent.diff() > 0][-1])


@pytest.mark.parametrize("seed", [1, 2])
def test_a_link_that_lost_its_shaping(tmp_path: Path, seed: int) -> None:
    port = ""

    def plant(run: Started) -> None:
        nonlocal port
        port = random.Random(seed).choice(switch_ports(run.lab))
        inside(run.lab, f"tc qdisc del dev {port} root")

    row = faulty(tmp_path, plant)
    assert row["verdict"] == "invalid"
    assert row["reason"].startswith("unshaped link ")
    assert f" ({port}): qdisc should be htb at 20 Mbit/s, is" in row["reason"].partition(";")[0]


def test_a_host_s_link_that_lost_its_shaping(tmp_path: Path) -> None:
    row = faulty(tmp_path, lambda run: void(inside(run.lab, "tc qdisc del dev h2-eth0 root", net="h2")))
    assert row["verdict"] == "invalid"
    assert row["reason"].startswith("unshaped link h2->leaf1 (h2-eth0): qdisc")


def test_a_link_at_half_its_rate(tmp_path: Path) -> None:
    change = "tc class change dev leaf1-eth1 parent 5: classid 5:1 htb rate 10mbit burst 9064 cburst 9064 quantum 9014"
    row = faulty(tmp_path, lambda run: void(inside(run.lab, change)))
    assert row["verdict"] == "invalid"
    assert row["reason"].startswith("slow link leaf1->h1 (leaf1-eth1): rate should be 20 Mbit/s, is 10 Mbit/s")


def test_a_switch_that_stops_for_a_second(tmp_path: Path) -> None:
    def plant(run: Started) -> None:
        switch = process(run.lab, "ovs-vswitchd")
        os.kill(switch, signal.SIGSTOP)
        try:
            over = time.monotonic() + 1.2
            wait_for(lambda: time.monotonic() > over, 5, "a second")
        finally:
            os.kill(switch, signal.SIGCONT)

    row = faulty(tmp_path, plant)
    assert row["verdict"] == "invalid"
    found = re.search(r"the switch process was stopped for ([\d.]+) s", row["reason"])
    assert found and 0.5 < float(found[1]) < 5, row["reason"]
    assert "the fabric stood still for" in row["reason"]


def test_a_process_that_hogs_a_core(tmp_path: Path) -> None:
    hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        row = faulty(tmp_path, lambda _: None)
    finally:
        hog.kill()
        hog.wait()
    assert row["verdict"] != "ok"
    # Where other labs leave it next to nothing, they are the ones to name.
    named = r"^CPU hog .*other processes used \d+\.\d cores: \S+ \(\d+\)"
    assert re.search(rf"{named}|other labs used \d+\.\d cores", row["reason"]), row["reason"]


def test_a_fabric_faster_than_the_machine(tmp_path: Path) -> None:
    """16 hosts at 25 Gbit/s are more than one thread can switch, whatever the machine: 50 GB/s would have to pass it."""
    topology = ("--topology", "spine-leaf:spines=2,leaves=4,hosts_per_leaf=4", "--scale", "1", "--link-rate", "25Gbit")
    with started(*topology, *sizes("32M", iterations=2), "--out", "out", cwd=tmp_path) as run:
        assert run.ended(90).status == 1
    (row,) = rows(tmp_path / "out")
    assert row["verdict"] == "invalid" and row["wrong"] == "0"
    assert re.search(r"CPU-limited: frames waited \d+ frame times for the switch thread", row["reason"]), row["reason"]


@pytest.mark.parametrize("program", ["ovs-vswitchd", "ovsdb-server"])
def test_a_switch_or_its_database_that_dies_fails_the_run_and_says_so(tmp_path: Path, program: str) -> None:
    with started(*FABRIC, *TEN, "--out", "out", cwd=tmp_path) as run:
        run.says("iteration 3/10")
        os.kill(process(run.lab, program), signal.SIGKILL)
        done = run.ended(10)
    assert done.status == 3
    assert f"failed and cleaned up: Open vSwitch ended ({program}, status -9)" in done.err, done.err
    assert "Traceback" not in done.err
    (row,) = rows(tmp_path / "out")
    assert row["verdict"] != "ok"
    assert standstill_s(tmp_path / "out") < 1


def test_a_controller_that_dies_is_named(tmp_path: Path) -> None:
    row = faulty(tmp_path, lambda run: os.kill(process(run.lab, "controller"), signal.SIGKILL))
    assert row["verdict"] != "ok"
    assert "the controller ended with status -9" in row["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_another_process_planted_at_random_is_named(kind: str) -> None:
    """Before everything but what the machine's other users do, which is not planted but may be there."""
    (fault,) = draw([kind], 1, random.SystemRandom().randrange(1 << 30))
    outcome = suffer(fault)
    said = next((text for text in outcome.all if text.startswith(fault.kind)), "")
    assert replace(outcome, said=said).is_right, outcome.all
    before = outcome.all[: outcome.all.index(said)]
    assert all(text.startswith("CPU hog") for text in before), outcome.all


def test_a_clean_run_raises_no_false_alarm(tmp_path: Path) -> None:
    """Of shaping, counting, loss and standstill; that a neighbour uses the CPU may well be true."""
    false = []
    for name in ("a", "b"):
        with started(*FABRIC, *sizes("500K", iterations=4), "--out", name, cwd=tmp_path) as run:
            run.ended(60)
        (row,) = rows(tmp_path / name)
        print(f"{row['verdict']}: {row['reason']}")
        assert row["wrong"] == "0"
        false += MESSAGE.findall(row["reason"])
    assert false == []


def void(_: object) -> None:
    pass
