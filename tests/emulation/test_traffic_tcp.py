"""TCP between hosts that are namespaces on a Linux bridge: no fabric, no switch of ours."""

import os
import socket
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pytest

import traffic
from tests.emulation.netns_sandbox import in_sandbox, sh
from topologies import namespaces
from traffic import values
from traffic.errors import TransportError
from traffic.replay import Replay
from traffic.transport import Endpoint, WireFlow
from traffic.transports.tcp import TcpTransport

_ETH_P_ALL = 3
_COUNT = 1003
WINDOW_FRAMES, SEGMENT_BYTES = 200, 1448


# -- what runs inside the sandbox -----------------------------------------------------------------------------------


def build_hosts(n: int) -> list[Endpoint]:
    """h1 .. hn on a bridge; and a default route elsewhere, as the machine's own network card has one."""
    names = [f"h{i + 1}" for i in range(n)]
    namespaces.create(names, lambda name: None)
    sh("ip link add br0 type bridge; ip link set br0 up")
    sh("ip link add outside type veth peer name beyond; ip link set beyond up; ip addr add 192.0.2.1/24 dev outside")
    sh("ip link set outside up; ip route add default via 192.0.2.2")
    for i, name in enumerate(names):
        sh(f"ip link add b{i + 1} type veth peer name {name}-eth0 address {mac(i)} netns {name}")
        sh(f"ip link set b{i + 1} master br0 up")
        sh(f"ip -n {name} addr add {ip(i)}/24 dev {name}-eth0; ip -n {name} link set {name}-eth0 up")
    return [Endpoint(i, name, ip(i), name) for i, name in enumerate(names)]


def ip(rank: int) -> str:
    return f"198.18.0.{rank + 1}"


def mac(rank: int) -> str:
    return f"02:00:00:00:00:{rank + 1:02x}"


def all_reduce(endpoints: Sequence[Endpoint], window_frames: int = 0) -> tuple[int, list[WireFlow]]:
    """Wrong elements after a ring all-reduce, and the flows it used."""
    n = len(endpoints)
    schedule = traffic.schedule("all_reduce", "ring", n)
    buffers = [np.empty(_COUNT, dtype=np.float32) for _ in range(n)]
    for rank, buffer in enumerate(buffers):
        values.fill(buffer, schedule, rank)
    windows = dict.fromkeys(schedule.connections, window_frames) if window_frames else {}
    with TcpTransport(endpoints, schedule.connections, windows=windows) as transport:
        Replay(schedule, _COUNT, transport).run(buffers)
        flows = list(transport.flows)
    return sum(values.wrong(b, schedule, rank) for rank, b in enumerate(buffers)), flows


def listen_on(interface: str) -> socket.socket:
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    s.bind((interface, _ETH_P_ALL))
    s.setblocking(False)
    return s


def senders_seen(s: socket.socket) -> list[tuple[str, str]]:
    """(source MAC, source address) of the IPv4 frames that came in on an interface since, without repetition."""
    seen: set[tuple[str, str]] = set()
    while True:
        try:
            frame, address = s.recvfrom(65535)
        except BlockingIOError:
            return sorted(seen)
        if address[2] != socket.PACKET_OUTGOING and frame[12:14] == b"\x08\x00":
            seen.add((frame[6:12].hex(":"), socket.inet_ntoa(frame[26:30])))


def frames_of_a_collective() -> dict[str, object]:
    endpoints = build_hosts(3)
    before = os.readlink("/proc/thread-self/ns/net")
    ports = [listen_on(f"b{i + 1}") for i in range(3)]
    outside = listen_on("outside")
    wrong, _ = all_reduce(endpoints)
    return {
        "wrong": wrong,
        "seen": [senders_seen(s) for s in ports],
        "outside": senders_seen(outside),
        "moved": os.readlink("/proc/thread-self/ns/net") != before,
    }


