"""TCP: the schedule's connections, made inside the hosts' namespaces, driven from one process.

Each carries data in one direction only, so a 5-tuple is one direction's data and its path can be computed before
the run: ports are chosen here and bound explicitly.

Without a window socket buffers are left to the kernel's autotuning: setting a size switches it off for that socket, and a send
buffer that follows the congestion window keeps what the kernel holds, over all ranks, at what is in flight. A window is a send
buffer of its size: what is under way is in it until it is acknowledged. (The receiver's offer would be the natural place, but
the kernel forgets a TCP_WINDOW_CLAMP as soon as it learns how much memory segments take.)
"""

import errno
import os
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from topologies import namespaces
from traffic.errors import TrafficError, TransportError
from traffic.framing import tcp
from traffic.open_files import allow_open_files
from traffic.schedule import Connection
from traffic.transport import Endpoint, TransportCounters, WireFlow, address_pair

# Below the kernel's ephemeral ports (32768 and up), so that nothing else takes one.
SERVER_PORT = 5000
FIRST_CLIENT_PORT = 10_000
_CLIENT_PORTS = 32_768 - FIRST_CLIENT_PORT
# People wait at the prompt: an unreachable host must show before that gets long.
_CONNECT_DEADLINE_S = 15.0
# asm-generic/socket.h; the kernel doubles a size that is set. It counts its own memory as well, of several segments that it keeps
# as one (measured: 257 bytes each, of 1448).
_SO_SNDBUFFORCE, _DOUBLED, _SEGMENT_OVERHEAD_BYTES = 32, 2, 256
# Where struct tcp_info (linux/tcp.h) has tcpi_total_retrans, tcpi_segs_out and tcpi_rcv_ooopack, each of 32 bits.
_TOTAL_RETRANS_AT, _SEGS_OUT_AT, _OUT_OF_ORDER_AT, _TCP_INFO_BYTES = 100, 136, 224, 232


class TcpStream(socket.socket):
    """A socket that is the Stream of the replay engine."""

    def expect(self, n_bytes: int, /) -> None:
        # The kernel widens the window for it, and wakes earlier where it cannot (tcp(7), SO_RCVLOWAT in socket(7)).
        self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, n_bytes)


