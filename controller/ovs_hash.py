"""Open vSwitch's flow hash, value for value: which member of a `bundle` a flow takes, what `multipath` loads.

From lib/hash.h (the MurmurHash3 variant that generic builds for x86-64 and arm64 use; one compiled with -msse4.2 uses
CRC32 instead), lib/flow.c flow_hash_symmetric_l3l4(), lib/bundle.c execute_hrw() and
lib/multipath.c multipath_algorithm(). vswitchd computes it for either
datapath, so kernel and userspace agree.
"""

from collections.abc import Sequence
from functools import lru_cache

from controller.flow import SCTP, TCP, UDP, Flow
from controller.match import ipv4_int

_MASK = 0xFFFFFFFF
# With ICMP and the like only addresses and protocol are hashed.
_HAVE_PORTS = frozenset({TCP, UDP, SCTP})


def _rotate(x: int, bits: int) -> int:
    return (x << bits | x >> (32 - bits)) & _MASK


def hash_add(h: int, data: int) -> int:
    data = _rotate(data * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    return (_rotate(h ^ data, 13) * 5 + 0xE6546B64) & _MASK


def hash_finish(h: int, final: int) -> int:
    h ^= final
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    return h ^ h >> 16


def hash_2words(x: int, y: int) -> int:
    return hash_finish(hash_add(_first_word(x), y), 8)


@lru_cache(maxsize=1024)
def _first_word(x: int) -> int:
    return hash_add(x, 0)


def symmetric_l3l4_udp(flow: Flow, basis: int) -> int:
    """flow_hash_symmetric_l3l4(flow, basis, inc_udp_ports=true): the same for both directions of a flow.

    Addresses and ports lie in network order and are read as words of a little-endian machine.
    """
    addresses = ipv4_int(flow.src_ip) ^ ipv4_int(flow.dst_ip)
    h = hash_add(basis, int.from_bytes(addresses.to_bytes(4, "big"), "little"))
    h = hash_add(h, flow.proto)
    if flow.proto in _HAVE_PORTS:
        ports = flow.src_port ^ flow.dst_port
        h = hash_add(h, (ports & 0xFF) << 8 | ports >> 8)
    return hash_finish(h, basis)


def choose(flow: Flow, basis: int, alive: Sequence[bool]) -> int | None:
    """The place in the member list that wins (highest random weight), or None when no member is alive."""
    flow_hash = symmetric_l3l4_udp(flow, basis)
    weights = [(hash_2words(i, flow_hash), -i) for i, up in enumerate(alive) if up]
    # On a tie the earlier member stays, hence -i.
    return -max(weights)[1] if weights else None


def modulo_n(flow: Flow, basis: int, n: int) -> int:
    """What `multipath` with algorithm modulo_n loads: 0..n-1."""
    return symmetric_l3l4_udp(flow, basis) % n