def flows_on_the_wire() -> dict[str, object]:
    """What the kernel says of the established connections of h1, against the plan."""
    endpoints = build_hosts(2)
    with TcpTransport(endpoints, [(0, 1, 0), (1, 0, 0)]) as transport:
        lines = sh("ss -Htn state established", "h1").splitlines()
        planned = [(f"{f.src_ip}:{f.src_port}", f"{f.dst_ip}:{f.dst_port}") for f in transport.flows]
    return {"kernel": sorted(line.split()[2:4] for line in lines), "planned": planned}


def opened_twice() -> int:
    """Closed connections must not linger: the ports are the same every time, and outside loopback none may be reused."""
    endpoints = build_hosts(3)
    return sum(all_reduce(endpoints)[0] for _ in range(3))


def under_way_to_nobody() -> dict[str, object]:
    """What a sender takes while nothing is acknowledged; and whether a collective goes through such windows."""
    endpoints = build_hosts(2)
    sh("ethtool -K h1-eth0 tso off gso off", "h1")
    with TcpTransport(
        endpoints, [(0, 1, 0)], windows={(0, 1, 0): WINDOW_FRAMES}, segment_bytes=SEGMENT_BYTES
    ) as transport:
        sh("ip link set b2 down")
        sender, taken = transport.senders[0, 1, 0], 0
        with suppress(BlockingIOError):
            while taken < 1 << 24:
                taken += sender.send(bytes(SEGMENT_BYTES))
        said = transport.settings()["tcp_window_frames"]
        sh("ip link set b2 up")
    return {"taken": taken, "said": said, "wrong": all_reduce(endpoints, WINDOW_FRAMES)[0]}


def refusal_of_an_unreachable_host() -> str:
    endpoints = build_hosts(3)
    sh("ip link set b3 down")
    try:
        TcpTransport(endpoints, [(0, 1, 0), (1, 2, 0)], connect_deadline_s=0.5)
    except TransportError as error:
        return str(error)
    return "connected"


def refusal_of_a_host_without_a_route() -> str:
    endpoints = build_hosts(2)
    elsewhere = Endpoint(1, "h2", "203.0.113.9", "h2")
    sh("ip addr add 203.0.113.9/32 dev h2-eth0", "h2")
    try:
        TcpTransport([endpoints[0], elsewhere], [(0, 1, 0)])
    except TransportError as error:
        return str(error)
    return "connected"


# -- tests ----------------------------------------------------------------------------------------------------------


def test_frames_leave_from_the_hosts_own_interface_and_nowhere_else() -> None:
    got = in_sandbox(frames_of_a_collective)
    assert got["wrong"] == 0
    assert got["seen"] == [[[mac(rank), ip(rank)]] for rank in range(3)]
    assert got["outside"] == []


def test_a_window_is_what_a_sender_has_under_way() -> None:
    got = in_sandbox(under_way_to_nobody)
    assert got["said"] == str(WINDOW_FRAMES)
    # The kernel's own memory is in it, and a sender may overdraw it by what the kernel keeps as one.
    assert got["taken"] / SEGMENT_BYTES == pytest.approx(WINDOW_FRAMES, rel=0.25)
    assert got["wrong"] == 0


def test_the_caller_stays_in_its_namespace() -> None:
    assert in_sandbox(frames_of_a_collective)["moved"] is False


def test_planned_flows_are_those_of_the_kernel() -> None:
    got = in_sandbox(flows_on_the_wire)
    (a, b), (c, d) = got["planned"]
    assert got["kernel"] == sorted([[a, b], [d, c]])


def test_the_same_ports_serve_again_at_once() -> None:
    assert in_sandbox(opened_twice) == 0


def test_an_unreachable_host_is_named() -> None:
    assert in_sandbox(refusal_of_an_unreachable_host) == (
        "1 of 2 TCP connections were not made, among them h2 -> h3 (no answer within 0.5 s): these hosts do not reach each "
        "other"
    )


def test_a_host_without_a_route_is_named_at_once() -> None:
    assert "h1 -> h2 (Network is unreachable)" in in_sandbox(refusal_of_a_host_without_a_route)
