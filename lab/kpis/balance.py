"""How evenly load is spread over parallel links."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from topologies.fabric import Fabric, Port
from topologies.tiers import tiers


def mmr(loads: Sequence[float]) -> float:
    """Max-mean ratio over parallel links: 1.0 is perfect balance. NaN without links or load."""
    mean = fmean(loads) if loads else 0.0
    return max(loads) / mean if mean > 0 else math.nan


def jfi(loads: Sequence[float]) -> float:
    """Jain's fairness index over parallel links, (sum x)^2 / (N sum x^2): 1/N .. 1. NaN without links or load."""
    x = np.asarray(loads, dtype=float)
    squares = float((x * x).sum())
    return float(x.sum()) ** 2 / (len(x) * squares) if squares > 0 else math.nan


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
