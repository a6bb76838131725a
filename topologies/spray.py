"""Spray and flowlets for TCP, which has no source ports to spare: every packet leaves its host by another one, and arrives
with its own.

One eBPF program (clsact) on what leaves a host's scale-out interface, one on what arrives there:

    leaves     the source port becomes the flow's own plus 0 to entropy - 1, in turn: of each packet, or after a pause. The
               port itself goes into IPv4's identification field, which means nothing in a packet that must not be
               fragmented (RFC 6864, section 4.1), as TCP's are; the flag beside DF that is always 0 says so.
    arrives    with that flag, the port comes back out of that field; both are 0 from then on.

Both checksums are kept. What a switch, or a capture at either end, sees is the wire's form; a socket never does. Packets
without DF, with IPv4 options, inside anything, or that the kernel will cut into segments only later are left alone, and so
arrive as they are; of the last there are none where `netlink_requests.one_segment_at_a_time` has been asked for.

What is known of a flow, for all hosts together: packets or flowlets so far, and when the last one left. Its place follows
from a hash of its addresses and ports, as in a switch's flowlet table (CONGA, section 3.4): flows that share one take turns.
"""

import sys

from topologies.bpf import (
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
    Instruction,
    add,
    add_imm,
    big_endian_16,
    call,
    exit_,
    fetch_add,
    jump_if_greater,
    jump_if_not,
    label,
    load,
    load_byte,
    load_half,
    load_word,
    map_value,
    modulo,
    mov,
    mov_imm,
    mov_imm64,
    mul,
    shift_right,
    store,
    store_half,
    sub,
    xor,
)
from topologies.fabric import Fabric
from topologies.spread import Spread

# Of each flow: packets or flowlets so far, time of the last packet (ns).
_TURN, _SENT, _FLOW_BYTES = 0, 8, 16
_HASH_BITS = 16
MEMORY_BYTES = _FLOW_BYTES << _HASH_BITS
# linux/pkt_cls.h: go on; drop.
_TC_ACT_UNSPEC, _TC_ACT_SHOT = -1, 2
# linux/bpf.h, enum bpf_func_id; struct __sk_buff.
_KTIME_GET_NS, _SKB_STORE_BYTES, _L3_CSUM_REPLACE, _L4_CSUM_REPLACE, _SKB_LOAD_BYTES = 5, 9, 10, 11, 26
_SKB_PROTOCOL, _SKB_GSO_SEGMENTS = 16, 164
# RFC 791, RFC 9293: bytes from the frame's begin, in Ethernet; from the IPv4 header's begin.
_IP_AT, _IP_BYTES = 14, 20
_ID, _FLAGS, _PROTOCOL, _IP_CHECKSUM, _ADDRESSES, _PORTS = 4, 6, 9, 10, 12, 20
_TCP_CHECKSUM = 16
_IPV4, _VERSION_AND_LENGTH, _TCP = 0x0800, 0x45, 6
_DONT_FRAGMENT, _SPRAYED = 0x4000, 0xC000
# On the stack: IPv4's header and TCP's ports, so that the addresses' 64 bits are aligned; new fields.
_HEADERS, _NEW_ID, _NEW_PORT = -28, -32, -36
_HASH_FACTOR = 0x9E3779B97F4A7C15


def sprayed_intfs(fabric: Fabric) -> frozenset[str]:
    """Every host's end of a scale-out link."""
    ports = (port for host in fabric.hosts for port in fabric.ports_of(host.name))
    return frozenset(port.intf for port in ports if fabric.link_of(port.intf).kind != "scale-up")


def source_ports(first: int, entropy: int) -> list[int]:
    """On the wire, of a flow whose own source port is the first: the highest is followed by the lowest."""
    return [(first + i) % 2**16 for i in range(entropy)]


def leaving(map_fd: int, spread: Spread) -> list[Instruction]:
    """map_fd: of the flows' memory, MEMORY_BYTES of zeros to begin with."""
    return [
        *_headers(_DONT_FRAGMENT),
        *_flow(map_fd),
        *(_turn_of_packet() if spread.unit == "packet" else _turn_of_flowlet(spread.gap_ns)),
        modulo(R1, spread.entropy),
        load_half(R7, R10, _HEADERS + _PORTS),
        mov(R8, R7),
        big_endian_16(R8),
        add(R8, R1),
        big_endian_16(R8),
        store_half(R10, _NEW_ID, R7),
        mov_imm(R1, _network(_SPRAYED)),
        *_write(),
    ]


def arriving() -> list[Instruction]:
    return [
        *_headers(_SPRAYED),
        load_half(R7, R10, _HEADERS + _PORTS),
        load_half(R8, R10, _HEADERS + _ID),
        mov_imm(R1, 0),
        store_half(R10, _NEW_ID, R1),
        mov_imm(R1, _network(_DONT_FRAGMENT)),
        *_write(),
    ]


