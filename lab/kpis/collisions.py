"""What chance alone does to flows that are hashed onto equal paths."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Port


@dataclass(frozen=True)
class CollisionBand:
    """A figure of the balance of n equal flows hashed independently onto m equal paths: its mean, and the central 95 %."""

    expected: float
    low: float
    high: float

    def explains(self, value: float) -> bool:
        """Whether a measured value is what chance gives: one flow on four links is no failure of the hash."""
        return math.isnan(value) or self.low - 1e-9 <= value <= self.high + 1e-9


@cache
def collision_band(flows: int, paths: int) -> CollisionBand:
    """Of the max-mean ratio, from the exact distribution of the largest of m multinomial counts.

    P(max <= k) is the coefficient of x^n in (sum over j <= k of x^j e^-l l^j / j!)^m, l = n/m, divided by P(Poisson(n) = n):
    m independent Poisson counts, given that they sum to n, are multinomial.
    """
    if flows < 1 or paths < 1:
        return CollisionBand(math.nan, math.nan, math.nan)
    mean = flows / paths
    least = -(-flows // paths)
    at_most: list[float] = []
    while not at_most or at_most[-1] < 1 - 1e-9:
        at_most.append(_p_max_at_most(least + len(at_most), flows, paths))
    expected = least + sum(1 - p for p in at_most)
    low, high = (least + int(np.searchsorted(at_most, p - 1e-12)) for p in (0.025, 0.975))
    return CollisionBand(expected / mean, low / mean, high / mean)


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


def flows_per_group(paths: Iterable[Sequence[Port]], groups: Mapping[str, Iterable[Port]]) -> dict[str, int]:
    """switch -> flows that leave it through its parallel links, for `collision_band`."""
    group_of = {port.intf: switch for switch, ports in groups.items() for port in ports}
    count: dict[str, int] = defaultdict(int)
    for path in paths:
        for port in path:
            if port.intf in group_of:
                count[group_of[port.intf]] += 1
    return dict(count)
