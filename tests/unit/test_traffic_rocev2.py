"""The RoCEv2 transport without a network: two NICs that are the two ends of a pair of datagram sockets."""

import select
import socket
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.unit.traffic_fakes import filled, wrong
from topologies.spread import Spread
from traffic import schedule
from traffic.errors import TrafficError
from traffic.replay import Replay
from traffic.rocev2 import queue_pair
from traffic.rocev2.dcqcn import DcqcnParameters
from traffic.rocev2.next_hop import NextHop
from traffic.rocev2.nics import Way, Ways
from traffic.rocev2.packet import parse
from traffic.rocev2.port import Port
from traffic.rocev2.queue_pair import queue_pair_numbers
from traffic.rocev2.reliability import Reliability
from traffic.rocev2.sender import RetryExceededError
from traffic.rocev2.spread import SourcePorts
from traffic.rocev2.streams import ReceivingStream
from traffic.rocev2.striping import stripes
from traffic.schedule import Connection
from traffic.transport import Endpoint
from traffic.transports.rocev2 import RoceTransport

ENDS = [Endpoint(0, "h1", "198.18.0.1"), Endpoint(1, "h2", "198.18.0.2")]
BOTH_WAYS: list[Connection] = [(0, 1, 0), (1, 0, 0)]


class FakeNic:
    def __init__(self, number: int, end: socket.socket, mtu_bytes: int) -> None:
        end.setblocking(False)
        self.end = end
        self.overflow = 0
        self.intf, self.mac, self.mtu_bytes = f"h{number}-eth0", f"02:00:00:00:00:0{number}", mtu_bytes

    def fileno(self) -> int:
        return self.end.fileno()

    def dropped(self) -> int:
        """Since it was last asked."""
        dropped, self.overflow = self.overflow, 0
        return dropped

    def close(self) -> None:
        self.end.close()


class Cabled(RoceTransport):
    """h1 and h2 on one cable of `mtu_bytes`."""

    mtu_bytes = 1500

    def __enter__(self) -> "Cabled":
        return self

    def _open_nics(self, endpoints: Sequence[Endpoint]) -> Ways:
        self.ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.fakes = nics = [FakeNic(i + 1, end, self.mtu_bytes) for i, end in enumerate(self.ends)]
        self._nics += nics  # type: ignore[arg-type]
        return {
            (e.rank, ENDS[1 - e.rank].ip): Way(nics[e.rank], NextHop("", nics[1 - e.rank].mac))  # type: ignore[arg-type]
            for e in endpoints
        }


class Jumbo(Cabled):
    mtu_bytes = 9000


