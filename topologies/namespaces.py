"""Network namespaces under /run/netns, where `ip netns exec h1` finds them.

Entering one is per thread, so all work inside happens in a worker thread and the caller's thread stays where it is.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from topologies import syscalls
from topologies.errors import EmulationError, TopologyError

RUN_NETNS = Path("/run/netns")
_T = TypeVar("_T")
_R = TypeVar("_R")


def path(name: str) -> Path:
    return RUN_NETNS / name


def create(names: Iterable[str], setup: Callable[[str], None]) -> None:
    """Make the namespaces; `setup(name)` runs in each while it is still empty."""

    def make(name: str) -> None:
        with _saying(f"cannot make namespace {name}"):
            syscalls.unshare(syscalls.CLONE_NEWNET)
        path(name).touch()
        with _saying(f"cannot mount {path(name)}"):
            syscalls.mount("/proc/thread-self/ns/net", path(name), "none", syscalls.MS_BIND)
        setup(name)

    def make_all() -> None:
        for name in names:
            make(name)

    names = list(names)
    RUN_NETNS.mkdir(parents=True, exist_ok=True)
    if taken := [name for name in names if path(name).exists()]:
        raise TopologyError(
            f"namespace {taken[0]!r} exists already ({len(taken)} of {len(names)} names are taken): "
            "end the network that made it, or remove it with `ip netns del`"
        )
    _in_thread(make_all)


def remove(names: Iterable[str]) -> None:
    """Take the names back; a namespace itself lives until its last process and descriptor are gone."""
    for name in names:
        if path(name).exists():
            with suppress(OSError):
                syscalls.umount(path(name), syscalls.MNT_DETACH)
            path(name).unlink(missing_ok=True)


def each(items: Iterable[tuple[str, _T]], work: Callable[[_T], _R]) -> list[_R]:
    """`work(item)` inside the namespace of each (name, item), one after another; their results in order."""

    def one(name: str, item: _T) -> _R:
        enter(name)
        return work(item)

    return _in_thread(lambda: [one(name, item) for name, item in items])


def scratch(work: Callable[[], _R]) -> _R:
    """`work()` inside a namespace that nobody else sees and that ends with it."""

    def inside() -> _R:
        with _saying("cannot make a namespace"):
            syscalls.unshare(syscalls.CLONE_NEWNET)
        return work()

    return _in_thread(inside)


def enter(name: str) -> None:
    """Move the calling thread into the namespace, for good."""
    with open(path(name)) as file, _saying(f"cannot enter namespace {name}"):
        syscalls.setns(file.fileno(), syscalls.CLONE_NEWNET)


def write_sysctl(key: str, value: str) -> None:
    """Set 'net/ipv4/tcp_congestion_control' in the namespace of the calling thread, which /proc/sys/net follows."""
    try:
        fd = os.open(f"/proc/sys/{key}", os.O_WRONLY)
    except FileNotFoundError:
        # Built without IPv6, for one: then there is nothing to turn off.
        return
    try:
        os.write(fd, value.encode())
    except OSError as error:
        raise EmulationError(f"sysctl {key}={value}: {error.strerror}") from None
    finally:
        os.close(fd)


@contextmanager
def _saying(what: str) -> Iterator[None]:
    """A kernel call's failure, said of the namespace it was for."""
    try:
        yield
    except OSError as error:
        raise EmulationError(f"{what}: {os.strerror(error.errno or 0)}") from None


def _in_thread(work: Callable[[], _R]) -> _R:
    """Run in a thread that ends afterwards, so that whatever namespace it ends in is left with it."""
    result: list[_R] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="netns")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]
