"""Intervals of ratios against hand calculation, a second formula and their own promise."""

import math

import numpy as np
import pytest

from lab.kpis.intervals import printed_sample, ratio_interval, sample


def test_two_pairs_by_hand() -> None:
    """Means 11 and 5.5, log variance of each (1.41421 / 11)^2 / 2 = 0.0082645; 2 degrees of freedom, t = 4.30265:
    exp(4.30265 x sqrt(0.0165289)) = 1.73876 around 2."""
    interval = ratio_interval(sample([10.0, 12.0]), sample([5.0, 6.0]))
    assert interval == pytest.approx((2 / 1.73876, 2 * 1.73876), rel=1e-4)


def test_against_something_that_does_not_scatter_freedom_is_one_samples() -> None:
    """Mean 10, deviation 1 of 4: t(3) = 3.18245, exp(3.18245 x 0.1 / 2) = 1.17250."""
    values = [10 - math.sqrt(1.5), 10.0, 10.0, 10 + math.sqrt(1.5)]
    assert ratio_interval(sample(values)) == pytest.approx((10 / 1.17250, 10 * 1.17250), rel=1e-4)


def test_one_value_estimates_nothing() -> None:
    assert ratio_interval(sample([10.0]), sample([5.0, 6.0])) is None
    assert ratio_interval(sample([5.0, 6.0]), sample([])) is None


def test_what_never_differed_has_no_width() -> None:
    assert ratio_interval(sample([2.0, 2.0]), sample([1.0, 1.0])) == (2, 2)


def test_printed_statistics_give_the_same_as_the_values() -> None:
    values = [41.0, 42.5, 40.2, 44.0]
    printed = printed_sample(float(np.mean(values)), float(np.std(values) / np.mean(values)), 4)
    assert printed.std == pytest.approx(sample(values).std)


def test_nineteen_of_twenty_intervals_hold_the_true_ratio() -> None:
    """3000 pairs of runs of 5 iterations with 5 % of scatter around 1.2: 95 % within four standard errors (0.4 % each)."""
    draw = np.random.default_rng(7)
    held = 0
    for _ in range(3000):
        a, b = 1.2 * (1 + 0.05 * draw.standard_normal(5)), 1 + 0.05 * draw.standard_normal(5)
        interval = ratio_interval(sample(a.tolist()), sample(b.tolist()))
        assert interval
        held += interval[0] <= 1.2 <= interval[1]
    assert held / 3000 == pytest.approx(0.95, abs=0.016)
