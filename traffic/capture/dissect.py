"""A frame's headers, as far as flows are told apart by them. A frame may be cut off behind them: no checksum is looked at."""

import struct
from typing import NamedTuple

from traffic.capture.frame import Frame
from traffic.rocev2.frames import NAK_SEQUENCE_SYNDROME
from traffic.rocev2.icrc import BTH_AT, BTH_BYTES, ICRC_BYTES, IP_AT
from traffic.rocev2.opcodes import DATA, ENDS, WITH_RETH, Opcode
from traffic.rocev2.queue_pair import UDP_PORT

_IPV4 = b"\x08\x00"
TCP, UDP = 6, 17
_CE = 0b11
_RETH_BYTES = 16
_BTH = struct.Struct(">BBHII")
_24_BITS = (1 << 24) - 1
_OPCODES = {int(opcode): opcode for opcode in Opcode}


class Segment(NamedTuple):
    """proto: IANA's number; qpn: whom a RoCEv2 packet is for, None = no RoCEv2; number: its PSN, or of TCP the sequence number;
    n_bytes: of payload; kind: 'data', or of RoCEv2 'ack', 'nak' or 'cnp'; ends_message: RoCEv2's last packet of one."""

    src: str
    dst: str
    proto: int
    src_port: int
    dst_port: int
    qpn: int | None
    number: int
    n_bytes: int
    kind: str
    ends_message: bool
    ce: bool


def dissect(frame: Frame) -> Segment | None:
    """None for what is no whole TCP or UDP over IPv4."""
    data = frame.data
    if len(data) < IP_AT + 28 or data[12:14] != _IPV4 or data[IP_AT] >> 4 != 4:
        return None
    header = 4 * (data[IP_AT] & 15)
    at = IP_AT + header
    proto, total = data[IP_AT + 9], int.from_bytes(data[IP_AT + 2 : IP_AT + 4], "big")
    if proto not in (TCP, UDP) or len(data) < at + (20 if proto == TCP else 8):
        return None
    src, dst = (".".join(map(str, data[i : i + 4])) for i in (IP_AT + 12, IP_AT + 16))
    src_port, dst_port = struct.unpack_from(">HH", data, at)
    ends = src, dst, proto, int(src_port), int(dst_port)
    ce = data[IP_AT + 1] & _CE == _CE
    if proto == TCP:
        n_bytes = total - header - 4 * (data[at + 12] >> 4)
        return Segment(*ends, None, struct.unpack_from(">I", data, at + 4)[0], max(0, n_bytes), "data", False, ce)
    if dst_port == UDP_PORT and header == 20 and len(data) >= BTH_AT + BTH_BYTES:
        return _roce(data, ends, total - 28 - BTH_BYTES - ICRC_BYTES, ce)
    return Segment(*ends, None, 0, max(0, total - header - 8), "data", False, ce)


def _roce(data: bytes, ends: tuple[str, str, int, int, int], n_bytes: int, ce: bool) -> Segment | None:
    """n_bytes: behind the BTH, before the ICRC."""
    code, flags, _, qpn, word = _BTH.unpack_from(data, BTH_AT)
    opcode = _OPCODES.get(code)
    if opcode is None:
        return None
    kind = "data"
    if opcode in DATA:
        n_bytes -= (flags >> 4 & 3) + (_RETH_BYTES if opcode in WITH_RETH else 0)
    else:
        n_bytes = 0
        at = BTH_AT + BTH_BYTES
        is_nak = opcode is Opcode.ACKNOWLEDGE and len(data) > at and data[at] == NAK_SEQUENCE_SYNDROME
        kind = "cnp" if opcode is Opcode.CNP else "nak" if is_nak else "ack"
    return Segment(*ends, qpn & _24_BITS, word & _24_BITS, max(0, n_bytes), kind, opcode in ENDS, ce)
