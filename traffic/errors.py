"""What the traffic package refuses, and what may go wrong while it sends."""

from topologies.errors import EmulationError, Refused


class TrafficError(Refused):
    """A schedule that is wrong, or one that cannot be made as asked."""


class TransportError(EmulationError):
    """Connections that could not be made or did not last; the text names the hosts or the pair."""


class ReplayStalledError(EmulationError):
    """No byte moved for the deadline while sends were outstanding; the text names some of them."""
