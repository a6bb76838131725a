"""One run, one sandbox: network, PID and mount namespaces of its own, which the kernel takes back when the run ends.

Four processes, each the child of the one before:

    parent      the command the user started; forwards signals, relays sockets, waits
    keeper      makes the namespaces (its next child becomes PID 1 of the new PID namespace)
    init        PID 1 inside: mounts, reaps, forwards signals; its end is the end of every process inside
    job         the lab itself

Each of the last three asks the kernel to be killed when its parent dies, so `kill -9` of any of them ends all, and with
the last process go the namespaces, links, bridges and mounts. util-linux's `unshare --fork` is not used because it
ignores SIGTERM and SIGINT while it waits.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from lab import terminal
from lab.errors import LabError
from topologies import syscalls
from topologies.errors import one_line

INIT_NAME = "fabric-lab-init"
# Of the command itself from when it plans its load until it ends.
COMMAND_NAME = "fabric-lab-run"
RUN_DIR = Path("/run/fabric-lab")
OVS_RUN_DIR = Path("/run/openvswitch")
REST_PORT = 8080
CONTROLLER_SOCKET = OVS_RUN_DIR / "controller.sock"
_LAB_FILE = RUN_DIR / "lab.json"
# How long a run may take to clean up after a signal before the kernel does it instead.
_GRACE_S = 20.0
# Inside a sandbox: the host's /proc, opened before its own took that place. No program that is started inherits it.
_host_proc: int | None = None
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Sandbox:
    """A running sandbox seen from outside: `init_pid` is the host's PID of its PID 1 and serves as the lab's id."""

    init_pid: int

    def path(self, inside: Path) -> Path:
        """A path inside the sandbox, as the host reaches it."""
        return Path(f"/proc/{self.init_pid}/root") / inside.relative_to("/")

    def describe(self) -> dict[str, Any]:
        """What the lab wrote about itself; empty before it has."""
        try:
            data: dict[str, Any] = json.loads(self.path(_LAB_FILE).read_text())
        except (OSError, ValueError):
            return {}
        return data


def run(
    job: Callable[[], int],
    *,
    about: dict[str, Any],
    interactive: bool = False,
    outside: Callable[[Sandbox], None] | None = None,
) -> int:
    """Run `job` in a new sandbox and return its exit status.

    about: what `ps` shows of it. interactive: the job owns the terminal, Ctrl-C goes to it and not to us.
    outside: called once in the parent when the sandbox's mounts stand (to bind relays).
    Raises LabError when the namespaces cannot be made.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    report_r, report_w = os.pipe()
    parent = os.getpid()
    keeper = os.fork()
    if keeper == 0:
        os.close(report_r)
        _guarded(lambda: _keeper(parent, job, about, interactive, report_w))
    os.close(report_w)
    with os.fdopen(report_r) as report:
        init_pid = report.readline().strip()
        ready = report.readline().strip()
    if ready != "ready":
        os.waitpid(keeper, 0)
        raise LabError(f"cannot make a sandbox: {ready or init_pid or 'its first process died'}")
    sandbox = Sandbox(int(init_pid))
    with _HandledBy(_Forwarder(sandbox.init_pid, interactive=interactive)):
        if outside is not None:
            outside(sandbox)
        return _exit_status(keeper)


def host_processes() -> int | None:
    """Inside a sandbox: a descriptor of the host's /proc, to see who else uses the machine; None outside."""
    return _host_proc


def labs() -> Iterator[Sandbox]:
    """Every running sandbox on this machine. Found in /proc: there is no file that could go stale."""
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError, ValueError):
            if comm.read_text().strip() == INIT_NAME:
                yield Sandbox(int(comm.parent.name))


def other_loads() -> int:
    """How many other commands put load on this machine, or are about to; from now on this one is seen by them as one."""
    syscalls.set_process_name(COMMAND_NAME)
    found = 0
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            found += comm.read_text().strip() == COMMAND_NAME and comm.parent.name != str(os.getpid())
    return found


