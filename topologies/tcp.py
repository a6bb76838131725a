"""How the hosts' TCP sends, whoever opens its connections. Data only."""

from dataclasses import dataclass

from topologies.spread import BY_FLOW, Spread


@dataclass(frozen=True, slots=True)
class Tcp:
    """congestion_control: as the kernel calls it; spread: over the equal paths of the scale-out network."""

    congestion_control: str = "cubic"
    spread: Spread = BY_FLOW


DEFAULT_TCP = Tcp()
