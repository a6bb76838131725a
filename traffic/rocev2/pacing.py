"""When the next frame may go."""

from traffic.rocev2.dcqcn import Dcqcn


class Pacer:
    """Frames leave at the rate that congestion control allows at the time. ready_ns: not before; 0 at first.

    burst_ns: time not used that may be made up for, so that a late wake-up does not lower the rate.
    """

    def __init__(self, control: Dcqcn, burst_ns: int = 0) -> None:
        self.control = control
        self.ready_ns = 0
        self._burst_ns = burst_ns

    def on_sent(self, now_ns: int, frame_bytes: int) -> None:
        self.control.advance(now_ns)
        self.control.on_sent(frame_bytes)
        since = max(self.ready_ns, now_ns - self._burst_ns)
        self.ready_ns = since + round(frame_bytes * 8e3 / self.control.rate_mbps)