@pytest.mark.parametrize("count", [1, 2, 1003, 200_000])
@pytest.mark.parametrize("selective", [False, True])
def test_an_all_reduce_gives_the_right_values(count: int, selective: bool) -> None:
    """More than the socket takes at once: the port waits for room."""
    made = schedule("all_reduce", "ring", 2)
    with Cabled(ENDS, made.connections, reliability=Reliability(mtu_bytes=1024, selective=selective)) as transport:
        replay = Replay(made, count, transport)
        for _ in range(2):
            buffers = filled(made, count)
            replay.run(buffers, stall_s=10)
            assert wrong(made, buffers) == 0
        assert transport.counters().retransmits == transport.background.strays == 0
        # Per iteration: each of two ranks sends two chunks of half the buffer.
        elements = [count // 2, count - count // 2] * 2
        packets = sum(-(-4 * n // 1024) for n in elements)
        assert transport.counters().segments == 2 * packets
        assert sum(c.segments for c in transport.counters_by_connection().values()) == 2 * packets


def test_what_the_cable_loses_comes_again() -> None:
    made = schedule("all_reduce", "ring", 2)
    reliability = Reliability(mtu_bytes=1024, timeout_ns=5_000_000)
    with Cabled(ENDS, made.connections, reliability=reliability) as transport:
        # The first of h2's sends never arrives: taken off the cable before the transport looks.
        buffers = filled(made, 512)
        (sender,) = transport.senders[1, 0, 0].queue_pairs
        transport.senders[1, 0, 0].send(buffers[1][:256].view(np.uint8).data)
        transport.ends[0].recv(2000)
        deadline = time.monotonic() + 10
        while not sender.sender.is_idle:
            assert time.monotonic() < deadline
            for number in transport.background.serve():
                transport.receivers[1, 0, 0].recv_into(memoryview(bytearray(4096)))
                assert number == transport.receivers[1, 0, 0].fileno()
        assert (transport.counters().retransmits, sender.sender.timeouts) == (1, 1)


def test_what_hosts_lose_is_counted_apart() -> None:
    with Cabled(ENDS, BOTH_WAYS) as transport:
        for nic, lost in zip(transport.fakes, (2, 3), strict=True):
            nic.overflow = lost
        assert [transport.counters().dropped_host for _ in range(2)] == [5, 5]
        # A frame that is no RoCEv2.
        transport.ends[0].send(bytes(100))
        assert not list(transport.background.serve())
        assert transport.background.strays == 1


def test_an_idle_transport_wakes_nobody() -> None:
    """Else the replay would never see that nothing moves."""
    made = schedule("all_reduce", "ring", 2)
    reliability = Reliability(mtu_bytes=1024, timeout_ns=1_000_000)
    with Cabled(ENDS, made.connections, reliability=reliability) as transport:
        Replay(made, 512, transport).run(filled(made, 512), stall_s=10)
        deadline = time.monotonic() + 10
        while select.select([transport.background], [], [], 0.05)[0]:
            assert time.monotonic() < deadline
            assert not list(transport.background.serve())
        assert transport.senders[0, 1, 0].queue_pairs[0].sender.is_idle


def test_a_paced_sender_keeps_to_its_rate() -> None:
    """250 packets of 1086 and more bytes are at least 271 500 bytes: 217 ms at 10 Mbit/s, less 2 ms that may be made up for."""
    control = DcqcnParameters.at_line_rate(10, min_rate_mbps=1, rate_timer_ns=10**12)
    made = schedule("all_reduce", "ring", 2)
    with Cabled(ENDS, made.connections, reliability=Reliability(mtu_bytes=1024), dcqcn=control) as transport:
        buffers = filled(made, 2 * 64_000)
        result = Replay(made, 2 * 64_000, transport).run(buffers, stall_s=10)
        assert wrong(made, buffers) == 0
        # Two steps of 250 packets each.
        assert result.duration_ns > 2 * 215e6
        assert transport.settings()["rocev2_congestion_control"] == "dcqcn"


def test_an_asked_rate_is_kept_and_told() -> None:
    """64 packets of 1024 bytes and 62 or 78 of headers: 69.5 kB at 10 Mbit/s are 55.6 ms, less 2 ms that may be made up for."""
    with Cabled(ENDS, [(0, 1, 0)], reliability=Reliability(mtu_bytes=1024), rate_mbps=10) as transport:
        deadline, began = time.monotonic() + 10, time.monotonic()
        transport.senders[0, 1, 0].send(memoryview(bytes(1 << 16)))
        while not transport.senders[0, 1, 0].queue_pairs[0].sender.is_idle:
            assert time.monotonic() < deadline
            select.select([transport.background], [], [], 1)
            for _ in transport.background.serve():
                transport.receivers[0, 1, 0].recv_into(memoryview(bytearray(1 << 16)))
        took_s, counters = time.monotonic() - began, transport.counters()
        assert transport.settings()["rocev2_rate_limit_mbps"] == "10"
    # 63 frames followed another; the first has a RETH.
    assert counters.paced_ns == pytest.approx((63 * 1082 + 16) * 800, rel=0.001)
    assert took_s > 0.053
    assert counters.pacing_took_ns / 1e9 <= took_s


def test_only_senders_with_congestion_control_let_themselves_be_marked() -> None:
    made = schedule("all_reduce", "ring", 2)
    for dcqcn, service in ((None, 0b00), (DcqcnParameters.at_line_rate(100), 0b10)):
        with Cabled(ENDS, made.connections, dcqcn=dcqcn) as transport:
            transport.senders[0, 1, 0].send(memoryview(b"four"))
            assert transport.ends[1].recv(2000)[15] == service


def test_marks_come_back_as_notifications_and_halve_the_rate() -> None:
    made = schedule("all_reduce", "ring", 2)
    control = DcqcnParameters.at_line_rate(100, min_rate_mbps=1, rate_timer_ns=10**12, alpha_timer_ns=10**12)
    with Cabled(ENDS, made.connections, dcqcn=control) as transport:
        (sender,) = transport.senders[0, 1, 0].queue_pairs
        transport.senders[0, 1, 0].send(memoryview(b"four"))
        frame = bytearray(transport.ends[1].recv(2000))
        frame[15] |= 0b11
        transport.ends[0].send(frame)
        deadline = time.monotonic() + 10
        while not sender.cnps:
            assert time.monotonic() < deadline
            for _ in transport.background.serve():
                transport.receivers[0, 1, 0].recv_into(memoryview(bytearray(4)))
        assert sender.pacer is not None
        assert sender.pacer.control.rate_mbps == 50


def test_a_dead_path_ends_with_the_connections_name() -> None:
    made = schedule("all_reduce", "ring", 2)
    reliability = Reliability(mtu_bytes=1024, timeout_ns=1_000_000, retry_limit=1)
    with Cabled(ENDS, made.connections, reliability=reliability) as transport:
        buffers = filled(made, 512)
        # h2 hears nothing: its frames go to a socket that nobody serves.
        transport.background._poll.unregister(transport.ends[1].fileno())
        with pytest.raises(
            RetryExceededError, match=r"^the connection (0 -> 1|1 -> 0) broke: packet 0 was not acknowledged"
        ):
            Replay(made, 512, transport).run(buffers, stall_s=10)


def test_the_path_mtu_is_the_largest_that_fits_the_interfaces() -> None:
    for kind, mtu in ((Cabled, "1024"), (Jumbo, "4096")):
        with kind(ENDS, BOTH_WAYS) as transport:
            assert transport.settings()["rocev2_path_mtu"] == mtu
    with pytest.raises(TrafficError, match=r"^path MTU 2048: these interfaces carry 1024 at most$"):
        Cabled(ENDS, BOTH_WAYS, reliability=Reliability(mtu_bytes=2048))


@pytest.mark.parametrize(("qps", "count"), [(3, 1003), (4, 64), (16, 100_000)])
@pytest.mark.parametrize("selective", [False, True])
def test_a_message_over_several_queue_pairs_arrives_whole(qps: int, count: int, selective: bool) -> None:
    """Of 64 elements a step's message is 128 bytes: three of four queue pairs get nothing."""
    made = schedule("all_reduce", "ring", 2)
    reliability = Reliability(mtu_bytes=1024, selective=selective)
    with Cabled(ENDS, made.connections, reliability=reliability, qps=qps) as transport:
        buffers = filled(made, count)
        Replay(made, count, transport).run(buffers, stall_s=10)
        assert wrong(made, buffers) == 0
        assert transport.settings()["rocev2_queue_pairs"] == str(qps)
        used = [bool(end.sent) for end in transport.senders[0, 1, 0].queue_pairs]
        assert used == ([True] + [False] * 3 if qps == 4 else [True] * qps)


def test_stripes_are_even_and_begin_at_multiples_of_128_bytes() -> None:
    """334 bytes for each of three, rounded up."""
    assert stripes(1000, 3) == [384, 384, 232]
    assert stripes(100, 4) == [100, 0, 0, 0]
    assert stripes(1 << 20, 4) == [1 << 18] * 4
    assert stripes(0, 2) == [0, 0]


def test_what_lands_behind_a_gap_waits_for_it() -> None:
    readable: dict[int, None] = {}
    stream = ReceivingStream(-2, readable)
    stream.expect(6)
    stream.land(4, memoryview(b"ef"))
    stream.land(2, memoryview(b"cd"))
    assert not readable
    with pytest.raises(BlockingIOError):
        stream.recv_into(memoryview(bytearray(8)))
    stream.land(0, memoryview(b"ab"))
    assert readable == {-2: None}
    buffer = bytearray(8)
    assert stream.recv_into(memoryview(buffer)) == 6
    assert buffer[:6] == b"abcdef"


def test_packets_of_a_spread_connection_leave_by_one_port_after_the_other() -> None:
    """The queue pair's own, and the two behind it."""
    spread = Spread("packet", entropy=3)
    (flow,) = RoceTransport.plan(ENDS, [(0, 1, 0)])
    ports = [0xC000 + (flow.src_port - 0xC000 + i) % 2**14 for i in range(3)]
    with Cabled(ENDS, [(0, 1, 0)], reliability=Reliability(mtu_bytes=256), spread=spread) as transport:
        transport.senders[0, 1, 0].send(memoryview(bytes(256 * 5)))
        packets = [parse(memoryview(transport.ends[1].recv(2000))) for _ in range(5)]
        assert [p.src_port for p in packets if p] == [*ports, *ports[:2]]
        assert transport.settings()["rocev2_spread"] == "packet"


def test_a_flowlet_changes_its_port_after_a_pause_only() -> None:
    ports = SourcePorts(Spread("flowlet", entropy=2, gap_ns=100), 0xFFFF)
    # The range that Linux uses ends at 65535 and begins at 0xC000.
    assert [ports.of_packet(now) for now in (0, 90, 190, 291, 300, 500)] == [0xFFFF] * 3 + [0xC000] * 2 + [0xFFFF]
    flow = SourcePorts(Spread(), 0xC121)
    assert [flow.of_packet(now) for now in (0, 10**12)] == [0xC121] * 2


def test_accelerators_of_one_server_use_their_own_link() -> None:
    inside = [replace(e, domain=0, scale_up_ip=f"198.19.0.{e.rank + 1}") for e in ENDS]
    assert [(f.src_ip, f.dst_ip) for f in RoceTransport.plan(inside, [(0, 1, 0)])] == [("198.19.0.1", "198.19.0.2")]


def test_the_queue_pairs_of_a_connection_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_pair, "first_number", lambda host, seed: 0x11)
    flows = RoceTransport.plan(ENDS, BOTH_WAYS, qps=2)
    assert [(f.connection, f.qp) for f in flows] == [((0, 1, 0), 0), ((0, 1, 0), 1), ((1, 0, 0), 0), ((1, 0, 0), 1)]
    # 0x11^2 = 0x121, 0x12^2 = 0x144, 0x13^2 = 0x169, 0x14^2 = 0x190: below 14 bits there is nothing to fold.
    assert [f.src_port for f in flows] == [0xC121, 0xC144, 0xC169, 0xC190]
    assert [(f.proto, f.dst_port) for f in flows] == [(17, 4791)] * 4
    assert (flows[2].src_ip, flows[2].dst_ip) == ("198.18.0.2", "198.18.0.1")


def test_each_host_numbers_its_queue_pairs_and_goes_on_behind_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    first = {"h1": 0x100, "h2": 0xFFFFFF}
    monkeypatch.setattr(queue_pair, "first_number", lambda host, seed: first[host])
    assert queue_pair_numbers({0: "h1", 1: "h2"}, BOTH_WAYS) == [(0x100, 0xFFFFFF), (0x11, 0x101)]


def test_the_manifest_has_the_numbers_that_hosts_began_with() -> None:
    with Cabled(ENDS, BOTH_WAYS, seed=7) as transport:
        told = transport.settings()["rocev2_first_queue_pair_numbers"]
        numbers = queue_pair_numbers({0: "h1", 1: "h2"}, BOTH_WAYS, seed=7)
    assert told == f"h1={numbers[0][0]:#x} h2={numbers[0][1]:#x}"


class FakeBatch:
    """Takes as many frames at a time as it is told; each is told by its first byte."""

    def __init__(self, takes: list[int]) -> None:
        self.slots = [memoryview(bytearray(1)) for _ in range(4)]
        self.sent: list[int] = []
        self._takes = takes

    def set_length(self, slot: int, n_bytes: int) -> None:
        assert n_bytes == 1

    def send(self, fd: int, first: int, end: int) -> int:
        n = min(self._takes.pop(0) if self._takes else 99, end - first)
        if n < 0:
            raise OSError(105, "No buffer space available")
        self.sent += [self.slots[i][0] for i in range(first, first + n)]
        return n


class Count:
    """Frames first, first + 1, ... up to end."""

    def __init__(self, first: int, end: int) -> None:
        self.at, self.end = first, end

    def write_next(self, slot: memoryview, now_ns: int) -> int | None:
        if self.at == self.end:
            return None
        slot[0] = self.at
        self.at += 1
        return 1


def test_a_port_takes_its_sources_in_turn_and_answers_first() -> None:
    batch = FakeBatch([])
    port = Port(0, batch)
    for source in (Count(0, 3), Count(10, 12)):
        port.activate(source)
        port.activate(source)

    def answer(slot: memoryview) -> int:
        slot[0] = 99
        return 1

    port.answer(answer)
    port.pump(0)
    assert batch.sent == [99, 0, 10, 1, 11, 2]
    assert port.sent == 6


def test_a_port_without_room_keeps_its_frames_in_order() -> None:
    batch = FakeBatch([3, 0])
    port = Port(0, batch)
    port.activate(Count(0, 9))
    port.pump(0)
    assert (batch.sent, port.blocked) == ([0, 1, 2], True)
    port.pump(0)
    assert batch.sent == [0, 1, 2]
    port.blocked = False
    port.pump(0)
    assert batch.sent == list(range(9))
    assert not port.blocked


def test_a_frame_that_the_queue_refuses_is_lost_and_counted() -> None:
    batch = FakeBatch([1, -1, 1])
    port = Port(0, batch)
    port.activate(Count(0, 3))
    port.pump(0)
    assert (batch.sent, port.dropped, port.sent) == ([0, 2], 1, 2)
