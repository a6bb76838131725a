"""Flows of captures whose frames are written by hand: what was sent again, came behind, was marked, is missing, and how late."""

import struct

import pytest

from lab.commands.inspecting import show
from lab.errors import LabError
from tests.unit.roce_by_hand import frame
from traffic.capture.flows import Flow, FlowKey, flows
from traffic.capture.frame import Capture, Frame
from traffic.capture.pcapng import written

FIRST, MIDDLE, LAST, ONLY, ACKNOWLEDGE, CNP = 0x06, 0x07, 0x08, 0x0A, 0x11, 0x81
QPN, PAYLOAD = 0x1234, 256
DATA_KEY = FlowKey("198.18.0.1", "198.18.0.2", 17, None, 4791, QPN)


def data(opcode: int, psn: int, *, src_port: int = 50_000, ce: bool = False, n_bytes: int = PAYLOAD) -> bytes:
    reth = bytes(16) if opcode in (FIRST, ONLY) else b""
    pad = -n_bytes % 4
    rest = reth + bytes(n_bytes + pad)
    return frame(opcode, psn, QPN, rest, src_port=src_port, tos=3 if ce else 2, pad=pad)


def capture(point: str, *frames: tuple[int, bytes], missed: int = 0) -> Capture:
    """(microseconds, frame)s, cut as captures are."""
    return Capture(point, [Frame(us * 1000, made[:128], len(made)) for us, made in frames], missed)


def one(*captures: Capture) -> Flow:
    (found,) = flows(captures).flows
    return found


def test_a_flow_at_one_point() -> None:
    """Two messages: of three packets, the last with 5 bytes, and of one."""
    whole = capture(
        "h1-eth0", (0, data(FIRST, 7)), (1, data(MIDDLE, 8)), (2, data(LAST, 9, n_bytes=5)), (3, data(ONLY, 10))
    )
    assert one(whole) == Flow(
        key=DATA_KEY,
        points=("h1-eth0",),
        src_ports=(50_000,),
        packets=4,
        n_bytes=256 + 256 + 5 + 256,
        messages=2,
        resent=0,
        out_of_order=0,
        ce=0,
        acks=0,
        naks=0,
        cnps=0,
        missing=0,
        delay_us=None,
    )


def test_what_was_sent_again_is_told_from_what_came_behind() -> None:
    """Sent: 0 1 2 1 2 3. The first 1 is lost on the way, so that behind it 2 comes, then 1, 2 again and 3."""
    sent = [data(FIRST, 0), data(MIDDLE, 1), data(MIDDLE, 2), data(MIDDLE, 1), data(MIDDLE, 2), data(LAST, 3)]
    here = capture("h1-eth0", *enumerate(sent))
    there = capture("h2-eth0", *((100 + i, made) for i, made in enumerate(sent) if i != 1))
    found = one(there, here)
    assert found.points == ("h1-eth0", "h2-eth0")
    assert (found.packets, found.resent, found.out_of_order, found.missing) == (6, 2, 1, 0)
    assert (found.n_bytes, found.messages) == (4 * PAYLOAD, 1)
    # 0 and 3 passed both points once.
    assert found.delay_us == (100, 100, 100, 100)


def test_numbers_wrap_and_a_link_sees_a_part() -> None:
    psns = [2**24 - 2, 2**24 - 1, 0, 1]
    sent = [data(MIDDLE, psn, src_port=50_000 + psn % 2) for psn in psns]
    here = capture("h1-eth0", *enumerate(sent))
    link = capture("leaf1-eth3", *((20 + i, sent[i]) for i in (0, 2)))
    there = capture("h2-eth0", (40, sent[0]), (46, sent[2]), (51, sent[1]))
    found = one(link, there, here)
    assert found.points == ("h1-eth0", "leaf1-eth3", "h2-eth0")
    assert (found.packets, found.src_ports, found.resent, found.out_of_order) == (4, (50_000, 50_001), 0, 1)
    # The last never came; under way 40, 50 and 44 us.
    assert found.missing == 1
    assert found.delay_us is not None
    assert found.delay_us[0] == 40 and found.delay_us[1] == 44 and found.delay_us[3] == 50


def test_the_order_of_points_is_the_packets_way_not_who_saw_one_first() -> None:
    """Spread over two paths: the first packet passes no captured link, so that the receiver sees the flow before it."""
    first, second = data(FIRST, 0), data(LAST, 1, src_port=50_001)
    found = one(capture("h2-eth0", (10, first), (30, second)), capture("leaf1-eth3", (25, second)))
    assert found.points == ("leaf1-eth3", "h2-eth0")
    assert (found.packets, found.delay_us) == (2, (5, 5, 5, 5))


def test_marks_and_answers() -> None:
    def answer(opcode: int, syndrome: int = 0x1F) -> bytes:
        rest = bytes(16) if opcode == CNP else struct.pack(">I", syndrome << 24)
        return frame(opcode, 0, 0x99, rest, src_port=50_000, tos=0, becn=opcode == CNP)

    answers = [answer(ACKNOWLEDGE), answer(ACKNOWLEDGE), answer(ACKNOWLEDGE, 0x60), answer(CNP)]
    found = flows([capture("h1-eth0", *enumerate([data(ONLY, 0, ce=True), data(ONLY, 1), *answers]))]).flows
    assert [(f.key.qpn, f.ce, f.acks, f.naks, f.cnps) for f in found] == [(QPN, 1, 0, 0, 0), (0x99, 0, 2, 1, 1)]


def tcp(sequence: int, n_bytes: int) -> bytes:
    ends = bytes((198, 18, 0, 1, 198, 18, 0, 2))
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + 32 + n_bytes, 0, 0, 64, 6, 0) + ends
    return (
        bytes(12)
        + b"\x08\x00"
        + ip
        + struct.pack(">HHIIBBHHH", 10_000, 5001, sequence, 0, 8 << 4, 16, 0, 0, 0)
        + bytes(12 + n_bytes)
    )


def test_tcp_has_its_sequence_numbers() -> None:
    """They wrap at 2^32; an acknowledgement without data is a packet and nothing else."""
    sent = [tcp(2**32 - 100, 100), tcp(0, 100), tcp(0, 100), tcp(100, 50), tcp(150, 0)]
    found = one(capture("h1-eth0", *enumerate(sent)))
    assert found.key == FlowKey("198.18.0.1", "198.18.0.2", 6, 10_000, 5001, None)
    assert (found.packets, found.n_bytes, found.resent) == (5, 250, 1)


def test_what_is_no_flow_is_counted_apart() -> None:
    arp = bytes(12) + b"\x08\x06" + bytes(46)
    found = flows([capture("a", (0, arp), (1, b"short"), (2, frame(0x42, 0, 1, b"", src_port=1, tos=0)), missed=4)])
    assert (found.flows, found.other_frames, found.missed_frames) == ([], 3, 4)


def test_the_table_and_its_refusals(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "h1-eth0.pcapng"
    file.write_bytes(b"".join(written(capture("h1-eth0", (0, data(FIRST, 0)), (1, data(LAST, 1))), 128)))
    show([str(file)], as_json=False)
    head, row = capsys.readouterr().out.splitlines()
    assert row.split() == ["udp", "198.18.0.1:50000", ">", "198.18.0.2:4791", "0x001234", "2", "512", "1", "h1-eth0"]
    assert head.index("packets") + len("packets") == row.index(" 2 ") + 2
    with pytest.raises(LabError, match=r"nothing\.pcapng cannot be read: No such file or directory$"):
        show([str(tmp_path / "nothing.pcapng")], as_json=False)
