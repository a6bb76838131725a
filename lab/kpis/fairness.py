"""What chance alone does to Jain's index of parallel links."""

import math
from functools import cache

import numpy as np

from lab.kpis.arrays import Floats
from lab.kpis.collisions import CollisionBand

# Up to here the exact distribution takes milliseconds; from here on Pearson's differs in the third digit.
_EXACT_FLOWS = 24


@cache
def jfi_band(flows: int, paths: int) -> CollisionBand:
    """Jain's index of n equal flows hashed independently onto m equal paths: n^2 / (m Q), Q the sum of the squared counts.

    Q's distribution is exact for few flows: P(Q = q) is the coefficient of x^n y^q in (sum over j of x^j y^(j^2) e^-l
    l^j / j!)^m, divided by P(Poisson(n) = n), as in `collision_band`. For many, m Q / n - n is Pearson's statistic of equal
    multinomial cells, chi-square with m - 1 degrees of freedom (K. Pearson, Phil. Mag. 50, 1900), so the index is
    1 / (1 + chi2 / n).
    """
    if flows < 1 or paths < 1:
        return CollisionBand(math.nan, math.nan, math.nan)
    if paths == 1:
        return CollisionBand(1.0, 1.0, 1.0)
    if flows > _EXACT_FLOWS:
        return _jfi_band_of_many(flows, paths)
    p = _p_squares(flows, paths)
    q = np.flatnonzero(p > 1e-12)
    index, below = flows**2 / (paths * q), np.cumsum(p[q])
    low, high = (float(index[min(int(np.searchsorted(below, at - 1e-9)), len(q) - 1)]) for at in (0.975, 0.025))
    return CollisionBand(float((index * p[q]).sum() / p[q].sum()), low, high)


def _jfi_band_of_many(flows: int, paths: int) -> CollisionBand:
    from scipy.special import chdtri

    low, high = (1 / (1 + float(chdtri(paths - 1, p)) / flows) for p in (0.025, 0.975))
    # Q's mean is exact; that of its inverse is larger by the square of its relative spread: var(chi2) = 2 (m - 1).
    mean_q = flows + flows * (flows - 1) / paths
    spread = 2 * (paths - 1) * (flows / paths) ** 2 / mean_q**2
    return CollisionBand(flows**2 / (paths * mean_q) * (1 + spread), low, high)


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
