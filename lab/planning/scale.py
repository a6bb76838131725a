"""The scale model: what fraction of the hardware this machine emulates.

Two factors, because one breaks: rates / rate_scale, bytes / size_scale, and so every time x time_dilation =
rate_scale / size_scale. Delays, dark times and compute follow the time; a printed time is the emulated one divided by it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from lab.errors import LabError
from topologies.fabric import Fabric
from topologies.units import format_rate

# What a link can be shaped to. Below, a full queue is many seconds deep; above, HTB's 32-bit byte rate ends.
MIN_EMULATED_MBPS, MAX_EMULATED_MBPS = 0.1, 34_000.0
# Fewer full frames a message and the last, partly filled frame decides the time: the result is about frames, not bytes.
MIN_FRAMES_PER_STEP = 30
# `auto` plans for this share of what the switches were seen to carry: beyond it frames wait for their one thread, pile up
# behind it and are dropped (a ring of 16 at 60 % of the budget: 1.04 of the predicted time, 24 segments resent; at 25 %:
# 1.02, none; measured on two busy cores).
BUDGET_SHARE = 0.5
# HTB holds a rate within 0.5 % up to here with 9000-byte frames (measured); `auto` goes no faster.
AUTO_MAX_MBPS = 200.0
# What of the time limit is not traffic: building the fabric, connecting the ranks, writing the results.
_FIXED_S = 12.0
_MIN_TRAFFIC_SHARE = 0.5
# How much longer than asked for a run may take so that its messages have enough frames.
_STRETCH = 8
_READABLE = (1, 2, 2.5, 4, 5, 8)


@dataclass(frozen=True)
class Scale:
    """Hardware / emulated, of rates and of sizes; both 1 = as written."""

    rate_scale: float = 1.0
    size_scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("rate_scale", "size_scale"):
            if not getattr(self, name) >= 1:
                raise LabError(f"{name} = {getattr(self, name):g} would enlarge the hardware: use 1 or more")

    @property
    def time_dilation(self) -> float:
        """Emulated seconds per second of the hardware."""
        return self.rate_scale / self.size_scale

    def __str__(self) -> str:
        return f"{self.rate_scale:.12g}:{self.size_scale:.12g}"

    def emulated_bytes(self, size_bytes: int) -> int:
        """What stands for `size_bytes` of the hardware, before it is rounded to whole elements."""
        return int(size_bytes / self.size_scale)

    def emulated_s(self, hardware_s: float) -> float:
        return hardware_s * self.time_dilation

    def hardware_s(self, emulated_s: float) -> float:
        return emulated_s / self.time_dilation

    def fabric(self, hardware: Fabric) -> Fabric:
        """The fabric that is built. Refuses rates that no link here can be shaped to."""
        emulated = hardware.scaled(rate_scale=self.rate_scale, time_dilation=self.time_dilation)
        for was, link in zip(hardware.links, emulated.links, strict=True):
            if not MIN_EMULATED_MBPS <= link.rate_mbps <= MAX_EMULATED_MBPS:
                own = ", or --topology with another scale-up rate" if was.kind == "scale-up" else ""
                raise LabError(
                    f"link {hardware.label(was)}: {format_rate(was.rate_mbps)} at rate_scale {self.rate_scale:g} is "
                    f"{format_rate(link.rate_mbps)} here, and a link can be shaped to {format_rate(MIN_EMULATED_MBPS)} "
                    f"to {format_rate(MAX_EMULATED_MBPS)}: use --scale auto, or another --scale RATE[:SIZE]{own}"
                )
        return emulated


def parse_scale(text: str) -> Scale | None:
    """'auto' -> None, '8000:64' -> both factors, '8000' -> the same factor for both (times stay), '1' -> as written."""
    if text == "auto":
        return None
    try:
        factors = [float(part) for part in text.split(":")]
    except ValueError:
        factors = []
    if not 1 <= len(factors) <= 2 or not all(0 < f < 1e12 for f in factors):
        raise LabError(f"scale {text!r} is not auto, RATE or RATE:SIZE: write it like 8000:64")
    return Scale(factors[0], factors[-1])


@dataclass(frozen=True)
class Budget:
    """What this machine's switches carry: full frames of `mtu` x switches crossed, per second."""

    frame_hops_per_s: float
    mtu: int = 9000
    measured_at: str = "not measured: a typical value for two cores"
    cpu_count: int = 2


