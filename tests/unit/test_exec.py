"""A program of the user's own: what is refused, what each rank finds in its environment, and what its end means."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lab import cli
from lab.commands import launch
from lab.machine import probes, sandbox
from lab.measuring.job import Job, Outcome, Process, mpi_environment, mpi_files, processes, scale_out_network
from lab.measuring.processes import run
from lab.planning.experiment import Experiment, load
from lab.planning.site import Site, site
from tests.emulation.waiting import wait_for

FABRIC = ("--topology", "spine-leaf:spines=1,leaves=2,hosts_per_leaf=2", "--scale", "1", "--link-rate", "20Mbit")
FOLDER = Path("/run/fabric-lab")


def of(topology: str, **settings: str) -> Site:
    return site(load(None, {"topology": topology, **settings}))


# -- refusals -------------------------------------------------------------------------------------------------------


class SandboxMade(Exception):
    """It got as far as its sandbox."""


@pytest.fixture(autouse=True)
def _no_sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def made(*_: object, **__: object) -> int:
        raise SandboxMade

    monkeypatch.setattr(sandbox, "run", made)
    monkeypatch.chdir(tmp_path)


REFUSED = {
    "no program": ([*FABRIC], ["no program", "--"]),
    "nothing behind the dashes": ([*FABRIC, "--"], ["no program"]),
    "a program that is not there": ([*FABRIC, "--", "nosuch-program"], ["'nosuch-program'", "not found", "PATH"]),
    "a path that is not there": ([*FABRIC, "--", "./nosuch"], ["'./nosuch'", "not found"]),
    "a file that is not executable": ([*FABRIC, "--", "./plain"], ["'./plain'", "chmod +x", "python3"]),
    "more ranks than hosts": ([*FABRIC, "--ranks", "5", "--", "true"], ["5 ranks", "4 hosts"]),
    "sizes divided": (["--scale", "8000", "--", "true"], ["--scale 8000:1", "bytes are its own"]),
    "a setting of collectives": ([*FABRIC, "-b", "4M", "--", "true"], ["-b"]),
    "no time": ([*FABRIC, "--timeout", "soon", "--", "true"], ["--timeout", "soon"]),
    "an unknown topology": (["--topology", "nosuch", "--", "true"], ["'nosuch'", "spine-leaf"]),
}


@pytest.mark.parametrize(("arguments", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_in_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]) -> None:
    Path("plain").write_text("print()\n")
    assert cli.main(["exec", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("run_topo.py: ") and said.err.count("\n") == 1
    assert all(word in said.err for word in words), said.err
    assert [p.name for p in Path().iterdir()] == ["plain"]


def test_what_stands_behind_the_dashes_is_the_programs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its options are not read as ours, nor a second `--`."""
    seen: list[Job] = []

    def execute(_: Experiment, job: Job, **__: object) -> int:
        seen.append(job)
        return 0

    monkeypatch.setattr(launch, "execute", execute)
    cli.main(["exec", "--mpi", *FABRIC, "--timeout", "90s", "--", "mpirun", "--json", "-b", "x", "--", "--ranks"])
    assert seen == [Job(("mpirun", "--json", "-b", "x", "--", "--ranks"), mpi=True, timeout_s=90.0)]


