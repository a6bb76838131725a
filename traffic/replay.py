"""The replay engine: runs a schedule over a transport, for all ranks, in one event loop with one clock.

It knows neither algorithms nor sockets: transport and clock come as arguments. Payloads are the ranks' real values; what
is reduced is really added. A message that is copied is received straight into its place; one that is reduced is received
beside it and added when it is whole. Senders wait in epoll and never spin: a spinning sender takes the core that the
switch needs.

A local operation computes (waits) for its time, then copies or adds its chunks. The waits of one rank run side by side: a
schedule whose ranks compute one thing at a time says so by dependencies. They end up to 1 ms late, as epoll counts in ms.

Bytes are read where they lie, at the moment the kernel takes them. That is safe for schedules that `check.verify` accepts:
there, whatever overwrites a chunk comes after the arrival of every send that reads it.
"""

import heapq
import select
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from traffic.errors import ReplayStalledError, TransportError
from traffic.schedule import Schedule, connection_name
from traffic.transport import Stream, Transport

Values = NDArray[np.float32]
Clock = Callable[[], int]
_STALL_S = 15.0
_ELEMENT_BYTES = 4
# A receiver wakes for this much or the rest of its message. Waking at every 8948-byte segment doubled the CPU time of a
# 16-rank ring at 100 Mbit/s; more than this gains nothing, and the copy of the last piece, which the next send waits for, grows.
_WAKE_BYTES = 1 << 16
_NOWHERE = memoryview(b"")


@dataclass(frozen=True)
class IterationResult:
    """One run of the schedule; times in ns on the given clock, relative to `start_ns`.

    ready: (m,) when this process was told that the last of a send's dependencies had arrived, or, if that is later, when
    the send before it on its connection had gone; started: (m,) when its first byte was offered to the kernel, or a local
    operation began; finished: (m,) when its last byte had arrived and was reduced, or the operation was done. rank_finished:
    (n_ranks,) when each rank had sent and received all.
    """

    start_ns: int
    duration_ns: int
    ready: NDArray[np.int64]
    started: NDArray[np.int64]
    finished: NDArray[np.int64]
    rank_finished: NDArray[np.int64]

    @property
    def lateness_ns(self) -> NDArray[np.int64]:
        """(m,) how long each send waited for this process: other ranks' turns, its own receiving and reducing."""
        return self.started - self.ready


@dataclass(slots=True)
class _Outbox:
    """A connection's sends, in order: `at` is the next to go out, `taken` how many of its bytes the kernel has."""

    connection: int
    stream: Stream
    data: memoryview
    sends: "array[int]"
    at: int = 0
    taken: int = 0
    blocked: bool = False


@dataclass(slots=True)
class _Inbox:
    """A connection's messages, in order: `at` is the one that comes in now, into `space`; `got` bytes of it are there."""

    connection: int
    stream: Stream
    values: Values
    data: memoryview
    sends: "array[int]"
    scratch: Values
    at: int = 0
    got: int = 0
    space: memoryview = _NOWHERE
    expected: int = 0


class Replay:
    """A schedule made ready for buffers of `count` float32 elements over an open transport; `run` as often as wanted.

    Memory: about 100 bytes a send, and for every connection that reduces, one message.
    """

    def __init__(
        self,
        schedule: Schedule,
        count: int,
        transport: Transport,
        clock: Clock = time.perf_counter_ns,
        time_dilation: float = 1.0,
    ) -> None:
        """time_dilation: emulated time over the hardware's, for what is computed."""
        self.clock = clock
        self.count = count
        self.n_ranks = schedule.n_ranks
        self.transport = transport
        # array: as fast to index as a list, and neither a Python object per number nor anything for the garbage collector.
        self.src, self.dst = _column(schedule.src), _column(schedule.dst)
        self.connections = schedule.connections
        connection = schedule.connection
        self.connection = _column(connection)
        self.reduce = schedule.reduce.tobytes()
        first, lands, size = schedule.places(count)
        self.first, self.size = _column(first), _column(size)
        self.lands = self.first if lands is first else _column(lands)
        self.calc_ns = {
            i: round(schedule.calc_ns[i] * time_dilation) for i in np.flatnonzero(schedule.calc_ns).tolist()
        }
        self.local = np.flatnonzero(schedule.is_local).tolist()
        self.n_deps = _column(np.diff(schedule.dep_start))
        own = schedule.waits_to_leave
        self.user_start, self.users = _users(schedule, ~own)
        # Of the sends that wait for one to leave; there are none as a rule.
        self.leaving = _users(schedule, own) if own.any() else None
        self.sends_of = _sends_of(connection, len(self.connections))
        self.scratch = [self._scratch(sends) for sends in self.sends_of]

    def __len__(self) -> int:
        return len(self.src)

    def run(self, buffers: Sequence[Values], stall_s: float = _STALL_S, lifeline: int | None = None) -> IterationResult:
        """One iteration; `buffers[rank]` holds the rank's input and afterwards its output.

        lifeline: a descriptor that becomes readable when the network is gone, e.g. a pidfd of its switch.
        Raises ReplayStalledError when nothing moves for `stall_s` seconds, TransportError when a connection breaks or the
        lifeline ends. After that, or an interruption, streams hold parts of messages: close the transport.
        """
        return _Iteration(self, _checked(buffers, self.n_ranks, self.count), stall_s, lifeline).run()

    def _scratch(self, sends: "array[int]") -> Values:
        """Room for the largest message to reduce, touched so that no page fault is timed."""
        largest = max((self.size[i] for i in sends if self.reduce[i]), default=0)
        return np.ones(largest, dtype=np.float32)


