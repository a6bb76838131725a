"""How far a ratio of mean times can be trusted, from what iterations scattered.

Student's t on the logarithm of the ratio, with Welch's degrees of freedom and the delta method for the variance of a mean's
logarithm: from means, deviations and counts alone, so that it serves where only these were printed. Bootstrapping three
iterations, the usual number here, would resample ten different triples and no more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.special import stdtrit

CONFIDENCE = 0.95
METHOD = "95 % intervals: Student's t on the log of the ratio of mean times over iterations (Welch)"


@dataclass(frozen=True)
class Sample:
    """n values of one quantity: their mean, and standard deviation with n - 1 below; nan with fewer than two."""

    mean: float
    std: float
    n: int

    @property
    def log_variance(self) -> float:
        """Of the logarithm of the mean."""
        return (self.std / self.mean) ** 2 / self.n


def sample(values: Sequence[float]) -> Sample:
    """All nan without values."""
    mean = fmean(values) if values else math.nan
    return Sample(mean, stdev(values) if len(values) > 1 else math.nan, len(values))


def printed_sample(mean: float, cv: float, n: int) -> Sample:
    """From the coefficient of variation that nccl-tests prints, whose deviation has n below."""
    return Sample(mean, mean * cv * math.sqrt(n / (n - 1)) if n > 1 else math.nan, n)


def ratio_interval(above: Sample, below: Sample | None = None) -> tuple[float, float] | None:
    """The interval of above.mean / below.mean; below None = of above.mean alone, over something that does not scatter. None
    where a side has fewer than two values: nothing can be estimated from one."""
    sides = [above] if below is None else [above, below]
    if any(side.n < 2 or not side.mean > 0 or math.isnan(side.std) for side in sides):
        return None
    ratio = above.mean / (1.0 if below is None else below.mean)
    variance = sum(side.log_variance for side in sides)
    if variance == 0:
        return ratio, ratio
    freedom = variance**2 / sum(side.log_variance**2 / (side.n - 1) for side in sides)
    spread = math.exp(float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(variance))
    return ratio / spread, ratio * spread
