"""RoCEv2 between hosts that are namespaces on a Linux bridge: right values, planned flows, loss, a path that dies."""

import socket
from collections.abc import Sequence

import numpy as np
import pytest

import traffic
from tests.emulation.netns_sandbox import in_sandbox, sh
from tests.emulation.test_traffic_tcp import build_hosts, ip, listen_on, mac
from topologies import namespaces
from topologies.egress import EgressPrograms
from topologies.impairments import Impairments
from topologies.shaping import shape
from traffic import values
from traffic.errors import TransportError
from traffic.replay import Replay
from traffic.rocev2.packet import Packet, parse
from traffic.rocev2.reliability import Reliability
from traffic.transport import Endpoint
from traffic.transports.rocev2 import RoceTransport

_MTU = 9000


# -- what runs inside the sandbox -----------------------------------------------------------------------------------


def hosts(n: int) -> list[Endpoint]:
    """Each knows the others' MACs: nobody asks."""
    endpoints = build_hosts(n)
    for i in range(n):
        known = "; ".join(
            f"ip neigh replace {ip(j)} lladdr {mac(j)} dev h{i + 1}-eth0 nud permanent" for j in range(n) if j != i
        )
        sh(f"ip link set b{i + 1} mtu {_MTU}; ip -n h{i + 1} link set h{i + 1}-eth0 mtu {_MTU}")
        sh(known, f"h{i + 1}")
    return endpoints


def all_reduce(endpoints: Sequence[Endpoint], count: int, reliability: Reliability | None = None) -> dict[str, object]:
    """Two ring all-reduces over one transport."""
    n = len(endpoints)
    schedule = traffic.schedule("all_reduce", "ring", n)
    wrong = 0
    with RoceTransport(endpoints, schedule.connections, reliability=reliability) as transport:
        replay = Replay(schedule, count, transport)
        for _ in range(2):
            buffers = [np.empty(count, dtype=np.float32) for _ in range(n)]
            for rank, buffer in enumerate(buffers):
                values.fill(buffer, schedule, rank)
            replay.run(buffers)
            wrong += sum(values.wrong(b, schedule, rank) for rank, b in enumerate(buffers))
        counters = transport.counters()
        planned = [[f.src_ip, f.dst_ip, f.src_port] for f in transport.flows]
    return {"wrong": wrong, "retransmits": counters.retransmits, "segments": counters.segments, "planned": planned}


def packets_seen(listener: socket.socket) -> list[tuple[str, str, Packet]]:
    seen: list[tuple[str, str, Packet]] = []
    while True:
        try:
            frame, address = listener.recvfrom(65535)
        except BlockingIOError:
            return seen
        if address[2] != socket.PACKET_OUTGOING and (packet := parse(memoryview(frame))):
            seen.append((socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34]), packet))


def quiet_network() -> dict[str, object]:
    """What leaves h1 and what the machine's own network card would have sent, beside the result."""
    endpoints = hosts(4)
    out, outside = listen_on("b1"), listen_on("outside")
    out.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    result = all_reduce(endpoints, 4096)
    seen = packets_seen(out)
    data = {(src, dst, p.src_port) for src, dst, p in seen if len(p.payload)}
    return result | {"data": sorted(data), "n": len(seen), "outside": len(packets_seen(outside))}


def lossy_network(selective: bool) -> dict[str, object]:
    """Every frame of every host is lost with 2 %, acknowledgements too."""
    endpoints = hosts(3)
    programs = EgressPrograms([f"h{i + 1}-eth0" for i in range(3)], Impairments(loss=0.02, seed=7))

    def attach(intf: str) -> None:
        programs.attach(intf, shape(1000, _MTU))

    namespaces.each([(e.host, f"{e.host}-eth0") for e in endpoints], attach)
    result = all_reduce(endpoints, 300_000, Reliability(timeout_ns=20_000_000, selective=selective))
    return result | {"lost": sum(counts.lost for counts in programs.counts().values())}


def severed() -> str:
    endpoints = hosts(3)
    sh("ip link set b3 down")
    try:
        all_reduce(endpoints, 4096, Reliability(timeout_ns=10_000_000, retry_limit=2))
    except TransportError as error:
        return str(error)
    return ""


def without_neighbours() -> str:
    try:
        all_reduce(build_hosts(2), 4096)
    except TransportError as error:
        return str(error)
    return ""


# -- tests ----------------------------------------------------------------------------------------------------------


def test_values_are_right_and_the_flows_are_the_planned_ones() -> None:
    result = in_sandbox(quiet_network)
    assert (result["wrong"], result["retransmits"], result["outside"]) == (0, 0, 0)
    # Of 4 ranks each sends 6 quarters of 4096 elements, twice: 4096 bytes are one packet of the path MTU 4096.
    assert result["segments"] == 2 * 4 * 6
    assert result["data"] == [flow for flow in result["planned"] if flow[0] == "198.18.0.1"]


@pytest.mark.parametrize("selective", [False, True])
def test_loss_costs_repetitions_and_no_value(selective: bool) -> None:
    result = in_sandbox(lossy_network, selective)
    assert result["wrong"] == 0
    assert result["lost"] > 0
    assert result["retransmits"] > 0


def test_a_path_that_is_dead_is_named() -> None:
    text = in_sandbox(severed)
    assert text.startswith("the connection ")
    assert text.endswith("was not acknowledged within 10 ms, 3 times in a row")


def test_a_host_that_does_not_know_the_way_is_refused_before_a_packet() -> None:
    text = in_sandbox(without_neighbours)
    assert text == "no neighbour entry for 198.18.0.2 on h1-eth0: frames to 198.18.0.2 would have no destination MAC"
