"""TCP's least retransmission timeout on slow links: above what full queues can hold a segment up.

The kernel's is 200 ms. 32 frames at 1 Mbit/s and MTU 1500 take 388 ms to drain: every flow's first burst is then
sent twice, and a link that many flows share comes to stand while all of them double their timeouts. Slow links are what large
fabrics are emulated with, and their hardware's queues drain in microseconds.
"""

import math
from collections.abc import Iterable

from topologies.shaping import Shape

# TCP_RTO_MIN in the kernel's include/net/tcp.h.
KERNEL_MS = 200
# On one path: the sender's own, and the one where flows meet.
_FULL_QUEUES = 2
# What flows send before they have measured anything. As queues go on filling the sender's own estimate follows; a least timeout
# of all that they hold would make each loss cost it.
_FIRST_FRAMES = 32


def least_timeout_ms(shapes: Iterable[Shape]) -> int:
    """For every host of the fabric; the kernel's, where that is enough."""
    first = (min(s.limit_bytes, _FIRST_FRAMES * s.quantum) / s.rate_bytes_s for s in shapes)
    return max(KERNEL_MS, math.ceil(_FULL_QUEUES * max(first, default=0.0) * 1e3))


def full_queues_ms(shapes: Iterable[Shape]) -> int:
    """That they can hold up a packet, at worst."""
    return math.ceil(_FULL_QUEUES * max((s.limit_bytes / s.rate_bytes_s for s in shapes), default=0.0) * 1e3)
