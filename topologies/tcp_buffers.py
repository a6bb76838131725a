"""TCP's buffers where links have a delay: large enough that none of them is the bottleneck.

A receiver first offers 64 kB, and the kernel enlarges its buffer only for one who reads more than that in a round trip
(tcp_rcv_space_adjust). A message of about that size then waits for a second round trip at every step, whatever the congestion
window: an all-reduce between two sites, 52 kB a message, 200 ms there and back, took 1.86 of its predicted time (measured).
So a host's buffers hold what its link can have under way, as hosts on long fat networks are set up.
"""

import math

from topologies.fabric import Fabric
from topologies.shaping import LINKS_PER_ROUND_TRIP

# The kernel's own, which are never made smaller: least, first and largest size (Documentation/networking/ip-sysctl).
_LEAST, _RECEIVE, _RECEIVE_MOST, _SEND, _SEND_MOST = 4096, 131_072, 6_291_456, 16_384, 4_194_304
# One round trip under way, as much again in the queues on it.
_ROUND_TRIPS = 2
# Half of a receive buffer is the window that is offered, the other half the kernel's own space (tcp_adv_win_scale = 1).
_BUFFER_PER_WINDOW = 2
_MOST = 1 << 30


def tcp_buffers(fabric: Fabric) -> dict[str, str]:
    """Sysctls of a host's namespace. Every host has those of the fastest NIC and the longest delay."""
    links = [link for link in fabric.links if link.kind != "scale-up"]
    nics = (link.rate_mbps for link in links if any(fabric.node(port.node).is_host for port in link.ports))
    round_trip_s = LINKS_PER_ROUND_TRIP * max(link.delay_us for link in links) * 1e-6
    window_bytes = _ROUND_TRIPS * max(nics) * 1e6 / 8 * round_trip_s
    n_bytes = min(math.ceil(_BUFFER_PER_WINDOW * window_bytes), _MOST)
    return {
        "net/ipv4/tcp_rmem": f"{_LEAST} {max(_RECEIVE, n_bytes)} {max(_RECEIVE_MOST, n_bytes)}",
        "net/ipv4/tcp_wmem": f"{_LEAST} {_SEND} {max(_SEND_MOST, n_bytes)}",
    }
