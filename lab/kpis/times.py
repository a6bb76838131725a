"""Completion times, the bandwidths that follow from them, and their statistics over iterations, as nccl-tests takes them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

import numpy as np

from lab.kpis.arrays import Floats


def jct_ratio(measured_s: float, roofline_s: float) -> float:
    """Measured / roofline: <= 1.05 excellent, > 1.15 significant overhead (the draft's reference values)."""
    return measured_s / roofline_s if roofline_s > 0 else math.nan


def algbw_gbytes_s(size_bytes: float, time_s: float) -> float:
    """S / t, GB = 1e9."""
    return size_bytes / time_s / 1e9 if time_s > 0 else math.nan


def cv(values: Sequence[float]) -> float:
    """Coefficient of variation: population standard deviation / mean, as nccl-tests' i_cv. NaN without values."""
    mean = fmean(values) if values else 0.0
    return pstdev(values) / mean if mean > 0 else math.nan


def percentile(values: Sequence[float], percent: int) -> float:
    """Nearest rank, as nccl-tests' percentileIndex: the ceil(n p / 100)-th smallest. NaN without values."""
    if not values:
        return math.nan
    n = len(values)
    return sorted(values)[min(n - 1, max(0, (n * percent + 99) // 100 - 1))]


@dataclass(frozen=True)
class IterationStats:
    """Over a row's iterations, in the unit of what was given."""

    mean: float
    min: float
    max: float
    p50: float
    p95: float
    p99: float
    std: float
    cv: float


def iteration_stats(times: Sequence[float]) -> IterationStats:
    """nccl-tests' computeIterStats; its p50 is the upper median. All NaN without times."""
    if not times:
        return IterationStats(*[math.nan] * 8)
    p50 = sorted(times)[len(times) // 2]
    return IterationStats(
        mean=fmean(times), min=min(times), max=max(times), p50=p50, p95=percentile(times, 95), p99=percentile(times, 99),
        std=pstdev(times), cv=cv(times),
    )  # fmt: skip


def covered(start_s: Floats, end_s: Floats) -> list[tuple[float, float]]:
    """The times that one interval at least covers, in order: their union. start_s, end_s: (intervals,)."""
    order = np.argsort(start_s, kind="stable")
    start_s, reach_s = start_s[order], np.maximum.accumulate(end_s[order])
    first = np.flatnonzero(np.append(True, start_s[1:] > reach_s[:-1])[: len(start_s)])
    last = np.append(first[1:], len(start_s))[: len(first)] - 1
    return list(zip(start_s[first].tolist(), reach_s[last].tolist(), strict=True))


def busbw_gbit_s(size_bytes: float, algo_factor: float, time_s: float) -> float:
    """The draft's unit per accelerator: 8 S x algo_factor / t / 1e9. algo_factor: the collective's, whatever the algorithm."""
    return 8 * algbw_gbytes_s(size_bytes, time_s) * algo_factor


def busbw_efficiency_percent(busbw_gbit: float, nic_gbit: float) -> float:
    """BusBW / the NIC's line rate; the draft's reference is 90 % or more. Above 100 % with in-network reduction."""
    return 100 * busbw_gbit / nic_gbit if nic_gbit > 0 else math.nan


def interference_factor(contended_s: float, isolated_s: float) -> float:
    """JCT with another job beside it / JCT alone."""
    return contended_s / isolated_s if isolated_s > 0 else math.nan


def overlap_fraction(jct_s: float, computing_s: float, communication_s: float) -> float:
    """1 - (JCT - C_total) / communication time: 1 = all of it hidden behind computing, 0 = none."""
    return 1 - (jct_s - computing_s) / communication_s if communication_s > 0 else math.nan
