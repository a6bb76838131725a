"""TCP's least timeout against drained queues worked out by hand."""

from topologies.shaping import shape
from topologies.tcp_timeout import full_queues_ms, least_timeout_ms


def test_slow_links_have_a_longer_one() -> None:
    """32 frames of 1514 bytes at 1 Mbit/s take 387.584 ms, and a path has two such queues."""
    assert least_timeout_ms([shape(1, 1500), shape(100, 1500)]) == 776


def test_else_it_is_the_kernels() -> None:
    """32 frames of 9014 bytes at 25 Mbit/s: 92.3 ms, twice 184.6."""
    assert least_timeout_ms([shape(25, 9000)]) == 200
    assert least_timeout_ms([]) == 200


def test_full_queues_hold_a_packet_up_for_all_of_their_frames() -> None:
    """256 frames of 9014 bytes at 50 and 25 Mbit/s: 369.2 and 738.4 ms, twice 1476.9; eight frames at 1 Mbit/s: twice 576.9."""
    assert full_queues_ms([shape(50, 9000), shape(25, 9000)]) == 1477
    assert full_queues_ms([shape(1, 9000, queue_frames=8)]) == 1154
    assert least_timeout_ms([shape(1, 9000, queue_frames=8)]) == 1154
