"""What a link's rate means in tc's terms: HTB with one class, and a queue with a byte limit under it.

    root htb 5: -- class 5:1 rate R burst B -- bfifo 50: limit L
    root tbf 5: rate R burst B limit L         a link that can be held: `topologies.gate` closes and opens it

HTB sends whenever its bucket is not in debt: a frame leaves with tokens >= 0 and may take the bucket below zero. After
a pause therefore the bucket and one frame more leave at once, and then frames are spaced at the rate. For a message of
n frames over one link the last frame follows the first by (n - 1 frames - burst) / rate:

    10 Mbit/s, MTU 1500, burst 2500 B: 30 kB are 21 frames; 20 x 1514 - 2500 B take 22.2 ms of the 24.9 ms they are worth.
    10 Mbit/s, MTU 9000, burst 9064 B: 30 kB are 4 frames;  3 x 9014 - 9064 B take 14.4 ms: two of four frames are free.

The allowance is the burst, whatever the message: at most 2 ms of line rate, or one frame where a frame takes longer
than that. A message of a few jumbo frames on a slow link is thus early by up to two frames; one of 30 frames by 7 %.
Measured, single TCP flow at MTU 9000, share of the ideal 8948/9014: burst of one frame 0.995 at 100 Mbit/s and 0.969 at
200; of 2 ms 0.999 and 1.000, because a late timer then costs nothing.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from topologies.errors import TopologyError
from topologies.fabric import Fabric, Port

ETHERNET_HEADER = 14
_BURST_S = 2e-3
_BURST_SPARE_BYTES = 50
# 2.3 MB of jumbo frames: a port's share, and a half, of a switch's buffer (100 MB over 64 ports, of which a busy port may take
# more); bytes stay what they are when time is dilated. Fewer make TCP's bursts look like congestion, and each drop that has to
# wait for a timeout costs what queues take to drain. Measured, all-to-all at 20 Mbit/s by TCP without windows, times the
# prediction: spine-leaf with 32 frames 1.24, 64 1.41, 128 1.09 to 1.11, 256 1.13 to 1.23; dragonfly and rail-optimised with 128
# 1.38 and 1.35, 256 1.07 twice.
QUEUE_FRAMES = 256
# The queue holds k bandwidth-delay products: one keeps a single flow's link busy when it halves its window, the other
# takes the flows' uneven timing. The round trip is eight links (host, leaf, spine, leaf, host and back) and the
# emulator's own 1 ms.
_QUEUE_BDPS = 2
LINKS_PER_ROUND_TRIP = 8
_STACK_S = 1e-3
# psched ticks of 64 ns (PSCHED_SHIFT = 6 in the kernel's include/net/pkt_sched.h) are how HTB stores a burst.
_TICK_NS = 64
OCS_ROLE = "ocs"
# Of a queue, in 32 bits.
_MAX_LIMIT_BYTES = 2**32 - 1
MTU_RANGE = (576, 9216)


@dataclass(frozen=True, slots=True)
class Shape:
    """rate_bytes_s: exact rate and ceiling (64 bit); burst_bytes: bucket of both; limit_bytes: the queue under it;
    quantum: given explicitly, because the kernel warns about the one it would derive from any rate above 16 Mbit/s; kind: of
    the qdisc: a class of HTB whose rate is taken to almost nothing does not stay shut, TBF does (measured)."""

    rate_bytes_s: int
    burst_bytes: int
    limit_bytes: int
    quantum: int
    kind: Literal["htb", "tbf"] = "htb"

    @property
    def rate_mbps(self) -> float:
        return self.rate_bytes_s * 8 / 1e6

    @property
    def burst_ticks(self) -> int:
        """The burst as the kernel stores it: the time it takes at the rate, in 64 ns ticks, rounded up."""
        return math.ceil(self.burst_bytes * 1e9 / self.rate_bytes_s / _TICK_NS)


def shape(rate_mbps: float, mtu: int, delay_us: float = 0.0, queue_frames: int | None = None) -> Shape:
    """The shape of one direction of a link. rate_mbps: in Mbit/s of Ethernet frames without preamble and gap, as tc
    counts; mtu: bytes of IP packet; delay_us: the link's one-way delay; queue_frames: full ones that the queue holds, None =
    256, or what two bandwidth-delay products are."""
    if not 0 < rate_mbps < math.inf:
        raise TopologyError(f"rate {rate_mbps:g} Mbit/s cannot be shaped: a rate must be positive")
    require_mtu(mtu)
    rate = max(1, round(rate_mbps * 1e6 / 8))
    frame = mtu + ETHERNET_HEADER
    if queue_frames is None:
        round_trip_s = _STACK_S + LINKS_PER_ROUND_TRIP * delay_us * 1e-6
        limit_bytes = max(QUEUE_FRAMES * frame, round(_QUEUE_BDPS * rate * round_trip_s))
    else:
        limit_bytes = queue_frames * frame
    return Shape(
        rate_bytes_s=rate,
        burst_bytes=max(frame + _BURST_SPARE_BYTES, round(_BURST_S * rate)),
        limit_bytes=limit_bytes,
        quantum=frame,
    )


def require_mtu(mtu: int) -> None:
    low, high = MTU_RANGE
    if not low <= mtu <= high:
        raise TopologyError(f"mtu {mtu} is outside {low} to {high}: AI fabrics run 9000, Ethernet's default is 1500")


def shaped_ports(fabric: Fabric) -> tuple[Port, ...]:
    """Every end whose egress is shaped: all but an optical switch's own, which is a mirror without a buffer."""
    return tuple(p for link in fabric.links for p in link.ports if fabric.node(p.node).role != OCS_ROLE)


