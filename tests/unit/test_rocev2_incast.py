"""Eight senders, one link: DCQCN and the pacer in front of a queue that marks, which is all that this file models.

Packets are as in experiments/rocev2-incast.toml: 2048 bytes of payload stand for 160 times as many at 400 Gbit/s. There is no
window and no loss, so that every packet which a full queue would have dropped shows.
"""

import heapq
from itertools import count
from typing import NamedTuple

from traffic.rocev2.dcqcn import Dcqcn, DcqcnParameters
from traffic.rocev2.pacing import Pacer

LINE_MBPS, SENDERS, SIZE_SCALE = 400_000, 8, 160
PAYLOAD, FRAME = 2048 * SIZE_SCALE, 2106 * SIZE_SCALE
FRAME_NS = round(FRAME * 8e3 / LINE_MBPS)
# Of 64 frames of 9014 bytes; the wait above which a packet is marked; from one end to the other without a queue.
QUEUE_NS, MARK_NS, LATENCY_NS = round(64 * 9014 * SIZE_SCALE * 8e3 / LINE_MBPS), 20_000, 5_000


class Seen(NamedTuple):
    """goodput: payload over what the link carries, to the last packet; wait_ns: the longest; early_wait_ns: in the first ms."""

    goodput: float
    wait_ns: int
    early_wait_ns: int


def incast(n_bytes: int, parameters: DcqcnParameters) -> Seen:
    """Each sends so many bytes, from time 0 on."""
    pacers = [Pacer(Dcqcn(parameters)) for _ in range(SENDERS)]
    left = [n_bytes // PAYLOAD] * SENDERS
    notified_ns = [-(10**9)] * SENDERS
    order = count()
    # (when, order, sender, whether a notification for it comes then; else it may send)
    events = [(0, next(order), sender, False) for sender in range(SENDERS)]
    free_ns = wait_ns = early_ns = 0
    while events:
        now, _, sender, notified = heapq.heappop(events)
        pacer = pacers[sender]
        if notified:
            pacer.control.on_cnp(now)
            continue
        at = now + FRAME_NS
        wait = max(0, free_ns - at)
        wait_ns, early_ns = max(wait_ns, wait), max(early_ns, wait if now < 10**6 else 0)
        free_ns = max(free_ns, at) + FRAME_NS
        arrives = free_ns + LATENCY_NS
        if wait > MARK_NS and arrives - notified_ns[sender] >= parameters.cnp_interval_ns:
            notified_ns[sender] = arrives
            heapq.heappush(events, (arrives + LATENCY_NS, next(order), sender, True))
        pacer.on_sent(now, FRAME)
        left[sender] -= 1
        if left[sender]:
            heapq.heappush(events, (max(pacer.ready_ns, now + FRAME_NS), next(order), sender, False))
    sent = SENDERS * (n_bytes // PAYLOAD) * PAYLOAD
    return Seen(sent * 8e3 / LINE_MBPS / free_ns, wait_ns, early_ns)


def test_published_constants_carry_an_incast_of_eight_without_filling_the_queue() -> None:
    seen = incast(1 << 30, DcqcnParameters.at_line_rate(LINE_MBPS))
    # Headers alone leave 2048 / 2106 = 0.972.
    assert 0.9 < seen.goodput < 0.972
    assert seen.wait_ns < QUEUE_NS


def test_the_queue_is_fullest_before_the_first_cuts_have_been_heard_of() -> None:
    """Seven eighths of what comes in the first 5 + 5 us must wait, and what comes until half of eight rates fit."""
    seen = incast(64 << 20, DcqcnParameters.at_line_rate(LINE_MBPS))
    assert seen.early_wait_ns == seen.wait_ns > 7 * 10_000


def test_increases_that_do_not_grow_with_the_link_leave_it_idle() -> None:
    """40 Mbit/s, as published for 40 Gbit/s, are little at 400: after the first cuts rates come back ten times slower."""
    as_published = {"additive_increase_mbps": 40, "hyper_increase_mbps": 200, "min_rate_mbps": 100}
    slow, in_proportion = (
        incast(128 << 20, DcqcnParameters.at_line_rate(LINE_MBPS, **constants)) for constants in (as_published, {})
    )
    assert slow.goodput < 0.6 * in_proportion.goodput


def test_without_congestion_control_the_queue_would_overflow_at_once() -> None:
    """Eight at line rate: 7/8 of 8 x 64 MiB wait, 9.4 ms; nobody is told, because the interval is longer than that."""
    deaf = DcqcnParameters.at_line_rate(LINE_MBPS, cnp_interval_ns=10**12, gain=1e-9, min_rate_mbps=LINE_MBPS)
    assert incast(64 << 20, deaf).wait_ns > 5 * QUEUE_NS
