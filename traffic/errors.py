"""What the traffic package refuses."""

from topologies.errors import Refused


class TrafficError(Refused):
    """A schedule that is wrong, or one that cannot be made as asked."""
