"""Channels and slices: as many bytes as before, right values, and steps that begin earlier."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.unit.traffic_fakes import replayed
from traffic import COLLECTIVES, Schedule, TrafficError, schedule
from traffic.check import verify
from traffic.races import order
from traffic.schedule import ScheduleBuilder
from traffic.split import with_channels, with_slices

Split = Callable[[Schedule, int], Schedule]
ENTRIES = [(c, a) for c, algorithms in COLLECTIVES.items() for a in algorithms]
every_algorithm = pytest.mark.parametrize(("collective", "algorithm"), ENTRIES)
both = pytest.mark.parametrize("split", [with_channels, with_slices])


@both
@every_algorithm
def test_a_split_schedule_keeps_its_contract_and_sends_as_much(split: Split, collective: str, algorithm: str) -> None:
    for n in range(2, 10):
        try:
            whole = schedule(collective, algorithm, n)
        except TrafficError:
            continue
        for k in (2, 3):
            s = split(whole, k)
            verify(s)
            count = whole.n_chunks * k * 5
            np.testing.assert_array_equal(s.sent_per_rank(count), whole.sent_per_rank(count))
            np.testing.assert_array_equal(s.received_per_rank(count), whole.received_per_rank(count))
            # Whatever the size, what is sent in all.
            assert s.elements(1009).sum() == pytest.approx(whole.elements(1009).sum(), abs=len(whole))


@both
@every_algorithm
@pytest.mark.parametrize("count", [3, 997])
def test_a_split_schedule_gives_the_right_values(split: Split, collective: str, algorithm: str, count: int) -> None:
    for n in (2, 4):
        for k in (2, 3):
            assert replayed(split(schedule(collective, algorithm, n), k), count)[1] == 0


@every_algorithm
def test_slices_leave_every_rank_its_bytes_whatever_the_size(collective: str, algorithm: str) -> None:
    whole = schedule(collective, algorithm, 4)
    for count in (0, 1, 7, 1009):
        np.testing.assert_array_equal(with_slices(whole, 3).sent_per_rank(count), whole.sent_per_rank(count))


@both
def test_one_piece_is_the_schedule_itself(split: Split) -> None:
    whole = schedule("all_reduce", "ring", 4)
    same = split(whole, 1)
    for column in ("src", "dst", "channel", "first_chunk", "dst_chunk", "n_chunks_sent", "reduce", "dep_start", "deps"):
        np.testing.assert_array_equal(getattr(same, column), getattr(whole, column), column)


def test_channels_are_connections_of_their_own_with_a_schedule_each() -> None:
    """Channel c of a ring over four ranks is the ring over the c-th third of the buffer."""
    s = with_channels(schedule("all_reduce", "ring", 4), 3)
    assert s.connections == sorted((r, (r + 1) % 4, c) for r in range(4) for c in range(3))
    for c in range(3):
        assert set(s.first_chunk[s.channel == c].tolist()) == set(range(4 * c, 4 * c + 4))
    waiting = np.repeat(np.arange(len(s)), np.diff(s.dep_start))
    assert (s.channel[waiting] == s.channel[s.deps]).all()


def test_a_run_over_several_ranks_parts_becomes_a_send_for_each() -> None:
    b = ScheduleBuilder("all_gather", "test", 2, 4)
    b.send(0, 1, 0, n_chunks=2, reduce=False)
    b.send(1, 0, 2, n_chunks=2, reduce=False)
    s = with_channels(b.build(), 2)
    assert len(s) == 4
    assert s.elements(80).tolist() == [20, 20, 20, 20]
    verify(s)
    chain = ScheduleBuilder("all_gather", "test", 3, 3)
    first = chain.send(0, 1, 0, reduce=False)
    second = chain.send(1, 2, 0, n_chunks=2, reduce=False, after=[first])
    third = chain.send(2, 0, 1, n_chunks=2, reduce=False, after=[second])
    chain.send(0, 1, 2, reduce=False, after=[third])
    s = with_channels(chain.build(), 2)
    verify(s)
    assert len(s) == 2 + 4 + 4 + 2
    assert replayed(s, 120)[1] == 0


def test_a_slice_waits_for_the_slices_that_it_reads() -> None:
    """The two halves of a message of two chunks that came as two messages, and the other way round."""
    b = ScheduleBuilder("broadcast", "test", 3, 2)
    one, two = b.send(0, 1, 0, reduce=False), b.send(0, 1, 1, reduce=False)
    b.send(1, 2, 0, n_chunks=2, reduce=False, after=[one, two])
    s = with_slices(b.build(), 2)
    # Of messages 0 and 1 the slices are 0, 1 and 2, 3; slice 4 reads chunk 0, slice 5 chunk 1.
    assert s.deps_of(4).tolist() == [1, 3] or s.deps_of(4).tolist() == [1]
    verify(s)
    b = ScheduleBuilder("broadcast", "test", 3, 2)
    both_chunks = b.send(0, 1, 0, n_chunks=2, reduce=False)
    b.send(1, 2, 0, reduce=False, after=[both_chunks])
    b.send(1, 2, 1, reduce=False, after=[both_chunks])
    s = with_slices(b.build(), 2)
    assert [s.deps_of(i).tolist() for i in range(2, 6)] == [[0], [0], [1], [1]]
    verify(s)


def test_slices_make_more_and_shorter_steps() -> None:
    """A chain over n ranks in k slices: n - 1 hops, then a slice after the other on the last connection."""
    b = ScheduleBuilder("broadcast", "chain", 5, 1)
    last: list[int] = []
    for rank in range(4):
        last = [b.send(rank, rank + 1, 0, reduce=False, after=last)]
    s = with_slices(b.build(), 6)
    verify(s)
    assert len(order(s).start) - 1 == 4 + 6 - 1


def exchange() -> Schedule:
    """An all-reduce of two ranks: each other's input comes beside one's own, which is added to it, and the sum put back."""
    b = ScheduleBuilder("all_reduce", "exchange", 2, 4, n_blocks=2, n_data_chunks=2)
    sent = [b.send(r, 1 - r, 0, n_chunks=2, dst_chunk=2, reduce=False) for r in (0, 1)]
    for r in (0, 1):
        added = b.send(r, r, 0, n_chunks=2, dst_chunk=2, reduce=True, after=[sent[1 - r]])
        waited = b.calc(r, 10, after=[added])
        b.send(r, r, 2, n_chunks=2, dst_chunk=0, reduce=False, after=[waited, sent[r]])
    return b.build()


@both
@pytest.mark.parametrize("k", [2, 3])
def test_local_operations_are_split_and_computing_is_not(split: Split, k: int) -> None:
    whole = exchange()
    verify(whole)
    s = split(whole, k)
    verify(s)
    assert np.count_nonzero(s.calc_ns) == 2
    assert np.count_nonzero(s.is_local & (s.n_chunks_sent > 0)) == 4 * k
    assert replayed(s, 2 * 101)[1] == 0


@both
def test_unequal_chunks_are_split(split: Split) -> None:
    b = ScheduleBuilder("broadcast", "test", 2, 2, chunk_elements=np.array([5, 2]))
    b.send(0, 1, 0, n_chunks=2, reduce=False)
    s = split(b.build(), 2)
    verify(s)
    assert s.elements(7).sum() == 7
    assert np.asarray(s.chunk_elements).sum() == 7
    assert replayed(s, 7)[1] == 0


@both
def test_what_cannot_be_split_is_refused(split: Split) -> None:
    with pytest.raises(TrafficError, match=r"^0 (channels|slices): use 1 or more$"):
        split(schedule("all_reduce", "ring", 2), 0)
    with pytest.raises(TrafficError, match=r"^unknown collective 'permutation': choose from all_"):
        split(schedule("permutation", None, 2), 2)
