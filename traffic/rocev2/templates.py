"""Scapy's part: the headers of one packet of each kind, built once, and frames taken apart again.

`contrib.roce` knows BTH, AETH and the CNP; it lacks the RETH of an RDMA WRITE, which is defined and bound here as those are.
"""

from collections.abc import Mapping

from scapy.contrib.roce import AETH, BTH, CNPPadding
from scapy.fields import IntField, XIntField, XLongField
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw, bind_layers

from traffic.rocev2.icrc import ICRC_BYTES
from traffic.rocev2.opcodes import WITH_RETH, Opcode
from traffic.rocev2.queue_pair import UDP_PORT

_TTL = 64
_NO_MAC = "00:00:00:00:00:00"


class RETH(Packet):
    """RDMA extended transport header: where the message goes in the receiver's memory, under which key, how long it is."""

    name = "RETH"
    fields_desc = [XLongField("va", 0), XIntField("rkey", 0), IntField("dmalen", 0)]  # noqa: RUF012 (Scapy's way)


for _opcode in WITH_RETH:
    bind_layers(BTH, RETH, opcode=int(_opcode))


def templates() -> Mapping[Opcode, bytes]:
    """For each opcode a frame's headers, without payload and ICRC; addresses, numbers and lengths are still to be set."""
    return {opcode: bytes(frame(opcode))[:-ICRC_BYTES] for opcode in Opcode}


def frame(opcode: Opcode, payload: bytes = b"") -> Packet:
    """A whole frame as Scapy's layers. Don't-fragment and no identification: an atomic datagram (RFC 6864)."""
    bth = BTH(opcode=int(opcode), becn=int(opcode == Opcode.CNP), migreq=1)
    # With no address left open: Scapy would ask the machine for it.
    ethernet = Ether(dst=_NO_MAC, src=_NO_MAC)
    ip = IP(src="0.0.0.0", dst="0.0.0.0", id=0, flags="DF", ttl=_TTL)
    packet = ethernet / ip / UDP(dport=UDP_PORT, chksum=0) / bth
    if opcode in WITH_RETH:
        packet /= RETH()
    elif opcode == Opcode.ACKNOWLEDGE:
        packet /= AETH()
    elif opcode == Opcode.CNP:
        packet /= CNPPadding()
    return packet / Raw(payload) if payload else packet


def dissect(data: bytes) -> Packet:
    """A frame as Scapy's layers."""
    return Ether(data)
