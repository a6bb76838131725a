"""How much room the switch's socket gets."""

import pytest

from topologies.ovs_sockets import send_buffer_bytes


@pytest.mark.parametrize(
    ("queues_bytes", "asked_bytes"),
    [
        (0, 64 << 20),
        # 48 ports of 256 jumbo frames.
        (48 * 256 * 9014, 48 * 256 * 9014),
        # The kernel doubles it, and counts in 31 bits.
        (4 << 30, (1 << 30) - 1),
    ],
)
def test_all_queues_fit_and_the_kernel_s_limit_holds(queues_bytes: int, asked_bytes: int) -> None:
    assert send_buffer_bytes(queues_bytes) == asked_bytes
