"""The two ends of a connection: a stream for the replay on one side, packets on the other. No socket."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from traffic.rocev2.frames import ACK_SYNDROME, NAK_SEQUENCE_SYNDROME, Frames
from traffic.rocev2.opcodes import DATA, ENDS, Opcode
from traffic.rocev2.pacing import Pacer
from traffic.rocev2.packet import Packet
from traffic.rocev2.port import Port
from traffic.rocev2.receiver import Receiver
from traffic.rocev2.sender import Sender


class SendingEnd:
    """A Stream that takes everything at once, by reference: it is read when it is sent, and again if it is sent again."""

    def __init__(
        self,
        number: int,
        sender: Sender,
        frames: Frames,
        port: Port,
        posted: Callable[[], None],
        *,
        selective: bool,
        pacer: Pacer | None,
    ) -> None:
        """number: a negative fileno; posted: called when there is something new to send; pacer: None = as fast as it goes."""
        self.sender = sender
        self.sent = 0
        self.cnps = 0
        self._number = number
        self._frames = frames
        self._port = port
        self._posted = posted
        self._pacer = pacer
        self._selective = selective
        self._messages: dict[int, memoryview] = {}
        self._oldest = 0

    def fileno(self) -> int:
        return self._number

    def send(self, data: memoryview, /) -> int:
        self._messages[self.sender.post(len(data))] = data
        self._port.activate(self)
        self._posted()
        return len(data)

    def recv_into(self, buffer: memoryview, /) -> NoReturn:
        raise OSError("a sending end receives nothing")

    def expect(self, n_bytes: int, /) -> None:
        pass

    def write_next(self, slot: memoryview, now_ns: int) -> int | None:
        if now_ns < self.held_until_ns or (packet := self.sender.next_packet(now_ns)) is None:
            return None
        self.sent += 1
        payload = self._messages[packet.message][packet.offset : packet.offset + packet.n_bytes]
        n_bytes = self._frames.data(
            slot,
            packet.opcode,
            packet.psn,
            payload,
            ack_request=packet.ack_request,
            message_bytes=packet.message_bytes,
        )
        if self._pacer:
            self._pacer.on_sent(now_ns, n_bytes)
        return n_bytes

    @property
    def held_until_ns(self) -> int:
        """By the pacer; 0 = it is not held."""
        return self._pacer.ready_ns if self._pacer else 0

    def go_on(self) -> None:
        """The pacer holds it no longer."""
        self._port.activate(self)

    def on_time(self, now_ns: int) -> None:
        """Raises RetryExceededError."""
        self.sender.on_time(now_ns)
        self._port.activate(self)

    def on_packet(self, packet: Packet, now_ns: int) -> None:
        if packet.opcode is Opcode.CNP:
            self.cnps += 1
            if self._pacer:
                self._pacer.control.on_cnp(now_ns)
            return
        if packet.opcode is not Opcode.ACKNOWLEDGE:
            return
        if packet.syndrome == NAK_SEQUENCE_SYNDROME:
            # A selective receiver says in the message number's place which packet made it ask.
            self.sender.on_nak(packet.psn, now_ns, packet.msn if self._selective else None)
        else:
            self.sender.on_acknowledge(packet.psn, now_ns)
        while self._oldest < self.sender.completed:
            del self._messages[self._oldest]
            self._oldest += 1
        self._port.activate(self)


class ReceivingEnd:
    """A Stream of what arrived in order. readable: the numbers of the streams that have as much as was expected."""

    def __init__(
        self, number: int, receiver: Receiver, frames: Frames, port: Port, readable: dict[int, None], *, selective: bool
    ) -> None:
        self.receiver = receiver
        self._number = number
        self._frames = frames
        self._port = port
        self._readable = readable
        self._selective = selective
        self._held: dict[int, bytes] = {}
        self._next = receiver.expected
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

    def on_packet(self, packet: Packet, now_ns: int) -> None:
        if packet.opcode not in DATA:
            return
        answer = self.receiver.on_data(
            packet.psn,
            ends_message=packet.opcode in ENDS,
            ack_request=packet.ack_request,
            ce=packet.ce,
            now_ns=now_ns,
        )
        if answer.accepted:
            self._held[answer.number] = bytes(packet.payload)
            while self._next < self.receiver.expected:
                chunk = self._held.pop(self._next)
                self._next += 1
                self._chunks.append(memoryview(chunk))
                self._available += len(chunk)
            self._tell()
        if answer.acknowledge or answer.nak:
            told = packet.psn if self._selective and answer.nak else self.receiver.msn
            syndrome = NAK_SEQUENCE_SYNDROME if answer.nak else ACK_SYNDROME
            self._port.answer(partial(self._frames.acknowledge, psn=answer.psn, msn=told, syndrome=syndrome))
        if answer.cnp:
            self._port.answer(self._frames.cnp)
