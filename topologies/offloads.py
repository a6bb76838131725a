"""Offloads of virtual interfaces, which userspace switches cannot use: ethtool's ioctl, in the caller's namespace.

A veth passes packets on with unfinished checksums and in chunks of 64 kB. A userspace switch forwards them as they are:
then ping works and TCP carries nothing; and a shaper would charge a chunk as one frame. With these off every frame is
one that a wire could carry, and has a checksum. Receive offload (GRO) merges frames, which would hide the wire's frames
from whoever counts or captures them.
"""

import array
import fcntl
import socket
import struct
from functools import lru_cache

from topologies.errors import EmulationError

_TURNED_OFF = ("tx-checksum-", "tx-tcp", "tx-generic-segmentation", "rx-gro")

# linux/sockios.h, linux/ethtool.h
_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSSET_INFO, _SFEATURES = 0x1B, 0x37, 0x3B
_SS_FEATURES, _NAME_LENGTH = 4, 32


def turn_off(intf: str) -> None:
    """Turn transmit checksums, segmentation (TCP's and generic) and GRO off on one interface.

    By feature name, in one call: the old one-word commands leave TCP features on that are younger than they are.
    """
    command = array.array("I", _command())
    try:
        _ethtool(intf, command)
    except OSError as error:
        raise EmulationError(f"cannot turn offloads off on {intf}: {error.strerror}") from None


@lru_cache
def _command() -> tuple[int, ...]:
    """struct ethtool_sfeatures: per 32 features a mask of those meant and their values."""
    names = _feature_names()
    masks = [0] * -(-len(names) // 32)
    for bit, name in enumerate(names):
        if name.startswith(_TURNED_OFF):
            masks[bit // 32] |= 1 << bit % 32
    return (_SFEATURES, len(masks), *(word for mask in masks for word in (mask, 0)))


def _feature_names() -> list[str]:
    """The kernel's features, in the order of their bits; loopback is asked, for the list is the same for all."""
    info = array.array("I", struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _SS_FEATURES, 0))
    _ethtool("lo", info)
    n = info[4]
    strings = array.array("I", struct.pack("=III", _GSTRINGS, _SS_FEATURES, n) + bytes(n * _NAME_LENGTH))
    _ethtool("lo", strings)
    text = strings.tobytes()[12:]
    return [text[at : at + _NAME_LENGTH].split(b"\0")[0].decode() for at in range(0, len(text), _NAME_LENGTH)]


def _ethtool(intf: str, command: "array.array[int]") -> None:
    request = struct.pack("16sP16x", intf.encode(), command.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, request)
