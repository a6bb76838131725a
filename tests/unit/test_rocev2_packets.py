"""RoCEv2 frames, byte by byte against struct and zlib, and as Scapy and tshark read them."""

import struct
import subprocess
from pathlib import Path

import pytest

from tests.unit import roce_by_hand as by_hand
from traffic.errors import TrafficError
from traffic.rocev2 import psn
from traffic.rocev2.frames import NAK_SEQUENCE_SYNDROME, Frames, largest_frame_bytes
from traffic.rocev2.icrc import icrc, ip_checksum
from traffic.rocev2.opcodes import DATA, PATH_MTUS, RDMA_WRITE, SEND, Opcode, n_packets, require_path_mtu
from traffic.rocev2.packet import Packet, parse
from traffic.rocev2.queue_pair import QueuePair, linux_source_port
from traffic.rocev2.templates import dissect, templates

TEMPLATES = templates()
QP = QueuePair(
    by_hand.SRC_MAC, by_hand.DST_MAC, by_hand.SRC_IP, by_hand.DST_IP, 0x11, 0x12, 49458, dscp=26, rkey=0xAABBCCDD
)
RETH = struct.pack(">QII", 0x1122334455667788, 0xAABBCCDD, 5000)
# DSCP 26 with ECT(0), and without.
ECT, NOT_ECT = 0x6A, 0x68
PAYLOAD = bytes(range(256)) * 4


def data(opcode: Opcode, number: int, payload: bytes, ack_request: bool = False, src_port: int | None = None) -> bytes:
    buffer = memoryview(bytearray(9000))
    n = Frames(TEMPLATES, QP).data(
        buffer,
        opcode,
        number,
        memoryview(payload),
        ack_request=ack_request,
        va=0x1122334455667788,
        message_bytes=5000,
        src_port=src_port,
    )
    return bytes(buffer[:n])


def acknowledge(number: int, msn: int, *syndrome: int) -> bytes:
    buffer = memoryview(bytearray(9000))
    return bytes(buffer[: Frames(TEMPLATES, QP).acknowledge(buffer, number, msn, *syndrome)])


def cnp() -> bytes:
    buffer = memoryview(bytearray(9000))
    return bytes(buffer[: Frames(TEMPLATES, QP).cnp(buffer)])


def parsed(frame: bytes) -> Packet:
    packet = parse(memoryview(frame))
    assert packet is not None
    return packet


@pytest.mark.parametrize(
    ("opcode", "code", "reth"),
    [
        (Opcode.SEND_FIRST, 0x00, b""),
        (Opcode.SEND_MIDDLE, 0x01, b""),
        (Opcode.SEND_LAST, 0x02, b""),
        (Opcode.SEND_ONLY, 0x04, b""),
        (Opcode.RDMA_WRITE_FIRST, 0x06, RETH),
        (Opcode.RDMA_WRITE_MIDDLE, 0x07, b""),
        (Opcode.RDMA_WRITE_LAST, 0x08, b""),
        (Opcode.RDMA_WRITE_ONLY, 0x0A, RETH),
    ],
)
@pytest.mark.parametrize("n_bytes", [0, 1, 2, 3, 4, 1024])
def test_every_byte_of_a_data_packet(opcode: Opcode, code: int, reth: bytes, n_bytes: int) -> None:
    pad = {1: 3, 2: 2, 3: 1}.get(n_bytes, 0)
    rest = reth + PAYLOAD[:n_bytes] + b"\0" * pad
    wanted = by_hand.frame(code, 0xFEDCBA, 0x12, rest, src_port=49458, tos=ECT, ack_request=True, pad=pad)

    frame = data(opcode, 0xFEDCBA, PAYLOAD[:n_bytes], ack_request=True)

    assert frame == wanted
    packet = parsed(frame)
    assert packet[:6] == (opcode, 0x12, 0xFEDCBA, True, False, 49458)
    assert packet.payload == PAYLOAD[:n_bytes]
    assert (packet.va, packet.message_bytes) == ((0x1122334455667788, 5000) if reth else (0, 0))