# Userspace Open vSwitch on two cores; `predict` without a measurement plans with it.
TYPICAL_BUDGET = Budget(120_000.0)


@dataclass(frozen=True)
class Load:
    """What an experiment asks of the machine, in hardware units.

    frame_hops_per_s: frames x switches per hardware second where the collective asks most; traffic_s: hardware seconds of
    all iterations of all sizes; step_bytes: the smallest size's message per step; rate_mbps: the fastest NIC; mss: payload
    bytes of a full frame; fastest_mbps: the fastest interface in use, a scale-up one perhaps; 0 = the NIC.
    """

    frame_hops_per_s: float
    traffic_s: float
    step_bytes: float
    rate_mbps: float
    mss: int
    fastest_mbps: float = 0.0


def choose_scale(load: Load, budget: Budget, time_limit_s: float) -> Scale:
    """`auto`: the fastest readable NIC rate within the budget, then the largest readable sizes within the time.

    Where that leaves too few frames, smaller factors for sizes, as far as `_STRETCH` times the time allows; where that is not
    enough either, time beats frames and the row says that they are too few.
    """
    fastest = load.rate_mbps * budget.frame_hops_per_s * BUDGET_SHARE / max(load.frame_hops_per_s, 1e-9)
    in_use = max(load.fastest_mbps, load.rate_mbps)
    fastest = min(fastest, AUTO_MAX_MBPS * load.rate_mbps / in_use, load.rate_mbps)
    rate_scale = load.rate_mbps / _readable_below(max(fastest, MIN_EMULATED_MBPS))
    time_s = _traffic_s(time_limit_s)
    least = max(load.traffic_s * rate_scale / time_s, 1.0)
    scale = Scale(max(rate_scale, 1.0), _readable_above(least))
    if frames_per_step(load.step_bytes, load.mss, scale) >= MIN_FRAMES_PER_STEP:
        return scale
    # Rounding up to one digit may be what costs the frames: two digits read well enough.
    fits = Scale(scale.rate_scale, _two_digits_above(least))
    if frames_per_step(load.step_bytes, load.mss, fits) >= MIN_FRAMES_PER_STEP:
        return fits
    longest, enough = max(least / _STRETCH, 1.0), load.step_bytes / load.mss / MIN_FRAMES_PER_STEP
    sizes = (size for size in (_readable_below(enough), _two_digits_above(longest)) if longest <= size <= enough)
    return Scale(scale.rate_scale, next(sizes, fits.size_scale))


def _traffic_s(time_limit_s: float) -> float:
    return max(time_limit_s - _FIXED_S, time_limit_s * _MIN_TRAFFIC_SHARE)


def longest_traffic_s(time_limit_s: float) -> float:
    """What `auto` lets a run take so that its messages have enough frames."""
    return _STRETCH * _traffic_s(time_limit_s)


def time_limit_for(traffic_s: float) -> float:
    """The limit with which `auto` would let traffic take so long, for enough frames."""
    return min(traffic_s / _STRETCH + _FIXED_S, traffic_s / _STRETCH / _MIN_TRAFFIC_SHARE)


def frames_per_step(step_bytes: float, mss: int, scale: Scale) -> float:
    """Full frames of one step's message as emulated."""
    return step_bytes / scale.size_scale / mss


def _readable_below(value: float) -> float:
    """The largest of _READABLE x 10^k that is not above."""
    return max(x for x in _readable_around(value) if x <= value * (1 + 1e-9))


def _readable_above(value: float) -> float:
    return min(x for x in _readable_around(value) if x >= value * (1 - 1e-9))


def _two_digits_above(value: float) -> float:
    unit = 10.0 ** max(math.floor(math.log10(value)) - 1, 0)
    return math.ceil(value / unit * (1 - 1e-9)) * unit


def _readable_around(value: float) -> Iterator[float]:
    exponent = math.floor(math.log10(value))
    for k in range(exponent - 1, exponent + 3):
        for digit in _READABLE:
            # Powers of ten below one are not exact in binary: divide by those that are.
            yield digit * 10.0**k if k >= 0 else digit / 10.0**-k
