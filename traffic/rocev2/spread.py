"""By which UDP source port a packet leaves: switches hash on it, so that who changes it spreads a connection over paths."""

from dataclasses import dataclass
from typing import Literal, get_args

from traffic.errors import TrafficError
from traffic.rocev2.queue_pair import FIRST_SOURCE_PORT

Unit = Literal["flow", "flowlet", "packet"]
UNITS: tuple[Unit, ...] = get_args(Unit)
_N_PORTS = (1 << 16) - FIRST_SOURCE_PORT


@dataclass(frozen=True, slots=True)
class Spread:
    """unit: what keeps its port: a flow for ever, a flowlet until the sender paused for longer than gap_ns, a packet by itself;
    entropy: over how many ports they rotate. Raises TrafficError for what cannot work."""

    unit: Unit = "flow"
    entropy: int = 64
    gap_ns: int = 50_000

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise TrafficError(f"spread {self.unit!r}: choose from {', '.join(UNITS)}")
        if not 1 <= self.entropy <= _N_PORTS:
            raise TrafficError(f"entropy {self.entropy}: use 1 to {_N_PORTS} source ports")
        if self.gap_ns < 1:
            raise TrafficError(f"flowlet gap of {self.gap_ns} ns: use 1 or more")


class SourcePorts:
    """Of one queue pair, whose own port is the first."""

    def __init__(self, spread: Spread, first: int) -> None:
        self._unit, self._gap_ns = spread.unit, spread.gap_ns
        n = 1 if spread.unit == "flow" else spread.entropy
        self._ports = [FIRST_SOURCE_PORT + (first - FIRST_SOURCE_PORT + i) % _N_PORTS for i in range(n)]
        self._at = 0
        self._sent_ns: int | None = None

    def of_packet(self, now_ns: int) -> int:
        """Of the packet that is sent now."""
        if self._unit == "flow":
            return self._ports[0]
        if self._sent_ns is not None and (self._unit == "packet" or now_ns - self._sent_ns > self._gap_ns):
            self._at = (self._at + 1) % len(self._ports)
        self._sent_ns = now_ns
        return self._ports[self._at]
