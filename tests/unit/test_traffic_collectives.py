"""Every registered algorithm, for free: an entry in COLLECTIVES is all that these tests need."""

import numpy as np
import pytest

import traffic
from traffic import COLLECTIVES, PATTERNS, Schedule, TrafficError
from traffic.check import verify
from traffic.chunks import chunk_bounds
from traffic.contracts import CONTRACTS
from traffic.conventions import bus_factor
from traffic.races import order
from traffic.schedule import ScheduleBuilder

ALGORITHMS = [(collective, name) for collective, algorithms in COLLECTIVES.items() for name in algorithms]
RANKS = [*range(1, 18), 32, 64]
every_algorithm = pytest.mark.parametrize(("collective", "algorithm"), ALGORITHMS)


def made(collective: str, algorithm: str, n_ranks: int) -> Schedule:
    """Only what is not a power of two may be refused."""
    try:
        return traffic.schedule(collective, algorithm, n_ranks)
    except TrafficError:
        if n_ranks & (n_ranks - 1) == 0:
            raise
        pytest.skip(f"{algorithm} does not do {n_ranks} ranks")


@every_algorithm
@pytest.mark.parametrize("n_ranks", RANKS)
def test_an_algorithm_keeps_its_collectives_contract(collective: str, algorithm: str, n_ranks: int) -> None:
    verify(made(collective, algorithm, n_ranks))


@every_algorithm
def test_an_algorithm_is_named_as_in_the_registry(collective: str, algorithm: str) -> None:
    schedule = traffic.schedule(collective, algorithm, 4)
    assert (schedule.collective, schedule.algorithm, schedule.n_members) == (collective, algorithm, 4)


@every_algorithm
@pytest.mark.parametrize("count", [0, 1, 3, 1_000_003])
def test_what_is_sent_is_received(collective: str, algorithm: str, count: int) -> None:
    for n in RANKS[:6]:
        schedule = made(collective, algorithm, n)
        assert schedule.sent_per_rank(count).sum() == schedule.received_per_rank(count).sum()


@every_algorithm
def test_columns_have_the_types_that_keep_them_small(collective: str, algorithm: str) -> None:
    for n in (1, 4):
        s = traffic.schedule(collective, algorithm, n)
        assert {c.dtype for c in (s.src, s.dst, s.channel, s.first_chunk, s.dst_chunk, s.n_chunks_sent, s.deps)} == {
            np.dtype(np.int32)
        }
        assert (s.reduce.dtype, s.dep_start.dtype, s.calc_ns.dtype) == tuple(map(np.dtype, ("bool", "int64", "int64")))


@every_algorithm
def test_one_rank_sends_nothing(collective: str, algorithm: str) -> None:
    schedule = traffic.schedule(collective, algorithm, 1)
    assert schedule.connections == []
    assert schedule.sent_per_rank(1000).tolist() == [0]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_collective_has_a_contract_and_a_bus_factor(collective: str) -> None:
    assert collective in CONTRACTS
    assert bus_factor(collective, 4) > 0


# -- the ring -------------------------------------------------------------------------------------------------------


def plain_ring(n: int) -> Schedule:
    """All-reduce as the literature writes it, one send at a time."""
    builder = ScheduleBuilder("all_reduce", "ring", n, n)
    sent: dict[tuple[int, int], int] = {}
    for step in range(n - 1):
        for r in range(n):
            after = [sent[step - 1, (r - 1) % n]] if step else []
            sent[step, r] = builder.send(r, (r + 1) % n, (r - step) % n, reduce=True, after=after)
    for step in range(n - 1):
        for r in range(n):
            after = [sent[n - 2 + step, (r - 1) % n]]
            sent[n - 1 + step, r] = builder.send(r, (r + 1) % n, (r + 1 - step) % n, reduce=False, after=after)
    return builder.build()


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_the_ring_is_the_one_in_the_literature(n: int) -> None:
    a, b = traffic.schedule("all_reduce", "ring", n), plain_ring(n)
    for column in ("src", "dst", "channel", "first_chunk", "n_chunks_sent", "reduce", "dep_start", "deps"):
        np.testing.assert_array_equal(getattr(a, column), getattr(b, column), column)


