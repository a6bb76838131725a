"""RoCEv2 frames between two namespaces: whole, past the kernel, in batches."""

import socket
import subprocess

import pytest

from tests.emulation.netns_sandbox import in_sandbox, sh
from topologies import namespaces
from traffic.errors import TransportError
from traffic.rocev2.batch import Batch
from traffic.rocev2.frames import Frames
from traffic.rocev2.nic import Nic, way_to
from traffic.rocev2.opcodes import Opcode
from traffic.rocev2.packet import parse
from traffic.rocev2.queue_pair import QueuePair
from traffic.rocev2.templates import templates

_SEND_BUFFER_BYTES = 1 << 20
_SLOTS, _SLOT_BYTES = 16, 1600


# -- what runs inside the sandbox -----------------------------------------------------------------------------------


def two_hosts() -> tuple[Nic, Nic]:
    """a and b with one cable, each the other's permanent neighbour."""
    namespaces.create(["a", "b"], lambda name: None)
    sh(
        "ip link add a-eth0 netns a address 02:00:00:00:00:0a type veth peer name b-eth0 netns b address 02:00:00:00:00:0b"
    )
    for n, (here, there) in enumerate((("a", "b"), ("b", "a")), 1):
        sh(f"ip -n {here} addr add 198.18.0.{n}/24 dev {here}-eth0; ip -n {here} link set {here}-eth0 up")
        mac = f"02:00:00:00:00:0{there}"
        sh(f"ip -n {here} neigh replace 198.18.0.{3 - n} lladdr {mac} dev {here}-eth0 nud permanent")
    a, b = namespaces.each([("a", "a-eth0"), ("b", "b-eth0")], open_nic)
    return a, b


def open_nic(intf: str) -> Nic:
    return Nic(intf, send_buffer_bytes=_SEND_BUFFER_BYTES)


def filled(n: int, to: str = "02:00:00:00:00:0b") -> tuple[Batch, list[bytes]]:
    frames = Frames(templates(), QueuePair("02:00:00:00:00:0a", to, "198.18.0.1", "198.18.0.2", 17, 18, 50000))
    batch, written = Batch(n, _SLOT_BYTES), []
    for i, slot in enumerate(batch.slots):
        n_bytes = frames.data(slot, Opcode.RDMA_WRITE_MIDDLE, i, memoryview(bytes([i]) * (4 * i + 4)))
        batch.set_length(i, n_bytes)
        written.append(bytes(slot[:n_bytes]))
    return batch, written


def received(nic: Nic, batch: Batch) -> list[bytes]:
    """veth delivers at once: what was sent is here."""
    got: list[bytes] = []
    while frames := batch.receive(nic.fileno()):
        got += map(bytes, frames)
    return got


def batches_arrive() -> dict[str, object]:
    a, b = two_hosts()
    batch, written = filled(40)
    took = [batch.send(a.fileno(), 0, 3), batch.send(a.fileno(), 3, 40)]
    got = received(b, Batch(_SLOTS, _SLOT_BYTES))
    return {
        "took": took,
        "same": got == written,
        "psns": [p.psn for p in (parse(memoryview(frame)) for frame in got) if p],
        "back": len(received(a, Batch(_SLOTS, _SLOT_BYTES))),
        "macs": [a.mac, b.mac],
        "dropped": b.dropped(),
    }


def kernel_is_silent() -> dict[str, object]:
    """What the kernel of b says to 50 packets, and what it says once our NIC is gone; other datagrams are not ours."""
    a, b = two_hosts()
    batch, _ = filled(50)
    batch.send(a.fileno(), 0, 50)
    silent = icmp_sent_by_b()
    other = namespaces.each([("a", None)], lambda _: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))[0]
    for _ in received(b, Batch(_SLOTS, _SLOT_BYTES)):
        pass
    other.sendto(bytes(60), ("198.18.0.2", 4790))
    foreign = len(received(b, Batch(_SLOTS, _SLOT_BYTES)))
    b.close()
    before = icmp_sent_by_b()
    batch.send(a.fileno(), 0, 1)
    return {"silent": silent, "foreign": foreign, "without": icmp_sent_by_b() - before}


