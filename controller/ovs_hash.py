"""Open vSwitch's flow hash, value for value: which member of a `bundle` a flow takes, what `multipath` loads.

From lib/hash.h (the MurmurHash3 variant that generic builds for x86-64 and arm64 use; one compiled with -msse4.2 uses
CRC32 instead), lib/flow.c flow_hash_symmetric_l3l4(), lib/bundle.c execute_hrw() and
lib/multipath.c multipath_algorithm(). vswitchd computes it for either
datapath, so kernel and userspace agree.

Words are Python's integers, or arrays of uint64 with 32 bits in use: no product or shift below needs more than 64.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.flow import SCTP, TCP, UDP, Flow
from controller.match import ipv4_int

Words = NDArray[np.uint64]
# One or the other, the same one throughout a call.
Word = Any

_MASK = 0xFFFFFFFF
# With ICMP and the like only addresses and protocol are hashed.
_HAVE_PORTS = frozenset({TCP, UDP, SCTP})


def _rotate(x: Word, bits: int) -> Word:
    return (x << bits | x >> (32 - bits)) & _MASK


def hash_add(h: Word, data: Word) -> Word:
    data = _rotate(data * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    return (_rotate(h ^ data, 13) * 5 + 0xE6546B64) & _MASK


def hash_finish(h: Word, final: Word) -> Word:
    h = h ^ final
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    return h ^ h >> 16


def hash_2words(x: int, y: Word) -> Word:
    return hash_finish(hash_add(_first_word(x), y), 8)


@lru_cache(maxsize=1024)
def _first_word(x: int) -> int:
    word: int = hash_add(x, 0)
    return word


def symmetric_l3l4_udp(flow: Flow, basis: int) -> int:
    """flow_hash_symmetric_l3l4(flow, basis, inc_udp_ports=true): the same for both directions of a flow.

    Addresses and ports lie in network order and are read as words of a little-endian machine.
    """
    addresses, ports = ipv4_int(flow.src_ip) ^ ipv4_int(flow.dst_ip), flow.src_port ^ flow.dst_port
    hashed: int = hash_xors(addresses, flow.proto, ports, basis)
    return hashed


def hash_xors(addresses: Word, proto: int, ports: Word, basis: Word) -> Word:
    """The same of source XOR destination, of addresses and of ports."""
    h = hash_add(basis, _swapped(addresses & 0xFFFF) << 16 | _swapped(addresses >> 16))
    h = hash_add(h, proto)
    if proto in _HAVE_PORTS:
        h = hash_add(h, _swapped(ports))
    return hash_finish(h, basis)


def _swapped(half: Word) -> Word:
    """The two bytes of a 16-bit number, the other way round."""
    return (half & 0xFF) << 8 | half >> 8


def choose(flow: Flow, basis: int, alive: Sequence[bool]) -> int | None:
    """The place in the member list that wins (highest random weight), or None when no member is alive."""
    flow_hash = symmetric_l3l4_udp(flow, basis)
    weights = [(hash_2words(i, flow_hash), -i) for i, up in enumerate(alive) if up]
    # On a tie the earlier member stays, hence -i.
    return -max(weights)[1] if weights else None


def choose_each(flow_hash: Words, n_alive: NDArray[np.int64]) -> NDArray[np.int64]:
    """(flows,) the same for many flows, each among the first n_alive places of a list of its own; n_alive >= 1."""
    best, weight = np.zeros(len(flow_hash), dtype=np.int64), np.zeros(len(flow_hash), dtype=np.uint64)
    for i in range(int(n_alive.max(initial=0))):
        chooses = np.flatnonzero(n_alive > i)
        weighs: Words = hash_2words(i, flow_hash[chooses])
        # The first place is taken before any weight is known; on a tie the earlier one stays.
        wins = (weighs > weight[chooses]) | (i == 0)
        best[chooses[wins]], weight[chooses[wins]] = i, weighs[wins]
    return best


def modulo_n(flow: Flow, basis: int, n: int) -> int:
    """What `multipath` with algorithm modulo_n loads: 0..n-1."""
    return symmetric_l3l4_udp(flow, basis) % n
