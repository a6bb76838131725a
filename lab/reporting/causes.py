"""Why a measured curve leaves the predicted one: candidate causes, each a curve of its own, and how well it fits. Pure.

A cause is a curve of seconds over sizes. It may stand on a constant, the latency of software, which no prediction of bytes
knows, and one of them is free to be a factor slower. What fits is a candidate, not a verdict: curves that differ by less than
measurements scatter cannot be told apart, and then several are named.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from lab.kpis import Floats
from topologies.units import format_duration

# The drafts call more than this of the roofline significant; good predictions err by less.
TOLERANCE = 0.15
# Root mean square of the relative error of a curve that is said to fit.
FITS = 0.08
# Of the best fit's error: what is not much worse is named as well.
_NEARLY = 1.5
# What measurements scatter: below it one fit is as good as another.
_SCATTER = 0.03
# Two parameters go through any two points.
MIN_SIZES = 3
# Of the smallest size's time: less of a constant explains nothing.
_MIN_LATENCY_SHARE = 0.15


@dataclass(frozen=True)
class Hypothesis:
    """cause: what would make the collective take `seconds`, (sizes,); is_scaled: by a factor that is to be found."""

    cause: str
    seconds: Floats
    is_scaled: bool = False


@dataclass(frozen=True)
class Fit:
    """latency_s: the constant below the curve; factor: of its times; error: root mean square of the relative errors."""

    hypothesis: Hypothesis
    latency_s: float
    factor: float
    error: float


def leaves(measured_s: Floats, predicted_s: Floats) -> list[bool]:
    """(sizes,) whether the measured time is further from the predicted one than a prediction errs."""
    return [not math.isnan(p) and abs(m / p - 1) > TOLERANCE for m, p in zip(measured_s, predicted_s, strict=True)]


def fit(measured_s: Floats, hypothesis: Hypothesis) -> Fit:
    """Least squares of relative errors, neither the constant nor the factor below zero."""
    curve = hypothesis.seconds
    if hypothesis.is_scaled:
        (latency, factor), _ = nnls(np.column_stack((1 / measured_s, curve / measured_s)), np.ones(len(curve)))
    else:
        weight = 1 / measured_s
        latency, factor = max(0.0, float((weight * (1 - weight * curve)).sum() / (weight**2).sum())), 1.0
    errors = (latency + factor * curve) / measured_s - 1
    return Fit(hypothesis, float(latency), float(factor), float(np.sqrt((errors**2).mean())))


def candidates(measured_s: Floats, predicted_s: Floats, others: Callable[[], Iterable[Hypothesis]]) -> list[str]:
    """Sentences, the best first, for a measured curve that leaves the predicted one: (sizes,) each, none nan. The prediction
    itself, on a constant or a factor slower, is among the hypotheses; others: asked only where a constant does not explain it."""
    if len(measured_s) < MIN_SIZES:
        return [
            f"{len(measured_s)} size{'s' * (len(measured_s) > 1)} cannot tell causes apart: measure {MIN_SIZES} or more"
        ]
    latency = fit(measured_s, Hypothesis("", predicted_s))
    if latency.error <= FITS:
        # With it everything is explained: nothing else is needed.
        return [_sentence(latency, measured_s)]
    tried = [fit(measured_s, Hypothesis("", predicted_s, is_scaled=True)), *(fit(measured_s, one) for one in others())]
    best = min(one.error for one in tried)
    near = min(FITS, max(best * _NEARLY, _SCATTER))
    # A curve with a free factor goes through whatever is proportional to the prediction: one without says more.
    named = sorted((f for f in tried if f.error <= near), key=lambda f: (f.hypothesis.is_scaled, f.error))
    if not named:
        return [f"none of the known causes fits: the best is off by {best:.0%} (rms over sizes)"]
    return [_sentence(one, measured_s) for one in named]


def _sentence(found: Fit, measured_s: Floats) -> str:
    constant = found.latency_s > _MIN_LATENCY_SHARE * float(measured_s.min())
    latency = f"{format_duration(found.latency_s)} at every size" if constant else ""
    fits = f"(fits within {max(found.error, 0.001):.1%} rms)"
    if found.hypothesis.cause:
        return f"{found.hypothesis.cause}{f', and a latency of {latency}' if latency else ''} {fits}"
    if abs(found.factor - 1) <= TOLERANCE / 2:
        return f"latency-bound at small sizes: a constant of {latency or 'little'}, the rest as predicted {fits}"
    beside = f", beside a constant of {latency}" if latency else ""
    if found.factor < 1:
        return (
            f"faster by a constant factor of {1 / found.factor:.2f} at all sizes{beside}: the links are faster than the "
            f"fabric's, or part of the traffic stays off them (scale-up links, in-network reduction) {fits}"
        )
    return (
        f"slower by a constant factor of {found.factor:.2f} at all sizes{beside}: as one slow link at {1 / found.factor:.2f} of "
        f"its rate makes a collective that crosses it with every part, or slower NICs than the fabric's {fits}"
    )
