"""Watches the machine while a measurement runs: link counters, the switch thread, and who else uses the CPU.

One thread, ten samples a second, one batched netlink dump a sample. It only records; `lab.measuring.verdict` judges.
"""

import os
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

INTERVAL_S = 0.1
# Fewer say nothing about a median.
_MIN_SAMPLES = 5
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Cumulative CPU seconds: of the machine (all cores), of this lab's processes, and those that the switch thread waited.

    at_s: when; a window that begins or ends here has the sample of this moment as its first or last.
    """

    at_s: float
    idle_s: float
    softirq_s: float
    total_s: float
    steal_s: float
    lab_s: float
    switch_wait_s: float


@dataclass(frozen=True)
class Window:
    """What was seen between two moments.

    bytes_sent: (samples, interfaces) cumulative; at_s: the samples' times on time.monotonic's clock; backlog_bytes:
    (samples,) received and not yet read by the switch; forwarding: the places of the switches' interfaces.
    Shares are of one core for the switch and of the whole machine otherwise; other_cores counts cores.
    """

    at_s: NDArray[np.float64]
    intfs: tuple[str, ...]
    bytes_sent: NDArray[np.int64]
    backlog_bytes: NDArray[np.int64]
    forwarding: Sequence[int]
    stopped_s: float
    idle_share: float
    other_cores: float
    steal_share: float
    switch_wait_share: float

    def bytes_by_intf(self) -> dict[str, int]:
        """Bytes that left through each egress interface during the window."""
        if len(self.at_s) < 2:
            return {}
        moved = self.bytes_sent[-1] - self.bytes_sent[0]
        return dict(zip(self.intfs, (int(n) for n in moved), strict=True))

    def sent(self, intfs: Container[str], start_s: float, end_s: float) -> tuple[int, float]:
        """Bytes that left through these interfaces, and the seconds from the first sample between the two moments to the last."""
        inside = np.flatnonzero((self.at_s >= start_s) & (self.at_s <= end_s))
        if len(inside) < 2:
            return 0, 0.0
        first, last = inside[0], inside[-1]
        chosen = [i for i, intf in enumerate(self.intfs) if intf in intfs]
        n_bytes = int((self.bytes_sent[last] - self.bytes_sent[first])[chosen].sum())
        return n_bytes, float(self.at_s[last] - self.at_s[first])

    def longest_stall_s(self, busy: Sequence[tuple[float, float]]) -> float:
        """The longest time that no switch sent a byte inside one of the `busy` intervals (start, end).

        Of the switches alone: hosts go on sending what was lost again, into a switch that stands still.
        """
        total = self.bytes_sent[:, self.forwarding].sum(axis=1) if len(self.at_s) else np.zeros(0)
        longest = 0.0
        for start, end in busy:
            inside = np.flatnonzero((self.at_s >= start) & (self.at_s <= end))
            still_since: float | None = None
            for i, j in pairwise(inside):
                if total[j] != total[i]:
                    still_since = None
                    continue
                still_since = float(self.at_s[i]) if still_since is None else still_since
                longest = max(longest, float(self.at_s[j]) - still_since)
        return longest

    def switch_queue_s(self, busy: Sequence[tuple[float, float]]) -> float | None:
        """How long a frame waited in front of the switch: median over the samples inside the `busy` intervals.

        The bytes that wait, over the bytes per second that the switches send (Little's law). None with too few samples.
        """
        inside = np.any([(self.at_s > start) & (self.at_s < end) for start, end in busy], axis=0) if busy else []
        waiting = self.backlog_bytes[inside] if len(busy) else self.backlog_bytes[:0]
        if len(waiting) < _MIN_SAMPLES:
            return None
        sent = (self.bytes_sent[-1] - self.bytes_sent[0])[self.forwarding].sum()
        rate_bytes_s = sent / sum(end - start for start, end in busy)
        return float(np.median(waiting) / rate_bytes_s) if rate_bytes_s else None


class _Sample(NamedTuple):
    at_s: float
    n_bytes: NDArray[np.int64]
    backlog_bytes: int
    stopped: bool


class Monitor:
    """Samples in the background until `close()`; `window(start, end)` cuts out a measurement.

    read_bytes: () -> cumulative bytes per egress interface; switch_intfs: which of them are switches'; switch_pid: the
    switches' process. origin_s: when it began.
    """

    def __init__(
        self, read_bytes: Callable[[], Mapping[str, int]], switch_intfs: Container[str], switch_pid: int
    ) -> None:
        self._read_bytes = read_bytes
        self._switch_pid = switch_pid
        self._intfs = tuple(read_bytes())
        self._forwarding = [i for i, intf in enumerate(self._intfs) if intf in switch_intfs]
        self.origin_s = time.monotonic()
        self._samples: list[_Sample] = []
        self._sampling = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def mark(self) -> CpuTimes:
        """Take a sample now and the CPU times with it: the edge of a window."""
        return read_cpu_times(self._switch_pid, self._sample().at_s)

    def window(self, start: CpuTimes, end: CpuTimes) -> Window:
        # Exactly from sample to sample: one from before the start would count bytes of the warm-up.
        inside = [sample for sample in self._samples if start.at_s <= sample.at_s <= end.at_s]
        span = max(end.at_s - start.at_s, 1e-9)
        cpu = {name: getattr(end, name) - getattr(start, name) for name in CpuTimes.__slots__}
        total = max(cpu["total_s"], 1e-9)
        busy = cpu["total_s"] - cpu["idle_s"] - cpu["softirq_s"] - cpu["steal_s"]
        return Window(
            at_s=np.array([sample.at_s for sample in inside]),
            intfs=self._intfs,
            bytes_sent=np.array([sample.n_bytes for sample in inside], np.int64).reshape(len(inside), len(self._intfs)),
            backlog_bytes=np.array([sample.backlog_bytes for sample in inside], np.int64),
            forwarding=self._forwarding,
            stopped_s=sum(sample.stopped for sample in inside) * INTERVAL_S,
            idle_share=cpu["idle_s"] / total,
            other_cores=max(0.0, busy - cpu["lab_s"]) / span,
            steal_share=cpu["steal_s"] / total,
            switch_wait_share=cpu["switch_wait_s"] / span,
        )

    def _run(self) -> None:
        next_at = time.monotonic()
        while not self._over.is_set():
            self._sample()
            next_at = max(next_at + INTERVAL_S, time.monotonic())
            self._over.wait(next_at - time.monotonic())

    def _sample(self) -> "_Sample":
        # Two threads take samples: one at a time, so that they stand in the order in which the counters were read.
        with self._sampling:
            counters = self._read_bytes()
            n_bytes = np.fromiter((counters.get(i, 0) for i in self._intfs), np.int64, len(self._intfs))
            stopped = _state(self._switch_pid) in "Tt"
            sample = _Sample(time.monotonic(), n_bytes, _backlog_bytes(self._switch_pid), stopped)
            self._samples.append(sample)
            return sample


def read_cpu_times(switch_pid: int, at_s: float) -> CpuTimes:
    """proc(5): /proc/stat, /proc/PID/stat of every process in this PID namespace, /proc/PID/schedstat (ns)."""
    user, nice, system, idle, iowait, irq, softirq, steal = (
        int(x) / _TICKS_PER_S for x in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    )
    waited_ns = int(Path(f"/proc/{switch_pid}/schedstat").read_text().split()[1])
    return CpuTimes(
        at_s=at_s,
        idle_s=idle + iowait,
        softirq_s=irq + softirq,
        total_s=user + nice + system + idle + iowait + irq + softirq + steal,
        steal_s=steal,
        lab_s=sum(_process_cpu_s(p) for p in Path("/proc").glob("[0-9]*")),
        switch_wait_s=waited_ns / 1e9,
    )


def _process_cpu_s(proc: Path) -> float:
    with suppress(OSError):
        fields = (proc / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return 0.0


def _backlog_bytes(switch_pid: int) -> int:
    """What lies in the packet sockets of the switch's namespace (packet(7)): of a userspace datapath, its input queues.

    In the kernel's unit of account, buffers with their overhead: up to twice the frames' bytes.
    """
    with suppress(OSError):
        lines = Path(f"/proc/{switch_pid}/net/packet").read_text().splitlines()[1:]
        return sum(int(line.split()[6]) for line in lines)
    return 0


def _state(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "X"