def shapes(fabric: Fabric, mtu: int, queue_frames: int | None = None, hold_us: float | None = None) -> dict[str, Shape]:
    """Interface name -> its shape, for every shaped end of the fabric. hold_us: how long what is sent to an optical switch may
    have to wait for a circuit, None = it does not wait."""
    links = ((port.intf, fabric.link_of(port.intf)) for port in shaped_ports(fabric))
    found = {intf: shape(link.rate_mbps, mtu, link.delay_us, queue_frames) for intf, link in links}
    if hold_us is None:
        return found
    return {
        intf: _held(asked, hold_us) if fabric.link_of(intf).kind == "circuit" else asked
        for intf, asked in found.items()
    }


def at_another_rate(before: Shape, asked: Shape) -> Shape:
    """A link that can be held stays one, with the room that it has."""
    return asked if before.kind == "htb" else replace(asked, kind=before.kind, limit_bytes=before.limit_bytes)


def _held(asked: Shape, hold_us: float) -> Shape:
    """With room for all that comes at line rate while it waits."""
    room = asked.limit_bytes + round(asked.rate_bytes_s * hold_us * 1e-6)
    return replace(asked, kind="tbf", limit_bytes=min(room, _MAX_LIMIT_BYTES))


# -- the audit ----------------------------------------------------------------------------------------------------------


class Held(NamedTuple):
    """What tc holds for one interface; None where there is nothing. Rates in bytes/s, bursts in 64 ns ticks. TBF's only rate and
    burst stand for both."""

    kind: str | None
    rate_bytes_s: int | None
    ceil_bytes_s: int | None
    burst_ticks: int | None
    cburst_ticks: int | None
    limit_bytes: int | None


@dataclass(frozen=True, slots=True)
class Finding:
    """One interface that is not shaped as asked."""

    intf: str
    what: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.intf}: {self.what} should be {self.expected}, is {self.found}"


def findings(intf: str, shape: Shape, held: Held) -> Iterator[Finding]:
    """Every way in which an interface differs from its shape; only the first cause where one implies others."""
    if held.kind != shape.kind:
        yield Finding(intf, "qdisc", f"{shape.kind} at {_rate(shape.rate_bytes_s)}", held.kind or "none")
        return
    for what, expected, found in (
        ("rate", _rate(shape.rate_bytes_s), _rate(held.rate_bytes_s)),
        ("ceil", _rate(shape.rate_bytes_s), _rate(held.ceil_bytes_s)),
        ("burst", _burst(shape, shape.burst_ticks), _burst(shape, held.burst_ticks)),
        ("cburst", _burst(shape, shape.burst_ticks), _burst(shape, held.cburst_ticks)),
        ("queue", f"bfifo of {shape.limit_bytes} B", f"bfifo of {held.limit_bytes} B" if held.limit_bytes else "none"),
    ):
        if expected != found:
            yield Finding(intf, what, expected, found)
            # A class at another rate stores its burst in other ticks: that is not a second fault.
            if what == "rate":
                return


def _rate(rate_bytes_s: int | None) -> str:
    return "none" if rate_bytes_s is None else f"{rate_bytes_s * 8 / 1e6:.10g} Mbit/s"


def _burst(shape: Shape, ticks: int | None) -> str:
    return "none" if ticks is None else f"{ticks * _TICK_NS * shape.rate_bytes_s / 1e9:.0f} B"
