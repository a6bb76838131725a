"""A received frame, taken apart."""

import struct
from typing import NamedTuple
from zlib import crc32

from traffic.rocev2.icrc import HEADERS_BYTES, ICRC_BYTES, IP_AT, header_crc
from traffic.rocev2.opcodes import DATA, WITH_RETH, Opcode
from traffic.rocev2.queue_pair import UDP_PORT

_IPV4, _NO_OPTIONS, _UDP = 0x0800, 0x45, 17
_CE = 0b11
# Ether type; version, service, total length, protocol of IP; both UDP ports; opcode, flags, QP number and PSN of the BTH.
_HEADERS = struct.Struct(">12xHBBH5xB10xHH4xBB2xII")
_RETH = struct.Struct(">QII")
_AETH = struct.Struct(">I")
_ICRC = struct.Struct("<I")
_OPCODES = {int(opcode): opcode for opcode in Opcode}
_24_BITS = (1 << 24) - 1
_NOTHING = memoryview(b"")


class Packet(NamedTuple):
    """psn, msn: 24 bits; message_bytes: of a RETH; syndrome, msn: of an AETH; payload: a view into the frame."""

    opcode: Opcode
    dst_qpn: int
    psn: int
    ack_request: bool
    ce: bool
    src_port: int
    payload: memoryview
    va: int = 0
    message_bytes: int = 0
    syndrome: int = 0
    msn: int = 0


def parse(frame: memoryview) -> Packet | None:
    """None for what is no whole packet of an operation that is known here, or whose ICRC is wrong: dropped, as by a NIC."""
    if len(frame) < HEADERS_BYTES + ICRC_BYTES:
        return None
    kind, version, service, total, protocol, src_port, dst_port, code, flags, qpn, word = _HEADERS.unpack_from(frame)
    opcode = _OPCODES.get(code)
    end = IP_AT + total - ICRC_BYTES
    if (kind, version, protocol, dst_port) != (_IPV4, _NO_OPTIONS, _UDP, UDP_PORT) or opcode is None:
        return None
    # Short frames are padded by Ethernet: the length that counts is IP's.
    if not HEADERS_BYTES <= end <= len(frame) - ICRC_BYTES:
        return None
    crc = crc32(frame[HEADERS_BYTES:end], header_crc(frame[:HEADERS_BYTES]))
    if _ICRC.unpack_from(frame, end)[0] != crc:
        return None
    ends = (qpn & _24_BITS, word & _24_BITS, word > _24_BITS, service & _CE == _CE, src_port)
    if opcode in DATA:
        return _data(frame, opcode, ends, end - (flags >> 4 & 3))
    if opcode is Opcode.ACKNOWLEDGE:
        if end < HEADERS_BYTES + _AETH.size:
            return None
        aeth = _AETH.unpack_from(frame, HEADERS_BYTES)[0]
        return Packet(opcode, *ends, _NOTHING, syndrome=aeth >> 24, msn=aeth & _24_BITS)
    return Packet(opcode, *ends, _NOTHING)


def _data(frame: memoryview, opcode: Opcode, ends: tuple[int, int, bool, bool, int], end: int) -> Packet | None:
    at, va, message_bytes = HEADERS_BYTES, 0, 0
    if opcode in WITH_RETH:
        at += _RETH.size
        if at > end:
            return None
        va, _, message_bytes = _RETH.unpack_from(frame, HEADERS_BYTES)
    if at > end:
        return None
    return Packet(opcode, *ends, frame[at:end], va, message_bytes)
