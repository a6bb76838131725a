"""When the next frame may go."""


class Pacer:
    """Frames leave at a rate that may change between them. `ready_ns`: not before; 0 at first."""

    def __init__(self, burst_ns: int = 0) -> None:
        """burst_ns: time not used that may be made up for, so that a late wake-up does not lower the rate."""
        self.ready_ns = 0
        self._burst_ns = burst_ns

    def on_sent(self, now_ns: int, frame_bytes: int, rate_mbps: float) -> None:
        self.ready_ns = max(self.ready_ns, now_ns - self._burst_ns) + round(frame_bytes * 8e3 / rate_mbps)
