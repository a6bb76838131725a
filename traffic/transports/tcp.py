"""TCP: one connection per ordered pair, made inside the hosts' namespaces, driven from one process.

A connection carries data in one direction only, so a 5-tuple is one direction's data and its path can be computed before
the run: ports are chosen here and bound explicitly.
"""

import os
import resource
import select
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from traffic.errors import TrafficError
from traffic.transport import Endpoint, Pair, TransportCounters, WireFlow

# Below the kernel's ephemeral ports (32768 and up), so that nothing else takes one.
SERVER_PORT = 5000
FIRST_CLIENT_PORT = 10_000
_CONNECT_DEADLINE_S = 15.0
# Descriptors a process needs beside its connections: libraries, logs, netlink, pipes.
_SPARE_FILES = 256
# Where struct tcp_info (linux/tcp.h) has tcpi_total_retrans (u32) and tcpi_segs_out (u32).
_TOTAL_RETRANS_AT, _SEGS_OUT_AT, _TCP_INFO_BYTES = 100, 136, 232
_CLONE_NEWNET = 0x40000000
_T = TypeVar("_T")


class TcpTransport:
    """Connections for `pairs`, opened at once; `close()` or a `with` block ends them."""

    name = "tcp"

    def __init__(
        self, endpoints: Sequence[Endpoint], pairs: Sequence[Pair], *, congestion_control: str = "cubic"
    ) -> None:
        self._endpoints = {e.rank: e for e in endpoints}
        self._congestion_control = congestion_control
        self.flows = self.plan(endpoints, pairs)
        _allow_open_files(2 * len(pairs) + len(endpoints))
        self.senders: dict[Pair, socket.socket] = {}
        self.receivers: dict[Pair, socket.socket] = {}
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
        for s in (*self.senders.values(), *self.receivers.values()):
            s.close()

    def counters(self) -> TransportCounters:
        infos = [
            s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES).ljust(_TCP_INFO_BYTES, b"\0")
            for s in self.senders.values()
        ]
        return TransportCounters(
            retransmits=sum(struct.unpack_from("=I", i, _TOTAL_RETRANS_AT)[0] for i in infos),
            segments=sum(struct.unpack_from("=I", i, _SEGS_OUT_AT)[0] for i in infos),
        )

    def settings(self) -> Mapping[str, str]:
        return {"tcp_nodelay": "1", "congestion_control": self._congestion_control}

    @staticmethod
    def plan(endpoints: Sequence[Endpoint], pairs: Sequence[Pair]) -> list[WireFlow]:
        """The 5-tuples, without opening anything: the n-th connection of a rank leaves from its n-th client port."""
        at = {e.rank: e for e in endpoints}
        opened: dict[int, int] = {}
        flows = []
        for src, dst in pairs:
            nth = opened[src] = opened.get(src, -1) + 1
            ports = (FIRST_CLIENT_PORT + nth, SERVER_PORT + dst)
            flows.append(WireFlow(src, dst, at[src].ip, at[dst].ip, socket.IPPROTO_TCP, *ports))
        return flows

    def _open(self) -> None:
        """Listen everywhere, connect everywhere, then sort out who is who by the port that a connection comes from."""
        targets = {f.dst_rank for f in self.flows}
        listeners = dict(
            zip(targets, _in_namespaces([self._endpoints[r].netns for r in targets], _tcp_socket), strict=True)
        )
        clients = _in_namespaces([self._endpoints[f.src_rank].netns for f in self.flows], _tcp_socket)
        try:
            for rank, listener in listeners.items():
                listener.bind((self._endpoints[rank].ip, SERVER_PORT + rank))
                listener.listen(sum(f.dst_rank == rank for f in self.flows))
            for flow, client in zip(self.flows, clients, strict=True):
                self.senders[flow.src_rank, flow.dst_rank] = client
                self._configure(client)
                client.bind((flow.src_ip, flow.src_port))
                client.setblocking(False)
                client.connect_ex((flow.dst_ip, flow.dst_port))
            self._accept(listeners)
        finally:
            for listener in listeners.values():
                listener.close()

    def _accept(self, listeners: Mapping[int, socket.socket]) -> None:
        import time

        flow_by_ends = {(f.src_ip, f.src_port, f.dst_rank): f for f in self.flows}
        poll = select.epoll()
        rank_of = {}
        for rank, listener in listeners.items():
            listener.setblocking(False)
            rank_of[listener.fileno()] = rank
            poll.register(listener.fileno(), select.EPOLLIN)
        end = time.monotonic() + _CONNECT_DEADLINE_S
        with poll:
            while len(self.receivers) < len(self.flows):
                ready = poll.poll(max(0.0, end - time.monotonic()))
                if not ready and time.monotonic() >= end:
                    self._refuse_unreached()
                for fd, _ in ready:
                    accepted, peer = listeners[rank_of[fd]].accept()
                    flow = flow_by_ends[(*peer, rank_of[fd])]
                    accepted.setblocking(False)
                    self.receivers[flow.src_rank, flow.dst_rank] = accepted

    def _refuse_unreached(self) -> None:
        hosts = self._endpoints
        missing = [f"{hosts[s].host} -> {hosts[d].host}" for s, d in self.senders if (s, d) not in self.receivers]
        raise TrafficError(
            f"{len(missing)} of {len(self.flows)} connections were not made within {_CONNECT_DEADLINE_S:g} s, "
            f"among them {', '.join(missing[:3])}: these hosts do not reach each other over TCP"
        )

    def _configure(self, s: socket.socket) -> None:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion_control.encode())
        except OSError:
            known = _available_congestion_controls()
            raise TrafficError(f"unknown congestion control {self._congestion_control!r}: this kernel has {known}") from None


def _tcp_socket() -> socket.socket:
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return s


def _available_congestion_controls() -> str:
    with open("/proc/sys/net/ipv4/tcp_available_congestion_control") as file:
        return file.read().strip().replace(" ", ", ")


def _allow_open_files(needed: int) -> None:
    """Two descriptors a connection: the usual soft limit of 1024 ends at about 400 connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed + _SPARE_FILES
    if hard not in (resource.RLIM_INFINITY,) and wanted > hard:
        raise TrafficError(f"{needed} sockets need {wanted} open files, the hard limit is {hard}: raise it (ulimit -Hn)")
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _in_namespaces(paths: Sequence[str | None], make: Callable[[], _T]) -> list[_T]:
    """`make()` once inside each namespace (a path, None = here). setns is per thread: a thread of its own does it."""
    made: list[_T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            inside: str | None = None
            for path in paths:
                if path is not None and path != inside:
                    _setns(path)
                    inside = path
                made.append(make())
        except BaseException as error:
            failure.append(error)

    if any(p is None for p in paths) and any(p is not None for p in paths):
        raise ValueError("either all ranks live in namespaces or none does")
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return made


def _setns(path: str) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    with open(path) as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter namespace {path}: {os.strerror(ctypes.get_errno())}")
