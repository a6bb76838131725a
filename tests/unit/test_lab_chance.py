"""Bands of balance under random hashing, against tables, enumeration and simulation."""

from itertools import product

import numpy as np
import pytest

from lab.chance import collision_band, jfi_band
from lab.kpis import jfi


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
    assert collision_band(flows, paths).expected * mean == pytest.approx(expected, abs=0.05 if flows < 100 else 0.1)


def test_few_flows_are_not_called_a_failure() -> None:
    """One flow on four links loads one of them four times the mean: nothing else is possible."""
    one = collision_band(1, 4)
    assert (one.expected, one.low, one.high) == (4.0, 4.0, 4.0)
    assert one.explains(4.0)
    four = collision_band(4, 4)
    assert all(four.explains(x) for x in (1.0, 2.0, 3.0))
    # 256 flows: 64 +- 3 sigma each; all on one link is a broken hash.
    many = collision_band(256, 4)
    assert many.explains(73 / 64) and not many.explains(4.0) and not many.explains(128 / 64)


def test_collision_band_equals_enumeration() -> None:
    """All 3^4 ways to put 4 flows on 3 paths: E[max] by counting."""
    largest = [max(way.count(p) for p in range(3)) for way in product(range(3), repeat=4)]
    assert collision_band(4, 3).expected * 4 / 3 == pytest.approx(sum(largest) / len(largest))


def test_collision_band_of_many_flows_is_quick_and_finite() -> None:
    band = collision_band(2000, 64)
    assert 1 < band.low <= band.expected <= band.high < 3


@pytest.mark.parametrize(("flows", "paths"), [(1, 4), (4, 2), (4, 3), (6, 3), (5, 4)])
def test_jain_band_equals_enumeration(flows: int, paths: int) -> None:
    """All m^n ways to put n flows on m paths, each as likely."""
    ways = product(range(paths), repeat=flows)
    found = np.sort([jfi([way.count(p) for p in range(paths)]) for way in ways])
    band = jfi_band(flows, paths)
    assert band.expected == pytest.approx(found.mean())
    assert band.low == pytest.approx(np.quantile(found, 0.025, method="inverted_cdf"))
    assert band.high == pytest.approx(np.quantile(found, 0.975, method="inverted_cdf"))


@pytest.mark.parametrize(("flows", "paths"), [(24, 4), (25, 4), (100, 2), (256, 16), (256, 64), (40, 80)])
def test_jain_band_of_many_flows_is_that_of_a_simulation(flows: int, paths: int) -> None:
    """40 000 draws. With few flows the index has few values, up to 4 % apart, and its quantiles are among them."""
    counts = np.random.default_rng(7).multinomial(flows, [1 / paths] * paths, size=40_000)
    found = flows**2 / (paths * (counts**2).sum(axis=1))
    band = jfi_band(flows, paths)
    assert band.expected == pytest.approx(found.mean(), rel=0.003)
    assert [band.low, band.high] == pytest.approx(np.quantile(found, [0.025, 0.975]), rel=0.04)


def test_without_flows_chance_says_nothing() -> None:
    assert np.isnan([jfi_band(0, 4).low, collision_band(0, 4).high]).all()
    assert jfi_band(0, 4).explains(float("nan"))
