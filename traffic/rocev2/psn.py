"""Packet sequence numbers: 24 bits that wrap. State machines count packets without bound; only the wire wraps."""

MODULUS = 1 << 24
# A number less than half the circle ahead is newer, any other is older; so no more than this may be under way.
HALF = MODULUS >> 1


def distance(a: int, b: int) -> int:
    """How far `b` is ahead of `a`, both 24 bits: -2^23 to 2^23 - 1."""
    return (b - a + HALF) % MODULUS - HALF


def unwrap(psn: int, near: int) -> int:
    """The count whose low 24 bits are `psn` and that is nearest to the count `near`; it may be negative."""
    return near + distance(near % MODULUS, psn)
