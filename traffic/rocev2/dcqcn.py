"""DCQCN at the sender (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, section 3).

    at a CNP             target = rate, rate *= 1 - alpha / 2, alpha = (1 - g) alpha + g, both counts = 0
    no CNP for a while   alpha = (1 - g) alpha
    timer or byte count  fast recovery (both counts below F), hyper increase (both above) or additive increase (else):
                         target += 0, i R_HAI or R_AI, then rate = (target + rate) / 2

i is by how much the smaller count is above F, as in QCN, which DCQCN took its increase from. Times are looked at when the
rate is asked for: there is no timer to serve.

Where the constants come from. Checked in programs, not in the paper itself: [A] its first author's simulator (bobzhuyb/ns3-rdma:
mix/config.txt, qbb-net-device.cc), [B] HPCC's "dcqcn_paper" (alibaba-edu/High-Precision-Congestion-Control, simulation/run.py),
[C] htsim's dcqcn.cpp.

    CNP interval 50 us   [A] [B] [C]           byte counter 10 MB              [C]; [A] has 300 kB
    alpha timer  55 us   [A] [C]; [B] has 50   F = 5                           [A] [C]
    rate timer   55 us   [B] [C]; [A] has 60   R_AI, R_HAI = 40, 200 Mbit/s    [A], which simulates 40 Gbit/s
    g = 1/256            [A] [B] [C]           least rate 100 Mbit/s           [A]
    first alpha 1        [C]; [A] has 0.5

[A] and [B] update alpha before the cut and the paper after it, which at g = 1/256 is the same within 0.2 %. [B] and [C] make the
increases proportional to the line rate; so are the defaults here, which makes [A]'s at 40 Gbit/s.
"""

from dataclasses import dataclass
from typing import Any

from traffic.errors import TrafficError

# Closer to the line rate than this, a sender is not held back any more: halving the distance would never end.
_RELEASE = 0.999
# Of the line rate that the published rates are for.
_PUBLISHED_AT_MBPS = 40_000
_ADDITIVE_INCREASE, _HYPER_INCREASE, _MIN_RATE = (mbps / _PUBLISHED_AT_MBPS for mbps in (40, 200, 100))


@dataclass(frozen=True, slots=True)
class DcqcnParameters:
    """Of a sender, but for the receiver's cnp_interval_ns: at most one notification of a queue pair in that time.

    All are of hardware: who emulates a slower link divides rates and bytes and stretches times (`at_line_rate` has the defaults).
    Raises TrafficError for what cannot work.
    """

    line_rate_mbps: float
    additive_increase_mbps: float
    hyper_increase_mbps: float
    min_rate_mbps: float
    gain: float = 1 / 256
    alpha_timer_ns: int = 55_000
    rate_timer_ns: int = 55_000
    byte_counter: int = 10_000_000
    fast_recovery_steps: int = 5
    cnp_interval_ns: int = 50_000

    @classmethod
    def at_line_rate(cls, line_rate_mbps: float, **others: Any) -> "DcqcnParameters":
        """The published constants, but `others`; those that are rates in proportion to the line rate."""
        shares = {
            "additive_increase_mbps": _ADDITIVE_INCREASE,
            "hyper_increase_mbps": _HYPER_INCREASE,
            "min_rate_mbps": _MIN_RATE,
        }
        return cls(line_rate_mbps, **{name: share * line_rate_mbps for name, share in shares.items()} | others)

    def __post_init__(self) -> None:
        if not 0 < self.gain <= 1:
            raise TrafficError(f"DCQCN gain {self.gain:g}: use more than 0 and at most 1")
        if not 0 < self.min_rate_mbps <= self.line_rate_mbps:
            raise TrafficError(
                f"DCQCN least rate {self.min_rate_mbps:g} Mbit/s: use more than 0 and at most the line rate, "
                f"{self.line_rate_mbps:g} Mbit/s"
            )
        for what, value in (
            ("alpha timer in ns", self.alpha_timer_ns),
            ("rate timer in ns", self.rate_timer_ns),
            ("byte counter", self.byte_counter),
            ("fast recovery steps", self.fast_recovery_steps),
            ("CNP interval in ns", self.cnp_interval_ns),
        ):
            if value < 1:
                raise TrafficError(f"DCQCN {what} {value}: use 1 or more")
        if min(self.additive_increase_mbps, self.hyper_increase_mbps) <= 0:
            raise TrafficError("DCQCN increases: use more than 0 Mbit/s")


class Dcqcn:
    """rate_mbps: what the connection may send now; alpha: the estimate of congestion, 1 at first."""

    def __init__(self, parameters: DcqcnParameters) -> None:
        self._p = parameters
        self.rate_mbps = self.target_mbps = parameters.line_rate_mbps
        self.alpha = 1.0
        self._limited = False
        self._timer_count = self._byte_count = 0
        self._alpha_at_ns = self._timer_at_ns = 0
        self._bytes = 0

    def on_cnp(self, now_ns: int) -> None:
        self.advance(now_ns)
        p = self._p
        self.target_mbps = self.rate_mbps
        self.rate_mbps = max(p.min_rate_mbps, self.rate_mbps * (1 - self.alpha / 2))
        self.alpha = (1 - p.gain) * self.alpha + p.gain
        self._limited = True
        self._timer_count = self._byte_count = self._bytes = 0
        self._alpha_at_ns, self._timer_at_ns = now_ns + p.alpha_timer_ns, now_ns + p.rate_timer_ns

    def on_sent(self, n_bytes: int) -> None:
        if not self._limited:
            return
        self._bytes += n_bytes
        while self._limited and self._bytes >= self._p.byte_counter:
            self._bytes -= self._p.byte_counter
            self._byte_count += 1
            self._increase()

    def advance(self, now_ns: int) -> None:
        """Everything that the timers did until now."""
        p = self._p
        while self._limited and self._timer_at_ns <= now_ns:
            self._timer_at_ns += p.rate_timer_ns
            self._timer_count += 1
            self._increase()
        if self._alpha_at_ns and self._alpha_at_ns <= now_ns:
            steps = (now_ns - self._alpha_at_ns) // p.alpha_timer_ns + 1
            self.alpha *= (1 - p.gain) ** steps
            self._alpha_at_ns += steps * p.alpha_timer_ns

    def _increase(self) -> None:
        p = self._p
        low, high = sorted((self._timer_count, self._byte_count))
        if high >= p.fast_recovery_steps:
            above = low - p.fast_recovery_steps
            self.target_mbps += above * p.hyper_increase_mbps if above > 0 else p.additive_increase_mbps
            self.target_mbps = min(self.target_mbps, p.line_rate_mbps)
        self.rate_mbps = (self.target_mbps + self.rate_mbps) / 2
        if self.rate_mbps >= _RELEASE * p.line_rate_mbps:
            self.rate_mbps = self.target_mbps = p.line_rate_mbps
            self._limited = False
