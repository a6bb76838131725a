"""The replay engine: runs a schedule over a transport, for all ranks, in one event loop with one clock.

It knows neither algorithms nor sockets: transport and clock come as arguments. Payloads are the ranks' real values; what
is reduced is really added. A message that is copied is received straight into its place; one that is reduced is received
beside it and added when it is whole. Senders wait in epoll and never spin: a spinning sender takes the core that the
switch needs.
"""

import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traffic.errors import TrafficError
from traffic.schedule import Schedule, chunk_bounds
from traffic.transport import Pair, Stream, Transport

Values = NDArray[np.float32]
Clock = Callable[[], int]
_STALL_S = 15.0
_WAKE_S = 0.5


class ReplayStalledError(Exception):
    """No byte moved for the deadline while sends were outstanding; the text names some of them."""


@dataclass(frozen=True)
class IterationResult:
    """One run of the schedule; times in ns on the given clock, relative to `start_ns`.

    ready, started, finished: (m,) when each send's dependencies had arrived, when it was first offered to the kernel,
    when its last byte had arrived and was reduced. rank_finished: (n_ranks,) when each rank had sent and received all.
    """

    start_ns: int
    duration_ns: int
    ready: NDArray[np.int64]
    started: NDArray[np.int64]
    finished: NDArray[np.int64]
    rank_finished: NDArray[np.int64]

    @property
    def lateness_ns(self) -> NDArray[np.int64]:
        """(m,) how long each send waited for this process, its dependencies having arrived."""
        return self.started - self.ready


@dataclass
class _Outbox:
    """A pair's sends, in order: `at` is the next to go out, `offset` how much of it the kernel has."""

    stream: Stream
    src: int
    sends: list[int]
    at: int = 0
    offset: int = 0
    blocked: bool = False


@dataclass
class _Inbox:
    """A pair's expected messages, in order."""

    stream: Stream
    dst: int
    sends: list[int]
    scratch: Values
    at: int = 0
    offset: int = 0


class Replay:
    """A schedule made ready for buffers of `count` float32 elements over an open transport; `run` as often as wanted."""

    def __init__(self, schedule: Schedule, count: int, transport: Transport, clock: Clock = time.perf_counter_ns) -> None:
        self._clock = clock
        self._n_ranks = schedule.n_ranks
        self._src = schedule.src.tolist()
        self._dst = schedule.dst.tolist()
        self._reduce = schedule.reduce.tolist()
        bounds = chunk_bounds(count, schedule.n_chunks)
        self._first = bounds[schedule.first_chunk].tolist() if len(schedule) else []
        self._last = bounds[schedule.first_chunk + schedule.n_chunks_sent].tolist() if len(schedule) else []
        self._n_deps = np.diff(schedule.dep_start).tolist()
        self._users = _users(schedule)
        self._transport = transport
        self._sends_of: dict[Pair, list[int]] = {}
        for i, pair in enumerate(zip(self._src, self._dst, strict=True)):
            self._sends_of.setdefault(pair, []).append(i)

    def run(self, buffers: Sequence[Values], stall_s: float = _STALL_S) -> IterationResult:
        """One iteration; `buffers[rank]` holds the rank's input and afterwards its output.

        Raises ReplayStalledError when nothing moves for `stall_s` seconds.
        """
        return _Iteration(self, buffers, stall_s).run()

    def _outboxes(self) -> dict[Pair, _Outbox]:
        return {p: _Outbox(self._transport.senders[p], p[0], sends) for p, sends in self._sends_of.items()}

    def _inboxes(self) -> dict[Pair, _Inbox]:
        inboxes = {}
        for pair, sends in self._sends_of.items():
            filled = [i for i in sends if self._last[i] > self._first[i]]
            scratch = max((self._last[i] - self._first[i] for i in filled if self._reduce[i]), default=0)
            inboxes[pair] = _Inbox(self._transport.receivers[pair], pair[1], filled, np.empty(scratch, np.float32))
        return inboxes


def _users(schedule: Schedule) -> list[list[int]]:
    """Which sends wait for each send."""
    users: list[list[int]] = [[] for _ in range(len(schedule))]
    owner = np.repeat(np.arange(len(schedule)), np.diff(schedule.dep_start))
    for dep, user in zip(schedule.deps.tolist(), owner.tolist(), strict=True):
        users[dep].append(user)
    return users


