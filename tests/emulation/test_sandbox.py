"""However a run ends, the machine is afterwards as it was before; and runs do not see each other."""

import json
import os
import random
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.emulation.commands import Started, comm, fabric, host_state, of_lab, run_topo, sizes, started
from tests.emulation.test_run import complete, finished, rows
from tests.emulation.waiting import wait_for

# About 0.2 s an iteration: long enough to be interrupted anywhere.
LONG = (*fabric(spines=2), *sizes("500K", iterations=400))


def processes_of(run: Started) -> list[int]:
    """Of this run alone, whatever else is on the machine: the command, its keeper and everything in the sandbox."""
    lab = run.lab
    return [run.process.pid, run.keeper, *of_lab(lab)]


def alive(pids: list[int]) -> list[str]:
    """Dead ones that their parent has not yet reaped do not count: nothing of them is left but a number."""
    return [f"{pid} {comm(pid)}" for pid in pids if _state(pid) not in "ZX"]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def assert_untouched(before: dict[str, Any], pids: list[int]) -> None:
    wait_for(lambda: not alive(pids), 15, lambda: f"the end of {alive(pids)}")
    now = host_state()
    assert {what: (before[what], now[what]) for what in now if now[what] != before[what]} == {}


def test_a_run_leaves_the_machine_as_it_was(tmp_path: Path) -> None:
    before = host_state()
    with started(*fabric(spines=2), *sizes("64K"), "--out", "out", cwd=tmp_path) as run:
        run.says("waiting for the switches' rules")
        pids = processes_of(run)
        assert len(pids) >= 6, "command, keeper, init, job, database and switch"
        # Seen while it is up: nothing of it is on the host's side.
        during = host_state()
        done = run.ended()
    assert {what for what in during if during[what] != before[what]} == set()
    finished(done, tmp_path / "out")
    assert_untouched(before, pids)


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_an_interrupted_run_keeps_what_it_has(tmp_path: Path, signum: int, status: int) -> None:
    before = host_state()
    with started(*LONG, "--out", "out", cwd=tmp_path) as run:
        run.says("iteration 3/400")
        pids = processes_of(run)
        run.send(signum)
        done = run.ended(30)
    assert done.status == status, done.err
    assert "Traceback" not in done.err
    assert "interrupted: 1 rows kept" in done.err
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["complete"] is False
    (row,) = rows(tmp_path / "out")
    assert 2 <= int(row["iterations"]) < 400 and row["wrong"] == "0"
    assert row["verdict"] != "ok" and f"interrupted: {row['iterations']} of 400 iterations" in row["reason"]
    assert_untouched(before, pids)


@pytest.mark.parametrize("when", ["starting Open vSwitch", "waiting for the switches' rules", "warm-up"])
def test_interrupted_before_the_first_row(tmp_path: Path, when: str) -> None:
    before = host_state()
    with started(*fabric(spines=2), *sizes("2M", warmup=1), "--out", "out", cwd=tmp_path) as run:
        run.says(when)
        pids = processes_of(run)
        run.send(signal.SIGINT)
        done = run.ended(30)
    assert (done.status, "Traceback" in done.err) == (130, False), done.err
    assert "interrupted: 0 rows kept" in done.err
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["complete"] is False
    assert rows(tmp_path / "out") == []
    assert_untouched(before, pids)


def test_ctrl_c_twice_is_no_accident(tmp_path: Path) -> None:
    before = host_state()
    with started(*LONG, "--out", "out", cwd=tmp_path) as run:
        run.says("iteration 2/400")
        pids = processes_of(run)
        run.send(signal.SIGINT)
        run.send(signal.SIGINT)
        done = run.ended(30)
    assert (done.status, "Traceback" in done.err) == (130, False), done.err
    assert_untouched(before, pids)


@pytest.mark.parametrize("victim", ["command", "keeper", "init"])
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_any_moment_nothing_is_left(tmp_path: Path, victim: str, seed: int) -> None:
    """The kernel cleans up: nobody else is left to. The moment is random, the seed fixed."""
    before = host_state()
    after_s = random.Random(f"{victim} {seed}").uniform(0, 3)
    with started(*LONG, "--out", "out", cwd=tmp_path) as run:
        pid = {"command": run.process.pid, "keeper": run.keeper, "init": run.lab}[victim]
        wait_until = time.monotonic() + after_s
        wait_for(lambda: time.monotonic() > wait_until, after_s + 5, "the moment")
        pids = processes_of(run)
        os.kill(pid, signal.SIGKILL)
        done = run.ended(30)
    assert done.status == 137
    assert_untouched(before, pids)
    assert "Traceback" not in done.err


def test_a_run_that_is_killed_says_so(tmp_path: Path) -> None:
    """As the kernel does when memory runs out; its PID 1 is left to tell."""
    before = host_state()
    with started(*LONG, "--out", "out", cwd=tmp_path) as run:
        run.says("iteration 1/400")
        pids = processes_of(run)
        (job,) = (pid for pid in pids if comm(pid) == "fabric-lab-job")
        os.kill(job, signal.SIGKILL)
        done = run.ended(30)
    assert done.status == 3
    assert "failed and cleaned up: the run itself was ended by SIGKILL" in done.err
    assert_untouched(before, pids)


def test_two_runs_side_by_side(tmp_path: Path) -> None:
    before = host_state()
    with ExitStack() as stack:
        both = [
            stack.enter_context(started(*fabric(spines=2), *sizes("300K", 3), "--out", name, cwd=tmp_path))
            for name in ("a", "b")
        ]
        pids = [pid for run in both for pid in processes_of(run)]
        listed = run_topo("ps", cwd=tmp_path).out
        assert all(str(run.lab) in listed for run in both)
        ambiguous = run_topo("stop", cwd=tmp_path)
        assert ambiguous.status == 2 and all(str(run.lab) in ambiguous.err for run in both)
        done = [run.ended(90) for run in both]
    for name, one in zip(("a", "b"), done, strict=True):
        complete(tmp_path / name)
        finished(one, tmp_path / name)
    assert_untouched(before, pids)


def test_runs_follow_each_other_at_once(tmp_path: Path) -> None:
    """No port, name or lock of the one before is in the way."""
    for i in range(2):
        done = run_topo(*fabric(), *sizes("32K"), "--out", f"out{i}", cwd=tmp_path)
        finished(done, tmp_path / f"out{i}")


def test_stop_ends_a_run_that_keeps_its_rows(tmp_path: Path) -> None:
    with started(*LONG, "--out", "out", cwd=tmp_path) as run:
        run.says("iteration 2/400")
        stopped = run_topo("stop", str(run.lab), cwd=tmp_path)
        assert stopped.status == 0, stopped.err
        done = run.ended(30)
    assert done.status == 143
    assert len(rows(tmp_path / "out")) == 1


def test_a_published_port_is_closed_with_its_run(tmp_path: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with started(*LONG, "--publish", str(port), "--out", "out", cwd=tmp_path) as run:
        run.says("iteration 1/400")
        with socket.create_connection(("127.0.0.1", port), 5) as s:
            s.sendall(b"GET /status HTTP/1.0\r\n\r\n")
            assert s.recv(4096).startswith(b"HTTP/1.1 200")
        run.send(signal.SIGTERM)
        run.ended(30)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)


def test_measuring_the_budget_can_be_interrupted(tmp_path: Path) -> None:
    before = host_state()
    with started("doctor", "--again", cwd=tmp_path) as run:
        run.says("measuring what 1 switch in a row")
        run.send(signal.SIGINT)
        done = run.ended(30)
    assert (done.status, "Traceback" in done.err) == (130, False), done.err
    assert host_state() == before
