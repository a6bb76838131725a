"""What the replay sees of a connection: a stream at either end, whatever number of queue pairs carries it. No socket."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

from traffic.rocev2.striping import stripe_bytes

if TYPE_CHECKING:
    from traffic.rocev2.ends import SendingEnd


class SendingStream:
    """A Stream that takes everything at once, by reference: it is read when it is sent, and again if it is sent again.

    A message is divided among the queue pairs; each part says where in the receiver's stream it belongs.
    """

    def __init__(self, number: int, queue_pairs: "Sequence[SendingEnd]", posted: Callable[[], None]) -> None:
        """number: a negative fileno; posted: called when there is something new to send."""
        self.queue_pairs = queue_pairs
        self._number = number
        self._posted = posted
        self._offset = 0

    def fileno(self) -> int:
        return self._number

    def send(self, data: memoryview, /) -> int:
        n = len(data)
        stripe = stripe_bytes(n, len(self.queue_pairs))
        for start, queue_pair in zip(range(0, n, stripe or 1), self.queue_pairs, strict=False):
            queue_pair.post(data[start : start + stripe], self._offset + start)
        self._offset += n
        self._posted()
        return n

    def recv_into(self, buffer: memoryview, /) -> NoReturn:
        raise OSError("a sending end receives nothing")

    def expect(self, n_bytes: int, /) -> None:
        pass


class ReceivingStream:
    """A Stream of what has landed without a gap. readable: the numbers of the streams that have as much as was expected."""

    def __init__(self, number: int, readable: dict[int, None]) -> None:
        self._number = number
        self._readable = readable
        # What lies behind a gap, by its place in the stream, and where the first gap is.
        self._ahead: dict[int, memoryview] = {}
        self._next = 0
        self._chunks: deque[memoryview] = deque()
        self._available = 0
        self._expected = 1

    def fileno(self) -> int:
        return self._number

    def send(self, data: memoryview, /) -> NoReturn:
        raise OSError("a receiving end sends nothing")

    def expect(self, n_bytes: int, /) -> None:
        self._expected = n_bytes
        self._tell()

    def land(self, offset: int, data: memoryview) -> None:
        """Bytes of the stream from `offset` on, which are kept by reference. Each lands once."""
        if not len(data):
            return
        self._ahead[offset] = data
        while (chunk := self._ahead.pop(self._next, None)) is not None:
            self._next += len(chunk)
            self._chunks.append(chunk)
            self._available += len(chunk)
        self._tell()

    def recv_into(self, buffer: memoryview, /) -> int:
        if not self._chunks:
            raise BlockingIOError
        n = 0
        while self._chunks and n < len(buffer):
            chunk = self._chunks.popleft()
            part = chunk[: len(buffer) - n]
            buffer[n : n + len(part)] = part
            n += len(part)
            if len(part) < len(chunk):
                self._chunks.appendleft(chunk[len(part) :])
        self._available -= n
        self._tell()
        return n

    def _tell(self) -> None:
        if self._available >= self._expected > 0:
            self._readable[self._number] = None
        else:
            self._readable.pop(self._number, None)
