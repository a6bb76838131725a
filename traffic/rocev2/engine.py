"""What moves the packets of all hosts: one loop over their interfaces and one timer, which stand behind one descriptor.

Whoever watches the descriptor calls `serve`: packets come in and go to their ends by queue pair number, what those have to say
goes out, and what is due happens: pacers let go, retransmission timers run out.
"""

import errno
import heapq
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from traffic.errors import TransportError
from traffic.rocev2.batch import Batch
from traffic.rocev2.ends import ReceivingEnd, SendingEnd
from traffic.rocev2.nic import Nic
from traffic.rocev2.packet import parse
from traffic.rocev2.port import Port
from traffic.rocev2.sender import RetryExceededError
from traffic.rocev2.timer import Timer
from traffic.schedule import Connection, connection_name

_RECEIVE_SLOTS = 64
# Of a host, and there may be hundreds. More than its socket takes at once gain nothing.
_SEND_SLOTS = 16


@dataclass
class Interface:
    """In use: what leaves by it, and who is addressed there by a queue pair number."""

    nic: Nic
    port: Port
    ends: dict[int, SendingEnd | ReceivingEnd] = field(default_factory=dict)
    watched_for_room: bool = False


class Engine:
    """timeout_ns: the least after which a packet is sent again.

    strays: frames that are no valid packet for anybody here. readable: the streams that can be read, by number.
    """

    def __init__(self, timeout_ns: int, slot_bytes: int) -> None:
        self.readable: dict[int, None] = {}
        self.strays = 0
        self._timeout_ns = timeout_ns
        self._slot_bytes = slot_bytes
        self._incoming = Batch(_RECEIVE_SLOTS, slot_bytes)
        self._interfaces: dict[int, Interface] = {}
        self._senders: list[tuple[Connection, SendingEnd]] = []
        # When retransmission timers are to be looked at; and whom a pacer holds, until when.
        self._retry_ns: int | None = None
        self._held: list[tuple[int, int, SendingEnd]] = []
        self._are_held: set[SendingEnd] = set()
        self._timer = Timer()
        self._poll = select.epoll()
        self._poll.register(self._timer.fileno(), select.EPOLLIN)

    def close(self) -> None:
        self._poll.close()
        self._timer.close()

    def add(self, nic: Nic) -> Interface:
        """The NIC stays its owner's to close."""
        port = Port(nic.fileno(), Batch(_SEND_SLOTS, self._slot_bytes))
        interface = self._interfaces[nic.fileno()] = Interface(nic, port)
        self._poll.register(nic.fileno(), select.EPOLLIN)
        return interface

    def watch(self, connection: Connection, end: SendingEnd) -> None:
        """Its retransmission timer."""
        self._senders.append((connection, end))

    def fileno(self) -> int:
        return self._poll.fileno()

    def serve(self) -> Iterator[int]:
        """A batch of frames from each interface, what they ask for, and what is due; then the streams that can be read."""
        due = False
        for fd, events in self._poll.poll(0):
            if fd == self._timer.fileno():
                due = True
                continue
            interface = self._interfaces[fd]
            if events & select.EPOLLOUT:
                interface.port.blocked = False
            if events & ~select.EPOLLOUT:
                self._receive(interface)
            self.pump(interface)
        if due:
            self._on_time()
        while self.readable:
            yield from list(self.readable)

    def _receive(self, interface: Interface) -> None:
        now_ns = time.monotonic_ns()
        try:
            frames = self._incoming.receive(interface.nic.fileno())
        except OSError as error:
            if error.errno != errno.ENETDOWN:
                raise TransportError(f"{interface.nic.intf}: {error.strerror}") from None
            # Said once when the interface goes down; what is lost meanwhile comes again, or the retries end.
            return
        for frame in frames:
            packet = parse(frame)
            end = interface.ends.get(packet.dst_qpn) if packet else None
            if packet is None or end is None:
                self.strays += 1
            else:
                end.on_packet(packet, now_ns)

    def pump(self, interface: Interface) -> None:
        """Send what there is to send."""
        now_ns = time.monotonic_ns()
        port = interface.port
        sent_before = port.sent
        port.pump(now_ns)
        if port.blocked != interface.watched_for_room:
            interface.watched_for_room = port.blocked
            room = select.EPOLLOUT if port.blocked else 0
            self._poll.modify(interface.nic.fileno(), select.EPOLLIN | room)
        if self._retry_ns is None and port.sent > sent_before:
            # Nobody's deadline can be sooner; whose it is shows when it is over.
            self._retry_ns = now_ns + self._timeout_ns
        self._hold(port, now_ns)
        self._arm()

    def _hold(self, port: Port, now_ns: int) -> None:
        """Those that the port let go of because their pacer holds them."""
        for source in port.given_up():
            if isinstance(source, SendingEnd) and source.held_until_ns > now_ns and source not in self._are_held:
                self._are_held.add(source)
                heapq.heappush(self._held, (source.held_until_ns, source.number, source))

    def _arm(self) -> None:
        wanted = min((t for t in (self._retry_ns, self._held[0][0] if self._held else None) if t), default=None)
        if wanted != self._timer.deadline_ns:
            self._timer.set(wanted)

    def _on_time(self) -> None:
        now_ns = time.monotonic_ns()
        # Set anew even for the same time: only then it is not readable any more.
        self._timer.set(None)
        while self._held and self._held[0][0] <= now_ns:
            _, _, end = heapq.heappop(self._held)
            self._are_held.discard(end)
            end.go_on()
        if self._retry_ns is not None and self._retry_ns <= now_ns:
            self._retry(now_ns)
        for interface in self._interfaces.values():
            self.pump(interface)
        self._arm()

    def _retry(self, now_ns: int) -> None:
        for connection, end in self._senders:
            try:
                end.on_time(now_ns)
            except RetryExceededError as error:
                raise RetryExceededError(f"the connection {connection_name(connection)} broke: {error}") from None
        deadlines = [end.sender.deadline_ns for _, end in self._senders if end.sender.deadline_ns is not None]
        self._retry_ns = min(deadlines, default=None)
