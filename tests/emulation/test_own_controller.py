"""Controllers of a user's own, as docs/own-controller.md starts them: every host reaches every other, and a run counts right."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.emulation.commands import ROOT, fabric, run_topo, sizes
from tests.emulation.test_run import rows
from tests.emulation.waiting import wait_for

FABRIC = fabric(spines=2, hosts_per_leaf=2)
# os-ken is not among the project's dependencies: an environment that has it may be named.
OS_KEN_PYTHON = os.environ.get("OS_KEN_PYTHON", sys.executable)


@contextmanager
def listening(tmp_path: Path, *command: str) -> Iterator[str]:
    """The controller runs, with the fabric as `describe --json` gives it; its address as --controller takes it."""
    (tmp_path / "fabric.json").write_text(run_topo("describe", *FABRIC, "--json", cwd=tmp_path).out)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--ofp-tcp-listen-port", str(port)], cwd=ROOT, env={**os.environ, "FABRIC": str(tmp_path / "fabric.json")},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip

    def listens() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text()
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_for(listens, 30, "the controller")
        yield f"tcp:127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def routes(tmp_path: Path, controller: str) -> None:
    (tmp_path / "typed").write_text("pingall\nexit\n")
    with (tmp_path / "typed").open() as typed:
        command = [sys.executable, str(ROOT / "run_topo.py"), "cli", *FABRIC, "--controller", controller]
        done = subprocess.run(
            command, cwd=tmp_path, stdin=typed, capture_output=True, text=True, timeout=120, check=False
        )
    # Mininet says it on standard error.
    assert "0% dropped (12/12 received)" in done.stderr, done.stdout[-2000:] + done.stderr[-2000:]
    ran = run_topo(*FABRIC, *sizes("256K"), "--controller", controller, "--out", "out", cwd=tmp_path)
    assert ran.status in (0, 1), ran.err
    (row,) = rows(tmp_path / "out")
    assert (row["wrong"], row["iterations"], row["predicted_s"]) == ("0", "1", "")


def test_on_ryu(tmp_path: Path) -> None:
    start = (sys.executable, "examples/ryu_manager.py", "--ofp-listen-host", "127.0.0.1", "examples/minimal_ryu_app.py")
    with listening(tmp_path, *start) as controller:
        routes(tmp_path, controller)


def test_on_os_ken(tmp_path: Path) -> None:
    if subprocess.run([OS_KEN_PYTHON, "-c", "import os_ken"], capture_output=True, check=False).returncode:
        pytest.skip("os-ken missing: install it into an environment and set OS_KEN_PYTHON to its interpreter")
    with listening(tmp_path, OS_KEN_PYTHON, "examples/minimal_os_ken_app.py") as controller:
        routes(tmp_path, controller)