class TcpTransport:
    """`connections`, opened at once; `close()` or a `with` block ends them.

    windows: full frames that a connection has under way at most, of segment_bytes of payload each; others have no limit of ours.

    Raises TrafficError for what can be seen before (open files, congestion control), TransportError, after
    `connect_deadline_s` at most, for hosts that do not reach each other.
    """

    name = "tcp"
    framing = staticmethod(tcp)
    background = None

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        connections: Sequence[Connection],
        *,
        congestion_control: str = "cubic",
        windows: Mapping[Connection, int] | None = None,
        segment_bytes: int = 1448,
        connect_deadline_s: float = _CONNECT_DEADLINE_S,
    ) -> None:
        self._endpoints = {e.rank: e for e in endpoints}
        self._congestion_control = congestion_control
        self._windows, self._segment_bytes = windows or {}, segment_bytes
        self._connect_deadline_s = connect_deadline_s
        self.flows = self.plan(endpoints, connections)
        allow_open_files(2 * len(connections) + len(endpoints))
        self.senders: dict[Connection, TcpStream] = {}
        self.receivers: dict[Connection, TcpStream] = {}
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "TcpTransport":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        _close_all((*self.senders.values(), *self.receivers.values()))

    def counters(self) -> TransportCounters:
        return sum(self.counters_by_connection().values(), TransportCounters(0, 0))

    def counters_by_connection(self) -> dict[Connection, TransportCounters]:
        """From both ends' TCP_INFO; connection set-up included."""
        return {
            connection: TransportCounters(
                retransmits=_tcp_info(sender, _TOTAL_RETRANS_AT),
                segments=_tcp_info(sender, _SEGS_OUT_AT),
                out_of_order=_tcp_info(self.receivers[connection], _OUT_OF_ORDER_AT),
            )
            for connection, sender in self.senders.items()
        }

    def settings(self) -> Mapping[str, str]:
        """What the sockets say, not what was asked for."""
        used = {_congestion_control_of(s) for s in self.senders.values()} or {self._congestion_control}
        nodelay = {s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for s in self.senders.values()} or {1}
        segment = self._segment_bytes + _SEGMENT_OVERHEAD_BYTES
        limited = [s for connection, s in self.senders.items() if connection in self._windows]
        frames = sorted({round(s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) / segment) for s in limited})
        window = {"tcp_window_frames": "/".join(map(str, frames))} if frames else {}
        return {
            "tcp_nodelay": "/".join(map(str, sorted(nodelay))),
            "congestion_control": "/".join(sorted(used)),
            **window,
        }

    @staticmethod
    def plan(endpoints: Sequence[Endpoint], connections: Sequence[Connection]) -> list[WireFlow]:
        """The 5-tuples, without opening anything: the n-th connection of a rank leaves from its n-th client port.

        Raises TrafficError when a rank has more connections than ports.
        """
        at = {e.rank: e for e in endpoints}
        opened: dict[int, int] = {}
        flows = []
        for src, dst, channel in connections:
            nth = opened[src] = opened.get(src, -1) + 1
            ports = (FIRST_CLIENT_PORT + nth, SERVER_PORT + dst)
            flows.append(WireFlow(src, dst, channel, *address_pair(at[src], at[dst]), socket.IPPROTO_TCP, *ports))
        most = max(opened.values(), default=-1) + 1
        if most > _CLIENT_PORTS:
            raise TrafficError(
                f"{most} TCP connections from one rank do not fit: it has ports for {_CLIENT_PORTS}, use fewer"
            )
        return flows

    # -- opening ------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Listen everywhere, connect everywhere, then sort out who is who by the port that a connection comes from."""
        # A rank listens at each of its addresses that somebody calls.
        callers = Counter((f.dst_rank, f.dst_ip) for f in self.flows)
        listeners = dict(zip(callers, self._sockets(rank for rank, _ in callers), strict=True))
        try:
            for (rank, ip), listener in listeners.items():
                # Accepted sockets inherit it; DCTCP needs it at both ends.
                self._configure(listener)
                _bind(listener, ip, SERVER_PORT + rank)
                listener.listen(callers[rank, ip])
            for flow, client in zip(self.flows, self._sockets(f.src_rank for f in self.flows), strict=True):
                self.senders[flow.connection] = client
            for flow in self.flows:
                self._connect(flow)
            self._accept_all({listener: rank for (rank, _), listener in listeners.items()})
        finally:
            _close_all(listeners.values())

    def _sockets(self, ranks: Iterable[int]) -> list[TcpStream]:
        return _in_namespaces([self._endpoints[r].netns for r in ranks], _tcp_socket)

    def _configure(self, s: TcpStream) -> None:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion_control.encode())
        except OSError as error:
            raise TrafficError(
                f"congestion control {self._congestion_control!r}: {os.strerror(error.errno or 0)}; this kernel has "
                f"{_available_congestion_controls()}"
            ) from None

    def _connect(self, flow: WireFlow) -> None:
        client = self.senders[flow.connection]
        self._configure(client)
        if frames := self._windows.get(flow.connection):
            held = frames * (self._segment_bytes + _SEGMENT_OVERHEAD_BYTES)
            client.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, held // _DOUBLED)
        _bind(client, flow.src_ip, flow.src_port)
        client.setblocking(False)
        failed = client.connect_ex((flow.dst_ip, flow.dst_port))
        if failed not in (0, errno.EINPROGRESS):
            raise self._unreached(1, {flow.connection: os.strerror(failed)})

    def _accept_all(self, listeners: Mapping[TcpStream, int]) -> None:
        """Until every flow has its receiving end, a client has failed, or time is up."""
        flow_of = {(f.src_ip, f.src_port, f.dst_rank): f for f in self.flows}
        listener_at = {listener.fileno(): listener for listener in listeners}
        client_fds = {s.fileno() for s in self.senders.values()}
        deadline = time.monotonic() + self._connect_deadline_s
        with select.epoll() as poll:
            for listener in listeners:
                listener.setblocking(False)
                poll.register(listener.fileno(), select.EPOLLIN)
            for fd in client_fds:
                # Errors are reported without being asked for; nothing else is of interest.
                poll.register(fd, 0)
            while len(self.receivers) < len(self.flows):
                ready = poll.poll(max(0.0, deadline - time.monotonic()))
                if time.monotonic() >= deadline or any(fd in client_fds for fd, _ in ready):
                    self._refuse_unreached()
                for fd, _ in ready:
                    self._accept(listener_at[fd], listeners[listener_at[fd]], flow_of)

    def _accept(self, listener: TcpStream, rank: int, flow_of: Mapping[tuple[str, int, int], WireFlow]) -> None:
        try:
            accepted, peer = listener.accept()
        except OSError:
            # It was reset before it was accepted; its client says so.
            return
        flow = flow_of.get((peer[0], peer[1], rank))
        if flow is None:
            # Somebody else, for instance a user's port scan.
            accepted.close()
            return
        accepted.setblocking(False)
        stream = TcpStream(accepted.family, accepted.type, accepted.proto, accepted.detach())
        self.receivers[flow.connection] = stream

    def _refuse_unreached(self) -> NoReturn:
        missing = [c for c in self.senders if c not in self.receivers]
        reasons = {c: self.senders[c].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for c in missing}
        # Those that failed say more than those that were still trying.
        shown = sorted(missing, key=lambda c: not reasons[c])[:3]
        silent = f"no answer within {self._connect_deadline_s:g} s"
        raise self._unreached(len(missing), {c: os.strerror(reasons[c]) if reasons[c] else silent for c in shown})

    def _unreached(self, n_missing: int, shown: Mapping[Connection, str]) -> TransportError:
        host = {rank: e.host for rank, e in self._endpoints.items()}
        named = ", ".join(f"{host[src]} -> {host[dst]} ({why})" for (src, dst, _), why in shown.items())
        return TransportError(
            f"{n_missing} of {len(self.flows)} TCP connections were not made, among them {named}: "
            f"these hosts do not reach each other"
        )


