"""TCP's least retransmission timeout on slow links: above what full queues can hold a segment up.

The kernel's is 200 ms. A queue of 32 frames at 1 Mbit/s and MTU 1500 takes 388 ms to drain: every flow's first burst is then
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


def least_timeout_ms(shapes: Iterable[Shape]) -> int:
    """For every host of the fabric; the kernel's, where that is enough."""
    slowest_s = max((shape.limit_bytes / shape.rate_bytes_s for shape in shapes), default=0.0)
    return max(KERNEL_MS, math.ceil(_FULL_QUEUES * slowest_s * 1e3))
