"""Open vSwitch's two daemons, ovsdb-server and ovs-vswitchd: started, found and ended."""

import os
import resource
import select
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from topologies import ovs_kernel
from topologies.errors import EmulationError, last_line
from topologies.ovs_database import Database, socket_path
from topologies.ovs_sockets import packet_sockets

RUN_DIR = Path("/run/openvswitch")
_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
# Within a second, but for a machine that is busy or emulated.
_START_DEADLINE_S = 20.0
_CLOSING_THREADS = 128
_PACKAGE = "install the package openvswitch-switch"


@dataclass(frozen=True)
class Daemons:
    """A running pair, children of this process in a session of their own (Ctrl-C at the terminal does not reach them).

    lifeline: of their two pidfds; becomes readable when one of them ends, however it ends (pidfd_open(2), epoll(7)).
    Without the database the switch forwards nothing for long.
    """

    database: "subprocess.Popen[bytes]"
    switch: "subprocess.Popen[bytes]"
    pidfds: tuple[int, int]
    lifeline: select.epoll

    @property
    def switch_pid(self) -> int:
        return self.switch.pid

    def ended(self) -> str:
        """'ovsdb-server, status -9' when one of them has ended by itself, else ''."""
        found = {"ovs-vswitchd": self.switch.poll(), "ovsdb-server": self.database.poll()}
        return next((f"{program}, status {status}" for program, status in found.items() if status is not None), "")

    def stop(self) -> None:
        """End both at once; there is nothing to save. Call it at the end of a run although the kernel would do it too.

        Closing a packet socket waits for a grace period of the kernel, 10 ms. The dying switch would close its 1536 one
        after another, 17 s in all; held here and closed by many threads they share their grace periods.
        """
        sockets = []
        # A switch that has died by itself has closed them.
        with suppress(OSError):
            sockets = [os.dup(sock.fileno()) for _, sock in packet_sockets(self.switch_pid)]
        for process in (self.switch, self.database):
            process.kill()
            process.wait()
        self.lifeline.close()
        for pidfd in self.pidfds:
            os.close(pidfd)
        with ThreadPoolExecutor(_CLOSING_THREADS) as pool:
            pool.map(os.close, sockets)


def start_daemons(run_dir: Path = RUN_DIR) -> Daemons:
    """ovsdb-server and ovs-vswitchd with an empty database in `run_dir`, ready for a transaction.

    Raises EmulationError within 20 s: a program is missing, or a daemon died, with the last line of its log.
    """
    for program in ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd"):
        if shutil.which(program) is None:
            raise EmulationError(f"{program} is not on this machine: {_PACKAGE}")
    if _answers(socket_path(run_dir)):
        raise EmulationError(f"an Open vSwitch runs in {run_dir} already: end it first, or use another directory")
    # vswitchd holds two descriptors a port; it inherits our limit.
    raise_open_file_limit()
    _make_database(run_dir / "conf.db")
    database = _spawn(run_dir, "ovsdb-server", str(run_dir / "conf.db"), f"--remote=punix:{socket_path(run_dir)}")
    _wait_for_file(run_dir, database, socket_path(run_dir))
    with Database(run_dir) as db:
        db.transact({"op": "insert", "table": "Open_vSwitch", "row": {}})
    switch = _spawn(run_dir, "ovs-vswitchd", f"unix:{socket_path(run_dir)}")
    _wait_for_file(run_dir, switch, run_dir / f"ovs-vswitchd.{switch.pid}.ctl")
    pidfds = (os.pidfd_open(database.pid), os.pidfd_open(switch.pid))
    lifeline = select.epoll()
    for pidfd in pidfds:
        lifeline.register(pidfd, select.EPOLLIN)
    return Daemons(database, switch, pidfds, lifeline)


def raise_open_file_limit() -> int:
    """Lift this process's soft limit of open files to the hard one; returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(str(path)) == 0


def _make_database(file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
    except OSError as error:
        raise EmulationError(f"Open vSwitch's database cannot be made: {error}") from None
    made = subprocess.run(["ovsdb-tool", "create", file, _SCHEMA], capture_output=True, text=True, check=False)
    if made.returncode:
        raise EmulationError(f"ovsdb-tool: {last_line(made.stderr)}")


def _spawn(run_dir: Path, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
    places = {f"OVS_{kind}DIR": str(run_dir) for kind in ("RUN", "DB", "LOG")}
    options = [f"--pidfile={run_dir}/{program}.pid", f"--log-file={run_dir}/{program}.log"]
    return subprocess.Popen(
        [program, *arguments, *options, "--no-chdir", "-vconsole:off", "-vsyslog:off", "-vfile:info"],
        env={**os.environ, **places},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _wait_for_file(run_dir: Path, process: "subprocess.Popen[bytes]", file: Path) -> None:
    deadline = time.monotonic() + _START_DEADLINE_S
    while not file.exists():
        program = Path(str(process.args[0])).name  # type: ignore[index]
        if process.poll() is not None:
            raise EmulationError(f"{program} ended with status {process.returncode}: {log_tail(run_dir, program)}")
        if time.monotonic() > deadline:
            raise EmulationError(
                f"{program} did not start within {_START_DEADLINE_S:g} s: {log_tail(run_dir, program)}"
            )
        time.sleep(0.002)


def log_tail(run_dir: Path, program: str) -> str:
    """The last line of a daemon's log."""
    try:
        return last_line((run_dir / f"{program}.log").read_text(errors="replace"))
    except OSError:
        return "it wrote no log"


def switch_pid(run_dir: Path = RUN_DIR) -> int:
    """The ovs-vswitchd that serves `run_dir`."""
    try:
        pid = int((run_dir / "ovs-vswitchd.pid").read_text())
        os.kill(pid, 0)
    except (OSError, ValueError):
        raise EmulationError(f"ovs-vswitchd is not running (no process for {run_dir}/ovs-vswitchd.pid)") from None
    return pid


def find_datapath() -> str:
    """'system' when the kernel has (or can load) the openvswitch module, usable in this namespace; else 'netdev'."""
    return "netdev" if ovs_kernel.family() is None else "system"
