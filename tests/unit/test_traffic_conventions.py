"""Sizes and bandwidths as nccl-tests counts them."""

import pytest

from traffic import TrafficError
from traffic.conventions import buffer_elements, bus_factor, sizes


@pytest.mark.parametrize(
    ("collective", "algbw", "busbw"),
    [("all_reduce", 277.210914, 485.119099), ("reduce_scatter", 418.439467, 366.134533)],
)
def test_bus_bandwidth_is_that_of_recorded_runs(collective: str, algbw: float, busbw: float) -> None:
    """From NCCL Inspector's sample logs, 8 ranks."""
    assert algbw * bus_factor(collective, 8) == pytest.approx(busbw, abs=1e-6)


@pytest.mark.parametrize(
    ("collective", "factor"),
    [
        ("all_reduce", 1.875),
        ("all_gather", 0.9375),
        ("all_to_all", 0.9375),
        ("all_to_all_v", 0.9375),
        ("broadcast", 1),
        ("sendrecv", 1),
    ],
)
def test_factors_of_sixteen_ranks(collective: str, factor: float) -> None:
    assert bus_factor(collective, 16) == factor


def test_one_rank_moves_nothing() -> None:
    assert bus_factor("all_reduce", 1) == 0


def test_an_unknown_collective_is_refused_with_the_known_ones() -> None:
    with pytest.raises(TrafficError) as caught:
        bus_factor("allreduce", 8)
    assert str(caught.value) == (
        "unknown collective 'allreduce': choose from all_gather, all_reduce, all_to_all, all_to_all_v, broadcast, gather, "
        "reduce, reduce_scatter, scatter, sendrecv"
    )


@pytest.mark.parametrize(
    ("collective", "size_bytes", "n_ranks", "elements"),
    [
        ("all_reduce", 1 << 20, 6, 262_144),
        ("all_reduce", 7, 4, 1),
        ("all_reduce", 3, 4, 0),
        # A part is a multiple of 16 bytes: 1 MiB over 6 ranks is 174 752 bytes each, not 174 762.
        ("all_gather", 1 << 20, 6, 6 * 43_688),
        ("reduce_scatter", 16 * 4, 4, 16),
        ("reduce_scatter", 16 * 4 - 1, 4, 0),
        ("all_gather", 16 * 8 - 1, 4, 16),
        ("all_gather", 0, 4, 0),
        # src/alltoallv.cu, src/gather.cu.
        ("all_to_all_v", 1 << 20, 6, 6 * 43_688),
        ("gather", 16 * 3 - 1, 3, 0),
    ],
)
def test_buffers_are_whole_elements_and_parts_are_multiples_of_sixteen_bytes(
    collective: str, size_bytes: int, n_ranks: int, elements: int
) -> None:
    assert buffer_elements(collective, size_bytes, n_ranks) == elements


def test_a_sweep_multiplies_up_to_its_end() -> None:
    assert list(sizes(8, 64, 2)) == [8, 16, 32, 64]
    assert list(sizes(8, 63, 2)) == [8, 16, 32]
    assert list(sizes(8, 8, 4)) == [8]
    assert list(sizes(8, 7, 2)) == []


@pytest.mark.parametrize(("low", "factor"), [(0, 2), (8, 1), (8, 0)])
def test_a_sweep_without_an_end_is_refused(low: int, factor: int) -> None:
    with pytest.raises(TrafficError, match=f"^a sweep from {low} bytes by factor {factor} has no end"):
        list(sizes(low, 64, factor))
