"""What the replay sees of a connection whose datagrams may be lost: a stream in which zeros stand for what never came. No socket.

Each datagram says where in the stream it belongs. A network that keeps a flow's order has lost what is missing before the one
that just came; what is missing behind the last one is given up after a while.
"""

import struct

from traffic.rocev2.streams import ReceivingStream

# In front of each datagram's data: the offset of its first byte in the connection's stream.
OFFSET = struct.Struct(">Q")


class LossyStream(ReceivingStream):
    """arrived_bytes, lost_bytes: so far; late: datagrams that came after their place had been given up."""

    def __init__(self, number: int, readable: dict[int, None]) -> None:
        super().__init__(number, readable)
        self.arrived_bytes = self.lost_bytes = self.late = 0

    @property
    def at(self) -> int:
        """All before has come, or been given up."""
        return self.arrived_bytes + self.lost_bytes

    def arrive(self, offset: int, data: memoryview) -> None:
        """A datagram's data, which is kept by reference."""
        if offset < self.at:
            self.late += 1
            return
        self.give_up(offset)
        self.arrived_bytes += len(data)
        self.land(offset, data)

    def give_up(self, to: int) -> None:
        """What has not come before offset `to` is lost."""
        gap = to - self.at
        if gap > 0:
            at = self.at
            self.lost_bytes += gap
            self.land(at, memoryview(bytes(gap)))
