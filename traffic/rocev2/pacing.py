"""When the next frame may go."""

from typing import Protocol


class Control(Protocol):
    """What says how fast a queue pair may send: DCQCN, or a rate that was asked for."""

    @property
    def rate_mbps(self) -> float: ...

    def on_cnp(self, now_ns: int) -> None: ...

    def on_sent(self, n_bytes: int) -> None: ...

    def advance(self, now_ns: int) -> None: ...


class FixedRate:
    """Whatever the network says."""

    def __init__(self, rate_mbps: float) -> None:
        self.rate_mbps = rate_mbps

    def on_cnp(self, now_ns: int) -> None:
        pass

    def on_sent(self, n_bytes: int) -> None:
        pass

    def advance(self, now_ns: int) -> None:
        pass


class Pacer:
    """Frames leave at the rate that its control allows at the time. ready_ns: not before; 0 at first.

    burst_ns: time not used that may be made up for, so that a late wake-up does not lower the rate. asked_ns, took_ns: of the
    frames that followed another one with something to send all the time: what they should take, and what they took.
    """

    def __init__(self, control: Control, burst_ns: int = 0) -> None:
        self.control = control
        self.ready_ns = 0
        self.asked_ns = self.took_ns = 0
        self._burst_ns = burst_ns
        # When the last frame went, and how long it takes; None after a pause.
        self._last: tuple[int, int] | None = None

    def on_sent(self, now_ns: int, frame_bytes: int) -> None:
        self.control.advance(now_ns)
        self.control.on_sent(frame_bytes)
        frame_ns = round(frame_bytes * 8e3 / self.control.rate_mbps)
        if self._last:
            self.took_ns += now_ns - self._last[0]
            self.asked_ns += self._last[1]
        # Only who was held can be late: after a pause there is nothing to make up for.
        since = max(self.ready_ns, now_ns - self._burst_ns if self._last else now_ns)
        self._last = now_ns, frame_ns
        self.ready_ns = since + frame_ns

    def pause(self) -> None:
        """There is nothing to send."""
        self._last = None
