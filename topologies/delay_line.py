"""A delay line: when a frame that came now may leave, and how late those left that did. Times in ns of one clock."""

from random import Random
from typing import NamedTuple

# Lateness is counted in steps of 2^14 ns (16 us) up to 67 ms; beyond that it is more than 67 ms.
_STEP_BITS, _STEPS = 14, 4096


class DelayLine:
    """One direction of a cable: each frame leaves delay_ns, more or less by up to jitter_ns, after it came.

    The jitter is uniform and repeats with its seed. A cable keeps the order of its frames: one that drew less than its
    predecessor leaves with it, so frames that come closer together than the jitter are delayed more on average.
    """

    def __init__(self, delay_ns: int, jitter_ns: int, seed: int) -> None:
        self._delay_ns, self._jitter_ns = delay_ns, jitter_ns
        self._random = Random(seed)
        self._last_due_ns = 0

    def due_ns(self, came_ns: int) -> int:
        due_ns = came_ns + self._delay_ns
        if self._jitter_ns:
            due_ns += self._random.randint(-self._jitter_ns, self._jitter_ns)
        self._last_due_ns = max(due_ns, self._last_due_ns)
        return self._last_due_ns


class Report(NamedTuple):
    """Of all lines together since the one before: frames that left, those lost for want of room, the time covered and the
    CPU time used, and how much later than due the frames left: 99 % of them at most late_p99_us."""

    frames: int
    lost: int
    seconds: float
    cpu_s: float
    late_p99_us: float

    @property
    def frames_per_s(self) -> float:
        return self.frames / self.seconds


class Lateness:
    """A histogram of how late frames left."""

    def __init__(self) -> None:
        self.frames = 0
        self._counts = [0] * _STEPS

    def add(self, late_ns: int) -> None:
        self.frames += 1
        self._counts[min(late_ns >> _STEP_BITS, _STEPS - 1)] += 1

    def percentile_us(self, percent: float) -> float:
        """The upper edge of the step in which the nearest rank falls; 0 without frames."""
        rank = self.frames * percent / 100
        seen = 0
        for step, count in enumerate(self._counts):
            seen += count
            if count and seen >= rank:
                return (step + 1 << _STEP_BITS) / 1e3
        return 0.0
