"""Programs of a user's own on the hosts: who they are, what they move, and how they end. MPI and PyTorch where they are."""

import csv
import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.emulation.commands import ROOT, fabric, host_state, of_lab, run_topo, started
from tests.emulation.waiting import wait_for

FOUR = fabric(hosts_per_leaf=2)
EXAMPLES = ROOT / "examples"
PYTHON = "/usr/bin/python3"
# Every rank sends its part to every other through rank 0, with what a launcher sets and the standard library alone.
ALL_GATHER = """
import os, socket
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
at = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
part = bytes([rank]) * {n_bytes}
def read(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(1 << 20)
        assert more
        data += more
    return data
if rank == 0:
    parts, callers = {{0: part}}, []
    with socket.create_server(at) as server:
        for _ in range(ranks - 1):
            callers.append(server.accept()[0])
    for s in callers:
        data = read(s, {n_bytes})
        parts[data[0]] = data
    whole = b"".join(parts[r] for r in range(ranks))
    for s in callers:
        s.sendall(whole)
else:
    import time
    end = time.monotonic() + 30
    while True:
        try:
            s = socket.create_connection(at)
            break
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.05)
    s.sendall(part)
    whole = read(s, ranks * {n_bytes})
assert whole == b"".join(bytes([r]) * {n_bytes} for r in range(ranks))
print("rank", rank, "on", socket.gethostname(), "has", len(whole))
"""


def program(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    assert document["complete"]
    found: dict[str, Any] = document["program"]
    return found


def links(folder: Path) -> dict[str, int]:
    with (folder / "links.csv").open(newline="") as text:
        return {row["link"]: int(row["bytes_sent"]) for row in csv.DictReader(text)}


def test_ranks_find_each_other_and_the_counters_saw_it(tmp_path: Path) -> None:
    """Of four ranks three send 1 MB to rank 0 and receive 4 MB from it. A full frame has 8948 bytes of payload and 66 of
    headers (Ethernet, IP, TCP with timestamps); acknowledgements are within the tolerance."""
    n = 1_000_000
    done = run_topo("exec", *FOUR, "--out", "out", "--", PYTHON, "-c", ALL_GATHER.format(n_bytes=n), cwd=tmp_path)
    assert done.status in (0, 1), done.err
    assert sorted(done.out.splitlines()) == [f"[{r}] rank {r} on h{r + 1} has {4 * n}" for r in range(4)]
    framed = 9014 / 8948
    sent = links(tmp_path / "out")
    assert sent["leaf1->h1"] == pytest.approx(3 * n * framed, rel=0.05)
    assert sent["h1->leaf1"] == pytest.approx(12 * n * framed, rel=0.05)
    assert sent["leaf1->spine1"] == pytest.approx(8 * n * framed, rel=0.05)
    assert sent["leaf2->spine1"] == pytest.approx(2 * n * framed, rel=0.05)
    found = program(tmp_path / "out")
    assert found["exit_codes"] == [0, 0, 0, 0]
    assert found["bytes_sent"] == pytest.approx(15 * n * framed, rel=0.05)
    # 12 MB at 20 Mbit/s.
    assert found["wall_s"] > 4.8
    assert found["verdict"] in done.err
    assert (tmp_path / "out" / "links.parquet").exists()


def test_the_worst_exit_status_is_returned(tmp_path: Path) -> None:
    script = "echo to stderr >&2; pwd; cat; exit $RANK"
    done = run_topo("exec", *FOUR, "--out", "out", "--", "sh", "-c", script, cwd=tmp_path)
    assert done.status == 3, done.err
    assert sorted(done.out.splitlines()) == [f"[{r}] {tmp_path}" for r in range(4)]
    assert all(f"[{r}] to stderr\n" in done.err for r in range(4))
    assert program(tmp_path / "out")["exit_codes"] == [0, 1, 2, 3]


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, 137)])
def test_a_signal_leaves_nothing(tmp_path: Path, signum: int, status: int) -> None:
    before = host_state()
    with started(
        "exec", *FOUR, "--out", "out", "--", "sh", "-c", "echo up; sleep 600 & sleep 600", cwd=tmp_path
    ) as command:
        command.says("[3] up")
        members = of_lab(command.lab)
        assert len(members) > 8
        command.send(signum)
        assert command.ended().status == status
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in members), 20, "the end of every process")
    wait_for(lambda: host_state() == before, 20, "the machine as it was")
    if signum != signal.SIGKILL:
        assert json.loads((tmp_path / "out" / "manifest.json").read_text())["complete"] is False