def _column(numbers: NDArray[Any]) -> "array[int]":
    return array("q", numbers.astype(np.int64).tobytes())


def _users(schedule: Schedule, chosen: NDArray[np.bool_]) -> tuple["array[int]", "array[int]"]:
    """The sends that wait for send i, by the chosen dependencies: users[start[i]:start[i + 1]]."""
    deps, waiting = schedule.deps[chosen], schedule.waiting[chosen]
    start = np.concatenate(([0], np.cumsum(np.bincount(deps, minlength=len(schedule)))))
    return _column(start), _column(waiting[np.argsort(deps, kind="stable")])


def _sends_of(connection: NDArray[np.int64], n_connections: int) -> list["array[int]"]:
    """Each connection's sends, in order; local operations are on none."""
    in_order = np.argsort(connection, kind="stable")
    ends = np.searchsorted(connection[in_order], np.arange(n_connections + 1))
    return [_column(in_order[a:b]) for a, b in pairwise(ends.tolist())]


def _checked(buffers: Sequence[Values], n_ranks: int, count: int) -> Sequence[Values]:
    shapes = {(b.shape, b.dtype.name, b.flags.c_contiguous) for b in buffers}
    if len(buffers) != n_ranks or shapes != {((count,), "float32", True)}:
        raise ValueError(f"need {n_ranks} contiguous float32 buffers of {count} elements, not {len(buffers)}: {shapes}")
    return buffers


