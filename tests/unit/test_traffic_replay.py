"""The replay engine over a fake transport: real values move, and the engine's promises hold. No network, no root."""

import os
import random
import socket
import threading
import time
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.traffic_fakes import FakeTransport, SendsOnce, Ticks, filled, replayed, wrong
from traffic import COLLECTIVES, schedule
from traffic.check import verify
from traffic.errors import ReplayStalledError, TransportError
from traffic.replay import Replay
from traffic.schedule import ScheduleBuilder

ENTRIES = [(c, a) for c, algorithms in COLLECTIVES.items() for a in algorithms]
registered = pytest.mark.parametrize(("collective", "algorithm"), ENTRIES)


@registered
@pytest.mark.parametrize(("n_ranks", "count"), [(1, 3), (2, 0), (3, 1), (4, 997), (5, 4096), (8, 3), (16, 997)])
def test_every_algorithm_gives_every_rank_the_right_values(
    collective: str, algorithm: str, n_ranks: int, count: int
) -> None:
    s = schedule(collective, algorithm, n_ranks)
    result, n_wrong = replayed(s, count)
    assert n_wrong == 0
    assert (result.finished >= 0).all()
    assert result.duration_ns == result.finished.max(initial=0)


@registered
@settings(max_examples=8, deadline=None)
@given(n_ranks=st.integers(2, 6), count=st.integers(0, 300), seed=st.integers(0, 2**32))
def test_values_are_right_however_few_bytes_the_network_takes_at_a_time(
    collective: str, algorithm: str, n_ranks: int, count: int, seed: int
) -> None:
    draw = random.Random(seed)
    result, n_wrong = replayed(
        schedule(collective, algorithm, n_ranks), count, lambda: draw.choice((0, 1, 3, 7, 50, 400))
    )
    assert n_wrong == 0
    assert (result.lateness_ns >= 0).all()


def test_a_second_run_starts_afresh() -> None:
    s = schedule("all_reduce", "ring", 3)
    with FakeTransport(s.connections) as transport:
        replay = Replay(s, 100, transport)
        for _ in range(3):
            buffers = filled(s, 100)
            replay.run(buffers)
            assert wrong(s, buffers) == 0


def test_no_send_starts_before_what_it_waits_for_has_arrived() -> None:
    s = schedule("all_reduce", "ring", 5)
    result, _ = replayed(s, 1000)
    for i in range(len(s)):
        assert all(result.finished[d] <= result.started[i] for d in s.deps_of(i))
        assert 0 <= result.ready[i] <= result.started[i] <= result.finished[i]


def test_a_rank_is_finished_when_it_has_sent_and_received_all() -> None:
    s = schedule("all_gather", "ring", 4)
    result, _ = replayed(s, 1000)
    for rank in range(4):
        assert result.rank_finished[rank] == result.finished[(s.src == rank) | (s.dst == rank)].max()


def test_a_rank_computes_for_the_time_given_and_sends_afterwards() -> None:
    """20 ms of the hardware's time, dilated 2.5 times: 50 ms by the real clock; what waits for it comes after."""
    b = ScheduleBuilder("broadcast", "test", 2, 1)
    computed = b.calc(0, 20_000_000)
    joined = b.calc(0, 0, after=[computed])
    b.send(0, 1, 0, reduce=False, after=[joined])
    b.calc(1, 1_000_000)
    s = b.build()
    verify(s)
    with FakeTransport(s.connections) as transport:
        buffers = filled(s, 10)
        cpu = time.process_time()
        result = Replay(s, 10, transport, time_dilation=2.5).run(buffers)
        cpu = time.process_time() - cpu
    assert wrong(s, buffers) == 0
    assert 50e6 <= result.finished[0] - result.started[0] < 500e6
    assert result.finished[0] <= result.finished[1] <= result.started[2]
    # Side by side with rank 0's, not after it, and asleep all the while.
    assert 2.5e6 <= result.finished[3] < 50e6
    assert cpu < 0.03
    assert result.rank_finished.tolist() == [result.finished[2]] * 2


def test_a_calc_that_outlasts_the_deadline_is_no_stall() -> None:
    b = ScheduleBuilder("broadcast", "test", 2, 1)
    b.send(0, 1, 0, reduce=False, after=[b.calc(0, 60_000_000)])
    s = b.build()
    with FakeTransport(s.connections) as transport:
        result = Replay(s, 10, transport).run(filled(s, 10), stall_s=0.01)
    assert result.duration_ns >= 60e6


def test_a_stalled_run_names_what_computes_and_what_waits() -> None:
    """The switch dies while rank 0 computes."""
    b = ScheduleBuilder("broadcast", "test", 2, 1)
    b.send(0, 1, 0, reduce=False, after=[b.calc(0, 60_000_000_000)])
    s = b.build()
    lifeline, switch = os.pipe()
    os.close(switch)
    with FakeTransport(s.connections) as transport, os.fdopen(lifeline), pytest.raises(TransportError) as caught:
        Replay(s, 10, transport).run(filled(s, 10), lifeline=lifeline)
    assert str(caught.value) == (
        "the network is gone: 2 of 2 sends have not arrived: 0 (rank 0, computes for 60000 ms), 1 (0 -> 1, waits for 1 more)"
    )


