"""A NIC's way out: frames are written into a batch, and leave when it is full or the turn is over. Touches no socket itself."""

import errno
from collections import deque
from collections.abc import Callable
from typing import Protocol


class Outgoing(Protocol):
    """Slots whose frames are sent together, as `batch.Batch` has them."""

    slots: list[memoryview]

    def set_length(self, slot: int, n_bytes: int) -> None: ...

    def send(self, fd: int, first: int, end: int) -> int: ...


class Source(Protocol):
    """What writes the next frame into a slot, and says how long it is; None: it has none now."""

    def write_next(self, slot: memoryview, now_ns: int) -> int | None: ...


class Port:
    """Answers first, then the sources in turn, a frame each. blocked: the socket has no room; `dropped` frames were refused
    by the interface's queue."""

    def __init__(self, fd: int, batch: Outgoing) -> None:
        self._fd = fd
        self._batch = batch
        self._first = self._end = 0
        self._answers: deque[Callable[[memoryview], int]] = deque()
        self._sources: deque[Source] = deque()
        self._waiting: set[Source] = set()
        self._given_up: list[Source] = []
        self.blocked = False
        self.dropped = 0
        self.sent = 0

    def answer(self, write: Callable[[memoryview], int]) -> None:
        self._answers.append(write)

    def activate(self, source: Source) -> None:
        """It may have frames again."""
        if source not in self._waiting:
            self._waiting.add(source)
            self._sources.append(source)

    def given_up(self) -> list[Source]:
        """The sources that had no frame, since this was last asked."""
        given_up, self._given_up = self._given_up, []
        return given_up

    def pump(self, now_ns: int) -> None:
        """Send as much as there is and fits."""
        while self._answers and (slot := self._slot()) is not None:
            self._put(self._answers.popleft()(slot))
        while self._sources and (slot := self._slot()) is not None:
            n_bytes = self._sources[0].write_next(slot, now_ns)
            if n_bytes is None:
                source = self._sources.popleft()
                self._waiting.discard(source)
                self._given_up.append(source)
                continue
            self._put(n_bytes)
            self._sources.rotate(-1)
        self._flush()

    def _slot(self) -> memoryview | None:
        if self._end == len(self._batch.slots):
            self._flush()
        return None if self._end == len(self._batch.slots) else self._batch.slots[self._end]

    def _put(self, n_bytes: int) -> None:
        self._batch.set_length(self._end, n_bytes)
        self._end += 1

    def _flush(self) -> None:
        while self._first < self._end and not self.blocked:
            taken = self._send()
            self.blocked = taken == 0
            self._first += taken
        if self._first == self._end:
            self._first = self._end = 0

    def _send(self) -> int:
        try:
            taken = self._batch.send(self._fd, self._first, self._end)
        except OSError as error:
            # The interface's queue is full, or the interface is down: the frame is lost as on a cable, and comes again.
            if error.errno not in (errno.ENOBUFS, errno.ENETDOWN):
                raise
            self.dropped += 1
            return 1
        self.sent += taken
        return taken