def icmp_sent_by_b() -> int:
    return int(sh("nstat -asz IcmpOutDestUnreachs | tail -1", "b").split()[1])


def ways() -> list[list[str]]:
    two_hosts()
    return [list(way) for way in namespaces.each([("a", "198.18.0.2"), ("b", "198.18.0.1")], way_to)]


def refusals() -> list[str]:
    a, _ = two_hosts()
    said = []
    try:
        namespaces.each([("a", "a-eth9")], open_nic)
    except TransportError as error:
        said.append(str(error))
    batch = Batch(1, 3000)
    batch.set_length(0, 1515)
    try:
        batch.send(a.fileno(), 0, 1)
    except OSError as error:
        said.append(str(error))
    return said


def live_capture() -> list[str]:
    """One line a packet, as tshark sees them pass: protocols, opcode, PSN, ICRC, complaint."""
    a, _ = two_hosts()
    names = [
        "frame.protocols",
        "infiniband.bth.opcode",
        "infiniband.bth.psn",
        "infiniband.invariant.crc",
        "_ws.malformed",
    ]
    fields = [argument for name in names for argument in ("-e", name)]
    batch, written = filled(20)
    command = [
        "ip",
        "netns",
        "exec",
        "b",
        "tshark",
        "-ni",
        "b-eth0",
        "-c",
        "20",
        "-T",
        "fields",
        "-E",
        "separator=|",
        *fields,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tshark:
        assert tshark.stderr is not None
        # It says so twice; the second time the socket is open.
        next(line for line in tshark.stderr if "Capture started" in line or "Capturing on" in line)
        while tshark.poll() is None and not captures("b"):
            pass
        batch.send(a.fileno(), 0, 20)
        out, _ = tshark.communicate(timeout=30)
    icrcs = [f"0x{frame[-4:].hex()}" for frame in written]
    return [f"{line}|{icrc}" for line, icrc in zip(out.splitlines(), icrcs, strict=True)]


def captures(netns: str) -> bool:
    """Whether a packet socket for everything is open there: ETH_P_ALL is 0003."""
    return " 0003 " in sh("cat /proc/net/packet", netns)


# -- tests ----------------------------------------------------------------------------------------------------------


def test_batches_arrive_whole_and_in_order_and_nothing_comes_back() -> None:
    assert in_sandbox(batches_arrive) == {
        "took": [3, 37],
        "same": True,
        "psns": list(range(40)),
        "back": 0,
        "macs": ["02:00:00:00:00:0a", "02:00:00:00:00:0b"],
        "dropped": 0,
    }


def test_the_kernel_does_not_answer_for_the_nic() -> None:
    assert in_sandbox(kernel_is_silent) == {"silent": 0, "foreign": 0, "without": 1}


def test_frames_go_where_the_kernel_would_send_them() -> None:
    assert in_sandbox(ways) == [["a-eth0", "02:00:00:00:00:0b"], ["b-eth0", "02:00:00:00:00:0a"]]


def test_refusals() -> None:
    assert in_sandbox(refusals) == [
        "cannot send RoCEv2 from a-eth9: No such device",
        "[Errno 90] sendmmsg: Message too long",
    ]


@pytest.mark.needs("tshark")
def test_tshark_reads_a_live_capture_as_rocev2() -> None:
    rows = [line.split("|") for line in in_sandbox(live_capture)]
    assert len(rows) == 20
    for i, (protocols, opcode, psn, shown, malformed, sent) in enumerate(rows):
        assert protocols.startswith("eth:ethertype:ip:udp:infiniband")
        assert (int(opcode), int(psn), shown, malformed) == (7, i, sent, "")
