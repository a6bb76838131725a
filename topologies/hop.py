"""The impairment hop: one process in the middle of every delayed cable, where the kernel has no netem or cannot do as asked.

    python -m topologies.hop        # settings as a line of JSON on stdin; an empty line asks for a report; ends with stdin

A frame is read from one packet socket with the kernel's own time of its arrival, waits in a heap for all lines, and leaves
by the other socket of its cable. So whatever keeps this process from its core for less than the delay changes nothing.
"""

import gc
import heapq
import json
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from errno import EAGAIN, ENETDOWN, ENOBUFS, ENXIO
from pathlib import Path
from typing import Any

from topologies import namespaces
from topologies.delay_line import DelayLine, Lateness, Report
from topologies.impairments import seed_of

# asm-generic/socket.h, linux/if_packet.h
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS, _SOL_PACKET = 32, 33, 35, 263
_PACKET_STATISTICS, _PACKET_IGNORE_OUTGOING, _ETH_P_ALL = 6, 23, 3
_BUFFER_BYTES = 8 << 20
# A cable that is down takes nothing; neither is an accident.
_DOWN = (ENETDOWN, ENXIO)
# Frames taken from one socket before others have their turn, and what is due is sent.
_BATCH = 32
_TIMESPEC = struct.Struct("=qq")
_IDLE_S = 1.0


class Hop:
    """cables: (one end, other end, delay_us, jitter_us), interfaces of the calling thread's namespace."""

    def __init__(self, cables: Sequence[tuple[str, str, float, float]], mtu: int, seed: int) -> None:
        self._frame_bytes = mtu + 64
        self._ready = select.epoll()
        self._lines: dict[int, tuple[socket.socket, socket.socket, DelayLine]] = {}
        for a, b, delay_us, jitter_us in cables:
            ends = {name: _socket(name) for name in (a, b)}
            for here, there in ((a, b), (b, a)):
                line = DelayLine(round(delay_us * 1e3), round(jitter_us * 1e3), seed_of(seed, here))
                self._lines[ends[here].fileno()] = ends[here], ends[there], line
                self._ready.register(ends[here].fileno(), select.EPOLLIN)
        self._waiting: list[tuple[int, int, socket.socket, bytes]] = []
        self._number = 0
        self._lost = 0
        self._lateness = Lateness()
        self._since_s, self._since_cpu_s = time.monotonic(), time.process_time()

    def run(self, control: int) -> None:
        """Until `control`, a descriptor, ends; every line that it gives is answered by a report on stdout."""
        self._ready.register(control, select.EPOLLIN)
        while True:
            self._wait()
            for fd, _ in self._ready.poll(0):
                if fd != control:
                    self._take(*self._lines[fd])
                elif not self._answer(os.read(control, 4096)):
                    return
            self._send_due()

    def _wait(self) -> None:
        """Until a frame comes or is due. epoll itself counts in milliseconds; select, on epoll's descriptor, in microseconds."""
        wait_s = (self._waiting[0][0] - time.monotonic_ns()) / 1e9 if self._waiting else _IDLE_S
        if wait_s > 0:
            select.select([self._ready], [], [], wait_s)

    def _take(self, here: socket.socket, there: socket.socket, line: DelayLine) -> None:
        # The kernel stamps in the time of day; the clock that no one sets differs by what is read here.
        offset_ns = time.monotonic_ns() - time.time_ns()
        try:
            for _ in range(_BATCH):
                frame, ancillary, _, _ = here.recvmsg(self._frame_bytes, 64)
                seconds, ns = _TIMESPEC.unpack(ancillary[0][2])
                due_ns = line.due_ns(seconds * 10**9 + ns + offset_ns)
                self._number += 1
                heapq.heappush(self._waiting, (due_ns, self._number, there, frame))
        except OSError as error:
            if error.errno not in (EAGAIN, *_DOWN):
                raise

    def _send_due(self) -> None:
        waiting = self._waiting
        for _ in range(_BATCH * len(self._lines)):
            if not waiting or waiting[0][0] > time.monotonic_ns():
                return
            due_ns, _, there, frame = heapq.heappop(waiting)
            try:
                there.send(frame)
            except OSError as error:
                if error.errno in (EAGAIN, ENOBUFS):
                    self._lost += 1
                elif error.errno not in _DOWN:
                    raise
            self._lateness.add(time.monotonic_ns() - due_ns)

    def _answer(self, asked: bytes) -> bool:
        for _ in range(asked.count(b"\n")):
            print(json.dumps(self._report()), flush=True)
        return bool(asked)

    def _report(self) -> Report:
        now_s, cpu_s = time.monotonic(), time.process_time()
        report = Report(
            frames=self._lateness.frames,
            lost=self._lost + sum(_overflown(here) for here, _, _ in self._lines.values()),
            seconds=now_s - self._since_s,
            cpu_s=cpu_s - self._since_cpu_s,
            late_p99_us=self._lateness.percentile_us(99),
        )
        self._lateness, self._lost, self._since_s, self._since_cpu_s = Lateness(), 0, now_s, cpu_s
        return report


def _socket(intf: str) -> socket.socket:
    """All frames that arrive at the interface, none that leave it."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    made.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)
    made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    made.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    made.setblocking(False)
    made.bind((intf, _ETH_P_ALL))
    return made


def _overflown(sock: socket.socket) -> int:
    """struct tpacket_stats: frames, and those for which the receive buffer had no room; reading sets both to zero."""
    return int(struct.unpack("=II", sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))[1])


def main() -> None:
    settings: Mapping[str, Any] = json.loads(sys.stdin.buffer.readline())
    namespaces.enter(settings["namespace"])
    # A timer of this process may be late by 50 us otherwise.
    with suppress(OSError):
        Path("/proc/self/timerslack_ns").write_text("1")
    # Frames that wait are many objects and no cycles: looking for some would stop the hop for milliseconds.
    gc.disable()
    hop = Hop(settings["cables"], settings["mtu"], settings["seed"])
    print("ready", flush=True)
    hop.run(sys.stdin.fileno())


if __name__ == "__main__":
    main()
