"""Holds what links have in their queues, and lets it go again. An edge: links of the caller's namespace, shaped by TBF.

Shut is a rate of one byte a second. TBF then has a full bucket all the same, so a frame that nobody takes burns it; and it sleeps
for as long as the next frame would need, so a small one wakes it when the rate is back.
"""

import fcntl
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from topologies import netlink, netlink_readings, tbf
from topologies.errors import EmulationError
from topologies.netlink import Request
from topologies.shaping import ETHERNET_HEADER

# IEEE 802's ethertype for local experiments: no switch has a rule for it.
_HEADER = bytes.fromhex("0200000000fe0200000000ff88b5")
_SMALLEST_FRAME = 60
_SHUT_BYTES_S = 1
_SIOCGIFMTU = 0x8921
# linux/if_packet.h
_SOL_PACKET, _PACKET_QDISC_BYPASS = 263, 20
_PROBE_S = 0.001


class Gate:
    """Shut links are opened as they were found."""

    def __init__(self) -> None:
        self._found: dict[str, bytes] = {}
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._past_queues = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._past_queues.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)

    def shut(self, intfs: Iterable[str]) -> None:
        """Their queues grow from now on; of what waited before, a frame may still leave."""
        shapers = netlink_readings.tbf_options()
        shut, frames = {}, {}
        for intf in intfs:
            if intf not in shapers:
                raise EmulationError(f"{intf} cannot be held: it is not shaped by TBF")
            found = self._found.setdefault(intf, shapers[intf])
            frames[intf] = self._mtu(intf) + ETHERNET_HEADER
            shut[intf] = tbf.options(_SHUT_BYTES_S, frames[intf], tbf.parse(found)[2])
        self._change(shut, frames)

    def open(self, intfs: Iterable[str]) -> None:
        """Those that are shut."""
        found = {intf: self._found.pop(intf) for intf in intfs if intf in self._found}
        self._change(found, dict.fromkeys(found, _SMALLEST_FRAME))

    def waiting_and_passed(self, intfs: Sequence[str]) -> tuple[int, int]:
        """Frames in the queues of these together, and those that have left them in all."""
        queues, counters = netlink_readings.queue_counts(), netlink_readings.link_counters()
        return sum(queues[intf].waiting for intf in intfs), sum(counters[intf].tx_packets for intf in intfs)

    def await_light(self, ways: Sequence[tuple[str, str]], at_most_s: float, sleep: Callable[[float], object]) -> None:
        """Until frames that are sent past the queues of each way's first interface arrive at its second, where none did before;
        or so long. sleep: so many seconds, in which the caller may do other things."""
        before, deadline = netlink_readings.link_counters(), time.monotonic() + at_most_s
        dark = list(ways)
        while dark and time.monotonic() < deadline:
            for source, _ in dark:
                self._past_queues.sendto(_HEADER.ljust(_SMALLEST_FRAME, b"\0"), (source, 0))
            sleep(_PROBE_S)
            now = netlink_readings.link_counters()
            dark = [way for way in dark if now[way[1]].rx_packets == before[way[1]].rx_packets]

    def _change(self, wanted: Mapping[str, bytes], frames: Mapping[str, int]) -> None:
        index = netlink.indexes()
        netlink.apply([Request(tbf.request(index[i], options, 0), f"gate of {i}") for i, options in wanted.items()])
        for intf, n_bytes in frames.items():
            self._socket.sendto(_HEADER.ljust(n_bytes, b"\0"), (intf, 0))

    def _mtu(self, intf: str) -> int:
        answer = fcntl.ioctl(self._socket, _SIOCGIFMTU, struct.pack("16si12x", intf.encode(), 0))
        return int(struct.unpack("16xi12x", answer)[0])