def test_eight_ranks_and_a_mebibyte() -> None:
    ring, count = traffic.schedule("all_reduce", "ring", 8), (1 << 20) // 4
    assert len(ring) == 112
    assert set((ring.elements(count) * 4).tolist()) == {131_072}
    assert set((ring.sent_per_rank(count) * 4).tolist()) == {1_835_008}
    assert set((ring.received_per_rank(count) * 4).tolist()) == {1_835_008}
    assert ring.connections == sorted((r, (r + 1) % 8, 0) for r in range(8))


@pytest.mark.parametrize("n", range(1, 7))
@pytest.mark.parametrize("count", [0, 1, 3, 1_000_003, 1 << 28])
def test_the_ring_sends_twice_all_but_one_share(n: int, count: int) -> None:
    assert traffic.schedule("all_reduce", "ring", n).sent_per_rank(count).sum() == 2 * (n - 1) * count
    for half in ("reduce_scatter", "all_gather"):
        assert traffic.schedule(half, "ring", n).sent_per_rank(count).sum() == (n - 1) * count


def test_uneven_chunks_differ_by_one_element() -> None:
    assert np.diff(chunk_bounds(1_000_003, 4)).tolist() == [250_001, 250_001, 250_001, 250_000]
    assert np.diff(chunk_bounds(3, 5)).tolist() == [1, 1, 1, 0, 0]
    assert traffic.schedule("all_reduce", "ring", 4).sent_per_rank(1_000_003).sum() == 6_000_018


@pytest.mark.parametrize(("collective", "steps"), [("all_reduce", 14), ("reduce_scatter", 7), ("all_gather", 7)])
def test_steps_of_the_ring(collective: str, steps: int) -> None:
    ring = traffic.schedule(collective, "ring", 8)
    assert len(order(ring).start) - 1 == steps
    assert len(ring) == steps * 8


def test_a_ring_of_512_is_half_a_million_sends() -> None:
    ring = traffic.schedule("all_reduce", "ring", 512)
    assert len(ring) == 2 * 512 * 511
    assert len(ring.connections) == 512


# -- names ----------------------------------------------------------------------------------------------------------


def refusal(collective: str, algorithm: str | None, n_ranks: int) -> str:
    with pytest.raises(TrafficError) as caught:
        traffic.schedule(collective, algorithm, n_ranks)
    return str(caught.value)


def test_no_algorithm_means_the_collectives_first() -> None:
    assert traffic.schedule("all_reduce", None, 4).algorithm == next(iter(COLLECTIVES["all_reduce"]))


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    assert refusal("allreduce", None, 4) == (
        f"unknown collective 'allreduce': choose from {', '.join(sorted((*COLLECTIVES, *PATTERNS)))}"
    )
    assert refusal("all_reduce", "rign", 4) == (
        f"unknown algorithm of all_reduce 'rign': choose from {', '.join(sorted(COLLECTIVES['all_reduce']))}"
    )


def test_no_rank_is_refused() -> None:
    assert refusal("all_reduce", None, 0) == "0 ranks: a collective needs at least one"


# -- the builder ----------------------------------------------------------------------------------------------------


def test_a_send_waits_for_earlier_ones_only() -> None:
    builder = ScheduleBuilder("all_reduce", "test", 2, 1)
    with pytest.raises(TrafficError, match=r"^send 0 waits for \[0\]: a send can wait for earlier ones only$"):
        builder.send(0, 1, 0, reduce=True, after=[0])


def test_a_send_may_carry_a_run_of_chunks() -> None:
    builder = ScheduleBuilder("all_reduce", "test", 2, 4)
    builder.send(0, 1, 1, n_chunks=3, reduce=True)
    schedule = builder.build()
    assert schedule.elements(10).tolist() == [7]
    assert schedule.name_of(0) == "0 (0 -> 1, chunks 1 to 3)"
