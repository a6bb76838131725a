"""A timer with a descriptor, timerfd_create(2), which Python has from 3.13 on. epoll's own timeout counts in ms."""

import ctypes
import os
import time

_libc = ctypes.CDLL(None, use_errno=True)
_TFD_TIMER_ABSTIME = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Timer:
    """Readable from `deadline_ns` on, a time of CLOCK_MONOTONIC, until it is set anew."""

    def __init__(self) -> None:
        self._fd = _checked(_libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
        self.deadline_ns: int | None = None

    def fileno(self) -> int:
        return self._fd

    def set(self, deadline_ns: int | None) -> None:
        """None: never."""
        # Zero would mean never: a time that has passed is as good.
        seconds, rest = divmod(1 if deadline_ns is None else max(deadline_ns, 1), 10**9)
        value = _Timespec(0, 0) if deadline_ns is None else _Timespec(seconds, rest)
        _checked(
            _libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(_Itimerspec(_Timespec(), value)), None)
        )
        self.deadline_ns = deadline_ns

    def close(self) -> None:
        os.close(self._fd)


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"timerfd: {os.strerror(error)}")
    return result
