"""UDP: datagrams sent as fast as the host's link takes them, and never again: what a network does to traffic that minds nothing.

For comparison only. What was lost counts as lost, zeros stand in its place, and nobody may take the values for a result.
"""

import errno
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from topologies import namespaces
from traffic.errors import TrafficError, TransportError
from traffic.framing import UDP_OVERHEAD_BYTES, udp
from traffic.open_files import allow_open_files
from traffic.rocev2.timer import Timer
from traffic.schedule import Connection, connection_name
from traffic.transport import Endpoint, TransportCounters, WireFlow, address_pair
from traffic.unreliable import OFFSET, LossyStream

# Below the kernel's ephemeral ports; receivers below senders.
SERVER_PORT, FIRST_CLIENT_PORT, _END_OF_PORTS = 6000, 20_000, 32_768
# asm-generic/socket.h and linux/in.h; place of SK_MEMINFO_DROPS (linux/sock_diag.h) among its numbers.
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_MEMINFO = 32, 33, 55
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO, _IP_MTU = 10, 2, 14
_MEMINFO = struct.Struct("=9I")
_DROPS_AT = 8
_RECEIVE_BUFFER_BYTES = 8 << 20
# What a host's sockets may have in its link's queue together: fewer than it holds unasked.
_QUEUED_FRAMES = 16
# Datagrams that a socket gives in one turn.
_TURN = 64
_LARGEST = 1 << 16
PATIENCE_NS = 1_000_000_000


class _Sender:
    """A connected socket as the Stream that sends: it cuts data into datagrams and says where each belongs."""

    def __init__(self, sock: socket.socket, sent: Callable[[], None]) -> None:
        self.socket = sock
        self.offset = self.datagrams = 0
        self._payload_bytes = sock.getsockopt(socket.IPPROTO_IP, _IP_MTU) - UDP_OVERHEAD_BYTES
        self._sent = sent

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, data: memoryview, /) -> int:
        """One datagram of it. Raises BlockingIOError while the link's queue has no room."""
        part = data[: self._payload_bytes]
        try:
            self.socket.sendmsg((OFFSET.pack(self.offset), part))
        except OSError as error:
            # The interface's queue dropped it, or the interface is down: lost, as on a cable.
            if error.errno not in (errno.ENOBUFS, errno.ENETDOWN):
                raise
        self.offset += len(part)
        self.datagrams += 1
        self._sent()
        return len(part)

    def recv_into(self, buffer: memoryview, /) -> int:
        raise OSError("a sending end receives nothing")

    def expect(self, n_bytes: int, /) -> None:
        pass