def enter(sandbox: Sandbox, command: list[str]) -> int:
    """Run a command inside a running sandbox, on this terminal; returns its exit status.

    A process of its own enters, because a mount namespace admits single-threaded processes only; and its child runs the
    command, because a PID namespace admits children only.
    """
    doorman = os.fork()
    if doorman == 0:
        _guarded(lambda: _enter(sandbox, command))
    with _HandledBy(_ignore):
        return _exit_status(doorman)


def _enter(sandbox: Sandbox, command: list[str]) -> int:
    cwd = os.getcwd()
    for kind, flag in (("net", syscalls.CLONE_NEWNET), ("pid", syscalls.CLONE_NEWPID), ("mnt", syscalls.CLONE_NEWNS)):
        syscalls.enter_namespace(f"/proc/{sandbox.init_pid}/ns/{kind}", flag)
    child = os.fork()
    if child == 0:
        with suppress(OSError):
            os.chdir(cwd)
        _guarded(lambda: _exec(command))
    with _HandledBy(_ignore):
        return _exit_status(child)


def _exec(command: list[str]) -> int:
    try:
        os.execvp(command[0], command)
    except OSError as error:
        terminal.warn(f"{command[0]}: {error.strerror}")
        return 127


def about(*, fabric: str, doing: str) -> dict[str, Any]:
    """What `ps` shows of a lab."""
    user = os.environ.get("SUDO_USER") or os.environ.get("USER") or str(os.getuid())
    return {"fabric": fabric, "doing": doing, "user": user, "started": time.time()}


def announce(about: dict[str, Any]) -> None:
    """Called inside: write what `ps` and `shell` show of this lab."""
    RUN_DIR.mkdir(exist_ok=True)
    new = _LAB_FILE.with_suffix(".new")
    new.write_text(json.dumps(about))
    new.rename(_LAB_FILE)


# -- parent ---------------------------------------------------------------------------------------------------------


def _ignore(signum: int, frame: object) -> None:
    """The signal is meant for the process that owns the terminal."""


class _Forwarder:
    """Hands SIGINT, SIGTERM and SIGHUP to the sandbox's init, and ends it if it does not clean up in time."""

    def __init__(self, init_pid: int, *, interactive: bool) -> None:
        self.init_pid = init_pid
        self.interactive = interactive

    def __call__(self, signum: int, frame: object) -> None:
        if self.interactive and signum == signal.SIGINT:
            # The terminal has given it to the job already.
            return
        if signum == signal.SIGALRM:
            signum = signal.SIGKILL
        else:
            signal.alarm(int(_GRACE_S))
        with suppress(ProcessLookupError):
            os.kill(self.init_pid, signum)


class _HandledBy:
    """Install a handler for the forwarded signals for the length of a `with` block."""

    def __init__(self, handler: Callable[[int, object], None]) -> None:
        self.handler = handler

    def __enter__(self) -> None:
        self.before = {s: signal.signal(s, self.handler) for s in (*_FORWARDED, signal.SIGALRM)}

    def __exit__(self, *exc: object) -> None:
        signal.alarm(0)
        for s, handler in self.before.items():
            signal.signal(s, handler)


def _exit_status(pid: int) -> int:
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


# -- keeper, init, job: each runs in a forked child and never returns --------------------------------------------------


