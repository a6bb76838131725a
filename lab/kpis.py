"""Key figures, by the names and formulas of the IETF BMWG drafts on AI fabrics (draft-calabria-bmwg-ai-fabric-training-bench,
work in progress) and of nccl-tests. Pure functions of numbers.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Fabric, Port
from topologies.tiers import tiers

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]


def jct_ratio(measured_s: float, roofline_s: float) -> float:
    """Measured / roofline: <= 1.05 excellent, > 1.15 significant overhead (the draft's reference values)."""
    return measured_s / roofline_s if roofline_s > 0 else math.nan


def algbw_gbytes_s(size_bytes: float, time_s: float) -> float:
    """S / t, GB = 1e9."""
    return size_bytes / time_s / 1e9 if time_s > 0 else math.nan


def mmr(loads: Sequence[float]) -> float:
    """Max-mean ratio over parallel links: 1.0 is perfect balance. NaN without links or load."""
    mean = fmean(loads) if loads else 0.0
    return max(loads) / mean if mean > 0 else math.nan


def jfi(loads: Sequence[float]) -> float:
    """Jain's fairness index over parallel links, (sum x)^2 / (N sum x^2): 1/N .. 1. NaN without links or load."""
    x = np.asarray(loads, dtype=float)
    squares = float((x * x).sum())
    return float(x.sum()) ** 2 / (len(x) * squares) if squares > 0 else math.nan


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


# -- balance over parallel links ------------------------------------------------------------------------------------


def parallel_uplinks(fabric: Fabric) -> dict[str, tuple[Port, ...]]:
    """The links among which each switch's routing chooses: its egress ports towards the next tier, where it has two or more.

    A switch's tier is its distance from the nearest host; fabrics without tiers (a dragonfly) have no such groups.
    """
    tier = tiers(fabric)
    groups: dict[str, tuple[Port, ...]] = {}
    for switch in fabric.switches:
        here = tier.get(switch.name, 0)
        up = tuple(own for own, far, _ in fabric.neighbours(switch.name) if here and tier.get(far.node, 0) > here)
        if len(up) > 1:
            groups[switch.name] = up
    return groups


@dataclass(frozen=True)
class Balance:
    """The worst group of parallel links: its switch, max-mean ratio and Jain index. NaN and '' where no group carried load."""

    mmr: float
    jfi: float
    switch: str


def balance(groups: Mapping[str, Iterable[Port]], load_by_intf: Mapping[str, float], at_least: float = 0.0) -> Balance:
    """Over groups that carried more than `at_least` (bytes): below it, ACKs of other flows would be judged."""
    worst = Balance(math.nan, math.nan, "")
    for switch, ports in groups.items():
        loads = [load_by_intf.get(port.intf, 0.0) for port in ports]
        ratio = mmr(loads)
        if sum(loads) > at_least and not ratio <= worst.mmr:
            worst = Balance(ratio, jfi(loads), switch)
    return worst


# -- goodput of hosts and flows -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Goodput:
    """Payload rates, hardware units. sender_mean, sender_worst: shares of their rate that sending interfaces reached, each
    until its last byte had arrived; flow_*: of single flows; all_mbps: of all together, until the last one was done;
    sustained: mean share of the senders' NICs that arrived while all of them were sending, the accepted load of the network
    literature; nan where that was too short to be seen."""

    sender_mean: float
    sender_worst: float
    flow_mean_mbps: float
    flow_min_mbps: float
    flow_max_mbps: float
    all_mbps: float
    sustained: float = math.nan


def sender_shares(egress: Ints, n_bytes: Floats, finished_s: Floats, mbps: Floats) -> Floats:
    """(senders,) of each interface that sends: a host's NIC, or its scale-up interface. egress: (sends,) interfaces; n_bytes,
    finished_s: (sends,); mbps: (interfaces,)."""
    n = len(mbps)
    sent, ended_s = np.bincount(egress, n_bytes, n), np.zeros(n)
    np.maximum.at(ended_s, egress, finished_s)
    sends = sent > 0
    shares: Floats = sent[sends] * 8 / ended_s[sends] / (mbps[sends] * 1e6)
    return shares


def goodput(egress: Ints, n_bytes: Floats, finished_s: Floats, mbps: Floats) -> Goodput:
    """Over iterations of flows that begin together: finished_s (iterations, flows); the others as in `sender_shares`."""
    shares = np.concatenate([sender_shares(egress, n_bytes, ended_s, mbps) for ended_s in finished_s])
    flow_mbps = n_bytes * 8e-6 / finished_s
    return Goodput(
        sender_mean=float(shares.mean()),
        sender_worst=float(shares.min()),
        flow_mean_mbps=float(flow_mbps.mean()),
        flow_min_mbps=float(flow_mbps.min()),
        flow_max_mbps=float(flow_mbps.max()),
        all_mbps=float(n_bytes.sum() * 8e-6 / finished_s.max(axis=1).mean()),
    )


def first_done_s(src: Ints, finished_s: Floats) -> float:
    """When the first of the senders had all its bytes delivered. src, finished_s: (sends,)."""
    ended_s = np.zeros(int(src.max()) + 1)
    np.maximum.at(ended_s, src, finished_s)
    return float(ended_s[np.unique(src)].min())


def flows_per_group(paths: Iterable[Sequence[Port]], groups: Mapping[str, Iterable[Port]]) -> dict[str, int]:
    """switch -> flows that leave it through its parallel links, for `chance.collision_band`."""
    group_of = {port.intf: switch for switch, ports in groups.items() for port in ports}
    count: dict[str, int] = defaultdict(int)
    for path in paths:
        for port in path:
            if port.intf in group_of:
                count[group_of[port.intf]] += 1
    return dict(count)


def covered(start_s: Floats, end_s: Floats) -> list[tuple[float, float]]:
    """The times that one interval at least covers, in order: their union. start_s, end_s: (intervals,)."""
    order = np.argsort(start_s, kind="stable")
    start_s, reach_s = start_s[order], np.maximum.accumulate(end_s[order])
    first = np.flatnonzero(np.append(True, start_s[1:] > reach_s[:-1])[: len(start_s)])
    last = np.append(first[1:], len(start_s))[: len(first)] - 1
    return list(zip(start_s[first].tolist(), reach_s[last].tolist(), strict=True))
