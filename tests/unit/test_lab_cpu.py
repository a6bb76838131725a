"""Whose CPU time it is: by process, by who started it, and through the host's /proc."""

import os
import subprocess
import sys
from pathlib import Path

from lab.measuring import cpu
from lab.measuring.cpu import Accounts, Process, Usage, component, parse

ROLES = {20: cpu.SWITCH, 30: cpu.CONTROLLER, 10: cpu.REPLAY}


def of(**parents: int) -> dict[int, Process]:
    return {int(name[1:]): Process(name, parent, "S", 1.0, 0) for name, parent in parents.items()}


def test_a_line_of_proc_with_a_name_that_has_everything() -> None:
    """proc(5): fields 3, 4, 14, 15 and 22, ticks of 10 ms."""
    line = "42 (a) R (b) S 7 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 123456 1 1"
    assert parse(line) == Process("a) R (b", 7, "S", 300 / os.sysconf("SC_CLK_TCK"), 123456)


def test_what_the_run_starts_are_ranks_and_what_entered_is_a_stranger() -> None:
    """1 is the lab's first process, 10 the run; 41 was started by a rank; 50 came from outside, where its parent is."""
    seen = of(p1=0, p10=1, p20=10, p30=10, p40=10, p41=40, p50=0, p51=50, p21=20)
    found = {pid: component(pid, seen, ROLES) for pid in seen}
    assert found == {
        1: cpu.REPLAY, 10: cpu.REPLAY, 20: cpu.SWITCH, 21: cpu.SWITCH, 30: cpu.CONTROLLER, 40: cpu.RANKS, 41: cpu.RANKS,
        50: cpu.STRANGERS, 51: cpu.STRANGERS,
    }  # fmt: skip


def test_strangers_are_ranked_by_what_they_used_meanwhile() -> None:
    before = Usage({}, {("old", 1): 100.0})
    after = Usage({}, {("old", 1): 100.5, ("new", 2): 3.0})
    assert [(one.name, one.cores) for one in after.strangers_since(before, 2.0)] == [("new", 1.5), ("old", 0.25)]


def test_a_process_that_has_ended_keeps_what_it_had_used() -> None:
    """A child of this one burns a little CPU and ends between two looks."""
    accounts = Accounts({os.getpid(): cpu.REPLAY}, None)
    busy = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout and child.stdin
        child.stdout.readline()
        at_work = accounts.look()
        child.stdin.close()
    assert at_work.by_owner[cpu.RANKS] >= 0.15
    assert accounts.look().by_owner[cpu.RANKS] >= at_work.by_owner[cpu.RANKS]


def test_the_host_is_seen_through_a_descriptor_of_its_proc() -> None:
    """Here the host is this very namespace, whose processes are the lab's own: nobody is a stranger twice."""
    directory = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = Accounts({1: cpu.SWITCH, os.getpid(): cpu.REPLAY}, directory).look()
    finally:
        os.close(directory)
    assert os.getpid() not in {pid for _, pid in found.strangers}
    assert Path("/proc/self/ns/pid").exists() and found.labs_s > 0
