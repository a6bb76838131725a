"""What the programs of spray do with packets that Scapy builds and whose checksums Scapy computes again."""

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from tests.unit.bpf_machine import Machine
from tests.unit.test_emulation import two_servers
from topologies import spray
from topologies.bpf import Instruction, assemble
from topologies.errors import TopologyError
from topologies.spread import Spread

PASSED, DROPPED = -1, 2
IPV4, IPV6 = 0x0800, 0x86DD


def segment(sport: int = 10_000, **ip: Any) -> Packet:
    made = Ether() / IP(src="198.18.0.1", dst="198.18.1.2", **{"flags": "DF", "id": 7, **ip})
    return made / TCP(sport=sport, dport=5001, flags="A", seq=1, ack=2) / Raw(b"payload!")


def ones_complement_sum(old: int, from_: int, to: int) -> int:
    """A checksum after a field of two bytes has changed: RFC 1624, equation 3."""
    total = (~old & 0xFFFF) + (~from_ & 0xFFFF) + to
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Interface:
    """One with a program; now_ns is the kernel's clock, refusing: a helper that fails."""

    def __init__(self, program: list[Instruction], refusing: int | None = None) -> None:
        self.now_ns, self._frame = 10**12, bytearray()
        helpers = {5: lambda *_: self.now_ns, 9: self._store, 10: self._checksum, 11: self._checksum, 26: self._load}
        helpers |= {refusing: lambda *_: -12} if refusing else {}
        self._machine = Machine(assemble(program), bytearray(192), bytearray(spray.MEMORY_BYTES), helpers)

    def passes(self, packet: Packet) -> Packet:
        """The packet as it goes on, every field as it is on the wire."""
        assert self.run(bytes(packet)) == PASSED
        return self.frame

    @property
    def frame(self) -> Packet:
        return Ether(bytes(self._frame))

    def run(self, frame: bytes, segments: int = 1) -> int:
        self._frame = bytearray(frame)
        # __sk_buff's protocol, in network order.
        self._machine.context[16:20] = frame[12:14] + bytes(2)
        self._machine.context[164:168] = struct.pack("<I", segments)
        return self._machine.run()

    def _load(self, _: int, at: int, to: int, n: int, __: int) -> int:
        if at + n > len(self._frame):
            return -14
        self._machine.write(to, bytes(self._frame[at : at + n]))
        return 0

    def _store(self, _: int, at: int, source: int, n: int, flags: int) -> int:
        assert flags == 0
        self._frame[at : at + n] = self._machine.read(source, n)
        return 0

    def _checksum(self, _: int, at: int, from_: int, to: int, n: int) -> int:
        was, now = (struct.unpack(f">{n // 2}H", field.to_bytes(n, "little")) for field in (from_, to))
        total = int.from_bytes(self._frame[at : at + 2], "big")
        for halves in zip(was, now, strict=True):
            total = ones_complement_sum(total, *halves)
        self._frame[at : at + 2] = total.to_bytes(2, "big")
        return 0


def sender(entropy: int = 4, **options: Any) -> Interface:
    return Interface(spray.leaving(3, Spread(**{"unit": "packet", "entropy": entropy, **options})))


def recomputed(packet: Packet) -> Packet:
    """The same with Scapy's own checksums."""
    copy: Any = packet.copy()
    del copy[IP].chksum, copy[TCP].chksum
    return Ether(bytes(copy))


def test_packets_leave_by_one_port_after_the_other_and_carry_their_own() -> None:
    out = sender(entropy=3)
    wire = [out.passes(segment()) for _ in range(7)]
    assert [p[TCP].sport for p in wire] == [10_000, 10_001, 10_002, 10_000, 10_001, 10_002, 10_000]
    assert {(p[IP].id, str(p[IP].flags)) for p in wire} == {(10_000, "DF+evil")}


