"""Flows of numbered packets, one of each every millisecond."""

import select
import socket
import struct
import threading
import time
from collections.abc import Sequence

from benchmarks.machine import prefer
from controller.flow import Flow
from topologies import namespaces
from topologies.fabric import Fabric

TICK_S = 0.001
# The time that a packet has to arrive.
MARGIN_S = 0.1
ROCEV2_PORT = 4791
# Frames of about 100 bytes.
_PAYLOAD_BYTES = 60
# A sender that was held up longer goes on from now: what it missed would be a burst that no sender meant.
_MAX_CATCH_UP_S = 0.03
_DRAIN_EVERY = 20
_SO_RCVBUFFORCE, _RECEIVE_BYTES = 33, 4 << 20


class NumberedTraffic(threading.Thread):
    """Sends one packet of every flow each millisecond and notes which arrive. It sleeps between: it never spins.

    sent_at: by sequence number, the same for every flow; arrived: by flow, sequence numbers.
    """

    def __init__(self, fabric: Fabric, flows: Sequence[Flow]) -> None:
        super().__init__(name="traffic")
        host = {fabric.scale_out_port(h.name).ip: h.name for h in fabric.hosts}
        self._senders = namespaces.each([(host[f.src_ip], f) for f in flows], _sender)
        targets = {f.dst_ip: host[f.dst_ip] for f in flows}
        self._receivers = namespaces.each([(name, ip) for ip, name in targets.items()], _receiver)
        self._over = threading.Event()
        self.sent_at: list[float] = []
        self.arrived: list[list[int]] = [[] for _ in flows]
        self.latest_s = 0.0

    def stop(self) -> None:
        """Returns when the last packet has had its time to arrive."""
        self._over.set()
        self.join()
        for s in (*self._senders, *self._receivers):
            s.close()

    def run(self) -> None:
        prefer()
        due = time.monotonic()
        while not self._over.is_set():
            if (left := due - time.monotonic()) > 0:
                time.sleep(left)
            self._send(due)
            due += TICK_S
            if len(self.sent_at) % _DRAIN_EVERY == 0:
                self._drain()
            if time.monotonic() > due + _MAX_CATCH_UP_S:
                due = time.monotonic()
        time.sleep(MARGIN_S)
        self._drain()

    def _send(self, due: float) -> None:
        number, now = len(self.sent_at), time.monotonic()
        self.sent_at.append(now)
        self.latest_s = max(self.latest_s, now - due)
        for flow, sender in enumerate(self._senders):
            sender.send(struct.pack("=II", flow, number).ljust(_PAYLOAD_BYTES, b"\0"))

    def _drain(self) -> None:
        while ready := select.select(self._receivers, [], [], 0)[0]:
            for receiver in ready:
                flow, number = struct.unpack_from("=II", receiver.recv(2048))
                self.arrived[flow].append(number)


def _sender(flow: Flow) -> socket.socket:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((flow.src_ip, flow.src_port))
    s.connect((flow.dst_ip, flow.dst_port))
    return s


def _receiver(ip: str) -> socket.socket:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BYTES)
    s.bind((ip, ROCEV2_PORT))
    s.setblocking(False)
    return s
