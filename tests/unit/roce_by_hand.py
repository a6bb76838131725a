"""RoCEv2 frames written with struct and zlib alone, from the tables of the specification: what ours are compared with."""

import struct
import zlib

SRC_MAC, DST_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
SRC_IP, DST_IP = "198.18.0.1", "198.18.0.2"


def frame(
    opcode: int,
    psn: int,
    dst_qpn: int,
    rest: bytes,
    *,
    src_port: int,
    tos: int,
    ack_request: bool = False,
    becn: bool = False,
    pad: int = 0,
) -> bytes:
    """`rest`: extended header, payload and padding."""
    flags = 0x40 | pad << 4
    bth = struct.pack(">BBHII", opcode, flags, 0xFFFF, becn << 30 | dst_qpn, ack_request << 31 | psn)
    udp_bytes = 8 + len(bth) + len(rest) + 4
    udp = struct.pack(">HHHH", src_port, 4791, udp_bytes, 0)
    ends = bytes(map(int, SRC_IP.split("."))) + bytes(map(int, DST_IP.split(".")))

    def ip(tos: int, ttl: int, checksum: int) -> bytes:
        return struct.pack(">BBHHHBBH", 0x45, tos, 20 + udp_bytes, 0, 0x4000, ttl, 17, checksum) + ends

    words = struct.unpack(">10H", ip(tos, 64, 0))
    # The ones' complement sum is the sum modulo 65535.
    checksum = 0xFFFF - sum(words) % 0xFFFF
    covered = (
        b"\xff" * 8
        + ip(0xFF, 0xFF, 0xFFFF)
        + struct.pack(">HHHH", src_port, 4791, udp_bytes, 0xFFFF)
        + bth[:4]
        + b"\xff"
        + bth[5:]
        + rest
    )
    ethernet = bytes.fromhex((DST_MAC + SRC_MAC).replace(":", "")) + b"\x08\x00"
    return ethernet + ip(tos, 64, checksum) + udp + bth + rest + struct.pack("<I", zlib.crc32(covered))


def pcap(frames: list[bytes]) -> bytes:
    """A capture file: microseconds, link type Ethernet."""
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    return head + b"".join(struct.pack("<IIII", i, 0, len(f), len(f)) + f for i, f in enumerate(frames))
