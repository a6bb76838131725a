"""TCP over loopback: real sockets, no namespaces, no root. Each rank has an address of its own in 127.0.0.0/8."""

import re
import resource
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.unit.loopback import NETWORK
from tests.unit.traffic_fakes import filled, wrong
from traffic import COLLECTIVES, PATTERNS, Demand, open_files, schedule
from traffic.errors import TrafficError, TransportError
from traffic.replay import Replay
from traffic.schedule import Connection
from traffic.transport import Endpoint
from traffic.transports import tcp
from traffic.transports.tcp import FIRST_CLIENT_PORT, SERVER_PORT, TcpTransport

ROOT = Path(__file__).resolve().parents[2]
# The one that every kernel lets a user without root choose (tcp_allowed_congestion_control).
open_tcp = partial(TcpTransport, congestion_control="reno")
ENTRIES = [(c, a) for c, algorithms in COLLECTIVES.items() for a in algorithms]


def endpoints(n_ranks: int) -> list[Endpoint]:
    return [Endpoint(rank, f"h{rank + 1}", f"{NETWORK}.1.{rank + 1}") for rank in range(n_ranks)]


def all_pairs(n_ranks: int) -> list[Connection]:
    return [(src, dst, 0) for src in range(n_ranks) for dst in range(n_ranks) if src != dst]


def ready(sockets: Sequence[socket.socket], timeout_s: float) -> bool:
    with select.epoll() as poll:
        for s in sockets:
            poll.register(s.fileno(), select.EPOLLIN)
        return bool(poll.poll(timeout_s))


@pytest.mark.parametrize(("collective", "algorithm"), ENTRIES)
@pytest.mark.parametrize("n_ranks", [3, 8])
def test_every_algorithm_gives_the_right_values_over_tcp(collective: str, algorithm: str, n_ranks: int) -> None:
    s = schedule(collective, algorithm, n_ranks)
    with open_tcp(endpoints(s.n_ranks), s.connections) as transport:
        for count in (1, 997, 300_000):
            buffers = filled(s, count)
            result = Replay(s, count, transport).run(buffers, stall_s=5.0)
            assert wrong(s, buffers) == 0
            assert (result.finished > 0).all()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_flow_of_a_pattern_arrives_over_its_own_connection(pattern: str) -> None:
    s = schedule(pattern, None, 6, Demand(flows_per_host=8, group_size=2))
    with open_tcp(endpoints(6), s.connections) as transport:
        count = 30_001 * s.n_chunks
        buffers = filled(s, count)
        Replay(s, count, transport).run(buffers, stall_s=5.0)
        assert wrong(s, buffers) == 0


def test_the_planned_flows_are_the_real_ones() -> None:
    """All ordered pairs of 5 ranks, two channels each: what a path predictor was told is what the sockets use."""
    connections = [(src, dst, channel) for src, dst, _ in all_pairs(5) for channel in range(2)]
    planned = TcpTransport.plan(endpoints(5), connections)
    assert [f.connection for f in planned] == connections
    with TcpTransport(endpoints(5), connections) as opened:
        assert opened.flows == planned
        for f in planned:
            sender, receiver = opened.senders[f.connection], opened.receivers[f.connection]
            assert sender.getsockname() == receiver.getpeername() == (f.src_ip, f.src_port)
            assert sender.getpeername() == receiver.getsockname() == (f.dst_ip, f.dst_port)
    assert len({(f.src_ip, f.dst_ip, f.proto, f.src_port, f.dst_port) for f in planned}) == 40


def test_ports_stay_below_the_ephemeral_ones() -> None:
    ranks = 512
    flows = TcpTransport.plan(endpoints(ranks), [(0, r, 0) for r in range(1, ranks)])
    assert {f.dst_port for f in flows} == set(range(SERVER_PORT + 1, SERVER_PORT + ranks))
    assert max(f.src_port for f in flows) == FIRST_CLIENT_PORT + ranks - 2 < 32768


def test_more_connections_than_ports_are_refused() -> None:
    with pytest.raises(
        TrafficError, match=r"^22769 TCP connections from one rank do not fit: it has ports for 22768, use fewer$"
    ):
        TcpTransport.plan(endpoints(2), [(0, 1, channel) for channel in range(22_769)])


def test_settings_are_read_from_the_sockets() -> None:
    with TcpTransport(endpoints(2), [(0, 1, 0)], congestion_control="reno") as transport:
        assert transport.settings() == {"tcp_nodelay": "1", "congestion_control": "reno"}
        control = transport.receivers[0, 1, 0].getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert control.rstrip(b"\0") == b"reno"


def test_counters_come_from_the_kernel_for_each_connection() -> None:
    with open_tcp(endpoints(2), [(0, 1, 0), (1, 0, 0)]) as transport:
        before = transport.counters_by_connection()
        transport.senders[0, 1, 0].send(bytes(1000))
        assert ready([transport.receivers[0, 1, 0]], 1.0)
        after = transport.counters_by_connection()
        assert after[0, 1, 0].segments == before[0, 1, 0].segments + 1
        assert after[1, 0, 0] == before[1, 0, 0]
        assert transport.counters().segments == sum(c.segments for c in after.values())
        assert transport.counters().retransmits == 0


