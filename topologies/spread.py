"""What keeps its source port on the wire, and so its path: switches hash on it, and who changes it spreads a connection."""

from dataclasses import dataclass
from typing import Literal, get_args

from topologies.errors import TopologyError

Unit = Literal["flow", "flowlet", "packet"]
UNITS: tuple[Unit, ...] = get_args(Unit)
# Of UDP source ports, those that Linux uses for RoCEv2: 49152 and up.
MAX_ENTROPY = 1 << 14


@dataclass(frozen=True, slots=True)
class Spread:
    """unit: what keeps its port: a flow for ever, a flowlet until the sender paused for longer than gap_ns, a packet by itself;
    entropy: over how many ports they rotate. Raises TopologyError for what cannot work."""

    unit: Unit = "flow"
    entropy: int = 64
    gap_ns: int = 50_000

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise TopologyError(f"spread {self.unit!r}: choose from {', '.join(UNITS)}")
        if not 1 <= self.entropy <= MAX_ENTROPY:
            raise TopologyError(f"entropy {self.entropy}: use 1 to {MAX_ENTROPY} source ports")
        if self.gap_ns < 1:
            raise TopologyError(f"flowlet gap of {self.gap_ns} ns: use 1 or more")


BY_FLOW = Spread()
