"""The few Linux calls that Python 3.10's standard library lacks. Errors are OSError, as everywhere else."""

import ctypes
import fcntl
import os
import socket
import struct

CLONE_FS = 0x00000200
CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REC = 0x4000
MS_PRIVATE = 0x40000
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{what}: {os.strerror(errno)}")


def unshare(flags: int) -> None:
    """Leave the given namespaces for new ones; CLONE_NEWPID takes effect for the next child."""
    _check(_libc.unshare(flags), "unshare")


def setns(path: str, flag: int) -> None:
    """Enter the namespace at `path` (/proc/PID/ns/net ...); for the calling thread only."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(fd, flag), f"setns {path}")
    finally:
        os.close(fd)


def mount(source: str, target: str, fstype: str, flags: int = 0, data: str = "") -> None:
    arguments = [s.encode() for s in (source, target, fstype)]
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), data.encode()), f"mount {fstype} on {target}")


def die_with_parent(signal: int) -> None:
    """Have the kernel send `signal` to this process when its parent ends, however it ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def set_process_name(name: str) -> None:
    """What /proc/PID/comm shows; at most 15 characters."""
    _check(_libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0), "prctl(PR_SET_NAME)")


def loopback_up() -> None:
    """A new network namespace has a loopback, but down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
