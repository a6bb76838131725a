"""Marks by our eBPF program beside those of the kernel's RED, at the same threshold, on the same trains of frames.

A train enters a queue much faster than it drains: frame n waits for n - 1 frames less the bucket. The bucket is 1 564 B (a
full frame and 50 B), the threshold 10 frames of 1 000 B: frames 13 to 25 of a train are marked. A machine that is busy sends
some of them late, when the queue is shorter.
"""

import select
import socket
import struct
import threading
import time
from typing import Any

import pytest

from lab.machine.bringup import Lab
from tests.emulation.netns_sandbox import sh
from tests.vm.inside import address, in_host, in_lab
from topologies import netlink
from topologies.fabric import Fabric
from topologies.impairments import Impairments
from topologies.netlink import Request
from topologies.spine_leaf import SpineLeaf
from topologies.tcp import Tcp

SO_RCVBUFFORCE = 33
RTM_NEWQDISC, CREATE_REPLACE = 36, 0x500
# RFC 3168, 5: the two low bits of the TOS byte.
ECN, ECT_0, CE = 3, 2, 3
RATE_MBPS = 1.0
PAYLOAD = 958
FRAME = PAYLOAD + 42  # UDP, IPv4, Ethernet: 8 ms
TRAIN, TRAINS, MARKED = 25, 6, 13
THRESHOLD_FRAMES = 10
THRESHOLD_US = THRESHOLD_FRAMES * FRAME * 8 / RATE_MBPS


def fabric() -> Fabric:
    return SpineLeaf(spines=0, leaves=1, hosts_per_leaf=2).build().with_links(rate_mbps=RATE_MBPS)


def marks(lab: Lab) -> list[int]:
    """Datagrams that arrived, and those of them with CE."""

    def listen() -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 20)
        sock.bind(("", 5001))
        sock.settimeout(5)
        return sock

    def send_one() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(bytes(1), (address(lab.fabric, "h2"), 5001))

    with in_host("h2", listen) as receiver:
        # The switch program is asked about a flow's first frames, and an emulated CPU may lose some of a train of them.
        in_host("h1", send_one)
        receiver.recv(1)
        in_host("h1", lambda: send_trains(address(lab.fabric, "h2")))
        fields = [receiver.recvmsg(2000, 100)[1][0][2][0] & ECN for _ in range(TRAINS * TRAIN)]
    return [len(fields), fields.count(CE)]


def send_trains(to: str) -> None:
    """One whenever the queue is empty again."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT_0)
        sock.connect((to, 5001))
        for _ in range(TRAINS):
            for _ in range(TRAIN):
                sock.send(bytes(PAYLOAD))
            time.sleep(2 * TRAIN * FRAME * 8 / (RATE_MBPS * 1e6))


def by_program_above(threshold_us: float) -> list[int]:
    found: list[int] = in_lab(fabric(), marks, impairments=Impairments(ecn_threshold_us=threshold_us))
    return found


def marks_of_red(lab: Lab) -> list[int]:
    in_host("h1", lambda: _red("h1-eth0"))
    return marks(lab)


def _red(intf: str) -> None:
    """Instead of the queue under HTB: RED as a step, of the queue as it is and not its average (RFC 8257, 4.2). `tc` cannot
    say so: it has no weight of 1."""
    threshold, limit, ecn = THRESHOLD_FRAMES * FRAME, 100 * FRAME, 1
    parameters = struct.pack("=IIIBBBB", limit, threshold - 1, threshold, 0, 0, 0, ecn)
    options = _attribute(1, parameters) + _attribute(2, bytes(256)) + _attribute(3, struct.pack("=I", 2**32 - 1))
    body = struct.pack("=xxxxiIII", netlink.index_of(intf), 0x510000, netlink.CLASS, 0)
    body += _attribute(1, b"red\0") + _attribute(2, options)
    header = struct.pack("=IHHII", 16 + len(body), RTM_NEWQDISC, netlink.REQUEST | netlink.ACK | CREATE_REPLACE, 0, 0)
    netlink.apply([Request(header + body, f"red on {intf}")])


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


@pytest.fixture(scope="module")
def by_program() -> list[int]:
    return by_program_above(THRESHOLD_US)


def test_marks_begin_at_the_threshold(by_program: list[int]) -> None:
    n, marked = by_program
    assert n == TRAINS * TRAIN
    assert TRAINS * (MARKED - 3) <= marked <= TRAINS * MARKED


def test_below_the_threshold_nothing_is_marked() -> None:
    assert by_program_above(TRAIN * FRAME * 8 / RATE_MBPS) == [TRAINS * TRAIN, 0]


def test_red_marks_the_same_share(by_program: list[int]) -> None:
    n, marked = in_lab(fabric(), marks_of_red)
    print(f"of {n} frames: {by_program[1]} marked by our program, {marked} by RED")
    assert by_program[1] == pytest.approx(marked, rel=0.1)


# -- DCTCP ----------------------------------------------------------------------------------------------------------------

INCAST = SpineLeaf(spines=0, leaves=1, hosts_per_leaf=3).build().with_links(rate_mbps=4.0)
N_BYTES = 300_000


def incast_of_two(lab: Lab) -> dict[str, Any]:
    """h1 and h3 send to h2 at once, each as fast as the one link to it is."""

    def listen() -> socket.socket:
        return socket.create_server(("", 5002))

    def connect() -> socket.socket:
        return socket.create_connection((address(lab.fabric, "h2"), 5002), timeout=60)

    with in_host("h2", listen) as server:
        senders = [in_host(host, connect) for host in ("h1", "h3")]
        receivers = [server.accept()[0] for _ in senders]
        sending = [threading.Thread(target=sender.sendall, args=(bytes(N_BYTES),)) for sender in senders]
        for thread in sending:
            thread.start()
        received = [0, 0]
        while min(received) < N_BYTES:
            ready, _, _ = select.select(receivers, (), (), 60)
            for receiver in ready:
                received[receivers.index(receiver)] += len(receiver.recv(1 << 16))
        name = senders[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
        # Not closed before: what the loop has read, the threads have sent.
        for thread in sending:
            thread.join()
    marked = {intf: counts.marked for intf, counts in lab.net.egress_counts().items() if counts.marked}
    return {"name": name, "marked": marked, "drops": sum(lab.net.switch_drops().values())}


def test_dctcp_meets_marks_in_place_of_drops() -> None:
    sh("modprobe tcp_dctcp")
    found = in_lab(
        INCAST, incast_of_two, tcp=Tcp(congestion_control="dctcp"), impairments=Impairments(ecn_threshold_us=20_000.0)
    )
    assert found["name"] == "dctcp"
    assert found["drops"] == 0
    into_h2 = INCAST.peer(INCAST.scale_out_port("h2")).intf
    assert max(found["marked"], key=found["marked"].get) == into_h2
