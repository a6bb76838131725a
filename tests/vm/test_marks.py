"""Marks by our eBPF program beside those of the kernel's RED, at the same threshold, on the same trains of frames.

A train enters a queue much faster than it drains: frame n waits for n - 1 frames less the bucket. The bucket is 1 564 B (a
full frame and 50 B), the threshold 10 frames of 1 000 B: frames 13 to 25 of a train are marked. A machine that is busy sends
some of them late, when the queue is shorter.
"""

import socket
import struct
import time

import pytest

from lab.machine.bringup import Lab
from tests.vm.inside import address, in_host, in_lab
from topologies import netlink
from topologies.fabric import Fabric
from topologies.impairments import Impairments
from topologies.netlink import Request
from topologies.spine_leaf import SpineLeaf

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
