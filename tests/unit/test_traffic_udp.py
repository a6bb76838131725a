"""The UDP blaster: datagrams over loopback, and what becomes of those that never come."""

import time
from collections import Counter

import pytest

from controller import policy, rules_of
from controller.dataplane import DataPlane
from lab.planning.announcing import flow_of
from lab.planning.experiment import load
from lab.planning.plan import plan
from tests.unit.loopback import NETWORK
from tests.unit.traffic_fakes import filled, wrong
from topologies import topology
from traffic import schedule
from traffic.errors import TrafficError
from traffic.framing import udp
from traffic.replay import Replay
from traffic.schedule import Connection
from traffic.transport import Endpoint
from traffic.transports.rocev2 import RoceTransport
from traffic.transports.udp import UdpTransport
from traffic.unreliable import LossyStream

ENDS = [Endpoint(rank, f"h{rank + 1}", f"{NETWORK}.2.{rank + 1}") for rank in range(3)]


@pytest.mark.root
def test_what_arrives_is_right_and_nothing_is_lost_where_nothing_drops() -> None:
    made = schedule("all_reduce", "ring", 3)
    with UdpTransport(ENDS, made.connections) as transport:
        buffers = filled(made, 200_000)
        Replay(made, 200_000, transport).run(buffers, stall_s=10)
        assert wrong(made, buffers) == 0
        counters = transport.counters()
    assert (counters.lost_bytes, counters.out_of_order, counters.dropped_host, counters.retransmits) == (0, 0, 0, 0)
    # Each of 3 ranks sends 4 thirds of 800 000 bytes; loopback's MTU of 65 536 leaves 65 500 beside 28 of headers and the offset.
    assert counters.segments == sum(-(-4 * n // 65_500) for n in (66_667, 66_667, 66_666)) * 4


@pytest.mark.root
def test_what_a_full_socket_drops_is_counted_and_the_replay_goes_on() -> None:
    """Sent before anybody looks: 36 MB into a buffer of 16, as the kernel doubles 8."""
    connection: Connection = (0, 1, 0)
    with UdpTransport(ENDS, [connection], patience_ns=50_000_000) as transport:
        sender, receiver = transport.senders[connection], transport.receivers[connection]
        data = memoryview(bytes(60_000))
        assert all(sender.send(data) == 60_000 for _ in range(600))
        receiver.expect(36_000_000)
        deadline = time.monotonic() + 10
        while receiver.at < 36_000_000:
            assert time.monotonic() < deadline
            for _ in transport.serve():
                receiver.recv_into(memoryview(bytearray(1 << 20)))
        counters = transport.counters()
    assert counters.lost_bytes == 60_000 * counters.dropped_host > 0
    assert receiver.arrived_bytes + receiver.lost_bytes == 36_000_000


def test_zeros_stand_where_nothing_came() -> None:
    readable: dict[int, None] = {}
    stream = LossyStream(-1, readable)
    stream.expect(6)
    stream.arrive(0, memoryview(b"ab"))
    # 2 and 3 are missing: a flow keeps its order.
    stream.arrive(4, memoryview(b"ef"))
    # And come too late.
    stream.arrive(2, memoryview(b"cd"))
    assert (readable, stream.arrived_bytes, stream.lost_bytes, stream.late) == ({-1: None}, 4, 2, 1)
    buffer = bytearray(6)
    stream.recv_into(memoryview(buffer))
    assert buffer == b"ab\0\0ef"
    stream.give_up(6)
    assert stream.lost_bytes == 2
    stream.give_up(9)
    assert (stream.at, stream.lost_bytes) == (9, 5)


def test_more_flows_than_ports_are_refused() -> None:
    connections = [(0, 1, channel) for channel in range(12_769)]
    with pytest.raises(
        TrafficError, match=r"^12769 UDP flows from one rank do not fit: it has ports for 12768, use fewer$"
    ):
        UdpTransport.plan(ENDS, connections)


def test_a_full_datagram_is_the_interfaces_mtu() -> None:
    """Ethernet 14, IP 20, UDP 8, offset 8."""
    framing = udp(1500)
    assert (framing.payload_bytes, framing.frame_bytes, framing.ack_bytes) == (1464, 1514, 0)


@pytest.mark.parametrize("transport", ["udp", "rocev2"])
def test_flows_between_two_hosts_that_differ_by_port_alone_take_both_uplinks(transport: str) -> None:
    """256 from one host to one host: 128 +- 24 each, three standard deviations, whether by source ports or by queue pairs."""
    fabric = topology("spine-leaf:spines=2,leaves=2,hosts_per_leaf=1").build()
    plane = DataPlane(fabric, rules_of(policy("ecmp"), fabric))
    ends = [Endpoint(i, h.name, str(fabric.scale_out_port(h.name).ip)) for i, h in enumerate(fabric.hosts)]
    if transport == "udp":
        flows = UdpTransport.plan(ends, [(0, 1, channel) for channel in range(256)])
        assert [f.src_port for f in flows] == list(range(20_000, 20_256))
    else:
        flows = RoceTransport.plan(ends, [(0, 1, 0)], qps=256)
    by_spine = Counter(plane.path(flow_of(f))[1].intf for f in flows)
    assert len(by_spine) == 2
    assert all(104 <= n <= 152 for n in by_spine.values())


def test_a_run_over_udp_can_be_planned() -> None:
    planned = plan(load(None, {"transport": "udp"}))
    assert planned.framing == udp(9000)
