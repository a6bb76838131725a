"""pcapng against its draft's tables, byte by byte; and files of others: the other byte order, microseconds, what is cut off."""

import struct

import pytest

from tests.unit.roce_by_hand import pcap
from traffic.capture.frame import Capture, Frame
from traffic.capture.pcapng import read, written
from traffic.errors import TrafficError

# 2026-11-30 12:00:00.123456789 UTC: above 2^53 ns, where a float would round.
TIME_NS = 1_796_040_000_123_456_789


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    length = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + length + body + length


def test_a_file_is_what_the_draft_says() -> None:
    frame = Frame(TIME_NS, b"frame" * 3, 60, outgoing=True)
    end = bytes(4)
    section = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + struct.pack("<HH", 4, 11) + b"run_topo.py\0" + end
    name, resolution = struct.pack("<HH", 2, 7) + b"h1-eth0\0", struct.pack("<HH", 9, 1) + b"\x09\0\0\0"
    interface = struct.pack("<HHI", 1, 0, 128) + name + resolution + end
    high, low = divmod(TIME_NS, 2**32)
    packet = struct.pack("<5I", 0, high, low, 15, 60) + b"frame" * 3 + b"\0" + struct.pack("<HHI", 2, 4, 2) + end
    counts = struct.pack("<HHQ", 4, 8, 4) + struct.pack("<HHQ", 5, 8, 3)
    statistics = struct.pack("<3I", 0, high, low) + counts + end
    expected = block(0x0A0D0D0A, section) + block(1, interface) + block(6, packet) + block(5, statistics)
    assert b"".join(written(Capture("h1-eth0", [frame], missed=3), 128)) == expected


@pytest.mark.parametrize("outgoing", [True, False, None])
def test_what_was_written_is_read(outgoing: bool | None) -> None:
    frames = [Frame(TIME_NS + i, bytes(range(i)), 9014, outgoing) for i in range(20)]
    assert read(b"".join(written(Capture("leaf1-eth3", frames, 7), 128)), "x") == [Capture("leaf1-eth3", frames, 7)]


def test_an_empty_capture_is_a_file() -> None:
    assert read(b"".join(written(Capture("h1-eth0", []), 128)), "x") == [Capture("h1-eth0", [])]


def test_other_programs_files_are_read() -> None:
    """Big-endian, microseconds by default, two interfaces of which one is no Ethernet and one has no name, an unknown block."""
    section = struct.pack(">IHHq", 0x1A2B3C4D, 1, 0, -1)
    loopback, ethernet = struct.pack(">HHI", 0, 0, 0), struct.pack(">HHI", 1, 0, 0)
    foreign = struct.pack(">5I", 0, 0, 1, 4, 4) + b"none"
    packet = struct.pack(">5I", 1, *divmod(1_796_040_000_123_456, 2**32), 3, 3) + b"one\0"
    blocks = ((0x0A0D0D0A, section), (1, loopback), (1, ethernet), (6, foreign), (0xBAD, b"what"), (6, packet))
    data = b"".join(block(kind, body, ">") for kind, body in blocks)
    assert read(data, "x.pcapng") == [Capture("x.pcapng#1", [Frame(1_796_040_000_123_456_000, b"one", 3)])]
    # Cut off within the last block: what is whole is read.
    assert read(data[:-5], "x.pcapng") == [Capture("x.pcapng#1", [])]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "x: is no pcapng: give what --pcap or Wireshark wrote"),
        (b"\x7fELF" * 20, "x: is no pcapng: give what --pcap or Wireshark wrote"),
        (pcap([b"frame"]), "x: is a pcap, not a pcapng: editcap -F pcapng x NEW.pcapng makes one of it"),
        (
            b"".join((*written(Capture("a", []), 1), block(6, bytes(12)))),
            "x: a packet block of 12 bytes is too short: the file is damaged",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(data: bytes, text: str) -> None:
    with pytest.raises(TrafficError) as caught:
        read(data, "x")
    assert str(caught.value) == text
