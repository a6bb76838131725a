"""Watches the machine while a measurement runs: links, queues, the switch thread, and who uses the CPU.

One thread: counters ten times a second, queues and the components' CPU twice, more seldom where a fabric has more than
`_OF_INTFS` interfaces; all from batched dumps. It only records; `lab.measuring.verdict` and `lab.measuring.diagnosis` judge.
What it costs itself is among what it records.
"""

import os
import threading
import time
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lab.measuring import cpu
from lab.measuring.cpu import Accounts, Usage
from lab.measuring.diagnosis import Stranger
from topologies.link_sampler import DEQUEUED, DROPPED, FILTERED, WAITING, WAITING_BYTES

INTERVAL_S = 0.1
# Of so many interfaces; of more a sample costs more.
_OF_INTFS = 1000
# Queues and CPU: every so many samples.
_EVERY = 5
# Whoever else uses the CPU: a lab that ends meanwhile is known up to then.
_LOOK_EVERY = 40
# Reading what waits for the switch takes the kernel a line for each port: no more than this share of a core.
_BACKLOG_SHARE = 0.005
# Fewer say nothing about a median.
_MIN_SAMPLES = 5
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_UNKNOWN = -1
# In a tenth of a second a few frames that left after their time would already be a tenth of all.
_SPANS_S = (0.5, 1.0)


class Links(Protocol):
    """Where counters come from, as topologies.link_sampler has them."""

    intfs: tuple[str, ...]

    def read(self) -> NDArray[np.int64]: ...

    def queues(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Cumulative CPU seconds: of the machine (all cores), and those that the switch thread waited; usage: whose they were.

    clock_offset_s: of time.monotonic to the hardware's clock, which nobody steers. at_s: when; a window that begins or ends
    here has the sample of this moment as its first or last. sampler_s: of the monitor.
    """

    at_s: float
    idle_s: float
    softirq_s: float
    total_s: float
    steal_s: float
    switch_wait_s: float
    sampler_s: float
    clock_offset_s: float
    usage: Usage


@dataclass(frozen=True)
class Window:
    """What was seen between two moments.

    bytes_sent, frames_sent: (samples, interfaces) cumulative; at_s: the samples' times on time.monotonic's clock, when they
    had been read, and began_s, when they were asked for; interval_s: from one to the next, as planned; backlog_bytes:
    (samples,) received and not yet read by the switch, -1 = not asked; forwarding: the places of the switches' interfaces.
    queue_at_s: (readings,); queue_bytes, queue_frames, queue_drops, filtered, dequeued: (readings, interfaces) waiting now, so
    far dropped, come to programs, left, -1 = not seen; cpu_s: (readings, components) cumulative. Shares are of one core for
    the switch and the sampler and of the whole machine otherwise; other_cores: used by processes that are no lab's, of whom
    strangers are those that are known by name; ranks_s: CPU time of a program's processes; clock_drift: of time.monotonic
    against the hardware's clock.
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
    interval_s: float = INTERVAL_S
    began_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    frames_sent: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    queue_at_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    queue_bytes: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    queue_frames: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    queue_drops: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    filtered: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    dequeued: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    cpu_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    sampler_share: float = 0.0
    strangers: Sequence[Stranger] = ()
    ranks_s: float = 0.0
    other_labs_cores: float = 0.0
    clock_drift: float = 0.0

    def bytes_by_intf(self) -> dict[str, int]:
        """Bytes that left through each egress interface during the window."""
        return self._by_intf(self.bytes_sent)

    def frames_by_intf(self) -> dict[str, int]:
        return self._by_intf(self.frames_sent)

    def _by_intf(self, counted: NDArray[np.int64]) -> dict[str, int]:
        if len(counted) < 2:
            return {}
        return dict(zip(self.intfs, (counted[-1] - counted[0]).tolist(), strict=True))

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
        waiting = waiting[waiting != _UNKNOWN]
        if len(waiting) < _MIN_SAMPLES:
            return None
        sent = (self.bytes_sent[-1] - self.bytes_sent[0])[self.forwarding].sum()
        rate_bytes_s = sent / sum(end - start for start, end in busy)
        return float(np.median(waiting) / rate_bytes_s) if rate_bytes_s else None

    @property
    def longest_gap_s(self) -> float:
        """Between two samples, more than large fabrics' seldom ones explain: nothing of this lab may have run."""
        gap_s = float(np.diff(self.at_s).max(initial=0.0))
        return max(0.0, gap_s - (self.interval_s - INTERVAL_S))

    def swallowed(self) -> dict[str, int]:
        """By interface with programs: frames that came to them since they were first seen, and that neither left nor wait nor
        were dropped by the queue: all by one dump of the kernel's, so that nothing moves between the counts. A queue that was
        taken away or replaced tells nothing."""
        found: dict[str, int] = {}
        for i in np.flatnonzero((self.filtered >= 0).any(axis=0)):
            seen = np.flatnonzero((self.filtered[:, i] >= 0) & (self.dequeued[:, i] >= 0))
            left = self.dequeued[seen, i]
            if len(seen) and (np.diff(left) >= 0).all():
                behind = self.filtered[seen, i] - left - self.queue_frames[seen, i] - self.queue_drops[seen, i]
                found[self.intfs[i]] = int(behind[-1] - behind[0])
        return found

    def excess(
        self, rate_bytes_s: NDArray[np.float64], burst_bytes: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], ...]:
        """(interfaces,) the most that each sent in half a second or one, over what its rate and burst allow in that time;
        and the bytes per second of that time. It lasts from when its first sample was asked for to when its last was there,
        which is longer than it was: a late sampler accuses no link."""
        worst: NDArray[np.float64] = np.zeros(len(self.intfs))
        speed = worst
        for span in (max(1, round(seconds / self.interval_s)) for seconds in _SPANS_S):
            if len(self.at_s) > span:
                moved = self.bytes_sent[span:] - self.bytes_sent[:-span]
                seconds = (self.at_s[span:] - self.began_s[:-span])[:, None]
                over = moved / (seconds * rate_bytes_s + burst_bytes)
                at = over.argmax(axis=0)
                here = np.take_along_axis(over, at[None], 0)[0]
                speed = np.where(here > worst, np.take_along_axis(moved / seconds, at[None], 0)[0], speed)
                worst = np.maximum(worst, here)
        return worst, speed


