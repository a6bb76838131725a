"""What both ends of a reliable connection agree on."""

from dataclasses import dataclass, replace

from traffic.errors import TrafficError
from traffic.rocev2.opcodes import require_path_mtu
from traffic.rocev2.psn import HALF

# An InfiniBand local ACK timeout has five bits (vol. 1, 9.7.6.1.3). NCCL asks for 18 to 20, and for 7 retries.
MAX_TIMEOUT_CODE, _TIMEOUT_CODE = 31, 18


def timeout_ns(code: int) -> int:
    """4.096 us x 2^code."""
    return 4096 << code


@dataclass(frozen=True, slots=True)
class Reliability:
    """window: packets that may be on their way; ack_every: the sender asks for an acknowledgement at every so many, and at
    each message's end; timeout_ns: without progress, until packets go out again; retry_limit: so often in a row.

    selective: lost packets alone are sent again, and the receiver keeps what comes early; else the sender goes back and
    sends all from the lost one on. reorder: how many packets before the latest arrival a missing one must be before a
    selective sender takes it for lost; with 0 a path that swaps packets costs retransmissions.

    Raises TrafficError for what cannot work.
    """

    mtu_bytes: int = 4096
    window: int = 64
    ack_every: int = 16
    timeout_ns: int = timeout_ns(_TIMEOUT_CODE)
    retry_limit: int = 7
    selective: bool = False
    reorder: int = 0

    def __post_init__(self) -> None:
        require_path_mtu(self.mtu_bytes)
        # Half the numbers, and half again for what is still on its way from before.
        most = HALF >> 1
        for what, value, low, high in (
            ("window", self.window, 1, most),
            ("packets per acknowledgement", self.ack_every, 1, self.window),
            ("retransmission timeout in ns", self.timeout_ns, 1, None),
            ("retry limit", self.retry_limit, 0, None),
            ("reordering in packets", self.reorder, 0, self.window),
        ):
            if value < low or (high is not None and value > high):
                allowed = f"use {low} or more" if high is None else f"use {low} to {high}"
                raise TrafficError(f"{what} {value}: {allowed}")

    def within(self, packets: int) -> "Reliability":
        """With no more of them under way, and acknowledgements so often that the sender need not stop for one."""
        window = min(self.window, packets)
        return replace(
            self, window=window, ack_every=min(self.ack_every, max(1, window // 2)), reorder=min(self.reorder, window)
        )