def test_the_wire_s_ports_are_those_that_the_prediction_walks() -> None:
    out = sender(entropy=4)
    assert [out.passes(segment(65_534))[TCP].sport for _ in range(4)] == spray.source_ports(65_534, 4)
    assert spray.source_ports(65_534, 4) == [65_534, 65_535, 0, 1]


@pytest.mark.parametrize("sport", [10_000, 255, 256, 65_535])
def test_checksums_are_right_on_the_wire_and_after_it(sport: int) -> None:
    out, into = sender(entropy=20), Interface(spray.arriving())
    for _ in range(20):
        wire = out.passes(segment(sport))
        assert bytes(wire) == bytes(recomputed(wire))
        assert bytes(into.passes(wire)) == bytes(Ether(bytes(segment(sport, id=0))))


def test_flows_take_turns_of_their_own() -> None:
    out = sender(entropy=8)
    ports = [out.passes(segment(sport))[TCP].sport - sport for _ in range(3) for sport in (10_000, 20_000)]
    assert ports == [0, 0, 1, 1, 2, 2]


def test_a_flowlet_ends_with_a_pause_longer_than_the_gap() -> None:
    out = sender(entropy=64, unit="flowlet", gap_ns=1000)

    def ports() -> Iterator[int]:
        for pause_ns in (0, 1000, 1001, 0, 5000):
            out.now_ns += pause_ns
            yield out.passes(segment())[TCP].sport

    assert [b - a for a, b in pairwise(ports())] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    "packet",
    [
        segment(flags=0),
        segment(flags="MF+DF"),
        segment(flags="MF+DF+evil"),
        segment(ihl=6),
        Ether() / IP(flags="DF", src="198.18.0.1", dst="198.18.1.2") / UDP(sport=49_152, dport=4791) / Raw(b"RoCE"),
        Ether() / IP(flags="DF", src="198.18.0.1", dst="198.18.1.2") / ICMP() / Raw(b"ping"),
        Ether(type=IPV6) / Raw(bytes(segment())[14:]),
        Ether() / IP(flags="DF", src="198.18.0.1", dst="198.18.1.2", proto=6),
    ],
    ids=["no DF", "a fragment", "a fragment with the flag", "IPv4 options", "UDP", "ICMP", "not IPv4", "no ports"],
)
def test_what_is_not_ours_passes_both_as_it_is(packet: Packet) -> None:
    frame = bytes(packet)
    for interface in (sender(), Interface(spray.arriving())):
        assert bytes(interface.passes(Ether(frame))) == frame


def test_what_is_not_yet_segments_is_not_sprayed_and_arrives_as_it_is() -> None:
    """Each segment would get a number of its own in the identification, which is a port then."""
    out, into = sender(), Interface(spray.arriving())
    for _ in range(3):
        assert out.run(bytes(segment()), segments=3) == PASSED
        assert bytes(into.passes(out.frame)) == bytes(segment())


@pytest.mark.parametrize("helper", [9, 10, 11], ids=["store", "IPv4 checksum", "TCP checksum"])
def test_a_packet_that_cannot_be_written_is_dropped(helper: int) -> None:
    assert Interface(spray.leaving(3, Spread("packet")), refusing=helper).run(bytes(segment())) == DROPPED
    assert Interface(spray.arriving(), refusing=helper).run(bytes(segment(flags="DF+evil"))) == DROPPED


def test_scale_out_interfaces_of_hosts_alone_are_sprayed() -> None:
    assert spray.sprayed_intfs(two_servers()) == {f"h{i}-eth0" for i in range(1, 5)}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"unit": "worm"}, "spread 'worm': choose from flow, flowlet, packet"),
        ({"entropy": 0}, "entropy 0: use 1 to 16384 source ports"),
        ({"gap_ns": 0}, "flowlet gap of 0 ns: use 1 or more"),
    ],
)
def test_a_spread_that_cannot_be_meant_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(TopologyError) as caught:
        Spread(**change)
    assert str(caught.value) == text
