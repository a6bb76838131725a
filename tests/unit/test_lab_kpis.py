"""Formulas against published or hand-computed values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import kpis
from lab.kpis import first_done_s, goodput, sender_shares
from topologies import topology


@pytest.mark.parametrize(
    ("flows", "paths", "expected"),
    [
        (2, 2, 1.5),
        (4, 4, 2.13),
        (8, 8, 2.60),
        (16, 16, 3.08),
        (32, 32, 3.53),
        (8, 4, 3.54),
        (32, 16, 4.83),
        (128, 16, 13.4),
    ],
)
def test_expected_largest_load_of_hashed_flows(flows: int, paths: int, expected: float) -> None:
    """The exact balls-into-bins table: E[max load] of n equal flows on m equal paths."""
    mean = flows / paths
    assert kpis.collision_band(flows, paths).expected * mean == pytest.approx(
        expected, abs=0.05 if flows < 100 else 0.1
    )


def test_few_flows_are_not_called_a_failure() -> None:
    """One flow on four links loads one of them four times the mean: nothing else is possible."""
    one = kpis.collision_band(1, 4)
    assert (one.expected, one.low, one.high) == (4.0, 4.0, 4.0)
    assert one.explains(4.0)
    four = kpis.collision_band(4, 4)
    assert all(four.explains(x) for x in (1.0, 2.0, 3.0))
    # 256 flows: 64 +- 3 sigma each; all on one link is a broken hash.
    many = kpis.collision_band(256, 4)
    assert many.explains(73 / 64) and not many.explains(4.0) and not many.explains(128 / 64)


def test_collision_band_equals_enumeration() -> None:
    """All 3^4 ways to put 4 flows on 3 paths: E[max] by counting."""
    from itertools import product

    largest = [max(way.count(p) for p in range(3)) for way in product(range(3), repeat=4)]
    assert kpis.collision_band(4, 3).expected * 4 / 3 == pytest.approx(sum(largest) / len(largest))


def test_collision_band_of_many_flows_is_quick_and_finite() -> None:
    band = kpis.collision_band(2000, 64)
    assert 1 < band.low <= band.expected <= band.high < 3


def test_mmr_and_jfi() -> None:
    assert kpis.mmr([1, 1, 1, 1]) == 1
    assert kpis.mmr([4, 0, 0, 0]) == 4
    assert kpis.jfi([1, 1, 1, 1]) == 1
    assert kpis.jfi([1, 0, 0, 0]) == 0.25
    assert math.isnan(kpis.mmr([])) and math.isnan(kpis.jfi([0, 0]))


@given(st.lists(st.floats(0.001, 1e9), min_size=1, max_size=50))
def test_balance_indices_stay_in_their_ranges(loads: list[float]) -> None:
    assert 1 - 1e-9 <= kpis.mmr(loads) <= len(loads) + 1e-9
    assert 1 / len(loads) - 1e-9 <= kpis.jfi(loads) <= 1 + 1e-9


def test_percentiles_are_nearest_rank() -> None:
    """nccl-tests: index min(n - 1, ceil(n p / 100) - 1), p50 the upper median, population standard deviation."""
    times = [float(x) for x in range(1, 101)]
    assert [kpis.percentile(times, p) for p in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert kpis.percentile([3.0, 1.0, 2.0], 99) == 3
    stats = kpis.iteration_stats([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
    assert (stats.mean, stats.std, stats.cv, stats.p50, stats.min, stats.max) == (5, 2, 0.4, 5, 2, 9)
    assert math.isnan(kpis.iteration_stats([]).mean)


def test_parallel_uplinks_of_a_spine_leaf_are_each_leafs_uplinks() -> None:
    groups = kpis.parallel_uplinks(topology("spine-leaf:spines=4,leaves=2").build())
    assert {switch: len(ports) for switch, ports in groups.items()} == {"leaf1": 4, "leaf2": 4}


def test_parallel_cables_count_one_by_one() -> None:
    groups = kpis.parallel_uplinks(topology("spine-leaf:spines=1,leaves=2,links_per_pair=3").build())
    assert {switch: len(ports) for switch, ports in groups.items()} == {"leaf1": 3, "leaf2": 3}


def test_balance_names_the_worst_group_and_skips_idle_ones() -> None:
    groups = kpis.parallel_uplinks(topology("spine-leaf:spines=2,leaves=3").build())
    load = dict.fromkeys((p.intf for p in groups["leaf1"]), 100.0)
    load |= {groups["leaf2"][0].intf: 300.0, groups["leaf2"][1].intf: 100.0}
    load |= {groups["leaf3"][0].intf: 1.0}
    worst = kpis.balance(groups, load, at_least=10.0)
    assert (worst.switch, worst.mmr, worst.jfi) == ("leaf2", 1.5, 0.8)
    assert math.isnan(kpis.balance(groups, {}).mmr)


def test_jct_ratio_without_a_roofline_is_no_number() -> None:
    assert kpis.jct_ratio(1.2, 1.0) == 1.2
    assert math.isnan(kpis.jct_ratio(1.0, 0.0))


# -- goodput ----------------------------------------------------------------------------------------------------------


def test_a_senders_share_ends_with_its_last_flow() -> None:
    """Rank 0 sends 1 MB + 1 MB until 0.4 s: 40 of 100 Mbit/s; rank 2 1 MB until 0.1 s: 80 of 200; rank 1 only receives."""
    src, sent = np.array([0, 0, 2]), np.full(3, 1e6)
    shares = sender_shares(src, sent, np.array([0.2, 0.4, 0.1]), np.array([100.0, 100.0, 200.0]))
    assert shares.tolist() == pytest.approx([0.4, 0.4])


def test_the_first_sender_is_done_when_its_last_flow_is() -> None:
    assert first_done_s(np.array([0, 0, 2, 2]), np.array([0.1, 0.9, 0.5, 0.6])) == 0.6


def test_goodput_over_iterations() -> None:
    """Two flows of 1 MB on NICs of 100 Mbit/s: 0.1 and 0.2 s, then 0.2 s both."""
    found = goodput(np.array([0, 1]), np.full(2, 1e6), np.array([[0.1, 0.2], [0.2, 0.2]]), np.full(2, 100.0))
    assert (found.sender_mean, found.sender_worst) == pytest.approx((0.5, 0.4))
    assert (found.flow_mean_mbps, found.flow_min_mbps, found.flow_max_mbps) == pytest.approx((50, 40, 80))
    assert found.all_mbps == pytest.approx(80)


def test_what_intervals_cover_together() -> None:
    start, end = np.array([3.0, 0.0, 1.0, 7.0, 0.5]), np.array([4.0, 2.0, 3.0, 8.0, 0.6])
    assert kpis.covered(start, end) == [(0.0, 4.0), (7.0, 8.0)]
    assert kpis.covered(np.zeros(0), np.zeros(0)) == []
