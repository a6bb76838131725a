"""What a failure under load cost: the drafts' convergence figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from lab.kpis.times import percentile


@dataclass(frozen=True)
class Convergence:
    """loss_duration_s: of the offered rate, that the lost packets stand for (RFC 6413's loss-derived convergence time);
    overhead_s: of the failure's iteration over the steady mean; zero_impact: within the steady iterations' P99."""

    packets_lost: int
    loss_duration_s: float
    steady_s: float
    failure_s: float
    overhead_s: float
    zero_impact: bool


def convergence(
    steady_s: Sequence[float], failure_s: float, *, packets_lost: int, offered_packets_s: float
) -> Convergence:
    """steady_s: JCT of iterations before the failure, one or more; failure_s: of the one in which it happened; times and rate in
    the same clock. Raises ValueError without a steady iteration."""
    if not steady_s:
        raise ValueError("no steady iteration to compare with")
    mean = sum(steady_s) / len(steady_s)
    duration = packets_lost / offered_packets_s if offered_packets_s > 0 else 0.0
    return Convergence(
        packets_lost, duration, mean, failure_s, failure_s - mean, failure_s <= percentile(list(steady_s), 99)
    )
