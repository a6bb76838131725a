"""Quantities as people write them, converted once, at the edge.

Inside the program a quantity has one unit and says it in its name: `rate_mbps`, `delay_us`, `n_bytes`.
"""

import re

from topologies.errors import Refused

_NUMBER = r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*"
_QUANTITY = re.compile(rf"^{_NUMBER}([A-Za-z]*)\s*$")

_RATE_MBPS = {"bit": 1e-6, "kbit": 1e-3, "mbit": 1.0, "gbit": 1e3, "tbit": 1e6}
_FLOPS_S = {"gflops": 1e9, "tflops": 1e12, "pflops": 1e15}
_DURATION_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
# nccl-tests reads a bare K, M or G as a power of two; KB, MB and GB are the decimal units of SI.
_SIZE_BYTES = {
    "": 1, "b": 1,
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
}  # fmt: skip


# Beyond these somebody has mistyped: a switch chip of today carries 51.2 Tbit/s over all of its ports.
_MAX_RATE_MBPS, _MAX_DURATION_US, _MAX_SIZE_BYTES = 1e8, 1e12, 2**50


def _parse(text: str, what: str, units: dict[str, float] | dict[str, int], example: str) -> float:
    match = _QUANTITY.match(str(text))
    if match is None or match.group(2).lower() not in units:
        raise Refused(f"{what} {text!r} is not a positive number with a unit: write it like {example}")
    return float(match.group(1)) * units[match.group(2).lower()]


def parse_rate_mbps(text: str) -> float:
    """'400Gbit' -> 400000.0 (Mbit/s). The unit is obligatory: a bare number is how links end up 1000 times off."""
    rate_mbps = _parse(text, "rate", _RATE_MBPS, "400Gbit or 50Mbit")
    if rate_mbps < 0.1:
        raise Refused(f"rate {text!r} is below 100kbit, the slowest link the testbed shapes")
    if rate_mbps > _MAX_RATE_MBPS:
        raise Refused(f"rate {text!r} is above 100Tbit, faster than any link")
    return rate_mbps


def parse_size_bytes(text: str) -> int:
    """'1GiB', '1G' -> 2**30; '10MB' -> 10**7 (bytes). K, M and G are binary, as in nccl-tests."""
    n_bytes = _parse(text, "size", _SIZE_BYTES, "1GiB, 64M or 10MB")
    if n_bytes > _MAX_SIZE_BYTES:
        raise Refused(f"size {text!r} is above 1024TiB, more than any collective sends")
    if n_bytes != int(n_bytes):
        raise Refused(f"size {text!r} is not a whole number of bytes")
    return int(n_bytes)


def parse_duration_us(text: str) -> float:
    """'20us' -> 20.0, '0' -> 0.0 (microseconds)."""
    if str(text).strip() in ("0", "0.0"):
        return 0.0
    duration_us = _parse(text, "duration", _DURATION_US, "20us or 10ms")
    if duration_us > _MAX_DURATION_US:
        raise Refused(f"duration {text!r} is above 1000000s, longer than anything waits")
    return duration_us


def parse_flops_s(text: str) -> float:
    """'989Tflops' -> 9.89e14 (floating-point operations per second)."""
    flops_s = _parse(text, "device rate", _FLOPS_S, "989Tflops")
    if flops_s == 0:
        raise Refused(f"device rate {text!r} computes nothing: use one above 0")
    return flops_s


def format_rate(rate_mbps: float) -> str:
    """400000.0 -> '400Gbit'."""
    for unit, mbps in (("Tbit", 1e6), ("Gbit", 1e3), ("Mbit", 1.0)):
        if rate_mbps >= mbps:
            return f"{rate_mbps / mbps:g}{unit}"
    return f"{rate_mbps * 1e3:g}kbit"


def format_duration(seconds: float) -> str:
    """0.041 -> '41ms'; below half a nanosecond nothing."""
    if abs(seconds) < 5e-10:
        return "0s"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.4g}{unit}"
    return f"{seconds * 1e9:.3g}ns"


def format_size(n_bytes: float) -> str:
    """2**30 -> '1GiB', 10**7 -> '10MB'; the shorter of the two ways to write it."""
    texts = []
    for units in ((("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)), (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))):
        unit, n = next(((u, b) for u, b in units if n_bytes >= b), ("B", 1))
        texts.append(f"{n_bytes / n:.4g}{unit}")
    return min(texts, key=len)
