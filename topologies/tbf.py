"""TBF as rtnetlink carries it: a request and an answer as bytes. pyroute2's encoder knows neither its burst in bytes nor
64-bit rates.

linux/pkt_sched.h: struct tc_tbf_qopt is the ratespecs of rate and peak rate (12 bytes each), limit, buffer, mtu.
"""

import struct

from topologies.netlink import ACK, HTB, REQUEST, TC_ROOT, attributes

_RTM_NEWQDISC = 36
_PARMS, _RATE64, _BURST = 1, 4, 6
_KIND, _OPTIONS = 1, 2
_ETHERNET = 1  # TC_LINKLAYER_ETHERNET: the kernel then needs no rate table
_MAX_U32 = 2**32 - 1
_QOPT = struct.Struct("=BBHhHI12xIII")


def options(rate_bytes_s: int, burst_bytes: int, limit_bytes: int) -> bytes:
    """limit: of what waits; the kernel keeps the burst as the time that it takes at the rate."""
    rate = min(rate_bytes_s, _MAX_U32)
    found = _attribute(_PARMS, _QOPT.pack(0, _ETHERNET, 0, 0, 0, rate, limit_bytes, 0, 0))
    found += _attribute(_BURST, struct.pack("=I", burst_bytes))
    return found + _attribute(_RATE64, struct.pack("=Q", rate_bytes_s)) if rate_bytes_s > _MAX_U32 else found


def request(index: int, tbf_options: bytes, flags: int) -> bytes:
    """A message that makes it the root of an interface, or changes it there. Options: as made here, or as they were read."""
    parts = _attribute(_KIND, b"tbf\0") + _attribute(_OPTIONS, tbf_options)
    body = struct.pack("=B3xiIII", 0, index, HTB, TC_ROOT, 0) + parts
    return struct.pack("=IHHII", 16 + len(body), _RTM_NEWQDISC, REQUEST | ACK | flags, 0, 0) + body


def parse(tbf_options: bytes) -> tuple[int, int, int]:
    """Options as they were read: rate in bytes/s, burst in 64 ns ticks, limit in bytes."""
    found = dict(attributes(tbf_options))
    *_, rate, limit, buffer, _ = _QOPT.unpack_from(found[_PARMS])
    if _RATE64 in found:
        (rate,) = struct.unpack("=Q", found[_RATE64])
    return rate, buffer, limit


def _attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + bytes(-length % 4)
