"""By which UDP source port a packet leaves (`topologies.spread`)."""

from topologies.spread import MAX_ENTROPY, Spread
from traffic.rocev2.queue_pair import FIRST_SOURCE_PORT


def source_ports(first: int, entropy: int) -> list[int]:
    """Those of one queue pair, whose own is the first: they stay among RoCEv2's."""
    return [FIRST_SOURCE_PORT + (first - FIRST_SOURCE_PORT + i) % MAX_ENTROPY for i in range(entropy)]


class SourcePorts:
    """Of one queue pair, whose own port is the first."""

    def __init__(self, spread: Spread, first: int) -> None:
        self._unit, self._gap_ns = spread.unit, spread.gap_ns
        self._ports = source_ports(first, 1 if spread.unit == "flow" else spread.entropy)
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
