"""Why a measured curve leaves the predicted one: curves made of a known cause, which must be named."""

import numpy as np

from lab.kpis import Floats
from lab.reporting.causes import Hypothesis, candidates, fit, leaves

SIZES = np.array([4.0**k for k in range(10, 16)])
RATE = 5e10
PREDICTED: Floats = SIZES * 1.875 / RATE
TREE = Hypothesis("wrong algorithm: as tree", PREDICTED * 1.6 + 20e-6)
POLARISED = Hypothesis("polarisation", np.where(SIZES > 2**25, PREDICTED * 4, PREDICTED))


def named(measured: Floats, *others: Hypothesis) -> list[str]:
    return candidates(measured, PREDICTED, lambda: others)


def scatter(seed: int) -> Floats:
    """2 % of scatter, as between runs."""
    return 1 + 0.02 * np.random.default_rng(seed).standard_normal(len(SIZES))


def test_sizes_leave_when_they_are_further_off_than_a_prediction_errs() -> None:
    assert leaves(np.array([1.14, 1.16, 0.84, 1.0]), np.array([1.0, 1.0, 1.0, np.nan])) == [False, True, True, False]


def test_a_constant_is_found_as_it_is() -> None:
    found = fit(PREDICTED + 120e-6, Hypothesis("", PREDICTED))
    assert np.allclose((found.latency_s, found.factor, found.error), (120e-6, 1, 0), atol=1e-9)


def test_a_constant_and_a_factor_are_found_together() -> None:
    found = fit(PREDICTED * 2 + 50e-6, Hypothesis("", PREDICTED, is_scaled=True))
    assert np.allclose((found.latency_s, found.factor, found.error), (50e-6, 2, 0), atol=1e-9)


def test_neither_goes_below_zero() -> None:
    assert fit(PREDICTED * 0.5, Hypothesis("", PREDICTED)).latency_s == 0


def test_latency_at_small_sizes_is_named_alone_and_nothing_else_is_asked() -> None:
    def never() -> list[Hypothesis]:
        raise AssertionError("the latency explains everything")

    for seed in range(20):
        (cause,) = candidates((PREDICTED + 150e-6) * scatter(seed), PREDICTED, never)
        assert cause.startswith("latency-bound at small sizes: a constant of 1")


def test_a_slow_link_is_a_factor_at_every_size() -> None:
    for seed in range(20):
        (cause,) = named((PREDICTED * 2 + 30e-6) * scatter(seed), TREE, POLARISED)
        assert cause.startswith(("slower by a constant factor of 2.0", "slower by a constant factor of 1.9"))
        assert "one slow link at 0.5" in cause or "one slow link at 0.49" in cause


def test_another_algorithms_curve_stands_before_a_factor_that_fits_as_well() -> None:
    for seed in range(20):
        first, *rest = named((TREE.seconds + 10e-6) * scatter(seed), TREE, POLARISED)
        assert first.startswith("wrong algorithm: as tree")
        assert all(text.startswith("slower by a constant factor of 1.") for text in rest)


def test_a_curve_of_its_own_shape_is_named_alone() -> None:
    for seed in range(20):
        (cause,) = named(POLARISED.seconds * scatter(seed), TREE, POLARISED)
        assert cause.startswith("polarisation")


def test_faster_than_the_fabric_allows_is_no_slow_link() -> None:
    (cause,) = named(PREDICTED / 1.5)
    assert cause.startswith("faster by a constant factor of 1.50 at all sizes")


def test_what_nothing_explains_is_said() -> None:
    (cause,) = named(PREDICTED * np.array([1, 1, 5, 1, 1, 1]), TREE)
    assert cause.startswith("none of the known causes fits: the best is off by ")


def test_two_sizes_tell_nothing() -> None:
    (cause,) = candidates(PREDICTED[:2] * 3, PREDICTED[:2], list)
    assert cause == "2 sizes cannot tell causes apart: measure 3 or more"
