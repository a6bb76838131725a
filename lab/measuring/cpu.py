"""Who used the CPU: the lab's components, other labs, and strangers, by name. Reads /proc.

Processes of the lab are seen in its own /proc; those outside through the host's, whose directory was opened before the sandbox
was made (`lab.machine.sandbox`). Without it only the lab is seen.
"""

import os
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from lab.measuring.diagnosis import Stranger

SWITCH, CONTROLLER, REPLAY, HOP, RANKS, STRANGERS = "switch", "controller", "replay", "hop", "ranks", "strangers"
# Those whose processes are known from the start: they are looked at while it runs.
SAMPLED = (SWITCH, CONTROLLER, REPLAY, HOP)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_INIT_PID = 1
OTHER_LABS, _OF_THE_KERNEL = "other labs", "kernel"
# Parents of the kernel's own threads: kthreadd, and of that nobody.
_KERNEL = (0, 2)


class Process(NamedTuple):
    """name: as ps(1) shows it; cpu_s: that it has used since it began; began: when, in the kernel's ticks since boot."""

    name: str
    parent: int
    state: str
    cpu_s: float
    began: int


class _Account(NamedTuple):
    """owner: a component of the lab, STRANGERS or OTHER_LABS."""

    owner: str
    name: str
    pid: int
    cpu_s: float


@dataclass(frozen=True)
class Usage:
    """Cumulative CPU seconds. by_owner: of the lab's components and of other labs; strangers: (name, pid), inside the lab and
    outside every lab."""

    by_owner: Mapping[str, float]
    strangers: Mapping[tuple[str, int], float]

    def strangers_since(self, before: "Usage", seconds: float) -> list[Stranger]:
        """By the cores that they used in that time; of one that is new, all it has used."""
        used = (Stranger(*key, (s - before.strangers.get(key, 0.0)) / seconds) for key, s in self.strangers.items())
        return sorted((one for one in used if one.cores > 0), key=lambda one: -one.cores)

    @property
    def labs_s(self) -> float:
        """Of all labs together, without strangers inside them."""
        return sum(self.by_owner.values())


class Accounts:
    """What everybody has used so far. Of a process that has ended it is what it had used when last looked at, so that a lab which
    ends meanwhile is not taken for a stranger: look every few seconds.

    roles: pid -> component, of processes of this PID namespace; what they started is theirs. outside: a descriptor of the host's
    /proc, None = only the lab is seen; init_name, command_name: of a lab's first process, whose PID namespace is the lab's, and
    of the command that it belongs to.
    """

    def __init__(
        self, roles: Mapping[int, str], outside: int | None, *, init_name: str = "", command_name: str = ""
    ) -> None:
        self._roles, self._outside = roles, outside
        self._init_name, self._command_name = init_name, command_name
        self._inside: dict[tuple[int, int], _Account] = {}
        self._host: dict[tuple[int, int], _Account] = {}
        self._spaces: dict[tuple[int, int], str] = {}
        self._lock = Lock()

    def look(self) -> Usage:
        with self._lock:
            self._look_inside()
            if self._outside is not None:
                self._look_outside(self._outside)
            accounts = [*self._inside.values(), *self._host.values()]
        by_owner: defaultdict[str, float] = defaultdict(float)
        strangers: defaultdict[tuple[str, int], float] = defaultdict(float)
        for one in accounts:
            if one.owner == STRANGERS:
                strangers[one.name, one.pid] += one.cpu_s
            else:
                by_owner[one.owner] += one.cpu_s
        return Usage(by_owner, strangers)

    def _look_inside(self) -> None:
        processes = _processes(None)
        for pid, p in processes.items():
            owner = component(pid, processes, self._roles)
            self._inside[pid, p.began] = _Account(owner, p.name, pid, p.cpu_s)

    def _look_outside(self, directory: int) -> None:
        own = os.readlink("/proc/self/ns/pid")
        processes = _processes(directory)
        self._spaces = {
            (pid, p.began): self._spaces.get((pid, p.began)) or _pid_namespace(directory, pid)
            for pid, p in processes.items()
        }
        space = {pid: text for (pid, _), text in self._spaces.items()}
        labs = {space[pid] for pid, p in processes.items() if p.name == self._init_name}
        for pid, p in processes.items():
            if space[pid] != own:
                owner = self._owner_outside(p, space[pid] in labs)
                self._host[pid, p.began] = _Account(owner, p.name, pid, p.cpu_s)

    def _owner_outside(self, p: Process, in_lab: bool) -> str:
        """What the kernel does for itself it does for the labs, as far as anybody can tell: it is no stranger."""
        if p.parent in _KERNEL:
            return _OF_THE_KERNEL
        return OTHER_LABS if in_lab or p.name in (self._init_name, self._command_name) else STRANGERS


def sampled(roles: Mapping[int, str]) -> tuple[float, ...]:
    """Cumulative CPU seconds of the components that are SAMPLED, without what they started."""
    used: defaultdict[str, float] = defaultdict(float)
    for pid, role in roles.items():
        with suppress(OSError):
            used[role] += process(pid).cpu_s
    return tuple(used[role] for role in SAMPLED)


def component(pid: int, processes: Mapping[int, Process], roles: Mapping[int, str]) -> str:
    """Of a process, or of the one that started it; the lab's first process counts to the replay. What the run's own process
    starts, and has no role of its own, are ranks."""
    if pid == _INIT_PID:
        return REPLAY
    at, started = pid, False
    while at in processes:
        if at in roles:
            return RANKS if started and roles[at] == REPLAY else roles[at]
        at, started = processes[at].parent, True
    return STRANGERS


def _processes(directory: int | None) -> dict[int, Process]:
    found = {}
    for name in os.listdir("/proc" if directory is None else directory):
        if name.isdecimal():
            with suppress(OSError):
                found[int(name)] = parse(_read(directory, f"{name}/stat"))
    return found


def parse(stat: str) -> Process:
    """proc(5): pid (name) state ppid ... utime stime ... starttime; the name may hold anything."""
    head, _, tail = stat.rpartition(")")
    fields = tail.split()
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return Process(head.partition("(")[2], int(fields[1]), fields[0], cpu_s, int(fields[19]))


def process(pid: int) -> Process:
    """Of this namespace. Raises OSError when it is gone."""
    return parse(_read(None, f"{pid}/stat"))


def _read(directory: int | None, path: str) -> str:
    if directory is None:
        return Path("/proc", path).read_text()
    with open(os.open(path, os.O_RDONLY, dir_fd=directory)) as file:
        return file.read()


def _pid_namespace(directory: int, pid: int) -> str:
    with suppress(OSError):
        return os.readlink(f"{pid}/ns/pid", dir_fd=directory)
    return ""