def test_without_a_refusal_it_gets_to_its_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the refusals above are what they seem."""
    for check in ("require_root", "require_tools", "require_capabilities"):
        monkeypatch.setattr(probes, check, lambda: None)
    with pytest.raises(SandboxMade):
        cli.main(["exec", *FABRIC, "--", "true"])


# -- what is started --------------------------------------------------------------------------------------------------


def test_every_rank_finds_what_torchrun_would_set() -> None:
    """Addresses by hand: leaves of two hosts have a /30 each, whose first address stays unused."""
    found = processes(Job(("train", "-x")), of("spine-leaf:spines=1,leaves=2,hosts_per_leaf=2"), FOLDER, {"LANG": "C"})
    assert [p.environment for p in found] == [
        {
            "LANG": "C",
            "OMP_NUM_THREADS": "1",
            "RANK": str(rank),
            "WORLD_SIZE": "4",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": "198.18.0.1",
            "MASTER_PORT": "29500",
            "GLOO_SOCKET_IFNAME": f"h{rank + 1}-eth0",
            "NCCL_SOCKET_IFNAME": f"=h{rank + 1}-eth0",
        }
        for rank in range(4)
    ]
    assert [p.label for p in found] == ["[0] ", "[1] ", "[2] ", "[3] "]
    for rank, process in enumerate(found):
        words = list(process.words)
        assert words[words.index("netns") : words.index("netns") + 3] == ["netns", "exec", f"h{rank + 1}"]
        assert words[-2:] == ["train", "-x"]


def test_ranks_follow_their_placement() -> None:
    """Strided: round the two leaves, h1, h3, h2, h4."""
    strided = of("spine-leaf:spines=1,leaves=2,hosts_per_leaf=2", placement="strided")
    found = processes(Job(("x",)), strided, FOLDER, {})
    assert [p.environment["GLOO_SOCKET_IFNAME"] for p in found] == ["h1-eth0", "h3-eth0", "h2-eth0", "h4-eth0"]


def test_the_scale_out_interface_where_there_are_two() -> None:
    rails = of("rail-optimised:servers=2,gpus_per_server=2")
    for process in processes(Job(("x",)), rails, FOLDER, {}):
        link = rails.fabric.link_of(process.environment["GLOO_SOCKET_IFNAME"])
        assert link.kind == "scale-out"


def test_the_users_own_thread_count_stays() -> None:
    (first, *_) = processes(Job(("x",)), of("spine-leaf"), FOLDER, {"OMP_NUM_THREADS": "4", "RANK": "7"})
    assert first.environment["OMP_NUM_THREADS"] == "4"
    assert first.environment["RANK"] == "0"


def test_labels_are_of_one_width() -> None:
    found = processes(Job(("x",)), of("spine-leaf"), FOLDER, {})
    assert [found[0].label, found[15].label] == ["[ 0] ", "[15] "]


def test_mpi_is_one_process_on_the_first_host_with_a_host_list() -> None:
    four = of("spine-leaf:spines=1,leaves=2,hosts_per_leaf=2", ranks="3")
    (launcher,) = processes(Job(("mpirun", "a.out"), mpi=True), four, FOLDER, {})
    assert "h1" in launcher.words and launcher.words[-2:] == ("mpirun", "a.out")
    assert "RANK" not in launcher.environment
    files = mpi_files(four)
    assert files["hosts.openmpi"] == "h1 slots=1\nh2 slots=1\nh3 slots=1\n"
    assert files["hosts.hydra"] == "h1:1\nh2:1\nh3:1\n"
    environment = mpi_environment(four, FOLDER)
    for variable, file in [("OMPI_MCA_orte_default_hostfile", "hosts.openmpi"), ("HYDRA_HOST_FILE", "hosts.hydra")]:
        assert environment[variable] == f"/run/fabric-lab/{file}"
    for variable in ("OMPI_MCA_plm_rsh_agent", "HYDRA_LAUNCHER_EXEC"):
        assert environment[variable] == "/run/fabric-lab/agent"


def test_the_agent_reads_its_arguments_as_ssh_does(tmp_path: Path) -> None:
    """Options, the host, then words that are put together and read again by a shell; `ip` is played by a script."""
    (tmp_path / "ip").write_text('#!/bin/sh\necho "in $3"\nshift 9\nexec "$@"\n')
    agent = tmp_path / "agent"
    agent.write_text(mpi_files(of("spine-leaf"))["agent"])
    for file in (agent, tmp_path / "ip"):
        file.chmod(0o755)
    words = [str(agent), "-x", "-q", "h3", "echo", "'two words'", "$UCX_NET_DEVICES", ";", "exit", "7"]
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(words, env={"PATH": path}, capture_output=True, text=True, timeout=20, check=False)
    assert (done.stdout, done.returncode) == ("in h3\ntwo words h3-eth0\n", 7), done.stderr


def test_the_scale_out_network_holds_no_scale_up_address() -> None:
    rails = of("rail-optimised")
    network = scale_out_network(rails)
    for link in rails.fabric.links:
        for port in link.ports:
            if port.ip:
                inside = int(network.network_address) <= _number(str(port.ip)) <= int(network.broadcast_address)
                assert inside == (link.kind == "scale-out"), port


def _number(ip: str) -> int:
    a, b, c, d = (int(part) for part in ip.split("."))
    return ((a * 256 + b) * 256 + c) * 256 + d


def test_auto_scale_leaves_sizes_alone() -> None:
    """One leaf, two hosts, each sending at 400 Gbit/s through one switch: 2 x 50e9 bytes/s in segments of 9000 - 52, and an
    acknowledgement for every second."""
    load = of("spine-leaf:spines=1,leaves=1,hosts_per_leaf=2").load
    assert load.frame_hops_per_s == pytest.approx(2 * 50e9 / (9000 - 52) * 1.5)
    assert load.traffic_s == 0


# -- how it ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codes", "timed_out", "status"),
    [
        ((0, 0), False, 0),
        ((1, 0, 3), False, 3),
        ((0, None, 2), False, 2),
        ((None, 137), False, 137),
        ((0, None), True, 124),
    ],
)
def test_the_worst_exit_status_counts(codes: tuple[int | None, ...], timed_out: bool, status: int) -> None:
    assert Outcome(codes, 1.0, timed_out).status == status


def ran(*scripts: str, timeout_s: float | None = None) -> Outcome:
    alive, other = os.pipe()
    try:
        started = [Process(("sh", "-c", s), dict(os.environ), f"[{i}] ") for i, s in enumerate(scripts)]
        return run(started, timeout_s=timeout_s, lifeline=alive)
    finally:
        os.close(alive)
        os.close(other)


def test_lines_are_whole_and_labelled(capfd: pytest.CaptureFixture[str]) -> None:
    """A line written in pieces is one line, and the last one needs no end."""
    outcome = ran("printf 'a'; printf 'b\\nc'", "echo d >&2; exit 3")
    said = capfd.readouterr()
    assert said.out == "[0] ab\n[0] c\n"
    assert said.err == "[1] d\n"
    assert outcome.codes == (0, 3)


def test_all_output_of_a_fast_writer_arrives(capfd: pytest.CaptureFixture[str]) -> None:
    """300 kB are several times what a pipe holds."""
    assert ran("seq 50000").codes == (0,)
    assert capfd.readouterr().out == "".join(f"[0] {n}\n" for n in range(1, 50001))


def test_one_that_a_signal_ended_says_so() -> None:
    assert ran("kill -9 $$").codes == (137,)


def test_a_timeout_ends_all_and_what_they_started(tmp_path: Path) -> None:
    outcome = ran(f"sleep 600 & echo $! > {shlex.quote(str(tmp_path))}/pid; wait", "exit 0", timeout_s=0.3)
    assert (outcome.status, outcome.codes) == (124, (None, 0))
    child = int((tmp_path / "pid").read_text())
    wait_for(lambda: not _alive(child), 10, "the end of a rank's child")


def test_after_one_has_failed_the_rest_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is the result, not the signal that followed it."""
    monkeypatch.setattr("lab.measuring.processes._FAILURE_GRACE_S", 0.1)
    assert ran("exit 5", "sleep 600").codes == (5, None)


def test_one_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.measuring.processes._TERM_GRACE_S", 0.1)
    assert ran("trap '' TERM; while :; do sleep 0.05; done", timeout_s=0.2).status == 124


def test_nothing_is_left_when_the_network_is_gone(tmp_path: Path) -> None:
    lifeline, other = os.pipe()
    os.close(other)
    words = (
        sys.executable,
        "-c",
        f"import os,time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)",
    )
    with pytest.raises(RuntimeError, match="network is gone"):
        run([Process(words, dict(os.environ), "")], timeout_s=None, lifeline=lifeline)
    os.close(lifeline)
    file = tmp_path / "pid"
    assert not file.exists() or not file.read_text() or not _alive(int(file.read_text()))


def _alive(pid: int) -> bool:
    """Running; one that has ended and whom nobody has reaped is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
