"""What a transport's messages are on the wire: data for predictions. Pure.

Ethernet's header is counted, as tc counts it; CRC, preamble and gap are not.
"""

from dataclasses import dataclass

from traffic.rocev2.opcodes import PATH_MTUS

ETHERNET_BYTES = 14
_IPV4_BYTES, _UDP_BYTES = 20, 8
# TCP's 20 with the 12 of timestamps (RFC 7323).
_TCP_BYTES = 20 + 12
# InfiniBand's base transport header, RDMA's extended one, the acknowledgement's, and the invariant CRC (RoCEv2, annex A17).
_BTH_BYTES, _RETH_BYTES, _AETH_BYTES, _ICRC_BYTES = 12, 16, 4, 4
# What counts as the interface's MTU beside the payload.
ROCEV2_BYTES = _IPV4_BYTES + _UDP_BYTES + _BTH_BYTES + _RETH_BYTES + _ICRC_BYTES


@dataclass(frozen=True)
class Framing:
    """payload_bytes: of a full frame; header_bytes: of every frame, first_header_bytes: of a message's first one besides;
    ack_bytes: a frame in the opposite direction for every frames_per_ack frames, and for a message's last ones."""

    payload_bytes: int
    header_bytes: int
    first_header_bytes: int
    ack_bytes: int
    frames_per_ack: int

    @property
    def frame_bytes(self) -> int:
        return self.payload_bytes + self.header_bytes


def tcp(mtu: int) -> Framing:
    """Every second segment is acknowledged (RFC 1122 section 4.2.3.2)."""
    headers = _IPV4_BYTES + _TCP_BYTES
    return Framing(mtu - headers, ETHERNET_BYTES + headers, 0, ETHERNET_BYTES + headers, 2)


def largest_path_mtu(mtu: int) -> int | None:
    """That interfaces of this MTU carry; None = they carry no RoCEv2."""
    return max((m for m in PATH_MTUS if m + ROCEV2_BYTES <= mtu), default=None)


def rocev2(mtu: int, path_mtu: int | None = None, frames_per_ack: int = 16) -> Framing:
    """RDMA writes, whose first packet says where they go. path_mtu: None = the largest that the interfaces carry."""
    headers = ROCEV2_BYTES - _RETH_BYTES
    payload = path_mtu or largest_path_mtu(mtu) or PATH_MTUS[0]
    ack_bytes = ETHERNET_BYTES + headers + _AETH_BYTES
    return Framing(payload, ETHERNET_BYTES + headers, _RETH_BYTES, ack_bytes, frames_per_ack)


# What is the interface's beside the payload: headers, and the offset that each of our datagrams begins with.
UDP_OVERHEAD_BYTES = _IPV4_BYTES + _UDP_BYTES + 8
# Frames for each acknowledgement where there are none.
_NEVER = 1 << 62


def udp(mtu: int) -> Framing:
    """Nothing is acknowledged."""
    return Framing(mtu - UDP_OVERHEAD_BYTES, ETHERNET_BYTES + UDP_OVERHEAD_BYTES, 0, 0, _NEVER)
