"""A queue pair's frames, written as bytes: templates with addresses put in, then per packet only what changes in it.

The ICRC is continued, not begun anew: its part over all that stays the same for a kind of packet and a length is kept.
"""

import struct
from collections.abc import Mapping
from ipaddress import IPv4Address
from zlib import crc32

from traffic.rocev2.icrc import (
    BTH_AT,
    ETHERNET_BYTES,
    HEADERS_BYTES,
    ICRC_BYTES,
    IP_AT,
    UDP_AT,
    header_crc,
    ip_checksum,
)
from traffic.rocev2.opcodes import DATA, WITH_RETH, Opcode
from traffic.rocev2.psn import MODULUS
from traffic.rocev2.queue_pair import QueuePair

# All before the word with the PSN.
_HEAD_BYTES = HEADERS_BYTES - 4
_RETH_BYTES = 16
_CNP_BYTES = 16
_ACK_REQUEST = 1 << 31
_ECT0 = 0b10
_WORD = struct.Struct(">I")
_WORD_RETH = struct.Struct(">IQII")
_WORD_AETH = struct.Struct(">II")
_ICRC = struct.Struct("<I")
_SHORT = struct.Struct(">H")
_PADS = (b"", b"\0", b"\0\0", b"\0\0\0")
# AETH syndromes: an acknowledgement whose credit count is unused, and "PSN sequence error".
ACK_SYNDROME = 0x1F
NAK_SEQUENCE_SYNDROME = 0x60


def largest_frame_bytes(mtu_bytes: int) -> int:
    """Of a message's first packet, as tc counts it: without the frame check sequence."""
    return HEADERS_BYTES + _RETH_BYTES + mtu_bytes + ICRC_BYTES


class Frames:
    """Writes frames of one queue pair into memory of the caller's."""

    def __init__(self, templates: Mapping[Opcode, bytes], qp: QueuePair) -> None:
        self.qp = qp
        self._templates = templates
        # (opcode, payload bytes, UDP source port) -> all before the PSN, and the CRC of it.
        self._heads: dict[tuple[Opcode, int, int], tuple[bytes, int]] = {}

    def data(
        self,
        frame: memoryview,
        opcode: Opcode,
        psn: int,
        payload: memoryview,
        *,
        ack_request: bool = False,
        va: int = 0,
        message_bytes: int = 0,
        src_port: int | None = None,
    ) -> int:
        """One packet of a message, its length. va, message_bytes: of a RETH; src_port: another than the queue pair's."""
        word = psn | _ACK_REQUEST if ack_request else psn
        reth = opcode in WITH_RETH
        extended = _WORD_RETH.pack(word, va, self.qp.rkey, message_bytes) if reth else _WORD.pack(word)
        return self._write(frame, opcode, extended, payload, self.qp.src_port if src_port is None else src_port)

    def acknowledge(self, frame: memoryview, psn: int, msn: int, syndrome: int = ACK_SYNDROME) -> int:
        extended = _WORD_AETH.pack(psn, syndrome << 24 | msn % MODULUS)
        return self._write(frame, Opcode.ACKNOWLEDGE, extended, memoryview(b""), self.qp.src_port)

    def cnp(self, frame: memoryview) -> int:
        """A congestion notification: BECN set, PSN 0, sixteen reserved bytes (annex A17)."""
        return self._write(frame, Opcode.CNP, bytes(4 + _CNP_BYTES), memoryview(b""), self.qp.src_port)

    def _write(self, frame: memoryview, opcode: Opcode, extended: bytes, payload: memoryview, src_port: int) -> int:
        n = len(payload)
        key = (opcode, n, src_port)
        head, crc = self._heads.get(key) or self._head(key, len(extended))
        at = _HEAD_BYTES + len(extended)
        end = at + n
        frame[:_HEAD_BYTES] = head
        frame[_HEAD_BYTES:at] = extended
        frame[at:end] = payload
        crc = crc32(payload, crc32(extended, crc))
        if n % 4:
            pad = _PADS[-n % 4]
            frame[end : end + len(pad)] = pad
            crc = crc32(pad, crc)
            end += len(pad)
        _ICRC.pack_into(frame, end, crc)
        return end + ICRC_BYTES

    def _head(self, key: tuple[Opcode, int, int], extended_bytes: int) -> tuple[bytes, int]:
        opcode, n, src_port = key
        qp = self.qp
        pad = -n % 4
        head = bytearray(self._templates[opcode][:_HEAD_BYTES])
        head[:ETHERNET_BYTES] = _mac(qp.dst_mac) + _mac(qp.src_mac) + b"\x08\x00"
        total = _HEAD_BYTES + extended_bytes + n + pad + ICRC_BYTES - IP_AT
        # Acknowledgements and CNPs are what congestion control lives on: they do not ask to be marked.
        head[IP_AT + 1] = qp.dscp << 2 | (_ECT0 if qp.ect and opcode in DATA else 0)
        _SHORT.pack_into(head, IP_AT + 2, total)
        head[IP_AT + 12 : UDP_AT] = IPv4Address(qp.src_ip).packed + IPv4Address(qp.dst_ip).packed
        _SHORT.pack_into(head, IP_AT + 10, 0)
        _SHORT.pack_into(head, IP_AT + 10, ip_checksum(head[IP_AT:UDP_AT]))
        _SHORT.pack_into(head, UDP_AT, src_port)
        _SHORT.pack_into(head, UDP_AT + 4, total - (UDP_AT - IP_AT))
        # Byte 1 of the BTH: solicited event, migration request, pad count (2 bits), version.
        head[BTH_AT + 1] = head[BTH_AT + 1] & 0xCF | pad << 4
        head[BTH_AT + 5 : BTH_AT + 8] = qp.dst_qpn.to_bytes(3, "big")
        made = self._heads[key] = bytes(head), header_crc(head)
        return made


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