def _headers(flags: int) -> list[Instruction]:
    """R6 = the frame; its headers on the stack. Whatever is not ours, or has other flags, passes as it is."""
    return [
        mov(R6, R1),
        load_word(R1, R6, _SKB_GSO_SEGMENTS),
        mov_imm(R2, 1),
        jump_if_greater(R1, R2, "pass"),
        load_word(R1, R6, _SKB_PROTOCOL),
        jump_if_not(R1, _network(_IPV4), "pass"),
        mov(R1, R6),
        mov_imm(R2, _IP_AT),
        mov(R3, R10),
        add_imm(R3, _HEADERS),
        mov_imm(R4, _IP_BYTES + 4),
        call(_SKB_LOAD_BYTES),
        jump_if_not(R0, 0, "pass"),
        load_byte(R1, R10, _HEADERS),
        jump_if_not(R1, _VERSION_AND_LENGTH, "pass"),
        load_half(R1, R10, _HEADERS + _FLAGS),
        jump_if_not(R1, _network(flags), "pass"),
        load_byte(R1, R10, _HEADERS + _PROTOCOL),
        jump_if_not(R1, _TCP, "pass"),
    ]


def _flow(map_fd: int) -> list[Instruction]:
    """R8 = where the flow's memory is."""
    return [
        load(R1, R10, _HEADERS + _ADDRESSES),
        mov_imm64(R2, _HASH_FACTOR),
        mul(R1, R2),
        load_word(R3, R10, _HEADERS + _PORTS),
        xor(R1, R3),
        mul(R1, R2),
        shift_right(R1, 64 - _HASH_BITS),
        mov_imm(R2, _FLOW_BYTES),
        mul(R1, R2),
        map_value(R8, map_fd, 0),
        add(R8, R1),
    ]


def _turn_of_packet() -> list[Instruction]:
    """R1 = packets before this one."""
    return [mov_imm(R1, 1), fetch_add(R8, _TURN, R1)]


def _turn_of_flowlet(gap_ns: int) -> list[Instruction]:
    """R1 = pauses up to now; the time before the first packet is one."""
    return [
        call(_KTIME_GET_NS),
        load(R2, R8, _SENT),
        store(R8, _SENT, R0),
        sub(R0, R2),
        mov_imm64(R2, gap_ns),
        mov_imm(R3, 1),
        jump_if_greater(R0, R2, "paused"),
        mov_imm(R3, 0),
        label("paused"),
        mov(R1, R3),
        fetch_add(R8, _TURN, R1),
        add(R1, R3),
    ]


def _write() -> list[Instruction]:
    """The source port, R7 till now, becomes R8; the identification is in its place on the stack, and R1 the flags: all in network
    order. A frame that cannot be written to the end is dropped, never sent on half."""
    return [
        store_half(R10, _NEW_ID + 2, R1),
        store_half(R10, _NEW_PORT, R8),
        load_word(R9, R10, _NEW_ID),
        load_word(R3, R10, _HEADERS + _ID),
        *_checksum(_L3_CSUM_REPLACE, _IP_CHECKSUM, R9, 4),
        mov(R3, R7),
        *_checksum(_L4_CSUM_REPLACE, _IP_BYTES + _TCP_CHECKSUM, R8, 2),
        *_store(_ID, _NEW_ID, 4),
        *_store(_PORTS, _NEW_PORT, 2),
        label("pass"),
        mov_imm(R0, _TC_ACT_UNSPEC),
        exit_(),
        label("drop"),
        mov_imm(R0, _TC_ACT_SHOT),
        exit_(),
    ]


def _checksum(helper: int, at: int, new: int, n_bytes: int) -> list[Instruction]:
    """For a field that was R3. Where the sender left the checksum to be made later, this one changes nothing."""
    return [
        mov(R1, R6),
        mov_imm(R2, _IP_AT + at),
        mov(R4, new),
        mov_imm(R5, n_bytes),
        call(helper),
        jump_if_not(R0, 0, "drop"),
    ]


def _store(at: int, stack: int, n_bytes: int) -> list[Instruction]:
    return [
        mov(R1, R6),
        mov_imm(R2, _IP_AT + at),
        mov(R3, R10),
        add_imm(R3, stack),
        mov_imm(R4, n_bytes),
        mov_imm(R5, 0),
        call(_SKB_STORE_BYTES),
        jump_if_not(R0, 0, "drop"),
    ]


def _network(value: int) -> int:
    """A field of two bytes as it is read from memory."""
    return int.from_bytes(value.to_bytes(2, "big"), sys.byteorder)
