"""What ranks hold before and must hold after, against adding up plainly."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import traffic
from traffic import COLLECTIVES, TrafficError
from traffic.chunks import chunk_bounds
from traffic.contracts import CONTRACTS
from traffic.schedule import Schedule, ScheduleBuilder
from traffic.values import fill, wrong

Values = NDArray[np.float32]
every_collective = pytest.mark.parametrize("collective", COLLECTIVES)
symmetric_in_place = pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather"])


def nothing(collective: str, n_ranks: int) -> Schedule:
    """A schedule that sends nothing: what ranks hold is the collective's affair."""
    regions = CONTRACTS[collective].regions if collective in CONTRACTS else 1
    n_chunks = traffic.schedule(collective, None, n_ranks).n_chunks if regions > 1 else n_ranks
    n_blocks = n_chunks if regions > 1 else 1
    return ScheduleBuilder(collective, "test", n_ranks, n_chunks, n_blocks=n_blocks).build()


def inputs(collective: str, n_ranks: int, count: int) -> list[Values]:
    buffers: list[Values] = [np.full(count, np.nan, dtype=np.float32) for _ in range(n_ranks)]
    for rank, buffer in enumerate(buffers):
        fill(buffer, nothing(collective, n_ranks), rank)
    return buffers


def carry_out(schedule: Schedule, buffers: list[Values]) -> None:
    """Send by send, as they stand."""
    for i, (at, lands, length) in enumerate(zip(*schedule.places(len(buffers[0])), strict=True)):
        sent = buffers[schedule.src[i]][at : at + length]
        target = buffers[schedule.dst[i]][lands : lands + length]
        target[:] = target + sent if schedule.reduce[i] else sent


def total_wrong(collective: str, buffers: list[Values]) -> int:
    return sum(wrong(b, nothing(collective, len(buffers)), rank) for rank, b in enumerate(buffers))


@every_collective
@settings(max_examples=30, deadline=None)
@given(n_ranks=st.integers(1, 9), count=st.sampled_from([0, 1, 3, 16, 63, 64, 65, 1000, 1003]))
def test_the_collectives_result_is_right_and_its_input_is_not(collective: str, n_ranks: int, count: int) -> None:
    buffers = inputs(collective, n_ranks, count)
    if n_ranks > 1 and count >= 2 * n_ranks:
        assert total_wrong(collective, buffers) > 0
    carry_out(traffic.schedule(collective, None, n_ranks), buffers)
    assert total_wrong(collective, buffers) == 0


@symmetric_in_place
def test_each_wrong_element_of_a_ranks_result_is_counted(collective: str) -> None:
    n, count = 5, 203
    buffers = inputs(collective, n, count)
    carry_out(traffic.schedule(collective, None, n), buffers)
    bounds = chunk_bounds(count, n)
    for rank, buffer in enumerate(buffers):
        part = slice(bounds[rank], bounds[rank + 1])
        buffer[part] += 1
        assert wrong(buffer, nothing(collective, n), rank) == bounds[rank + 1] - bounds[rank]


def test_only_its_own_part_of_a_reduce_scatter_is_a_ranks_result() -> None:
    buffers = inputs("reduce_scatter", 4, 40)
    carry_out(traffic.schedule("reduce_scatter", None, 4), buffers)
    buffers[1][:10] = -1
    assert total_wrong("reduce_scatter", buffers) == 0
    assert wrong(buffers[1], nothing("all_reduce", 4), 1) > 0


@symmetric_in_place
def test_no_two_neighbours_hold_the_same(collective: str) -> None:
    """Else a chunk taken from the wrong place, or from the wrong rank, would go unnoticed."""
    buffers = inputs(collective, 4, 4 * 256)
    held = [b[b != 0] for b in buffers]
    for a, b in pairwise(held):
        assert (a[:32] != b[:32]).any()
    for values in held:
        assert (np.diff(values) != 0).all()


def test_sums_of_many_ranks_are_exact() -> None:
    """float32 has 24 bits of mantissa; 64 values of at most 63 each, 4096 times."""
    n, count = 4096, 64
    total = np.zeros(count, dtype=np.float32)
    for rank in reversed(range(n)):
        buffer = np.empty(count, dtype=np.float32)
        fill(buffer, nothing("all_reduce", n), rank)
        total += buffer
    assert wrong(total, nothing("all_reduce", n), 0) == 0
    assert total.max() < 2**24


def test_a_collective_without_values_is_refused() -> None:
    buffer = np.zeros(4, dtype=np.float32)
    text = r"^unknown collective 'all_sum': choose from all_gather, all_reduce, all_to_all, all_to_all_v, "
    with pytest.raises(TrafficError, match=text):
        fill(buffer, nothing("all_sum", 2), 0)
    with pytest.raises(TrafficError, match=text):
        wrong(buffer, nothing("all_sum", 2), 0)