def test_times_are_the_given_clock_s_and_relative_to_the_start() -> None:
    s = schedule("all_reduce", "ring", 2)
    clock = Ticks(step_ns=1000)
    clock.now_ns = 10**15
    result, _ = replayed(s, 64, clock=clock)
    assert result.start_ns == 10**15 + 1000
    assert 0 < result.duration_ns < 100_000
    assert (result.finished % 1000 == 0).all()


def test_one_connection_s_messages_are_told_apart_by_their_order() -> None:
    b = ScheduleBuilder("all_gather", "test", 2, 4)
    first = b.send(0, 1, 0, reduce=False)
    b.send(0, 1, 1, reduce=False)
    b.send(1, 0, 2, reduce=False, n_chunks=2, after=[first])
    result, n_wrong = replayed(b.build(), 101)
    assert n_wrong == 0
    assert result.finished[0] < result.finished[1]


def test_channels_of_one_pair_overtake_each_other() -> None:
    """Channel 1 stands still; channel 0 arrives all the same."""
    b = ScheduleBuilder("all_gather", "test", 2, 2)
    b.send(0, 1, 0, reduce=False)
    other = b.send(0, 1, 0, reduce=False, channel=1)
    b.send(1, 0, 1, reduce=False, after=[other])
    s = b.build()
    assert s.connections == [(0, 1, 0), (0, 1, 1), (1, 0, 0)]
    with FakeTransport(s.connections) as transport, FakeTransport(s.connections) as nowhere:
        transport.senders[0, 1, 1], nowhere.senders[0, 1, 1] = nowhere.senders[0, 1, 1], transport.senders[0, 1, 1]
        with pytest.raises(
            ReplayStalledError, match=r": 2 of 3 .*: 1 \(0 -> 1 channel 1, 0 of 40 bytes came\), 2 \(1 -> 0"
        ):
            Replay(s, 20, transport).run(filled(s, 20), stall_s=0.05)


def test_a_send_that_is_ready_early_keeps_its_place_on_its_connection() -> None:
    b = ScheduleBuilder("all_gather", "test", 3, 3)
    slow = b.send(1, 0, 1, reduce=False)
    b.send(0, 2, 1, reduce=False, after=[slow])
    b.send(0, 2, 0, reduce=False)
    b.send(2, 1, 2, reduce=False)
    b.send(2, 0, 2, reduce=False)
    b.send(0, 1, 0, reduce=False)
    result, n_wrong = replayed(b.build(), 30)
    assert n_wrong == 0
    assert result.ready[2] >= result.started[1]


def test_empty_sends_release_long_chains_without_a_message() -> None:
    """One element: all but one of the 128 chunks are empty, and so are all but one in 128 of the sends."""
    s = schedule("all_reduce", "ring", 128)
    result, n_wrong = replayed(s, 1)
    assert n_wrong == 0
    assert len(result.finished) == 2 * 128 * 127


def test_an_empty_send_keeps_its_place_on_its_connection() -> None:
    """Rank 1 waits for the empty send only, and may count on the full one before it: then its sum has rank 0's part."""
    b = ScheduleBuilder("all_reduce", "chain", 3, 2)
    b.send(0, 1, 0, reduce=True)
    last = b.send(0, 1, 1, reduce=True)
    last = b.send(1, 2, 0, n_chunks=2, reduce=True, after=[last])
    last = b.send(2, 1, 0, n_chunks=2, reduce=False, after=[last])
    b.send(1, 0, 0, n_chunks=2, reduce=False, after=[last])
    verify(b.build())
    result, n_wrong = replayed(b.build(), 1)
    assert n_wrong == 0
    assert result.finished[0] < result.finished[1] < result.started[2]


def test_receivers_wake_for_64_kib_or_the_rest_of_the_message() -> None:
    s = schedule("all_gather", "ring", 2)
    count = 2 * 50_000
    with FakeTransport(s.connections, lambda: 70_000) as transport:
        Replay(s, count, transport).run(filled(s, count))
        expected = transport.receivers[0, 1, 0].expected
    assert expected[0] == 65536
    assert expected[-1] == 200_000 - 2 * 70_000
    assert max(expected) == 65536


def test_nothing_moving_is_an_error_that_names_what_is_stuck() -> None:
    s = schedule("all_reduce", "ring", 3)
    with FakeTransport(s.connections) as transport, FakeTransport(s.connections) as nowhere:
        transport.senders[1, 2, 0] = nowhere.senders[1, 2, 0]
        with pytest.raises(ReplayStalledError) as caught:
            Replay(s, 300, transport).run(filled(s, 300), stall_s=0.05)
    assert str(caught.value) == (
        "nothing moved for 0.05 s: 9 of 12 sends have not arrived: 1 (1 -> 2, 0 of 400 bytes came), "
        "4 (1 -> 2, 0 of 400 bytes came), 7 (1 -> 2, 0 of 400 bytes came), 5 (2 -> 0, waits for 1 more), "
        "6 (0 -> 1, waits for 1 more), ..."
    )


