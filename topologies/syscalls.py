"""The few Linux calls that Python 3.10's standard library lacks. Errors are OSError, as everywhere else."""

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
# asm-generic/unistd.h; glibc has no function for it before 2.36.
_SYS_PIDFD_GETFD = 438
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


def setns(fd: int, flag: int) -> None:
    """Enter the namespace that `fd` is open on; for the calling thread only."""
    _check(_libc.setns(fd, flag), "setns")


def enter_namespace(path: str, flag: int) -> None:
    """setns by path: /proc/PID/ns/net ..."""
    with open(path) as file:
        setns(file.fileno(), flag)


def mount(source: str, target: str | Path, fstype: str, flags: int = 0, data: str = "") -> None:
    arguments = [os.fsencode(s) for s in (source, target, fstype)]
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), data.encode()), f"mount {fstype} on {target}")


def umount(target: Path, flags: int) -> None:
    _check(_libc.umount2(os.fsencode(target), flags), f"umount {target}")


def pidfd_getfd(pidfd: int, fd: int) -> int:
    """A descriptor of our own for what `fd` is in the process behind `pidfd`; Linux 5.6."""
    own: int = _libc.syscall(_SYS_PIDFD_GETFD, pidfd, fd, 0)
    _check(min(own, 0), "pidfd_getfd")
    return own


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
