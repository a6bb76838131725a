"""Offloads of virtual interfaces, which userspace switches cannot use: ethtool's ioctl, in the caller's namespace.

A veth passes packets on with unfinished checksums and in chunks of 64 kB. A userspace switch forwards them as they are:
then ping works and TCP carries nothing; and a shaper would charge a chunk as one frame. With these four off every frame
is one that a wire could carry, and has a checksum. Receive offload merges frames, which would hide the wire's frames
from whoever counts or captures them.
"""

import array
import fcntl
import socket
import struct

from topologies.errors import EmulationError

_SIOCETHTOOL = 0x8946
# linux/ethtool.h: ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO
_TURNED_OFF = {"tx": 0x17, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}


def turn_off(intf: str) -> None:
    """Turn tx, tso, gso and gro off on one interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for name, command in _TURNED_OFF.items():
            value = array.array("B", struct.pack("=II", command, 0))
            request = struct.pack("16sP16x", intf.encode(), value.buffer_info()[0])
            try:
                fcntl.ioctl(sock, _SIOCETHTOOL, request)
            except OSError as error:
                raise EmulationError(f"cannot turn {name} off on {intf}: {error.strerror}") from None
