"""Collectives over TCP between namespaces on a Linux bridge. Each test runs one function of this file in a sandbox.

Host i lives in namespace h<i>: interface h<i>-eth0, MAC 02:00:00:00:00:0<i>, address 198.18.0.<i>; b<i> is its bridge port.
"""

import os
import socket
import threading
import time
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from tests.emulation.netns_sandbox import in_sandbox, sh
from tests.unit.traffic_fakes import filled, wrong
from traffic import schedule
from traffic.errors import ReplayStalledError, TransportError
from traffic.replay import IterationResult, Replay
from traffic.schedule import Schedule
from traffic.transport import Endpoint, Pair
from traffic.transports import tcp
from traffic.transports.tcp import TcpTransport

ETH_P_ALL = 3
PACKET_OUTGOING = 4
pytestmark = pytest.mark.needs("ip", "tc")


# -- what runs inside the sandbox -------------------------------------------------------------------------------------


def bridge(n_hosts: int, rate_mbps: int = 0) -> list[Endpoint]:
    """`n_hosts` hosts on a bridge, their egress at `rate_mbps` (0 = as fast as it goes)."""
    sh("mkdir -p /run/netns; ip link add br0 type bridge; ip link set br0 up")
    for i in range(1, n_hosts + 1):
        sh(
            f"ip netns add h{i}; ip link add b{i} type veth peer name h{i}-eth0 netns h{i} address 02:00:00:00:00:0{i:x};"
            f"ip link set b{i} master br0 up;"
            f"ip -n h{i} addr add 198.18.0.{i}/24 dev h{i}-eth0; ip -n h{i} link set h{i}-eth0 up"
        )
        if rate_mbps:
            sh(f"tc qdisc add dev h{i}-eth0 root tbf rate {rate_mbps}mbit burst 20kb limit 200kb", f"h{i}")
    return [Endpoint(i - 1, f"h{i}", f"198.18.0.{i}", f"/run/netns/h{i}") for i in range(1, n_hosts + 1)]


def run_once(s: Schedule, count: int, transport: TcpTransport, stall_s: float = 10.0) -> tuple[IterationResult, int]:
    buffers = filled(s, count)
    result = Replay(s, count, transport).run(buffers, stall_s)
    return result, wrong(s, buffers)


def listener_on(intf: str) -> socket.socket:
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    s.bind((intf, 0))
    s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
    s.setblocking(False)
    return s


def senders_seen(s: socket.socket) -> set[str]:
    """'02:00:00:00:00:01 198.18.0.1' of the TCP frames that came in through the interface."""
    seen: set[str] = set()
    while True:
        try:
            frame, (_, _, kind, *_) = s.recvfrom(64)
        except BlockingIOError:
            return seen
        if kind != PACKET_OUTGOING and frame[12:14] == b"\x08\x00":
            seen.add(f"{frame[6:12].hex(':')} {socket.inet_ntoa(frame[26:30])}")


def frames_leave_through_their_host() -> dict[str, Any]:
    ends = bridge(4)
    here = os.readlink("/proc/thread-self/ns/net")
    s = schedule("all_reduce", "ring", 4)
    with ExitStack() as stack:
        ports = {f"b{i}": stack.enter_context(listener_on(f"b{i}")) for i in range(1, 5)}
        loopback = stack.enter_context(listener_on("lo"))
        transport = stack.enter_context(TcpTransport(ends, s.pairs))
        _, n_wrong = run_once(s, 50_000, transport)
        return {
            "wrong": n_wrong,
            "seen": {port: sorted(senders_seen(sock)) for port, sock in ports.items()},
            "loopback": sorted(senders_seen(loopback)),
            "moved": os.readlink("/proc/thread-self/ns/net") != here,
            "threads": threading.active_count(),
            "ports": [[f.src_port, f.dst_port] for f in transport.flows],
            "bound": [[*transport.senders[p].getsockname()] for p in s.pairs],
        }


def opened_again_at_once() -> list[int]:
    ends = bridge(3)
    s = schedule("all_gather", "ring", 3)
    found = []
    for _ in range(3):
        with TcpTransport(ends, s.pairs) as transport:
            found.append(run_once(s, 10_000, transport)[1])
    return found