class _Iteration:
    """The state of one run."""

    def __init__(self, replay: Replay, buffers: Sequence[Values], stall_s: float) -> None:
        self._r = replay
        self._buffers = buffers
        self._bytes = [memoryview(b).cast("B") for b in buffers]
        self._stall_s = stall_s
        n = len(replay._src)
        self._waits_for = replay._n_deps.copy()
        self._left = n
        self._ready = [0] * n
        self._started = [0] * n
        self._finished = [0] * n
        self._outbox_of = replay._outboxes()
        self._outboxes = {box.stream.fileno(): box for box in self._outbox_of.values()}
        self._inboxes = {box.stream.fileno(): box for box in replay._inboxes().values()}
        # Outboxes whose next send may have become possible.
        self._to_push: deque[_Outbox] = deque(self._outbox_of.values())

    def run(self) -> IterationResult:
        start = self._r._clock()
        self._start = start
        with select.epoll(max(len(self._inboxes) + len(self._outboxes), 1)) as poll:
            self._poll = poll
            for fd in self._inboxes:
                poll.register(fd, select.EPOLLIN)
            self._push_all()
            while self._left:
                self._wait()
                self._push_all()
        return self._result()

    def _result(self) -> IterationResult:
        finished = np.array(self._finished, dtype=np.int64)
        rank_finished = np.zeros(self._r._n_ranks, dtype=np.int64)
        np.maximum.at(rank_finished, np.array(self._r._src, dtype=np.int64), finished)
        np.maximum.at(rank_finished, np.array(self._r._dst, dtype=np.int64), finished)
        return IterationResult(
            start_ns=self._start,
            duration_ns=int(finished.max(initial=0)),
            ready=np.array(self._ready, dtype=np.int64),
            started=np.array(self._started, dtype=np.int64),
            finished=finished,
            rank_finished=rank_finished,
        )

    def _wait(self) -> None:
        deadline = time.monotonic() + self._stall_s
        while not (events := self._poll.poll(_WAKE_S)):
            if time.monotonic() > deadline:
                raise ReplayStalledError(self._stuck())
        for fd, _ in events:
            if fd in self._inboxes:
                self._receive(self._inboxes[fd])
            else:
                box = self._outboxes[fd]
                self._poll.unregister(fd)
                box.blocked = False
                self._to_push.append(box)

    # -- sending ------------------------------------------------------------------------------------------------------

    def _push_all(self) -> None:
        while self._to_push:
            self._push(self._to_push.popleft())

    def _push(self, box: _Outbox) -> None:
        """Hand the kernel as much of the pair's sends, in order, as it takes and as their dependencies allow."""
        r = self._r
        while not box.blocked and box.at < len(box.sends):
            i = box.sends[box.at]
            if self._waits_for[i]:
                return
            start, end = r._first[i] * 4, r._last[i] * 4
            if not self._started[i]:
                self._started[i] = r._clock() - self._start
            while start + box.offset < end:
                try:
                    box.offset += box.stream.send(self._bytes[box.src][start + box.offset : end])
                except BlockingIOError:
                    box.blocked = True
                    self._poll.register(box.stream.fileno(), select.EPOLLOUT)
                    return
            box.at += 1
            box.offset = 0
            if box.at < len(box.sends) and not self._waits_for[box.sends[box.at]]:
                # It was ready before, but its turn on this stream comes now.
                self._ready[box.sends[box.at]] = r._clock() - self._start
            if start == end:
                # No chunk, no message: an empty send has arrived as soon as it may leave.
                self._done(i)

    # -- receiving ----------------------------------------------------------------------------------------------------

    def _receive(self, box: _Inbox) -> None:
        """One read per event: with level-triggered epoll what is left comes back, after the other ranks had their turn."""
        i = box.sends[box.at] if box.at < len(box.sends) else -1
        if i < 0:
            raise TrafficError(f"rank {box.dst} received bytes that no send of the schedule explains")
        view, size = self._place(box, i)
        try:
            n = box.stream.recv_into(view[box.offset : size])
        except BlockingIOError:
            return
        if n == 0:
            raise ReplayStalledError(f"the connection {self._r._src[i]} -> {self._r._dst[i]} was closed: {self._stuck()}")
        box.offset += n
        if box.offset == size:
            if self._r._reduce[i]:
                first, last = self._r._first[i], self._r._last[i]
                self._buffers[box.dst][first:last] += box.scratch[: last - first]
            box.at += 1
            box.offset = 0
            self._done(i)

    def _place(self, box: _Inbox, i: int) -> tuple[memoryview, int]:
        """Where the message's bytes go: the view that starts with them, and their number."""
        first, last = self._r._first[i], self._r._last[i]
        size = (last - first) * 4
        if self._r._reduce[i]:
            return memoryview(box.scratch).cast("B"), size
        return self._bytes[box.dst][first * 4 : last * 4], size

    def _done(self, i: int) -> None:
        """Send i has arrived: sends that waited for it come closer."""
        now = self._r._clock() - self._start
        self._finished[i] = now
        self._left -= 1
        for user in self._r._users[i]:
            self._waits_for[user] -= 1
            if not self._waits_for[user]:
                self._ready[user] = now
                box = self._outbox_of[self._r._src[user], self._r._dst[user]]
                if not box.blocked:
                    self._to_push.append(box)

    def _stuck(self) -> str:
        outstanding = [i for i, t in enumerate(self._finished) if not t]
        some = ", ".join(f"{self._r._src[i]}->{self._r._dst[i]}" for i in outstanding[:5])
        return f"{len(outstanding)} sends did not arrive within {self._stall_s:g} s, first {some}"