def test_a_stream_wakes_when_what_it_expects_is_there() -> None:
    with open_tcp(endpoints(2), [(0, 1, 0)]) as transport:
        receiver = transport.receivers[0, 1, 0]
        receiver.expect(1000)
        transport.senders[0, 1, 0].send(bytes(999))
        assert not ready([receiver], 0.05)
        transport.senders[0, 1, 0].send(bytes(1))
        assert ready([receiver], 1.0)


def test_a_stream_that_expects_more_than_the_window_wakes_all_the_same() -> None:
    with open_tcp(endpoints(2), [(0, 1, 0)]) as transport:
        transport.receivers[0, 1, 0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        transport.receivers[0, 1, 0].expect(1 << 20)
        transport.senders[0, 1, 0].send(bytes(1 << 20))
        assert ready([transport.receivers[0, 1, 0]], 1.0)


def test_an_unknown_congestion_control_is_refused_with_the_known_ones() -> None:
    with pytest.raises(TrafficError, match=r"congestion control 'warp': .*; this kernel has .*(reno|cubic)"):
        TcpTransport(endpoints(2), [(0, 1, 0)], congestion_control="warp")


def test_a_port_in_use_is_named() -> None:
    said = re.escape(f"cannot use {NETWORK}.1.2, TCP port 5001: Address already in use")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((f"{NETWORK}.1.2", SERVER_PORT + 1))
        other.listen()
        with pytest.raises(TransportError, match=said):
            open_tcp(endpoints(2), [(0, 1, 0)])


def test_a_refused_connection_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp.TcpStream, "listen", lambda *_: None)
    begun = time.monotonic()
    with pytest.raises(
        TransportError, match=r"2 of 2 .*not made, among them h1 -> h2 \(Connection refused\), h2 -> h3"
    ):
        open_tcp(endpoints(3), [(0, 1, 0), (1, 2, 0)])
    assert time.monotonic() - begun < 1.0


def test_a_silent_host_is_named_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full backlog drops the connection's first packet, as a lossy or unrouted path would."""
    monkeypatch.setattr(TcpTransport, "_accept", lambda *_: time.sleep(0.01))
    with pytest.raises(
        TransportError, match=r"2 of 2 TCP connections were not made, .* h1 -> h2 \(no answer within 0\.3 s\)"
    ):
        open_tcp(endpoints(3), [(0, 1, 0), (1, 2, 0)], connect_deadline_s=0.3)


def test_a_stranger_s_connection_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    strangers: list[socket.socket] = []
    connect = TcpTransport._connect

    def connect_both(self: TcpTransport, flow: object) -> None:
        strangers.append(socket.create_connection((f"{NETWORK}.1.2", SERVER_PORT + 1)))
        connect(self, flow)  # type: ignore[arg-type]

    monkeypatch.setattr(TcpTransport, "_connect", connect_both)
    with open_tcp(endpoints(2), [(0, 1, 0)]) as transport:
        assert transport.receivers[0, 1, 0].getpeername() == (f"{NETWORK}.1.1", FIRST_CLIENT_PORT)
        with strangers[0], pytest.raises(ConnectionResetError):
            strangers[0].recv(1)


def test_the_open_file_limit_is_raised_as_far_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    open_files.allow_open_files(3000)
    open_files.allow_open_files(100)
    assert raised == [(3256, 4096)]


def test_a_hard_limit_that_is_too_low_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    with pytest.raises(TrafficError) as caught:
        open_tcp(endpoints(100), all_pairs(64))
    assert str(caught.value) == ("8164 sockets need 8420 open files, the hard limit is 4096: raise it (ulimit -Hn)")


def test_many_connections_need_no_preparation_by_the_user() -> None:
    """In a process of its own, with the usual soft limit: 24 ranks all to all are 1104 sockets."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "from tests.unit.test_traffic_tcp import *\n"
        "with open_tcp(endpoints(24), all_pairs(24)) as t: print(len(t.receivers))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout == "552\n", done.stderr[-2000:]


def test_the_same_flows_can_be_opened_again_at_once() -> None:
    for _ in range(3):
        with open_tcp(endpoints(3), all_pairs(3)) as transport:
            assert len(transport.receivers) == 6


def test_a_failure_leaves_no_socket_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp.TcpStream, "listen", lambda *_: None)
    with pytest.raises(TransportError):
        open_tcp(endpoints(3), all_pairs(3))
    monkeypatch.undo()
    with open_tcp(endpoints(3), all_pairs(3)) as transport:
        assert len(transport.receivers) == 6


def test_hosts_with_and_without_namespaces_do_not_mix() -> None:
    mixed = [Endpoint(0, "h1", f"{NETWORK}.1.1", "/proc/self/ns/net"), Endpoint(1, "h2", f"{NETWORK}.1.2")]
    with pytest.raises(ValueError, match="either all ranks live in namespaces or none does"):
        open_tcp(mixed, [(0, 1, 0), (1, 0, 0)])


def test_a_namespace_that_is_not_there_is_named() -> None:
    missing = [Endpoint(r, f"h{r}", f"{NETWORK}.1.{r + 1}", "nowhere") for r in range(2)]
    with pytest.raises(TransportError, match=r"cannot make the ranks' sockets: .*No such file or directory: .*nowhere"):
        open_tcp(missing, [(0, 1, 0)])