class UdpTransport:
    """`connections`, ready at once; `close()` or a `with` block ends them.

    patience_ns: how long a connection may be silent before what was sent and has not come is given up. Raises TrafficError for
    more connections than ports, TransportError for hosts that have no way to each other.
    """

    name = "udp"
    framing = staticmethod(udp)

    def __init__(
        self, endpoints: Sequence[Endpoint], connections: Sequence[Connection], *, patience_ns: int = PATIENCE_NS
    ) -> None:
        self._patience_ns = patience_ns
        self._netns = {e.rank: e.netns for e in endpoints}
        self.flows = self.plan(endpoints, connections)
        allow_open_files(len(connections) + 2 * len(endpoints))
        self.senders: dict[Connection, _Sender] = {}
        self.receivers: dict[Connection, LossyStream] = {}
        self._readable: dict[int, None] = {}
        self._listeners: dict[int, socket.socket] = {}
        # (listener's descriptor, source address and port) -> whose it is.
        self._connection_from: dict[tuple[int, str, int], Connection] = {}
        self._moved_ns: dict[Connection, int] = {}
        self._buffer = bytearray(_LARGEST)
        self._timer = Timer()
        self._poll = select.epoll()
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "UdpTransport":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._poll.close()
        self._timer.close()
        for s in (*self._listeners.values(), *(sender.socket for sender in self.senders.values())):
            s.close()

    @property
    def background(self) -> "UdpTransport":
        return self

    @staticmethod
    def plan(endpoints: Sequence[Endpoint], connections: Sequence[Connection]) -> list[WireFlow]:
        """The 5-tuples: the n-th connection of a rank leaves from its n-th port."""
        at = {e.rank: e for e in endpoints}
        opened: Counter[int] = Counter()
        flows = []
        for c in connections:
            ports = FIRST_CLIENT_PORT + opened[c[0]], SERVER_PORT + c[1]
            flows.append(WireFlow(*c, *address_pair(at[c[0]], at[c[1]]), socket.IPPROTO_UDP, *ports))
            opened[c[0]] += 1
        if (most := max(opened.values(), default=0)) > _END_OF_PORTS - FIRST_CLIENT_PORT:
            raise TrafficError(
                f"{most} UDP flows from one rank do not fit: it has ports for {_END_OF_PORTS - FIRST_CLIENT_PORT}, use fewer"
            )
        return flows

    # -- what is told -------------------------------------------------------------------------------------------------

    def counters(self) -> TransportCounters:
        drops = sum(
            _MEMINFO.unpack(s.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 36))[_DROPS_AT]
            for s in self._listeners.values()
        )
        return sum(self.counters_by_connection().values(), TransportCounters(0, 0, dropped_host=drops))

    def counters_by_connection(self) -> dict[Connection, TransportCounters]:
        """Hosts' losses are nobody's in particular."""
        return {
            c: TransportCounters(
                0, s.datagrams, out_of_order=self.receivers[c].late, lost_bytes=self.receivers[c].lost_bytes
            )
            for c, s in self.senders.items()
        }

    def settings(self) -> Mapping[str, str]:
        return {"udp_patience_ms": f"{self._patience_ns / 1e6:g}", "congestion_control": "none"}

    # -- opening ------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        listening = list(dict.fromkeys((f.dst_rank, f.dst_ip) for f in self.flows))
        at: dict[tuple[int, str], int] = {}
        for (rank, ip), listener in zip(listening, self._sockets([rank for rank, _ in listening]), strict=True):
            fd = at[rank, ip] = listener.fileno()
            self._listeners[fd] = listener
            listener.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
            listener.bind((ip, SERVER_PORT + rank))
            self._poll.register(fd, select.EPOLLIN)
        self._poll.register(self._timer.fileno(), select.EPOLLIN)
        flows_of = Counter(f.src_rank for f in self.flows)
        for flow, s in zip(self.flows, self._sockets([f.src_rank for f in self.flows]), strict=True):
            self._connect(flow, s, flows_of[flow.src_rank])
            self.receivers[flow.connection] = LossyStream(-1 - len(self.receivers), self._readable)
            self._connection_from[at[flow.dst_rank, flow.dst_ip], flow.src_ip, flow.src_port] = flow.connection

    def _sockets(self, ranks: Sequence[int]) -> list[socket.socket]:
        """One in each rank's namespace."""
        made: list[socket.socket] = []

        def make(_: object) -> None:
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.setblocking(False)
            made.append(s)

        inside = [(netns, None) for rank in ranks if (netns := self._netns[rank]) is not None]
        namespaces.each(inside, make)
        while len(made) < len(ranks):
            make(None)
        return made

    def _connect(self, flow: WireFlow, s: socket.socket, flows: int) -> None:
        """flows: that leave by the same link."""
        try:
            s.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
            s.bind((flow.src_ip, flow.src_port))
            s.connect((flow.dst_ip, flow.dst_port))
            n_bytes = _QUEUED_FRAMES * s.getsockopt(socket.IPPROTO_IP, _IP_MTU) // flows
            s.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, n_bytes)
        except OSError as error:
            s.close()
            raise TransportError(
                f"no UDP from {flow.src_ip} to {flow.dst_ip} ({connection_name(flow.connection)}): {error.strerror}"
            ) from None
        self.senders[flow.connection] = _Sender(s, lambda: self._on_sent(flow.connection))

    # -- the background -----------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._poll.fileno()

    def _on_sent(self, connection: Connection) -> None:
        now_ns = self._moved_ns[connection] = time.monotonic_ns()
        if self._timer.deadline_ns is None:
            self._timer.set(now_ns + self._patience_ns)

    def serve(self) -> Iterator[int]:
        """What has come, and what is given up; then the streams that can be read."""
        for fd, _ in self._poll.poll(0):
            if fd == self._timer.fileno():
                self._give_up()
            else:
                self._receive(self._listeners[fd])
        while self._readable:
            yield from list(self._readable)

    def _receive(self, listener: socket.socket) -> None:
        for _ in range(_TURN):
            try:
                n, (ip, port) = listener.recvfrom_into(self._buffer)
            except BlockingIOError:
                return
            connection = self._connection_from.get((listener.fileno(), ip, port))
            if connection is None or n < OFFSET.size:
                # Somebody else's, for instance a user's port scan.
                continue
            self._moved_ns[connection] = time.monotonic_ns()
            data = memoryview(bytes(self._buffer[OFFSET.size : n]))
            self.receivers[connection].arrive(OFFSET.unpack_from(self._buffer)[0], data)

    def _give_up(self) -> None:
        now_ns = time.monotonic_ns()
        waiting = [c for c, sender in self.senders.items() if sender.offset > self.receivers[c].at]
        for c in waiting:
            if now_ns - self._moved_ns[c] >= self._patience_ns:
                self.receivers[c].give_up(self.senders[c].offset)
        left = [self._moved_ns[c] for c in waiting if self.senders[c].offset > self.receivers[c].at]
        self._timer.set(min(left) + self._patience_ns if left else None)
