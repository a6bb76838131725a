"""What happened to packets: rates of drops, repetitions, reordering and marks. Counts are the emulator's, and so are seconds:
a packet of the hardware is not one here, so that a rate per second says nothing of hardware, and shares do.
"""

import math


def drop_ppm(dropped: int, sent: int) -> float:
    """Frames dropped per million sent. NaN where none was."""
    return 1e6 * dropped / sent if sent else math.nan


def rate_per_s(count: int, seconds: float) -> float:
    """Retransmissions, packets out of order: per second of the iterations. NaN without time."""
    return count / seconds if seconds > 0 else math.nan


def ecn_marking_percent(marked: int, seen: int) -> float:
    """Frames marked CE / frames that came to links that mark. NaN where no link does."""
    return 100 * marked / seen if seen else math.nan