def error_when_a_host_is_cut_off(deadline_s: float) -> list[Any]:
    ends = bridge(3)
    sh("ip link set b2 down")
    tcp._CONNECT_DEADLINE_S = deadline_s
    begun = time.monotonic()
    try:
        TcpTransport(ends, [(0, 1), (1, 2), (2, 0)])
    except TransportError as error:
        return [str(error), time.monotonic() - begun]
    return ["no error", 0.0]


def error_when_a_link_fails_on_the_way() -> list[Any]:
    """At 20 Mbit/s each rank needs 0.8 s; the link goes down after 0.2 s."""
    ends = bridge(4, rate_mbps=20)
    s = schedule("all_reduce", "ring", 4)
    with TcpTransport(ends, s.pairs) as transport, ExitStack() as stack:
        failure = threading.Timer(0.2, sh, ["ip link set b3 down"])
        failure.start()
        stack.callback(failure.join)
        begun = time.monotonic()
        try:
            run_once(s, 350_000, transport, stall_s=1.0)
        except ReplayStalledError as error:
            return [str(error), time.monotonic() - begun]
    return ["no error", 0.0]


def shaped_run(rate_mbps: int, count: int) -> dict[str, float]:
    ends = bridge(8, rate_mbps)
    s = schedule("all_reduce", "ring", 8)
    with TcpTransport(ends, s.pairs) as transport:
        run_once(s, count, transport)
        cpu = time.process_time()
        result, n_wrong = run_once(s, count, transport)
        cpu = time.process_time() - cpu
    return {
        "wrong": n_wrong,
        "cpu_s": cpu,
        "wall_s": result.duration_ns / 1e9,
        "ideal_s": float(s.sent_per_rank(count).max()) * 32 / (rate_mbps * 1e6),
        "late_s": float(np.percentile(result.lateness_ns, 99)) / 1e9,
    }


def many_pairs(n_hosts: int) -> list[int]:
    """A mesh: bursts of connections to every host at once."""
    ends = bridge(n_hosts)
    pairs: list[Pair] = [(a, b) for a in range(n_hosts) for b in range(n_hosts) if a != b]
    with TcpTransport(ends, pairs) as transport:
        return [len(transport.senders), len(transport.receivers)]


# -- tests ------------------------------------------------------------------------------------------------------------


def test_every_frame_leaves_through_its_own_host_s_interface() -> None:
    got = in_sandbox(frames_leave_through_their_host)
    assert got["wrong"] == 0
    # Data to the right neighbour and acknowledgements to the left one: all from the host itself.
    assert got["seen"] == {f"b{i}": [f"02:00:00:00:00:0{i} 198.18.0.{i}"] for i in range(1, 5)}
    assert got["loopback"] == []
    assert got["bound"] == [[f"198.18.0.{i}", port] for i, (port, _) in enumerate(got["ports"], 1)]


def test_the_process_stays_in_its_own_namespace() -> None:
    got = in_sandbox(frames_leave_through_their_host)
    assert not got["moved"]
    assert got["threads"] == 1


def test_the_same_flows_can_be_opened_again_at_once() -> None:
    assert in_sandbox(opened_again_at_once) == [0, 0, 0]


def test_a_host_that_is_cut_off_is_named_within_the_deadline() -> None:
    text, waited_s = in_sandbox(error_when_a_host_is_cut_off, 1.0)
    assert text.startswith("2 of 3 TCP connections were not made, among them h1 -> h2 (")
    assert waited_s < 3.0


def test_a_link_that_fails_on_the_way_ends_the_run_with_the_stuck_sends() -> None:
    text, waited_s = in_sandbox(error_when_a_link_fails_on_the_way)
    assert text.startswith("nothing moved for 1 s: ")
    assert "2 -> 3" in text
    assert waited_s < 5.0


def test_senders_sleep_while_the_link_is_busy() -> None:
    """A spinning sender would use a whole core: CPU time as long as the run."""
    got = in_sandbox(shaped_run, 20, 250_000)
    assert got["wrong"] == 0
    assert got["cpu_s"] < 0.5 * got["wall_s"]
    assert got["wall_s"] > got["ideal_s"]


def test_a_full_mesh_connects() -> None:
    assert in_sandbox(many_pairs, 12) == [132, 132]