@pytest.mark.parametrize("syndrome", [0x1F, 0x60])
def test_every_byte_of_an_acknowledgement(syndrome: int) -> None:
    aeth = struct.pack(">I", syndrome << 24 | 7)
    wanted = by_hand.frame(0x11, 41, 0x12, aeth, src_port=49458, tos=NOT_ECT)
    frame = acknowledge(41, (1 << 24) + 7, *([syndrome] if syndrome != 0x1F else []))
    assert frame == wanted
    assert parsed(frame)._replace(payload=memoryview(b"")) == Packet(
        Opcode.ACKNOWLEDGE, 0x12, 41, False, False, 49458, memoryview(b""), syndrome=syndrome, msn=7
    )


def test_every_byte_of_a_congestion_notification() -> None:
    assert cnp() == by_hand.frame(0x81, 0, 0x12, bytes(16), src_port=49458, tos=NOT_ECT, becn=True)
    assert parsed(cnp()).opcode is Opcode.CNP


def test_kept_headers_serve_every_psn_length_and_port() -> None:
    frames, buffer = Frames(TEMPLATES, QP), memoryview(bytearray(9000))
    for number in (0, 0xFFFFFF, 5):
        for n_bytes in (1024, 8):
            for port in (49458, 50000):
                n = frames.data(buffer, Opcode.SEND_LAST, number, memoryview(PAYLOAD[:n_bytes]), src_port=port)
                wanted = by_hand.frame(0x02, number, 0x12, PAYLOAD[:n_bytes], src_port=port, tos=ECT)
                assert buffer[:n] == wanted


def test_marks_of_switches_and_hops_leave_the_icrc_right() -> None:
    frame = bytearray(data(Opcode.SEND_ONLY, 3, PAYLOAD))
    frame[15] |= 0b11
    frame[22] -= 3
    frame[24:26] = b"\x12\x34"
    assert parsed(bytes(frame)).ce


@pytest.mark.parametrize("at", [17, 26, 30, 35, 42, 43, 47, 50, 53, 54, 200, -5, -1])
def test_any_other_change_is_a_packet_that_never_was(at: int) -> None:
    frame = bytearray(data(Opcode.SEND_ONLY, 3, PAYLOAD))
    frame[at] ^= 1
    assert parse(memoryview(frame)) is None


def test_cut_frames_are_refused_and_padded_ones_read() -> None:
    for whole in (data(Opcode.RDMA_WRITE_ONLY, 3, PAYLOAD), acknowledge(1, 1), cnp()):
        for n_bytes in range(len(whole)):
            assert parse(memoryview(whole)[:n_bytes]) is None
        assert parse(memoryview(whole + bytes(8))) is not None


def test_an_extended_header_that_is_missing_is_refused() -> None:
    for code in (0x0A, 0x11):
        assert parse(memoryview(by_hand.frame(code, 1, 2, b"", src_port=50000, tos=0))) is None


@pytest.mark.parametrize("opcode", sorted(DATA))
def test_scapy_reads_the_same_and_computes_the_same_icrc(opcode: Opcode) -> None:
    frame = data(opcode, 77, PAYLOAD)
    packet = dissect(frame)
    bth = packet["BTH"]
    assert (bth.opcode, bth.psn, bth.dqpn) == (opcode, 77, 0x12)
    assert packet["Raw"].load == PAYLOAD
    if opcode in (Opcode.RDMA_WRITE_FIRST, Opcode.RDMA_WRITE_ONLY):
        reth = packet["RETH"]
        assert (reth.va, reth.rkey, reth.dmalen) == (0x1122334455667788, 0xAABBCCDD, 5000)
    bth.icrc = None
    assert bytes(packet) == frame