class _Sample(NamedTuple):
    began_s: float
    at_s: float
    counted: NDArray[np.int64]
    backlog_bytes: int
    stopped: bool


class _Reading(NamedTuple):
    at_s: float
    queues: NDArray[np.int64]
    cpu_s: tuple[float, ...]


class Monitor:
    """Samples in the background until `close()`; `window(start, end)` cuts out a measurement.

    links: the counters; switch_intfs: which of them are switches'; switch_pid: the switches' process; roles: pid -> component of
    lab.measuring.cpu; accounts: of everybody's CPU time. origin_s: when it began; last_mark: None
    before the first.
    """

    def __init__(
        self,
        links: Links,
        switch_intfs: Container[str],
        switch_pid: int,
        roles: Mapping[int, str],
        accounts: Accounts,
    ) -> None:
        self._links = links
        self._interval_s = INTERVAL_S * max(1.0, len(links.intfs) / _OF_INTFS)
        self._switch_pid = switch_pid
        self._roles, self._accounts = roles, accounts
        self._forwarding = [i for i, intf in enumerate(links.intfs) if intf in switch_intfs]
        self.origin_s = time.monotonic()
        self._samples: list[_Sample] = []
        self._readings: list[_Reading] = []
        self._backlog_again_s = 0.0
        self._sampler_s = 0.0
        self.last_mark: CpuTimes | None = None
        self._sampling = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def mark(self) -> CpuTimes:
        """Take a sample now and the CPU times with it: the edge of a window."""
        self._read()
        at_s = self._sample().at_s
        self.last_mark = read_cpu_times(self._switch_pid, at_s, self._sampler_s, self._accounts.look())
        return self.last_mark

    def since(self, start: CpuTimes) -> Window:
        """Until now, without what is read at marks only."""
        return self.window(start, replace(start, at_s=time.monotonic()))

    def latest(self) -> tuple[NDArray[np.float64], float]:
        """(interfaces,) bytes per second between the last two samples, and when; for a display."""
        with self._sampling:
            last = self._samples[-2:]
        if len(last) < 2:
            return np.zeros(len(self._links.intfs)), time.monotonic()
        moved = (last[1].counted - last[0].counted)[:, 0]
        return moved / max(last[1].at_s - last[0].at_s, 1e-3), last[1].at_s

    @property
    def intfs(self) -> tuple[str, ...]:
        return self._links.intfs

    def window(self, start: CpuTimes, end: CpuTimes) -> Window:
        # Exactly from sample to sample: one from before the start would count bytes of the warm-up.
        with self._sampling:
            samples, readings = [*self._samples], [*self._readings]
        inside = [sample for sample in samples if start.at_s <= sample.at_s <= end.at_s]
        readings = [reading for reading in readings if start.at_s - self._interval_s <= reading.at_s <= end.at_s]
        span = max(end.at_s - start.at_s, 1e-9)
        names = ("idle_s", "softirq_s", "total_s", "steal_s", "switch_wait_s", "sampler_s")
        took = {name: getattr(end, name) - getattr(start, name) for name in names}
        total = max(took["total_s"], 1e-9)
        counted = np.array([sample.counted for sample in inside], np.int64).reshape(len(inside), len(self.intfs), 2)
        queues = np.array([r.queues for r in readings], np.int64).reshape(len(readings), len(self.intfs), 5)
        return Window(
            at_s=np.array([sample.at_s for sample in inside]),
            began_s=np.array([sample.began_s for sample in inside]),
            interval_s=self._interval_s,
            intfs=self.intfs,
            bytes_sent=counted[:, :, 0],
            frames_sent=counted[:, :, 1],
            backlog_bytes=np.array([sample.backlog_bytes for sample in inside], np.int64),
            forwarding=self._forwarding,
            queue_at_s=np.array([reading.at_s for reading in readings]),
            queue_bytes=queues[:, :, WAITING_BYTES],
            queue_frames=queues[:, :, WAITING],
            queue_drops=queues[:, :, DROPPED],
            filtered=queues[:, :, FILTERED],
            dequeued=queues[:, :, DEQUEUED],
            cpu_s=np.array([reading.cpu_s for reading in readings]).reshape(-1, len(cpu.SAMPLED)),
            stopped_s=sum(sample.stopped for sample in inside) * self._interval_s,
            idle_share=took["idle_s"] / total,
            other_cores=_other_cores(start, end, took),
            steal_share=took["steal_s"] / total,
            switch_wait_share=took["switch_wait_s"] / span,
            sampler_share=took["sampler_s"] / span,
            strangers=end.usage.strangers_since(start.usage, span),
            clock_drift=abs(end.clock_offset_s - start.clock_offset_s) / span,
            ranks_s=_used_s(start, end, cpu.RANKS),
            other_labs_cores=_used_s(start, end, cpu.OTHER_LABS) / span,
        )

    def _run(self) -> None:
        next_at = time.monotonic()
        n = 0
        while not self._over.is_set():
            self._sample()
            if n % _EVERY == 0:
                self._read()
            if n % _LOOK_EVERY == 0:
                self._accounts.look()
            n += 1
            self._sampler_s = time.thread_time()
            next_at = max(next_at + self._interval_s, time.monotonic())
            self._over.wait(next_at - time.monotonic())

    def _sample(self) -> "_Sample":
        # Two threads take samples: one at a time, so that they stand in the order in which the counters were read.
        with self._sampling:
            began_s = time.monotonic()
            counted = self._links.read()
            at_s = time.monotonic()
            sample = _Sample(began_s, at_s, counted, self._backlog(at_s), _state(self._switch_pid) in "Tt")
            self._samples.append(sample)
            return sample

    def _backlog(self, now_s: float) -> int:
        if now_s < self._backlog_again_s:
            return _UNKNOWN
        began_s = time.thread_time()
        found = _backlog_bytes(self._switch_pid)
        self._backlog_again_s = now_s + (time.thread_time() - began_s) / _BACKLOG_SHARE - self._interval_s / 2
        return found

    def _read(self) -> None:
        # In the order in which they were read, as samples are.
        with self._sampling:
            self._readings.append(_Reading(time.monotonic(), self._links.queues(), cpu.sampled(self._roles)))


