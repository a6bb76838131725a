"""TCP's least timeout against drained queues worked out by hand."""

from topologies.shaping import shape
from topologies.tcp_timeout import least_timeout_ms


def test_slow_links_have_a_longer_one() -> None:
    """32 frames of 1514 bytes at 1 Mbit/s take 387.584 ms, and a path has two such queues."""
    assert least_timeout_ms([shape(1, 1500), shape(100, 1500)]) == 776


def test_else_it_is_the_kernels() -> None:
    """32 frames of 9014 bytes at 25 Mbit/s: 92.3 ms, twice 184.6."""
    assert least_timeout_ms([shape(25, 9000)]) == 200
    assert least_timeout_ms([]) == 200