@pytest.mark.needs("tshark")
def test_tshark_reads_rocev2_without_a_malformed_packet(tmp_path: Path) -> None:
    """tshark 4.0 shows the ICRC but does not check it, so it is compared; and it has no name for a CNP."""
    sent = [data(o, i, PAYLOAD[: 1024 - i], ack_request=True) for i, o in enumerate(sorted(DATA))]
    sent += [acknowledge(41, 7), acknowledge(42, 7, NAK_SEQUENCE_SYNDROME), cnp()]
    capture = tmp_path / "roce.pcap"
    capture.write_bytes(by_hand.pcap(sent))
    names = ["_ws.malformed", "_ws.expert.severity", "frame.protocols", "infiniband.bth.opcode", "infiniband.bth.psn"]
    names += ["infiniband.bth.destqp", "infiniband.invariant.crc", "infiniband.reth.dmalen", "infiniband.aeth.msn"]
    fields = [argument for name in names for argument in ("-e", name)]
    command = [
        "tshark",
        "-r",
        str(capture),
        "-o",
        "ip.check_checksum:TRUE",
        "-T",
        "fields",
        "-E",
        "separator=|",
        *fields,
    ]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    rows = [line.split("|") for line in out.splitlines()]
    assert len(rows) == len(sent)
    assert [row[0] for row in rows] == [""] * len(sent)
    # 6291456 is a warning and 8388608 an error.
    assert not {row[1] for row in rows} & {"6291456", "8388608"}
    assert all(row[2].startswith("eth:ethertype:ip:udp:infiniband") for row in rows)
    assert [int(row[3], 0) for row in rows] == [0, 1, 2, 4, 6, 7, 8, 10, 0x11, 0x11, 0x81]
    assert [int(row[4]) for row in rows] == [*range(8), 41, 42, 0]
    assert {int(row[5], 0) for row in rows} == {0x12}
    assert [int(row[6], 0) for row in rows[:-1]] == [int.from_bytes(frame[-4:], "big") for frame in sent[:-1]]
    assert [row[7] for row in rows] == ["", "", "", "", "5000", "", "", "5000", "", "", ""]
    assert [row[8] for row in rows] == [""] * 8 + ["7", "7", ""]


def test_checksums_against_published_ones() -> None:
    # The header of RFC 1071's usual example, checksum 0xB861.
    header = bytes.fromhex("45000073000040004011" + "0000" + "c0a80001c0a800c7")
    assert ip_checksum(header) == 0xB861
    frame = data(Opcode.SEND_MIDDLE, 1, PAYLOAD)
    assert icrc(frame) == int.from_bytes(frame[-4:], "little")


@pytest.mark.parametrize(
    ("local", "remote", "port"),
    [
        # 0x11 * 0x12 = 0x132: nothing to fold.
        (0x11, 0x12, 0xC132),
        # The product is 0xC379A59BA4A. 0x9BA4A ^ 0x379A5 (its bits from 20) ^ 0xC (from 40) = 0xAC3E3; 0x3E3 ^ 0x2B = 0x3C8.
        (0xABCDEF, 0x123456, 0xC3C8),
        (0, 0x12, 0xC000),
    ],
)
def test_source_port_as_linux_derives_it(local: int, remote: int, port: int) -> None:
    assert linux_source_port(local, remote) == port


def test_psn_arithmetic_wraps_at_24_bits() -> None:
    assert psn.distance(0xFFFFFF, 0) == 1
    assert psn.distance(0, 0xFFFFFF) == -1
    assert psn.distance(0, 0x7FFFFF) == 0x7FFFFF
    assert psn.distance(0, 0x800000) == -0x800000
    assert psn.unwrap(2, near=0x1FFFFFE) == 0x2000002
    assert psn.unwrap(0xFFFFFE, near=0x2000001) == 0x1FFFFFE
    assert psn.unwrap(0xFFFFFF, near=0) == -1


def test_messages_are_cut_as_the_path_mtu_says() -> None:
    assert [n_packets(n, 256) for n in (0, 1, 256, 257, 1024, 1025)] == [1, 1, 1, 2, 4, 5]
    assert [SEND.opcode(i, 3) for i in range(3)] == [0x00, 0x01, 0x02]
    assert [RDMA_WRITE.opcode(i, 2) for i in range(2)] == [0x06, 0x08]
    assert RDMA_WRITE.opcode(0, 1) == 0x0A


def test_largest_frame_is_a_first_packet() -> None:
    for mtu in PATH_MTUS:
        assert largest_frame_bytes(mtu) == len(data(Opcode.RDMA_WRITE_FIRST, 0, bytes(mtu))) == 78 + mtu - 4


def test_refusals() -> None:
    with pytest.raises(TrafficError, match=r"^path MTU 1500: use one of 256, 512, 1024, 2048, 4096$"):
        require_path_mtu(1500)
    with pytest.raises(ValueError, match=r"^destination QP number 16777216: allowed are 0 to 16777215$"):
        QueuePair(by_hand.SRC_MAC, by_hand.DST_MAC, by_hand.SRC_IP, by_hand.DST_IP, 1, 1 << 24, 50000)
