"""A transport without a network: pairs of unix sockets that take and give as few bytes at a time as they are told."""

import socket
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from traffic import values
from traffic.replay import Clock, IterationResult, Replay
from traffic.schedule import Connection, Schedule
from traffic.transport import TransportCounters, WireFlow

Portion = Callable[[], int]


def whole() -> int:
    return 1 << 30


class FakeStream:
    """`portion()` bytes at most per call; 0 means: not now, although epoll said so."""

    def __init__(self, end: socket.socket, portion: Portion) -> None:
        end.setblocking(False)
        self.end = end
        self.expected: list[int] = []
        self._portion = portion

    def fileno(self) -> int:
        return self.end.fileno()

    def send(self, data: memoryview, /) -> int:
        return self.end.send(data[: self._size()])

    def recv_into(self, buffer: memoryview, /) -> int:
        return self.end.recv_into(buffer[: self._size()])

    def expect(self, n_bytes: int, /) -> None:
        self.expected.append(n_bytes)

    def _size(self) -> int:
        size = self._portion()
        if size == 0:
            raise BlockingIOError
        return size


class SendsOnce(FakeStream):
    """Takes `n_bytes`, then nothing more, and epoll does not call it writable either."""

    def __init__(self, end: socket.socket, n_bytes: int) -> None:
        super().__init__(end, lambda: n_bytes)
        self._full, self._other_end = socket.socketpair()
        self._full.setblocking(False)
        self._sent = False

    def fileno(self) -> int:
        return self._full.fileno()

    def send(self, data: memoryview, /) -> int:
        if not self._sent:
            self._sent = True
            return super().send(data)
        while True:
            self._full.send(bytes(4096))

    def close(self) -> None:
        self._full.close()
        self._other_end.close()


class FakeTransport:
    """Streams for `connections`; as a context manager it closes them."""

    name = "fake"
    background = None

    def __init__(self, connections: Sequence[Connection], portion: Portion = whole) -> None:
        self.flows: list[WireFlow] = []
        self.senders: dict[Connection, FakeStream] = {}
        self.receivers: dict[Connection, FakeStream] = {}
        for connection in connections:
            sender, receiver = socket.socketpair()
            self.senders[connection] = FakeStream(sender, portion)
            self.receivers[connection] = FakeStream(receiver, portion)
        # Tests exchange streams; all of these are closed nevertheless.
        self._ends = [s.end for s in (*self.senders.values(), *self.receivers.values())]

    def __enter__(self) -> "FakeTransport":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def counters(self) -> TransportCounters:
        return TransportCounters(0, 0)

    def counters_by_connection(self) -> Mapping[Connection, TransportCounters]:
        return {connection: TransportCounters(0, 0) for connection in self.senders}

    def settings(self) -> Mapping[str, str]:
        return {}

    def close(self) -> None:
        for end in self._ends:
            end.close()


class Ticks:
    """A clock that moves on by a fixed step each time it is read."""

    def __init__(self, step_ns: int = 1) -> None:
        self.now_ns, self._step_ns = 0, step_ns

    def __call__(self) -> int:
        self.now_ns += self._step_ns
        return self.now_ns


def filled(schedule: Schedule, count: int) -> list[NDArray[np.float32]]:
    """Every rank's input."""
    buffers: list[NDArray[np.float32]] = [np.empty(count, dtype=np.float32) for _ in range(schedule.n_ranks)]
    for rank, buffer in enumerate(buffers):
        values.fill(buffer, schedule, rank)
    return buffers


def wrong(schedule: Schedule, buffers: Sequence[NDArray[np.float32]]) -> int:
    """Wrong elements over all ranks' outputs."""
    return sum(values.wrong(buffer, schedule, rank) for rank, buffer in enumerate(buffers))


def replayed(
    schedule: Schedule, count: int, portion: Portion = whole, clock: Clock | None = None
) -> tuple[IterationResult, int]:
    """One iteration over a fake transport, and how many elements came out wrong."""
    buffers = filled(schedule, count)
    with FakeTransport(schedule.connections, portion) as transport:
        result = Replay(schedule, count, transport, clock or Ticks()).run(buffers, stall_s=2.0)
    return result, wrong(schedule, buffers)
