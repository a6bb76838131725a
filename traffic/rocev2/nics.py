"""The hosts' NICs, opened in their namespaces, and what they carry."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from topologies import namespaces
from traffic.errors import TrafficError
from traffic.framing import ROCEV2_BYTES, largest_path_mtu
from traffic.rocev2.next_hop import NextHop
from traffic.rocev2.nic import Nic, way_to
from traffic.rocev2.opcodes import PATH_MTUS
from traffic.transport import Endpoint, WireFlow

# Fewer than the queue of a shaped link holds unasked: what the socket does not hold back, that queue drops.
_SEND_BUFFER_BYTES, _SEND_BUFFER_FRAMES = 64 << 10, 16


class Way(NamedTuple):
    """From a host towards an address."""

    nic: Nic
    hop: NextHop


# (rank, address of a peer) -> the way there.
Ways = Mapping[tuple[int, str], Way]


def open_nics(endpoints: Sequence[Endpoint], flows: Sequence[WireFlow], opened: list[Nic]) -> Ways:
    """Each interface that carries a flow once. opened: where they are put as they come, for the caller to close."""
    peers: dict[int, set[str]] = defaultdict(set)
    for flow in flows:
        peers[flow.src_rank].add(flow.dst_ip)
        peers[flow.dst_rank].add(flow.src_ip)
    nics: dict[tuple[str | None, str], Nic] = {}
    ways = {}

    def look(endpoint: Endpoint) -> None:
        for ip in sorted(peers[endpoint.rank]):
            hop = way_to(ip)
            at = endpoint.netns, hop.intf
            if at not in nics:
                nics[at] = Nic(hop.intf, send_buffer_bytes=_SEND_BUFFER_BYTES)
                opened.append(nics[at])
                nics[at].limit_send_buffer(min(_SEND_BUFFER_BYTES, _SEND_BUFFER_FRAMES * nics[at].mtu_bytes))
            ways[endpoint.rank, ip] = Way(nics[at], hop)

    namespaces.each([(e.netns, e) for e in endpoints if e.netns is not None], look)
    for endpoint in endpoints:
        if endpoint.netns is None:
            look(endpoint)
    return ways


def carried_path_mtu(nics: Sequence[Nic]) -> int:
    """The largest that all of them carry. Raises TrafficError where there is none."""
    mtu = min((nic.mtu_bytes for nic in nics), default=PATH_MTUS[-1] + ROCEV2_BYTES)
    if (largest := largest_path_mtu(mtu)) is None:
        raise TrafficError(f"an interface of MTU {mtu} carries no RoCEv2: use {PATH_MTUS[0] + ROCEV2_BYTES} or more")
    return largest