def _guarded(body: Callable[[], int]) -> NoReturn:
    """Run a forked child's body; whatever happens, the child ends here and not in its parent's code."""
    status = 3
    try:
        status = body()
    except KeyboardInterrupt:
        status = 130
    except BaseException as error:
        terminal.warn(f"run_topo.py: failed: {type(error).__name__}: {one_line(str(error))}")
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _keeper(parent: int, job: Callable[[], int], about: dict[str, Any], interactive: bool, report: int) -> int:
    syscalls.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        return 3
    for s in _FORWARDED:
        signal.signal(s, signal.SIG_IGN)
    if not interactive:
        # Ctrl-C at the terminal then reaches the parent alone, which forwards it once.
        os.setpgid(0, 0)
    global _host_proc  # noqa: PLW0603 (of this process and its children, which are one sandbox's)
    _host_proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNET)
    except OSError as error:
        os.write(report, f"0\n{error} (needs root with CAP_SYS_ADMIN and CAP_NET_ADMIN)\n".encode())
        return 3
    go_r, go_w = os.pipe()
    init = os.fork()
    if init == 0:
        os.close(go_w)
        _guarded(lambda: _init(job, about, interactive, report, go_r))
    os.close(go_r)
    os.write(report, f"{init}\n".encode())
    os.close(report)
    os.write(go_w, b"g")
    os.close(go_w)
    return _exit_status(init)


def _init(job: Callable[[], int], about: dict[str, Any], interactive: bool, report: int, go: int) -> int:
    syscalls.die_with_parent(signal.SIGKILL)
    # Closes the gap between fork and prctl: a keeper that died in it never said go.
    if os.read(go, 1) != b"g":
        return 3
    os.close(go)
    # PID 1 drops signals it has no handler for; blocked ones it keeps, and sigwait takes them.
    watched = {*_FORWARDED, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        _mount()
        syscalls.loopback_up()
    except OSError as error:
        os.write(report, f"{error}\n".encode())
        return 3
    syscalls.set_process_name(INIT_NAME)
    announce(about)
    os.write(report, b"ready\n")
    os.close(report)
    child = os.fork()
    if child == 0:
        _guarded(lambda: _job(job, watched))
    return _reap_until(child, watched, deaf_to=signal.SIGINT if interactive else None)


def _mount() -> None:
    """A fresh /proc and /sys that show the sandbox, and an empty /run, so that tools find our Open vSwitch there."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("none", "/", "none", syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("proc", "/proc", "proc", flags)
    syscalls.mount("sysfs", "/sys", "sysfs", flags)
    syscalls.mount("tmpfs", "/run", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=755")
    for directory in (RUN_DIR, OVS_RUN_DIR, Path("/run/netns")):
        directory.mkdir()


def _reap_until(child: int, watched: set[signal.Signals], deaf_to: signal.Signals | None) -> int:
    """PID 1's life: forward signals to the job, reap orphans, end with the job's status.

    deaf_to: what the terminal gives to the job as well, and must not reach it twice.
    """
    while True:
        received = signal.sigwait(watched)
        if received == deaf_to:
            continue
        if received != signal.SIGCHLD:
            with suppress(ProcessLookupError):
                os.kill(child, received)
            continue
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return 3
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else _killed(-code)
            if pid == 0:
                break


def _killed(signum: int) -> int:
    """The job could not say so itself. What it started ends with PID 1."""
    name = signal.Signals(signum).name
    terminal.warn(
        f"run_topo.py: failed and cleaned up: the run itself was ended by {name}, by another process or, if memory ran out, "
        "by the kernel"
    )
    return 3


class Terminated(BaseException):
    """SIGTERM or SIGHUP reached the job: clean up and leave with 143. Not an Exception, so that nothing swallows it."""


def _job(job: Callable[[], int], watched: set[signal.Signals]) -> int:
    syscalls.die_with_parent(signal.SIGKILL)
    syscalls.set_process_name("fabric-lab-job")

    def terminate(signum: int, frame: object) -> None:
        raise Terminated

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, terminate)
    signal.signal(signal.SIGHUP, terminate)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, watched)
    try:
        return job()
    except KeyboardInterrupt:
        return 130
    except Terminated:
        return 143


def wait_until(condition: Callable[[], bool], deadline_s: float, interval_s: float = 0.02) -> bool:
    """Poll a condition; False when the deadline passes first."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(interval_s)
    return True
