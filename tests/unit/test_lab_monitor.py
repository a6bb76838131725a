"""What the monitor's samples say, on samples made by hand."""

from dataclasses import replace

import numpy as np
import pytest

from lab.measuring.monitor import Window

HOST, SWITCH = 0, 1


def window(at_s: list[float], switch_bytes: list[int], backlog_bytes: list[int]) -> Window:
    """Host bytes grow all the time: they must not count as the switch's."""
    host = np.arange(len(at_s)) * 1000
    return Window(
        at_s=np.array(at_s), intfs=("h1-eth0", "leaf1-eth1"), bytes_sent=np.stack((host, switch_bytes), axis=1),
        backlog_bytes=np.array(backlog_bytes, np.int64), forwarding=[SWITCH], stopped_s=0.0,
        idle_share=0.5, other_cores=0.0, steal_share=0.0, switch_wait_share=0.0,
    )  # fmt: skip


def test_a_stall_is_the_longest_time_in_which_no_switch_sent() -> None:
    seen = window([0.0, 0.1, 0.2, 0.3, 0.4, 0.5], [0, 10, 10, 10, 20, 30], [0] * 6)
    assert seen.longest_stall_s([(0.0, 0.5)]) == pytest.approx(0.2)
    # Outside a measured iteration nothing has to move.
    assert seen.longest_stall_s([(0.0, 0.1), (0.3, 0.5)]) == 0.0


def test_the_wait_for_the_switch_is_its_backlog_over_what_it_sends() -> None:
    """5 MB wait while 100 MB/s are sent: 50 ms (Little). One sample of 40 MB is a hiccup, which a median leaves out."""
    at = [i * 0.1 for i in range(9)]
    backlog = [0, 5_000_000, 5_000_000, 5_000_000, 40_000_000, 5_000_000, 5_000_000, 5_000_000, 0]
    seen = window(at, [i * 10_000_000 for i in range(9)], backlog)
    assert seen.switch_queue_s([(0.0, 0.8)]) == pytest.approx(0.050)


def test_between_iterations_nobody_waits_for_the_switch() -> None:
    at = [i * 0.1 for i in range(12)]
    backlog = [0, 2_000_000, 2_000_000, 2_000_000, 0, 0, 0, 0, 2_000_000, 2_000_000, 2_000_000, 0]
    sent = [0, 10, 20, 30, 40, 40, 40, 40, 50, 60, 70, 80]
    seen = window(at, [n * 1_000_000 for n in sent], backlog)
    # 80 MB in 0.8 s of iterations.
    assert seen.switch_queue_s([(0.0, 0.4), (0.7, 1.1)]) == pytest.approx(0.020)


def test_too_few_samples_say_nothing_about_the_switch() -> None:
    seen = window([0.0, 0.1, 0.2], [0, 10, 20], [0, 5_000_000, 0])
    assert seen.switch_queue_s([(0.0, 0.2)]) is None
    assert seen.switch_queue_s([]) is None


def test_too_much_for_a_rate_is_seen_even_by_a_late_sampler() -> None:
    """10 Mbyte/s and a burst of 100 kB allow 5.1 Mbyte in 0.5 s. Asked for 50 ms before they were there, two samples may tell of
    0.55 s and 5.6 Mbyte: the first link's 5.5 are right, the second's 15 are not, whenever they were sent."""
    at = [i * 0.1 for i in range(6)]
    seen = replace(
        window(at, [0] * 6, [0] * 6),
        began_s=np.array(at) - 0.05,
        bytes_sent=np.array([[i * 1_100_000, i * 3_000_000] for i in range(6)]),
    )
    worst, speed = seen.excess(np.full(2, 1e7), np.full(2, 1e5))
    assert worst.tolist() == pytest.approx([5.5 / 5.6, 15 / 5.6])
    assert speed[1] == pytest.approx(15e6 / 0.55)


def test_a_seldom_sampler_looks_at_the_same_times() -> None:
    """Four samples, every 0.2 s: of two that are 0.4 s apart 10 Mbyte/s and a burst of 100 kB allow 4.1 Mbyte. There are not the
    five in a row that are half a second of a frequent sampler."""
    at = [i * 0.2 for i in range(4)]
    seen = replace(
        window(at, [0] * 4, [0] * 4),
        began_s=np.array(at),
        interval_s=0.2,
        bytes_sent=np.array([[i * 1_000_000, i * 3_000_000] for i in range(4)]),
    )
    worst, _ = seen.excess(np.full(2, 1e7), np.full(2, 1e5))
    assert worst.tolist() == pytest.approx([2 / 4.1, 6 / 4.1])
    # Its own interval is no gap.
    assert seen.longest_gap_s == pytest.approx(0.1)


def test_what_was_not_asked_of_the_switch_is_no_empty_queue() -> None:
    at = [i * 0.1 for i in range(12)]
    backlog = [5_000_000, -1] * 6
    seen = window(at, [i * 10_000_000 for i in range(12)], backlog)
    assert seen.switch_queue_s([(-0.1, 1.2)]) == pytest.approx(5_000_000 / (110_000_000 / 1.3))


def test_what_programs_swallow_is_what_came_to_them_and_is_nowhere_else() -> None:
    """A program is first seen at 0.2 s, after 100 frames; until 0.4 s 50 more came, of which 30 left, 4 wait and 1 was dropped.
    On the other interface there is none."""
    seen = replace(
        window([0.0, 0.2, 0.4], [0, 0, 0], [0] * 3),
        # Sampled at another moment than the queues: the frames between are not lost.
        frames_sent=np.array([[0, 0], [0, 92], [0, 140]]),
        queue_at_s=np.array([0.0, 0.2, 0.4]),
        queue_frames=np.array([[-1, 0], [-1, 1], [-1, 5]]),
        queue_drops=np.array([[-1, 2], [-1, 2], [-1, 3]]),
        filtered=np.array([[-1, -1], [-1, 0], [-1, 50]]),
        dequeued=np.array([[-1, 0], [-1, 100], [-1, 130]]),
    )
    assert seen.swallowed() == {"leaf1-eth1": 15}
    # The queue was deleted, or another one put into its place.
    assert replace(seen, dequeued=np.array([[-1, 0], [-1, 100], [-1, -1]])).swallowed() == {"leaf1-eth1": 0}
    assert replace(seen, dequeued=np.array([[-1, 0], [-1, 100], [-1, 30]])).swallowed() == {}


def test_what_was_sent_between_two_moments_is_that_of_the_samples_between_them() -> None:
    seen = window([0.0, 0.1, 0.2, 0.3, 0.4], [0, 10, 30, 60, 100], [0] * 5)
    n_bytes, seconds = seen.sent({"leaf1-eth1"}, 0.05, 0.35)
    assert n_bytes == 50 and seconds == pytest.approx(0.2)
    assert seen.sent({"leaf1-eth1"}, 0.05, 0.15) == (0, 0.0)
