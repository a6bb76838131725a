"""Frames off an interface, both ways: a packet socket whose ring the kernel fills and this process reads as memory.

The kernel cuts each frame to SNAP_BYTES, which hold every header of RoCEv2 and TCP, and stamps it. (TPACKET_V2, see packet(7)
and Documentation/networking/packet_mmap.rst.)
"""

import ctypes
import mmap
import socket
import struct
from collections import deque

from traffic.capture.frame import Capture, Frame
from traffic.errors import TransportError

SNAP_BYTES = 128
# The last so many of a point are kept: 200 000 are some 35 MB.
KEPT_FRAMES = 200_000
# linux/if_packet.h, linux/if_ether.h, asm-generic/socket.h
_SOL_PACKET, _PACKET_RX_RING, _PACKET_STATISTICS, _PACKET_VERSION, _TPACKET_V2 = 263, 5, 6, 10, 1
_ETH_P_ALL, _SO_ATTACH_FILTER, _PACKET_OUTGOING = 3, 26, 4
# A slot has a header, an address and the frame; a block is a page. 16384 slots are 4 MB, and what passes until they are read.
_SLOT_BYTES, _BLOCK_BYTES, _SLOTS = 256, 4096, 16_384
_KERNEL, _USER = 0, 1
# struct tpacket2_hdr: status, length, captured, offsets of link and network header, seconds, nanoseconds; then sockaddr_ll,
# whose eleventh byte says which way the frame went.
_HEADER = struct.Struct("=IIIHHII")
_STATUS = struct.Struct("=I")
_PACKET_TYPE_AT = 32 + 10
_RETURN = 0x06


class Ring:
    """Of one interface of the calling thread's namespace. `drain` before it is full, `close` at the end.

    Raises TransportError where there is no such interface.
    """

    def __init__(self, intf: str) -> None:
        self._intf = intf
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
            self._cut_frames()
            blocks = _SLOTS * _SLOT_BYTES // _BLOCK_BYTES
            self._socket.setsockopt(
                _SOL_PACKET, _PACKET_RX_RING, struct.pack("=4I", _BLOCK_BYTES, blocks, _SLOT_BYTES, _SLOTS)
            )
            self._memory = mmap.mmap(self._socket.fileno(), _SLOTS * _SLOT_BYTES)
            # From here on frames come.
            self._socket.bind((intf, _ETH_P_ALL))
        except OSError as error:
            self._socket.close()
            raise TransportError(f"cannot capture at {intf}: {error.strerror}") from None
        self._slot = 0
        self._frames: deque[Frame] = deque(maxlen=KEPT_FRAMES)
        self._taken = self._dropped = 0

    def _cut_frames(self) -> None:
        """A filter that lets all pass, as far as it says."""
        program = ctypes.create_string_buffer(struct.pack("=HBBI", _RETURN, 0, 0, SNAP_BYTES))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program)))

    def drain(self) -> None:
        """Take what the kernel has put there; of what is kept the oldest goes when there is too much."""
        memory = self._memory
        for _ in range(_SLOTS):
            at = self._slot * _SLOT_BYTES
            status, n_bytes, captured, link_at, _, seconds, nanoseconds = _HEADER.unpack_from(memory, at)
            if not status & _USER:
                return
            data = memory[at + link_at : at + link_at + captured]
            outgoing = memory[at + _PACKET_TYPE_AT] == _PACKET_OUTGOING
            self._frames.append(Frame(seconds * 10**9 + nanoseconds, data, n_bytes, outgoing))
            self._taken += 1
            _STATUS.pack_into(memory, at, _KERNEL)
            self._slot = (self._slot + 1) % _SLOTS

    def capture(self, point: str) -> Capture:
        """All that is kept."""
        self.drain()
        # struct tpacket_stats: frames that passed the filter, and of them those without a slot; reading it resets it.
        self._dropped += struct.unpack("=II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1]
        return Capture(point, list(self._frames), self._dropped + self._taken - len(self._frames))

    def close(self) -> None:
        self._memory.close()
        self._socket.close()
