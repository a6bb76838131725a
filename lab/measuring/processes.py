"""Runs the processes of a job side by side: their output line by line, their end, and nobody's being left. An edge."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, TextIO

from lab import terminal
from lab.measuring.job import Outcome, Process, exit_status

# After a rank has failed, the others may fail by themselves, which says more than a signal; then they are ended.
_FAILURE_GRACE_S = 5.0
# From SIGTERM to SIGKILL.
_TERM_GRACE_S = 5.0
_CHUNK_BYTES = 65536


def run(
    processes: Sequence[Process],
    *,
    timeout_s: float | None,
    lifeline: int,
    started: Callable[[Sequence[int]], None] = lambda _: None,
) -> Outcome:
    """Until all have ended; whatever is raised, none is left.

    lifeline: a descriptor that becomes readable when the network is gone; then RuntimeError. started: told their pids, in order.
    """
    running = _Running(processes, lifeline)
    started(running.pids)
    return running.until_all_ended(timeout_s)


class _Output:
    """One stream of one process: whole lines, each with the process's label, go to one of ours."""

    def __init__(self, pipe: IO[bytes], label: str, to: TextIO) -> None:
        self.pipe, self._label, self._to, self._begun = pipe, label, to, b""

    def pump(self) -> bool:
        """Show what can be read now; False at the end of the stream."""
        try:
            data = os.read(self.pipe.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            return True
        *lines, self._begun = (self._begun + data).split(b"\n")
        self._write(lines)
        if not data or len(self._begun) >= _CHUNK_BYTES:
            self.finish()
        return bool(data)

    def finish(self) -> None:
        """Show the last line, whose end never came."""
        if self._begun:
            self._write([self._begun])
            self._begun = b""

    def _write(self, lines: Sequence[bytes]) -> None:
        if lines:
            text = "".join(f"{self._label}{line.decode(errors='replace')}\n" for line in lines)
            terminal.write(text, self._to)


class _Running:
    def __init__(self, processes: Sequence[Process], lifeline: int) -> None:
        self._lifeline = lifeline
        self._began = time.monotonic()
        self._codes: list[int | None] = [None] * len(processes)
        self._alive: dict[int, subprocess.Popen[bytes]] = {}
        self._started: list[subprocess.Popen[bytes]] = []
        self._outputs: set[_Output] = set()
        self._selector = selectors.DefaultSelector()
        self._kill_at: float | None = None
        self._ending = False
        try:
            for rank, process in enumerate(processes):
                self._start(rank, process)
            self._selector.register(lifeline, selectors.EVENT_READ)
        except BaseException:
            self._close()
            raise

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._started]

    def _start(self, rank: int, process: Process) -> None:
        started = subprocess.Popen(
            process.words,
            env=dict(process.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A group of its own, so that whatever it starts ends with it.
            start_new_session=True,
        )
        self._started.append(started)
        self._alive[rank] = started
        self._selector.register(os.pidfd_open(started.pid), selectors.EVENT_READ, rank)
        for pipe, to in ((started.stdout, sys.stdout), (started.stderr, sys.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            output = _Output(pipe, process.label, to)
            self._outputs.add(output)
            self._selector.register(pipe, selectors.EVENT_READ, output)

    def until_all_ended(self, timeout_s: float | None) -> Outcome:
        timed_out = False
        deadline = None if timeout_s is None else self._began + timeout_s
        failure_deadline: float | None = None
        try:
            while self._alive:
                self._wait(min((t for t in (deadline, failure_deadline, self._kill_at) if t is not None), default=None))
                now = time.monotonic()
                if failure_deadline is None and any(self._codes):
                    failure_deadline = now + _FAILURE_GRACE_S
                if deadline is not None and now >= deadline:
                    timed_out, deadline = bool(self._alive), None
                    self._terminate()
                if failure_deadline is not None and now >= failure_deadline:
                    failure_deadline = float("inf")
                    self._terminate()
                if self._kill_at is not None and now >= self._kill_at:
                    self._signal(signal.SIGKILL)
                    self._kill_at = None
            return Outcome(tuple(self._codes), time.monotonic() - self._began, timed_out)
        finally:
            self._close()

    def _wait(self, until: float | None) -> None:
        finite = until is not None and until != float("inf")
        for key, _ in self._selector.select(
            max(0.0, until - time.monotonic()) if until is not None and finite else None
        ):
            if isinstance(key.data, _Output):
                if not key.data.pump():
                    self._selector.unregister(key.fileobj)
                    self._outputs.discard(key.data)
            elif key.data is not None:
                self._ended(key.data)
                self._selector.unregister(key.fileobj)
                os.close(key.fd)
            else:
                raise RuntimeError("the network is gone")

    def _ended(self, rank: int) -> None:
        code = exit_status(self._alive.pop(rank).wait())
        if not self._ending:
            self._codes[rank] = code

    def _terminate(self) -> None:
        """What they say to it is no longer their own end."""
        self._ending = True
        self._signal(signal.SIGTERM)
        self._kill_at = time.monotonic() + _TERM_GRACE_S

    def _signal(self, signum: int) -> None:
        for process in self._alive.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signum)

    def _close(self) -> None:
        """End those that still run, gently at first; show what was written last; end what they left behind."""
        with suppress(KeyError, ValueError):
            self._selector.unregister(self._lifeline)
        if self._alive:
            self._terminate()
            while self._alive and self._kill_at is not None and time.monotonic() < self._kill_at:
                self._wait(self._kill_at)
        for process in self._started:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._alive.values():
            process.wait()
        for output in self._outputs:
            # Whoever else holds the pipe may write on: once is what it holds now (pipe(7): 64 KiB).
            output.pump()
            output.finish()
        for key in [*self._selector.get_map().values()]:
            if isinstance(key.data, int):
                os.close(key.fd)
        self._selector.close()
        for process in self._started:
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