def _tcp_socket() -> TcpStream:
    s = TcpStream(socket.AF_INET, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Closing resets: what an interrupted run left in flight stops, and no port waits a minute in TIME_WAIT before the same
    # 5-tuple can be used again. Accepted sockets inherit it.
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return s


def _bind(s: TcpStream, ip: str, port: int) -> None:
    try:
        s.bind((ip, port))
    except OSError as error:
        raise TransportError(f"cannot use {ip}, TCP port {port}: {os.strerror(error.errno or 0)}") from None


def _close_all(sockets: Iterable[socket.socket]) -> None:
    for s in sockets:
        s.close()


def _tcp_info(s: TcpStream, at: int) -> int:
    """One counter; 0 where the kernel is older than it."""
    info = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES).ljust(_TCP_INFO_BYTES, b"\0")
    return int(struct.unpack_from("=I", info, at)[0])


def _congestion_control_of(s: TcpStream) -> str:
    return s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


def _available_congestion_controls() -> str:
    with open("/proc/sys/net/ipv4/tcp_available_congestion_control") as file:
        return file.read().strip().replace(" ", ", ")


def _in_namespaces(names: Sequence[str | None], make: Callable[[], TcpStream]) -> list[TcpStream]:
    """`make()` once inside each namespace, None = here."""
    inside = [name for name in names if name is not None]
    if inside and len(inside) < len(names):
        raise ValueError("either all ranks live in namespaces or none does")
    made: list[TcpStream] = []
    try:
        if inside:
            namespaces.each(((name, name) for name in inside), lambda _: made.append(make()))
        else:
            made += [make() for _ in names]
    except BaseException as error:
        _close_all(made)
        if isinstance(error, OSError):
            raise TransportError(f"cannot make the ranks' sockets: {error}") from None
        raise
    return made
