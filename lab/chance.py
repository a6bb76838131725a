"""What chance alone does to balance: flows hashed independently onto parallel links, as ideal ECMP does. Pure."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Band:
    """Of a figure of merit under chance alone: its mean, and the central 95 %. NaN without flows."""

    expected: float
    low: float
    high: float

    def explains(self, value: float) -> bool:
        """Whether a measured value is what chance gives: one flow on four links is no failure of the hash."""
        return math.isnan(value) or self.low - 1e-9 <= value <= self.high + 1e-9


@cache
def collision_band(flows: int, paths: int) -> Band:
    """Max-mean ratio of n equal flows hashed independently onto m equal paths, from the exact distribution of
    the largest of m multinomial counts.

    P(max <= k) is the coefficient of x^n in (sum over j <= k of x^j e^-l l^j / j!)^m, l = n/m, divided by P(Poisson(n) = n):
    m independent Poisson counts, given that they sum to n, are multinomial.
    """
    if flows < 1 or paths < 1:
        return Band(math.nan, math.nan, math.nan)
    mean = flows / paths
    least = -(-flows // paths)
    at_most: list[float] = []
    while not at_most or at_most[-1] < 1 - 1e-9:
        at_most.append(_p_max_at_most(least + len(at_most), flows, paths))
    expected = least + sum(1 - p for p in at_most)
    low, high = (least + int(np.searchsorted(at_most, p - 1e-12)) for p in (0.025, 0.975))
    return Band(expected / mean, low / mean, high / mean)


def _p_max_at_most(k: int, flows: int, paths: int) -> float:
    lam = flows / paths
    base = np.array([math.exp(j * math.log(lam) - lam - math.lgamma(j + 1)) for j in range(k + 1)])
    total = _power(base, paths, flows + 1)
    p_sum = math.exp(flows * math.log(flows) - flows - math.lgamma(flows + 1))
    # Rounding may leave it a little below one for good.
    return 1.0 if k >= flows else min(1.0, float(total[flows]) / p_sum)


def _power(polynomial: NDArray[np.floating[Any]], exponent: int, terms: int) -> NDArray[np.floating[Any]]:
    """polynomial^exponent by squaring, cut to `terms` coefficients."""
    result: NDArray[np.floating[Any]] = np.ones(1)
    while exponent:
        if exponent & 1:
            result = np.convolve(result, polynomial)[:terms]
        polynomial = np.convolve(polynomial, polynomial)[:terms]
        exponent >>= 1
    return result


# Up to here the exact distribution takes milliseconds; from here on Pearson's differs in the third digit.
_EXACT_FLOWS = 24


@cache
def jfi_band(flows: int, paths: int) -> Band:
    """Jain's index of n equal flows hashed independently onto m equal paths: n^2 / (m Q), Q the sum of the squared counts.

    Q's distribution is exact for few flows: P(Q = q) is the coefficient of x^n y^q in (sum over j of x^j y^(j^2) e^-l
    l^j / j!)^m, divided by P(Poisson(n) = n), as in `collision_band`. For many, m Q / n - n is Pearson's statistic of equal
    multinomial cells, chi-square with m - 1 degrees of freedom (K. Pearson, Phil. Mag. 50, 1900), so the index is
    1 / (1 + chi2 / n).
    """
    if flows < 1 or paths < 1:
        return Band(math.nan, math.nan, math.nan)
    if paths == 1:
        return Band(1.0, 1.0, 1.0)
    if flows > _EXACT_FLOWS:
        return _jfi_band_of_many(flows, paths)
    p = _p_squares(flows, paths)
    q = np.flatnonzero(p > 1e-12)
    index, below = flows**2 / (paths * q), np.cumsum(p[q])
    low, high = (float(index[min(int(np.searchsorted(below, at - 1e-9)), len(q) - 1)]) for at in (0.975, 0.025))
    return Band(float((index * p[q]).sum() / p[q].sum()), low, high)


def _jfi_band_of_many(flows: int, paths: int) -> Band:
    from scipy.special import chdtri

    low, high = (1 / (1 + float(chdtri(paths - 1, p)) / flows) for p in (0.025, 0.975))
    # Q's mean is exact; that of its inverse is larger by the square of its relative spread: var(chi2) = 2 (m - 1).
    mean_q = flows + flows * (flows - 1) / paths
    spread = 2 * (paths - 1) * (flows / paths) ** 2 / mean_q**2
    return Band(flows**2 / (paths * mean_q) * (1 + spread), low, high)


def _p_squares(flows: int, paths: int) -> Floats:
    """(n^2 + 1,) probability of each sum of squared counts."""
    lam = flows / paths
    one: Floats = np.zeros((flows + 1, flows**2 + 1))
    for j in range(flows + 1):
        one[j, j * j] = math.exp(j * math.log(lam) - lam - math.lgamma(j + 1))
    total: Floats = np.zeros_like(one)
    total[0, 0] = 1.0
    left = paths
    while left:
        if left & 1:
            total = _cut_product(total, one)
        one = _cut_product(one, one)
        left >>= 1
    p_sum = math.exp(flows * math.log(flows) - flows - math.lgamma(flows + 1))
    p: Floats = np.maximum(total[flows], 0) / p_sum
    return p


def _cut_product(a: Floats, b: Floats) -> Floats:
    """Of two polynomials in x and y, with the terms that both shapes have."""
    shape = (2 * a.shape[0], 2 * a.shape[1])
    product: Floats = np.fft.irfft2(np.fft.rfft2(a, shape) * np.fft.rfft2(b, shape), shape)
    return product[: a.shape[0], : a.shape[1]]
