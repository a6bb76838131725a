"""Several collectives in one schedule: each keeps its contract, none starts before it may."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.traffic_fakes import filled, replayed, wrong
from traffic import Layout, Schedule, TrafficError, schedule
from traffic.check import verify
from traffic.compose import Composer
from traffic.schedule import ScheduleBuilder


def ring(collective: str, n_ranks: int) -> Schedule:
    return schedule(collective, "ring", n_ranks)


def pipe() -> Schedule:
    """Activations: from one rank to the next."""
    b = ScheduleBuilder("broadcast", "direct", 2, 1)
    b.send(0, 1, 0, reduce=False)
    return b.build()


def step() -> Schedule:
    """Two pairs of ranks: all-gather in each, computing, all-reduce across the pairs, then 3 to 0."""
    c = Composer("training_step", "test", 4)
    begun = {rank: c.calc(rank, 10 * (rank + 1)) for rank in range(4)}
    gathered = c.place(ring("all_gather", 2), 11, (0, 1), begun) | c.place(ring("all_gather", 2), 6, (3, 2), begun)
    computed = {rank: c.calc(rank, 5, [op]) for rank, op in gathered.items()}
    reduced = c.place(ring("all_reduce", 2), 9, (0, 2), computed, channel=1)
    reduced |= c.place(ring("all_reduce", 2), 9, (1, 3), computed, channel=1)
    c.place(pipe(), 5, (3, 0), {3: reduced[3]})
    return c.build()


def test_every_collective_keeps_its_contract_and_values() -> None:
    s = step()
    verify(s)
    assert [(p.collective, p.ranks) for p in s.parts] == [
        ("all_gather", (0, 1)),
        ("all_gather", (3, 2)),
        ("all_reduce", (0, 2)),
        ("all_reduce", (1, 3)),
        ("broadcast", (3, 0)),
    ]
    # Rank 0 has 11 and 9 and 5, rank 1 11 and 9, rank 2 6 and 9, rank 3 6 and 9 and 5.
    assert s.natural_count == 25
    assert s.sent_per_rank(25).tolist() == [6 + 9, 5 + 9, 3 + 9, 3 + 9 + 5]
    assert wrong(s, filled(s, 25)) > 0
    for count in (25, 24, 3, 1000):
        assert replayed(s, count)[1] == 0


def test_sizes_follow_the_buffer() -> None:
    s = step()
    assert s.sent_per_rank(50).tolist() == [2 * (6 + 9), 2 * (5 + 9), 2 * (3 + 9), 2 * (3 + 9 + 5)]
    assert s.bounds(24)[:, -1].max() <= 24


def test_a_rank_begins_after_what_it_was_given_and_not_sooner() -> None:
    s = step()
    result, _ = replayed(s, 25)
    for rank in range(4):
        (begun,) = np.flatnonzero(s.calc_ns == 10 * (rank + 1))
        sends = np.flatnonzero((s.src == rank) & ~s.is_local)
        assert (result.started[sends] >= result.finished[begun]).all()
        (computed,) = np.flatnonzero((s.calc_ns == 5) & (s.src == rank))
        assert (result.started[sends[s.channel[sends] == 1]] >= result.finished[computed]).all()


def test_a_fault_in_one_collective_is_found() -> None:
    s = step()
    reduce = s.reduce.copy()
    reduce[np.argmax(reduce)] = False
    with pytest.raises(TrafficError, match=r"^in the end rank [02] lacks the contributions of rank [02] in chunk "):
        verify(replace(s, reduce=reduce))
    dst_chunk = s.dst_chunk.copy()
    dst_chunk[np.argmax(s.reduce)] += 1
    with pytest.raises(TrafficError):
        verify(replace(s, dst_chunk=dst_chunk))


def test_collectives_that_share_chunks_are_refused() -> None:
    s = step()
    first, second, *others = s.composed_of
    with pytest.raises(
        TrafficError, match=r"^all_gather has chunks 1 to 2: a collective needs its own of the chunks 0 to "
    ):
        verify(replace(s, composed_of=(first, replace(second, first_chunk=1), *others)))


def test_joins_keep_the_dependencies_few() -> None:
    """Twenty all-reduces one after the other: each rank waits for one operation, not for everything before."""
    n = 8
    c = Composer("training_step", "test", n)
    done: dict[int, int] = {}
    for _ in range(20):
        done = c.place(ring("all_reduce", n), 64, range(n), done)
    s = c.build()
    verify(s)
    assert len(s.deps) <= 20 * (len(ring("all_reduce", n).deps) + 3 * n)


def test_a_rank_that_only_sends_is_done_when_that_has_left() -> None:
    c = Composer("training_step", "test", 2)
    done = c.place(pipe(), 4, (0, 1))
    assert done == {0: 0, 1: 0}
    c.calc(0, 10, [done[0]])
    s = c.build()
    verify(s)
    result, _ = replayed(s, 4)
    assert result.started[1] >= result.started[0]


@pytest.mark.parametrize("ranks", [(0,), (0, 0), (0, 1, 2)])
def test_ranks_that_do_not_fit_are_refused(ranks: tuple[int, ...]) -> None:
    with pytest.raises(TrafficError, match=r"^broadcast of 2 ranks cannot be placed on ranks \["):
        Composer("training_step", "test", 4).place(pipe(), 1, ranks)
    with pytest.raises(TrafficError, match=r"^operation 0 waits for 3: it can wait for earlier ones only$"):
        Composer("training_step", "test", 4).calc(0, 1, [3])


# -- layouts ----------------------------------------------------------------------------------------------------------


def test_rails_are_the_places_in_the_domains() -> None:
    assert Layout(6, domains=((0, 1, 2), (3, 4, 5))).rails == ((0, 3), (1, 4), (2, 5))
    assert Layout(5, domains=((0, 1, 4), (3, 2))).rails == ((0, 3), (1, 2), (4,))
    assert Layout(4).rails == ()


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ({"n_ranks": 0}, "0 ranks: a collective needs at least one"),
        ({"n_ranks": 2, "root": 2}, "root 2 is not among the ranks 0 to 1"),
        (
            {"n_ranks": 3, "domains": ((0, 1),)},
            "HB domains must hold each of the ranks 0 to 2 once: they are ((0, 1),)",
        ),
        ({"n_ranks": 2, "matrix": ((1, 2),)}, "a matrix of 1 rows of [2] numbers: 2 ranks need 2 of 2"),
        ({"n_ranks": 1, "matrix": ((-1,),)}, "the matrix has negative bytes: use 0 or more"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(layout: dict[str, object], text: str) -> None:
    with pytest.raises(TrafficError) as caught:
        Layout(**layout)  # type: ignore[arg-type]
    assert str(caught.value) == text
