"""What a host's TCP may have under way where links have a delay."""

import pytest

from topologies import topology
from topologies.tcp_buffers import tcp_buffers


@pytest.mark.parametrize(
    ("rate_mbps", "receive", "send"),
    [
        # Twice 8 x 0.1 s of 5 Mbit/s is 1 MB of window, and a buffer is twice its window.
        (5.0, "4096 2000000 6291456", "4096 16384 4194304"),
        (50.0, "4096 20000000 20000000", "4096 16384 20000000"),
        # The kernel's own sizes stay where they are enough, and no buffer is larger than 1 GiB.
        (0.1, "4096 131072 6291456", "4096 16384 4194304"),
        (34_000.0, f"4096 {2**30} {2**30}", f"4096 16384 {2**30}"),
    ],
)
def test_buffers_hold_the_bandwidth_delay_product(rate_mbps: float, receive: str, send: str) -> None:
    """Of the NICs, not of faster scale-up links; of the longest delay."""
    fabric = topology("multi-dc:site=rail-optimised(servers=2;gpus_per_server=2)").build()
    buffers = tcp_buffers(fabric.scaled(rate_scale=400_000 / rate_mbps, time_dilation=100))
    assert buffers == {"net/ipv4/tcp_rmem": receive, "net/ipv4/tcp_wmem": send}
