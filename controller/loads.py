"""How busy links are, from two readings of the switches' port counters."""

from collections.abc import Mapping

from topologies.fabric import Fabric

# interface -> bytes that it has sent so far
SentBytes = Mapping[str, int]
# egress interface -> share of its link's rate in use, 0 to about 1
Loads = Mapping[str, float]


def loads(fabric: Fabric, before: SentBytes, after: SentBytes, elapsed_s: float) -> Loads:
    """For the interfaces in both readings; a counter that went back was reset, and says nothing."""
    return {
        intf: (after[intf] - before[intf]) * 8 / 1e6 / elapsed_s / fabric.link_of(intf).rate_mbps
        for intf in before.keys() & after.keys()
        if after[intf] >= before[intf]
    }