def test_half_a_message_is_counted_in_the_error() -> None:
    s = schedule("all_gather", "ring", 2)
    with FakeTransport(s.connections) as transport:
        stuck = SendsOnce(transport.senders[0, 1, 0].end, 100)
        transport.senders[0, 1, 0] = stuck
        with (
            closing(stuck),
            pytest.raises(ReplayStalledError, match=r": 0 \(0 -> 1, 100 of 2000 bytes came\)"),
        ):
            Replay(s, 1000, transport).run(filled(s, 1000), stall_s=0.05)


def test_a_network_that_is_gone_ends_the_iteration_at_once() -> None:
    s = schedule("all_gather", "ring", 2)
    lifeline, switch = os.pipe()
    with FakeTransport(s.connections) as transport, FakeTransport(s.connections) as nowhere, os.fdopen(lifeline):
        transport.senders[0, 1, 0] = nowhere.senders[0, 1, 0]
        death = threading.Timer(0.1, os.close, [switch])
        death.start()
        began = time.monotonic()
        with pytest.raises(
            TransportError, match=r"^the network is gone: 1 of 2 sends have not arrived: 0 \(0 -> 1, 0 of"
        ):
            Replay(s, 1000, transport).run(filled(s, 1000), stall_s=10, lifeline=lifeline)
        assert time.monotonic() - began < 1
        death.join()


def test_a_network_that_stays_changes_nothing() -> None:
    s = schedule("all_reduce", "ring", 3)
    buffers = filled(s, 100)
    lifeline, switch = os.pipe()
    with FakeTransport(s.connections) as transport, os.fdopen(lifeline), os.fdopen(switch, "w"):
        Replay(s, 100, transport).run(buffers, lifeline=lifeline)
    assert wrong(s, buffers) == 0


def test_a_cycle_ends_in_the_deadline_instead_of_hanging() -> None:
    s = schedule("all_gather", "ring", 2)
    cyclic = replace(s, dep_start=np.array([0, 1, 2]), deps=np.array([1, 0], dtype=np.int32))
    with (
        FakeTransport(s.connections) as transport,
        pytest.raises(ReplayStalledError, match="2 of 2 sends have not arrived"),
    ):
        Replay(cyclic, 100, transport).run(filled(s, 100), stall_s=0.05)


def test_a_closed_connection_is_named() -> None:
    s = schedule("all_gather", "ring", 2)
    with FakeTransport(s.connections) as transport:
        transport.senders[0, 1, 0].end.shutdown(socket.SHUT_WR)
        with pytest.raises(TransportError, match=r"the connection 0 -> 1 broke \(.*Broken pipe\): 2 of 2 sends"):
            Replay(s, 100, transport).run(filled(s, 100))


def test_a_connection_that_ends_halfway_is_named() -> None:
    s = schedule("all_gather", "ring", 2)
    with FakeTransport(s.connections) as transport, FakeTransport(s.connections) as other:
        transport.senders[0, 1, 0].end.shutdown(socket.SHUT_WR)
        transport.senders[0, 1, 0] = other.senders[0, 1, 0]
        with pytest.raises(TransportError, match=r"the connection 0 -> 1 broke \(closed by the other end\)"):
            Replay(s, 100, transport).run(filled(s, 100))


def test_bytes_that_no_send_explains_are_an_error() -> None:
    s = schedule("all_gather", "ring", 3)
    with FakeTransport(s.connections) as transport, FakeTransport(s.connections) as nowhere:
        transport.senders[0, 1, 0].end.send(bytes(2 * 400 + 1))
        transport.senders[1, 2, 0] = nowhere.senders[1, 2, 0]
        with pytest.raises(TransportError, match="bytes that no send of the schedule explains"):
            Replay(s, 300, transport).run(filled(s, 300))


@pytest.mark.parametrize(
    "buffers",
    [
        [np.zeros(8, np.float32)],
        [np.zeros(8, np.float32), np.zeros(9, np.float32)],
        [np.zeros(8, np.float64), np.zeros(8, np.float64)],
        [np.zeros(16, np.float32)[::2], np.zeros(16, np.float32)[::2]],
    ],
)
def test_buffers_that_do_not_fit_are_refused(buffers: list[Any]) -> None:
    s = schedule("all_gather", "ring", 2)
    with (
        FakeTransport(s.connections) as transport,
        pytest.raises(ValueError, match="need 2 contiguous float32 buffers of 8"),
    ):
        Replay(s, 8, transport).run(buffers)


def test_an_interruption_leaves_no_descriptor_behind() -> None:
    s = schedule("all_gather", "ring", 2)

    def interrupted() -> int:
        raise KeyboardInterrupt

    with FakeTransport(s.connections, interrupted) as transport:
        before = os.listdir("/proc/self/fd")
        with pytest.raises(KeyboardInterrupt):
            Replay(s, 100, transport).run(filled(s, 100))
        assert os.listdir("/proc/self/fd") == before
