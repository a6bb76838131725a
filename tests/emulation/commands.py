"""Runs the product as its users do: `run_topo.py` in a process of its own; and looks at the machine from outside.

done = run_topo("--scale", "1", ...)            # a finished command: status, stdout, stderr
with started("cli", ...) as command: ...        # one that is still running; ended on leaving, by its id
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.machine.sandbox import INIT_NAME
from tests.emulation.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, str(ROOT / "run_topo.py"))


def fabric(spines: int = 1, leaves: int = 2, hosts_per_leaf: int = 1, links_per_pair: int = 1) -> tuple[str, ...]:
    """A spine-leaf fabric as small as a test wants it, at 20 Mbit/s as written."""
    text = f"spines={spines},leaves={leaves},hosts_per_leaf={hosts_per_leaf},links_per_pair={links_per_pair}"
    return ("--topology", f"spine-leaf:{text}", "--scale", "1", "--link-rate", "20Mbit")


def sizes(size: str, iterations: int = 1, warmup: int = 0) -> tuple[str, ...]:
    return ("-b", size, "-e", size, "-n", str(iterations), "-w", str(warmup))


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str


def run_topo(*arguments: str, cwd: Path, deadline_s: float = 90, under: tuple[str, ...] = (), **env: str) -> Done:
    """A finished command. under: a command that starts it, e.g. setpriv; env: added to the environment."""
    done = subprocess.run(
        [*under, *COMMAND, *arguments],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=deadline_s,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


class Started:
    """A command that runs; what it said so far is in `out` and `err`. `lab`: its sandbox's init, once it is up."""

    def __init__(self, arguments: tuple[str, ...], cwd: Path, stdin: Any = subprocess.DEVNULL) -> None:
        self._files = (cwd / f"stdout-{time.monotonic_ns()}", cwd / f"stderr-{time.monotonic_ns()}")
        with self._files[0].open("wb") as out, self._files[1].open("wb") as err:
            self.process = subprocess.Popen(
                [*COMMAND, *arguments], cwd=cwd, stdin=stdin, stdout=out, stderr=err, start_new_session=True
            )

    @property
    def out(self) -> str:
        return self._files[0].read_text(errors="replace")

    @property
    def err(self) -> str:
        return self._files[1].read_text(errors="replace")

    def says(self, text: str, deadline_s: float = 30) -> None:
        """Wait until it has said so, on either stream."""

        def said() -> bool:
            assert text in self.out + self.err or self.process.poll() is None, self.out[-2000:] + self.err[-4000:]
            return text in self.out + self.err

        wait_for(said, deadline_s, lambda: f"{text!r} in {self.out[-2000:]}{self.err[-4000:]}")

    @property
    def keeper(self) -> int:
        """The one whose child is the init: a probe of the machine's rights is a child of the command for a moment, too."""

        def keepers() -> list[int]:
            return [k for k in children(self.process.pid) if any(comm(p) == INIT_NAME for p in children(k))]

        (child,) = wait_for(keepers, 10, "the keeper")
        return child

    @property
    def lab(self) -> int:
        """The init of its sandbox, when that has its name."""
        (child,) = wait_for(
            lambda: [p for p in children(self.keeper) if comm(p) == INIT_NAME], 10, "the sandbox's init"
        )
        return child

    def send(self, signum: int) -> None:
        os.kill(self.process.pid, signum)

    def ended(self, deadline_s: float = 60) -> Done:
        status = self.process.wait(deadline_s)
        return Done(status if status >= 0 else 128 - status, self.out, self.err)