def test_time_that_is_up(tmp_path: Path) -> None:
    done = run_topo("exec", *FOUR, "--timeout", "1s", "--out", "out", "--", "sleep", "600", cwd=tmp_path)
    assert done.status == 124
    assert program(tmp_path / "out")["timed_out"]


def test_hosts_have_names(tmp_path: Path) -> None:
    done = run_topo("exec", *FOUR, "--out", "out", "--", "getent", "hosts", "h3", cwd=tmp_path)
    assert {line.split()[1] for line in done.out.splitlines()} == {"198.18.0.5"}


# -- MPI ----------------------------------------------------------------------------------------------------------------

MPI = {
    "Open MPI": ("mpicc.openmpi", "mpirun.openmpi", "openmpi-bin libopenmpi-dev"),
    "MPICH": ("mpicc.mpich", "mpirun.mpich", "mpich libmpich-dev"),
}


def compiled(implementation: str, folder: Path) -> tuple[str, str]:
    """(launcher, the all-reduce example compiled for it); skips where it is not installed."""
    compiler, launcher, packages = MPI[implementation]
    if not shutil.which(compiler) or not shutil.which(launcher):
        pytest.skip(f"{implementation} missing: apt-get install {packages}")
    made = folder / "allreduce"
    done = subprocess.run(
        [compiler, str(EXAMPLES / "allreduce.c"), "-Wall", "-Werror", "-o", str(made)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if "mpi.h" in done.stderr:
        pytest.skip(f"{implementation}'s headers missing: apt-get install {packages}")
    assert done.returncode == 0, done.stderr
    return launcher, str(made)


@pytest.mark.slow
@pytest.mark.parametrize("implementation", MPI)
def test_an_all_reduce_by_mpi(tmp_path: Path, implementation: str) -> None:
    """Nothing is shared but the links: no all-reduce moves less than 2 (n-1) / n of its bytes in and out of a host.

    Debian 12's MPICH (4.0.2, UCX 1.13) waits in MPI_Finalize for ever once UCX is held to TCP: its result is what counts.
    """
    launcher, made = compiled(implementation, tmp_path)
    n, repetitions = 400_000, 1
    words = ("--", launcher, made, str(n), str(repetitions))
    done = run_topo("exec", *FOUR, "--mpi", "--timeout", "40s", "--out", "out", *words, cwd=tmp_path)
    assert f"{n} bytes, 4 ranks:" in done.out, done.err
    assert done.status in ((0, 1, 124) if implementation == "MPICH" else (0, 1)), done.err
    least = (1 + repetitions) * n * 2 * 3 / 4
    sent = links(tmp_path / "out")
    assert all(sent[f"{leaf}->{host}"] >= least for leaf, host in [("leaf1", "h1"), ("leaf1", "h2"), ("leaf2", "h3")])


def test_mpis_exit_status_is_ours(tmp_path: Path) -> None:
    if not shutil.which("mpirun.openmpi"):
        pytest.skip(f"Open MPI missing: apt-get install {MPI['Open MPI'][2]}")
    script = "echo $OMPI_COMM_WORLD_RANK on $(hostname); exit 7"
    done = run_topo(
        "exec",
        *FOUR,
        "--mpi",
        "--timeout",
        "60s",
        "--out",
        "out",
        "--",
        "mpirun.openmpi",
        "sh",
        "-c",
        script,
        cwd=tmp_path,
    )
    assert done.status == 7, done.err
    assert " on h" in done.out


# -- PyTorch ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_all_reduce_by_pytorch(tmp_path: Path) -> None:
    """gloo's, over what GLOO_SOCKET_IFNAME names."""
    if subprocess.run(
        [PYTHON, "-c", "import torch.distributed"], capture_output=True, timeout=60, check=False
    ).returncode:
        pytest.skip(f"PyTorch missing for {PYTHON}: apt-get install --no-install-recommends python3-torch (640 MB)")
    n = 400_000
    script = str(EXAMPLES / "allreduce_torch.py")
    done = run_topo("exec", *FOUR, "--timeout", "80s", "--out", "out", "--", PYTHON, script, str(n), cwd=tmp_path)
    assert f"[0] {n} bytes, 4 ranks:" in done.out, done.err
    assert done.status in (0, 1), done.err
    least = 2 * n * 2 * 3 / 4
    sent = links(tmp_path / "out")
    assert all(sent[f"{leaf}->{host}"] >= least for leaf, host in [("leaf1", "h1"), ("leaf1", "h2"), ("leaf2", "h3")])
