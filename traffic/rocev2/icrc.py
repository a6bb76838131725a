"""The invariant CRC at the end of each RoCEv2 packet, and the IPv4 header checksum.

It covers all that no switch changes. What one may change counts as ones: the type of service, the time to live and both
checksums, and of the BTH the byte with FECN and BECN. Before it come eight bytes of ones, where an InfiniBand packet has its
local route header (InfiniBand Architecture vol. 1, annex A17). The polynomial is Ethernet's, as in zlib.
"""

from zlib import crc32

ETHERNET_BYTES = 14
IP_BYTES = 20
UDP_BYTES = 8
BTH_BYTES = 12
ICRC_BYTES = 4
IP_AT = ETHERNET_BYTES
UDP_AT = IP_AT + IP_BYTES
BTH_AT = UDP_AT + UDP_BYTES
HEADERS_BYTES = BTH_AT + BTH_BYTES

_TOS, _TTL, _IP_CHECKSUM, _UDP_CHECKSUM, _RESERVED = 1, 8, 10, 26, 32
_INSTEAD_OF_LRH = crc32(b"\xff" * 8)


def header_crc(head: bytes | bytearray | memoryview) -> int:
    """The CRC so far, of a frame's beginning: from the Ethernet header into the BTH behind its FECN byte or further."""
    masked = bytearray(head[IP_AT:])
    masked[_TOS] = masked[_TTL] = masked[_RESERVED] = 0xFF
    masked[_IP_CHECKSUM : _IP_CHECKSUM + 2] = masked[_UDP_CHECKSUM : _UDP_CHECKSUM + 2] = b"\xff\xff"
    return crc32(masked, _INSTEAD_OF_LRH)


def icrc(frame: bytes | bytearray | memoryview) -> int:
    """What the last four bytes of an Ethernet/IPv4/UDP/BTH frame must be, little-endian."""
    body = memoryview(frame)[HEADERS_BYTES:-ICRC_BYTES]
    return crc32(body, header_crc(memoryview(frame)[:HEADERS_BYTES]))


def ip_checksum(header: bytes | bytearray | memoryview) -> int:
    """Of an IPv4 header whose checksum field is zero (RFC 1071)."""
    total = sum(memoryview(header)[i] << 8 | memoryview(header)[i + 1] for i in range(0, len(header), 2))
    # Twice: the first fold may carry again.
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