class Terminal:
    """A command on a pseudo-terminal of its own, as a person has it."""

    def __init__(self, arguments: tuple[str, ...], cwd: Path) -> None:
        self.pid, self._fd = os.forkpty()
        if self.pid == 0:
            os.chdir(cwd)
            os.execv(COMMAND[0], [*COMMAND, *arguments])
        os.set_blocking(self._fd, False)
        self.shown = ""

    def says(self, text: str, deadline_s: float = 30) -> str:
        """Wait for a text; returns what was shown up to it, and forgets that."""

        def said() -> bool:
            with suppress(BlockingIOError, OSError):
                while data := os.read(self._fd, 65536):
                    self.shown += data.decode(errors="replace")
            return text in self.shown

        wait_for(said, deadline_s, lambda: f"{text!r} in {self.shown[-3000:]!r}")
        before, _, self.shown = self.shown.partition(text)
        return before

    def types(self, line: str, deadline_s: float = 30) -> str:
        """Type a line at the prompt; returns what came before the next prompt."""
        self.press(line + "\n")
        return self.says("mininet> ", deadline_s)

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    @property
    def lab(self) -> int:
        return _sandbox_of(self.pid)[1]

    def ended(self, deadline_s: float = 30) -> int:
        """The exit status; a pty whose output nobody reads would block its writer."""

        def over() -> tuple[int, int]:
            with suppress(BlockingIOError, OSError):
                self.shown += os.read(self._fd, 65536).decode(errors="replace")
            return os.waitpid(self.pid, os.WNOHANG)

        _, status = wait_for(lambda: (found := over())[0] and found, deadline_s, lambda: self.shown[-2000:]) or (0, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        os.close(self._fd)


@contextmanager
def terminal(*arguments: str, cwd: Path) -> Iterator[Terminal]:
    made = Terminal(arguments, cwd)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def started(*arguments: str, cwd: Path, stdin: Any = subprocess.DEVNULL) -> Iterator[Started]:
    command = Started(arguments, cwd, stdin)
    try:
        yield command
    finally:
        if command.process.poll() is None:
            command.process.kill()
        command.process.wait()


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _sandbox_of(command: int) -> tuple[int, int]:
    """Keeper and init of a command. It has other children before them: probes, each for a moment."""

    def found() -> list[tuple[int, int]]:
        return [(child, p) for child in children(command) for p in children(child) if comm(p) == INIT_NAME]

    (both,) = wait_for(found, 15, "the sandbox's init")
    return both


def comm(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def inside(lab: int, command: str, *, net: str = "") -> str:
    """A shell command's output inside a lab, entered with nsenter and not with the product; net: in that host."""
    enter = ["nsenter", "-t", str(lab), "-n", "-p", "-m", *(["ip", "netns", "exec", net] if net else [])]
    done = subprocess.run([*enter, "bash", "-ec", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-1000:]}{done.stderr[-1000:]}"
    return done.stdout


def of_lab(pid: int) -> list[int]:
    """All processes of a sandbox, by their namespace: host pids."""
    with suppress(OSError):
        namespace = os.readlink(f"/proc/{pid}/ns/pid")
        return [p for p in _processes() if _pid_namespace(p) == namespace]
    return []


def _processes() -> list[int]:
    return [int(p.name) for p in Path("/proc").glob("[0-9]*")]


def _pid_namespace(pid: int) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""


def host_state() -> dict[str, Any]:
    """What a run must leave as it was. Processes and namespaces of other people's labs are not in it."""
    ours = os.readlink("/proc/self/ns/pid")
    names = [comm(p) for p in _processes() if _pid_namespace(p) == ours]
    return {
        "links": _lines("ip -o link"),
        "addresses": _lines("ip -o address | sed 's/valid_lft.*//'"),
        "routes": _lines("ip route show table all"),
        "named namespaces": _lines("ip netns"),
        "/run": sorted(p.name for p in Path("/run").iterdir()),
        "/run/netns": sorted(p.name for p in Path("/run/netns").glob("*")),
        "mounts": [m for m in _lines("cat /proc/self/mounts") if _is_ours(m)],
        "daemons": sorted(n for n in names if n.startswith(("ovs", "ovsdb"))),
        "sysctls": [line for line in _lines(_SYSCTLS) if not line.startswith(_CHANGING)],
    }


def _is_ours(mount: str) -> bool:
    """Where a sandbox mounts, or a named namespace is held; other people may mount elsewhere meanwhile."""
    return mount.split()[1].startswith(("/run", "/proc", "/sys")) or "nsfs" in mount


_SYSCTLS = (
    "sysctl -a -r '^(net[.](core|ipv4|netfilter|bridge)|fs[.](file-max|nr_open|inotify)|kernel[.](pid_max|sched))'"
    " 2>/dev/null"
)
_CHANGING = ("net.ipv4.tcp_fastopen_key", "fs.file-nr")


def _lines(command: str) -> list[str]:
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=20, check=False)
    return sorted(done.stdout.splitlines())