def _used_s(start: CpuTimes, end: CpuTimes, owner: str) -> float:
    return end.usage.by_owner.get(owner, 0.0) - start.usage.by_owner.get(owner, 0.0)


def _other_cores(start: CpuTimes, end: CpuTimes, took: Mapping[str, float]) -> float:
    """Cores that were busy with neither this lab nor another one. The kernel's own work for the network is the labs'."""
    busy_s = took["total_s"] - took["idle_s"] - took["softirq_s"] - took["steal_s"]
    labs_s = end.usage.labs_s - start.usage.labs_s
    return max(0.0, busy_s - labs_s) / max(end.at_s - start.at_s, 1e-9)


def read_cpu_times(switch_pid: int, at_s: float, sampler_s: float, usage: Usage) -> CpuTimes:
    """proc(5): /proc/stat, /proc/PID/schedstat (ns)."""
    user, nice, system, idle, iowait, irq, softirq, steal = (
        int(x) / _TICKS_PER_S for x in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    )
    waited_ns = 0
    with suppress(OSError):
        waited_ns = int(Path(f"/proc/{switch_pid}/schedstat").read_text().split()[1])
    return CpuTimes(
        at_s=at_s,
        idle_s=idle + iowait,
        softirq_s=irq + softirq,
        total_s=user + nice + system + idle + iowait + irq + softirq + steal,
        steal_s=steal,
        switch_wait_s=waited_ns / 1e9,
        sampler_s=sampler_s,
        clock_offset_s=time.monotonic() - time.clock_gettime(time.CLOCK_MONOTONIC_RAW),
        usage=usage,
    )


def _backlog_bytes(switch_pid: int) -> int:
    """What lies in the packet sockets of the switch's namespace (packet(7)): of a userspace datapath, its input queues.

    In the kernel's unit of account, buffers with their overhead: up to twice the frames' bytes.
    """
    with suppress(OSError):
        # Nine columns, the seventh is Rmem; the heads' line first.
        fields = Path(f"/proc/{switch_pid}/net/packet").read_bytes().split()
        return sum(map(int, fields[15::9]))
    return 0


def _state(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "X"