class _Iteration:
    """The state of one run."""

    def __init__(self, replay: Replay, buffers: Sequence[Values], stall_s: float, lifeline: int | None) -> None:
        self._r = replay
        self._stall_s = stall_s
        self._lifeline = lifeline
        self._background = replay.transport.background
        self._waits_for = replay.n_deps[:]
        self._left = len(replay)
        self._ready = array("q", bytes(8 * len(replay)))
        # Not yet: -1.
        self._started = array("q", [-1]) * len(replay)
        self._finished = array("q", [-1]) * len(replay)
        self._buffers = buffers
        # Local operations that have nothing left to wait for, and those that compute: (when they are done, number).
        self._to_do = deque(i for i in replay.local if not self._waits_for[i])
        self._computing: list[tuple[int, int]] = []
        # A view of bytes: a memoryview of floats cannot be cast when it is empty.
        data = [b.view(np.uint8).data for b in buffers]
        senders, receivers = replay.transport.senders, replay.transport.receivers
        ends = list(enumerate(zip(replay.connections, replay.sends_of, strict=True)))
        self._outbox_of = [_Outbox(n, senders[c], data[c[0]], sends) for n, (c, sends) in ends]
        self._inbox_of = [
            _Inbox(n, receivers[c], buffers[c[1]], data[c[1]], sends, replay.scratch[n]) for n, (c, sends) in ends
        ]
        # Outboxes whose next send may have become possible. A queue, not calls: empty sends can release long chains.
        self._to_push = deque(self._outbox_of)

    def run(self) -> IterationResult:
        with select.epoll(2 * len(self._outbox_of) + 2) as poll:
            self._poll = poll
            self._inboxes = {box.stream.fileno(): box for box in self._inbox_of}
            self._outboxes = {box.stream.fileno(): box for box in self._outbox_of}
            for fd, box in self._inboxes.items():
                self._open_next(box)
                if fd >= 0:
                    poll.register(fd, select.EPOLLIN)
            if self._background is not None:
                poll.register(self._background.fileno(), select.EPOLLIN)
            if self._lifeline is not None:
                poll.register(self._lifeline, select.EPOLLIN)
            self._start = self._told = self._r.clock()
            self._push_all()
            while self._left:
                events = poll.poll(self._patience_s())
                self._told = self._r.clock()
                computed = bool(self._computing) and self._end_computing()
                if not events and not computed and not self._computing:
                    raise ReplayStalledError(f"nothing moved for {self._stall_s:g} s: {self._outstanding()}")
                self._serve(events)
        return self._result()

    def _serve(self, events: list[tuple[int, int]]) -> None:
        """Level-triggered, one read per event: what is left comes back after the other ranks had their turn."""
        for fd, _ in events:
            if fd in self._inboxes:
                self._receive(self._inboxes[fd])
            elif self._background is not None and fd == self._background.fileno():
                for readable in self._background.serve():
                    self._receive(self._inboxes[readable])
            elif fd == self._lifeline:
                raise TransportError(f"the network is gone: {self._outstanding()}")
            else:
                self._poll.unregister(fd)
                self._outboxes[fd].blocked = False
                self._to_push.append(self._outboxes[fd])
                self._push_all()

    # -- local operations ---------------------------------------------------------------------------------------------

    def _patience_s(self) -> float:
        """Until the next rank has computed; while one computes, nothing is stalled."""
        return max(0, self._computing[0][0] - self._now()) / 1e9 if self._computing else self._stall_s

    def _begin(self, i: int) -> None:
        self._started[i] = self._now()
        calc_ns = self._r.calc_ns.get(i, 0)
        if calc_ns:
            heapq.heappush(self._computing, (self._started[i] + calc_ns, i))
        else:
            self._end(i)

    def _end_computing(self) -> bool:
        """End what has computed long enough; whether there was any."""
        now, n_left = self._told - self._start, self._left
        while self._computing and self._computing[0][0] <= now:
            self._end(heapq.heappop(self._computing)[1])
        self._push_all()
        return self._left < n_left

    def _end(self, i: int) -> None:
        r = self._r
        values, first, lands, size = self._buffers[r.src[i]], r.first[i], r.lands[i], r.size[i]
        target = values[lands : lands + size]
        if r.reduce[i]:
            np.add(target, values[first : first + size], out=target)
        else:
            target[:] = values[first : first + size]
        self._arrived(i)

    # -- sending ------------------------------------------------------------------------------------------------------

    def _push_all(self) -> None:
        while self._to_push or self._to_do:
            while self._to_do:
                self._begin(self._to_do.popleft())
            if self._to_push:
                self._push(self._to_push.popleft())

    def _push(self, box: _Outbox) -> None:
        """Hand the kernel the connection's sends, in order, as far as their dependencies and its buffer allow."""
        waits_for = self._waits_for
        while box.at < len(box.sends) and not box.blocked:
            i = box.sends[box.at]
            if waits_for[i] or not self._offer(box, i):
                return
            box.at += 1
            box.taken = 0
            if self._r.leaving:
                self._release(*self._r.leaving, i)
            if box.at < len(box.sends) and not waits_for[box.sends[box.at]]:
                # Its dependencies came before; its turn on this stream comes now.
                self._ready[box.sends[box.at]] = self._now()
            inbox = self._inbox_of[box.connection]
            if self._is_empty(i) and not inbox.space:
                self._open_next(inbox)

    def _offer(self, box: _Outbox, i: int) -> bool:
        """Whether the kernel now has all of send i."""
        if self._started[i] < 0:
            self._started[i] = self._now()
        first = self._r.first[i]
        at, end = first * _ELEMENT_BYTES + box.taken, (first + self._r.size[i]) * _ELEMENT_BYTES
        try:
            while at < end:
                n = box.stream.send(box.data[at:end])
                at += n
                box.taken += n
        except BlockingIOError:
            # Write interest only while it is needed: a stream that has room would be reported every time.
            box.blocked = True
            self._poll.register(box.stream.fileno(), select.EPOLLOUT)
            return False
        except OSError as error:
            self._lost(box.connection, str(error))
        return True

    # -- receiving ----------------------------------------------------------------------------------------------------

    def _open_next(self, box: _Inbox) -> None:
        """Make space for the connection's next message.

        No element, no message: an empty send has arrived when it has left and those before it on its connection have
        arrived. Not sooner: what waits for it may count on the connection's order.
        """
        r, left = self._r, self._outbox_of[box.connection].at
        while box.at < left and self._is_empty(box.sends[box.at]):
            box.at += 1
            self._arrived(box.sends[box.at - 1])
        if box.at == len(box.sends) or self._is_empty(box.sends[box.at]):
            return
        i = box.sends[box.at]
        if r.reduce[i]:
            box.space = box.scratch[: r.size[i]].view(np.uint8).data
        else:
            box.space = box.data[r.lands[i] * _ELEMENT_BYTES : (r.lands[i] + r.size[i]) * _ELEMENT_BYTES]
        box.got = 0
        self._expect(box)

    def _expect(self, box: _Inbox) -> None:
        rest = min(len(box.space) - box.got, _WAKE_BYTES)
        if rest != box.expected:
            box.stream.expect(rest)
            box.expected = rest

    def _receive(self, box: _Inbox) -> None:
        if not box.space:
            self._lost(box.connection, "it ended, or brought bytes that no send of the schedule explains")
        try:
            n = box.stream.recv_into(box.space[box.got :])
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(box.connection, str(error))
        if n == 0:
            self._lost(box.connection, "closed by the other end")
        box.got += n
        if box.got < len(box.space):
            self._expect(box)
            return
        i = box.sends[box.at]
        if self._r.reduce[i]:
            target = box.values[self._r.lands[i] : self._r.lands[i] + self._r.size[i]]
            np.add(target, box.scratch[: len(target)], out=target)
        box.at += 1
        box.space = _NOWHERE
        self._arrived(i)
        self._open_next(box)
        # At once, before other ranks' turns: their receiving would make these late.
        self._push_all()

    def _arrived(self, i: int) -> None:
        """Send i is received and reduced: sends that waited for nothing else may go."""
        self._finished[i] = self._now()
        self._left -= 1
        self._release(self._r.user_start, self._r.users, i)

    def _release(self, start: "array[int]", users: "array[int]", i: int) -> None:
        """What waited for send i only may go."""
        r = self._r
        for at in range(start[i], start[i + 1]):
            user = users[at]
            self._waits_for[user] -= 1
            if not self._waits_for[user]:
                self._ready[user] = self._told - self._start
                if r.connection[user] < 0:
                    self._to_do.append(user)
                else:
                    self._to_push.append(self._outbox_of[r.connection[user]])

    # -- what came of it ----------------------------------------------------------------------------------------------

    def _is_empty(self, i: int) -> bool:
        return self._r.size[i] == 0

    def _now(self) -> int:
        return self._r.clock() - self._start

    def _result(self) -> IterationResult:
        finished = np.array(self._finished, dtype=np.int64)
        rank_finished = np.zeros(self._r.n_ranks, dtype=np.int64)
        for ends in (self._r.src, self._r.dst):
            np.maximum.at(rank_finished, np.array(ends, dtype=np.int64), finished)
        return IterationResult(
            start_ns=self._start,
            duration_ns=int(finished.max(initial=0)),
            ready=np.array(self._ready, dtype=np.int64),
            started=np.array(self._started, dtype=np.int64),
            finished=finished,
            rank_finished=rank_finished,
        )

    def _lost(self, connection: int, why: str) -> NoReturn:
        raise TransportError(
            f"the connection {connection_name(self._r.connections[connection])} broke ({why}): {self._outstanding()}"
        )

    def _outstanding(self) -> str:
        """'3 of 12 sends have not arrived: 4 (0 -> 1, 512 of 1024 bytes came), 5 (1 -> 2, waits for 1 more), ...'"""
        missing = [i for i, t in enumerate(self._finished) if t < 0]
        # First those that are on their way: the others wait for them.
        shown = sorted(missing, key=lambda i: (self._waits_for[i] > 0, self._started[i] < 0, i))[:5]
        more = ", ..." if len(missing) > len(shown) else ""
        names = ", ".join(f"{i} ({self._ends(i)}, {self._state(i)})" for i in shown)
        return f"{len(missing)} of {len(self._r)} sends have not arrived: {names}{more}"

    def _ends(self, i: int) -> str:
        if self._r.connection[i] < 0:
            return f"rank {self._r.src[i]}"
        return connection_name(self._r.connections[self._r.connection[i]])

    def _state(self, i: int) -> str:
        if self._waits_for[i]:
            return f"waits for {self._waits_for[i]} more"
        if self._started[i] < 0:
            return "waits for its turn"
        if self._r.connection[i] < 0:
            return f"computes for {self._r.calc_ns[i] / 1e6:g} ms"
        box = self._inbox_of[self._r.connection[i]]
        size = self._r.size[i] * _ELEMENT_BYTES
        came = box.got if box.at < len(box.sends) and box.sends[box.at] == i else 0
        return f"{came} of {size} bytes came"
