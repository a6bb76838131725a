"""The band of Jain's index under random hashing, against enumeration and simulation."""

from itertools import product

import numpy as np
import pytest

from lab.kpis import collision_band, jfi, jfi_band


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
