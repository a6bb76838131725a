"""The two ends of a queue pair: messages on one side, packets on the other. No socket."""

from functools import partial

from traffic.rocev2.frames import ACK_SYNDROME, NAK_SEQUENCE_SYNDROME, Frames
from traffic.rocev2.opcodes import DATA, ENDS, WITH_RETH, Opcode
from traffic.rocev2.pacing import Pacer
from traffic.rocev2.packet import Packet
from traffic.rocev2.port import Port
from traffic.rocev2.receiver import Receiver
from traffic.rocev2.sender import Sender
from traffic.rocev2.spread import SourcePorts
from traffic.rocev2.streams import ReceivingStream


class SendingEnd:
    """sent: data packets, repetitions among them; cnps, naks: that came back."""

    def __init__(
        self,
        number: int,
        sender: Sender,
        frames: Frames,
        port: Port,
        source_ports: SourcePorts,
        *,
        selective: bool,
        pacer: Pacer | None,
    ) -> None:
        """number: no other end has it; pacer: None = as fast as it goes."""
        self.number = number
        self.sender = sender
        self.sent = 0
        self.cnps = 0
        self.naks = 0
        self._frames = frames
        self._port = port
        self._source_ports = source_ports
        self.pacer = pacer
        self._selective = selective
        # A message, and where in the receiver's stream it goes.
        self._messages: dict[int, tuple[memoryview, int]] = {}
        self._oldest = 0

    def post(self, data: memoryview, offset: int) -> None:
        """A message, read when it is sent; offset: where in the receiver's stream it goes."""
        self._messages[self.sender.post(len(data))] = data, offset
        self._port.activate(self)

    def write_next(self, slot: memoryview, now_ns: int) -> int | None:
        if now_ns < self.held_until_ns:
            return None
        if (packet := self.sender.next_packet(now_ns)) is None:
            if self.pacer and self.sender.has_sent_all:
                self.pacer.pause()
            return None
        self.sent += 1
        data, offset = self._messages[packet.message]
        n_bytes = self._frames.data(
            slot,
            packet.opcode,
            packet.psn,
            data[packet.offset : packet.offset + packet.n_bytes],
            ack_request=packet.ack_request,
            va=offset,
            message_bytes=packet.message_bytes,
            src_port=self._source_ports.of_packet(now_ns),
        )
        if self.pacer:
            self.pacer.on_sent(now_ns, n_bytes)
        return n_bytes

    @property
    def held_until_ns(self) -> int:
        """By the pacer; 0 = it is not held."""
        return self.pacer.ready_ns if self.pacer else 0

    def go_on(self) -> None:
        """The pacer holds it no longer."""
        self._port.activate(self)

    def on_time(self, now_ns: int) -> None:
        """Raises RetryExceededError."""
        if now_ns < self.held_until_ns:
            self.sender.hold(self.held_until_ns)
        self.sender.on_time(now_ns)
        self._port.activate(self)

    def on_packet(self, packet: Packet, now_ns: int) -> None:
        if packet.opcode is Opcode.CNP:
            self.cnps += 1
            if self.pacer:
                self.pacer.control.on_cnp(now_ns)
            return
        if packet.opcode is not Opcode.ACKNOWLEDGE:
            return
        if packet.syndrome == NAK_SEQUENCE_SYNDROME:
            self.naks += 1
            # A selective receiver says in the message number's place which packet made it ask.
            self.sender.on_nak(packet.psn, now_ns, packet.msn if self._selective else None)
        else:
            self.sender.on_acknowledge(packet.psn, now_ns)
        while self._oldest < self.sender.completed:
            del self._messages[self._oldest]
            self._oldest += 1
        self._port.activate(self)


class ReceivingEnd:
    """Writes what arrived in the queue pair's order into the stream, where its RETH says."""

    def __init__(
        self, receiver: Receiver, frames: Frames, port: Port, stream: ReceivingStream, *, selective: bool
    ) -> None:
        self.receiver = receiver
        self._frames = frames
        self._port = port
        self._stream = stream
        self._selective = selective
        # Packets that came early: payload, and of a message's first one where the message goes.
        self._held: dict[int, tuple[bytes, int | None]] = {}
        self._next = receiver.expected
        self._at = 0

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
            self._held[answer.number] = bytes(packet.payload), packet.va if packet.opcode in WITH_RETH else None
            while self._next < self.receiver.expected:
                payload, va = self._held.pop(self._next)
                self._next += 1
                self._at = self._at if va is None else va
                self._stream.land(self._at, memoryview(payload))
                self._at += len(payload)
        if answer.acknowledge or answer.nak:
            told = packet.psn if self._selective and answer.nak else self.receiver.msn
            syndrome = NAK_SEQUENCE_SYNDROME if answer.nak else ACK_SYNDROME
            self._port.answer(partial(self._frames.acknowledge, psn=answer.psn, msn=told, syndrome=syndrome))
        if answer.cnp:
            self._port.answer(self._frames.cnp)
