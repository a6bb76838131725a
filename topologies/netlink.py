"""rtnetlink in batches: requests are bytes, and many go out in one send.

Stock tools cost a process, or a pty round trip, per link. Here a socket takes a window of requests in one system call
and gives back one acknowledgement for each; an error names the item that failed. A socket belongs to the namespace of
the thread that made it, so everything here works in the caller's namespace (`topologies.namespaces` enters others).
pyroute2's own request loop is not used: since 0.9 it runs an event loop per call.

    netlink_requests    what is asked for: links, addresses, queues
    netlink_readings    what the kernel holds: counters, queues, drops
"""

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from topologies.errors import EmulationError

# linux/netlink.h
REQUEST, ACK, ECHO, DUMP = 0x1, 0x4, 0x8, 0x300
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
# linux/socket.h, linux/netlink.h
_SOL_NETLINK, _CAP_ACK, _EXT_ACK, _GET_STRICT = 270, 10, 11, 12
_RECEIVE_BUFFER = 4 << 20
# One acknowledgement takes about 1 kB of the receive buffer.
WINDOW = 256
# linux/pkt_sched.h, and the handles of our own qdiscs and class
TC_ROOT, CLSACT_HANDLE = 0xFFFFFFFF, 0xFFFF0000
CLSACT_INGRESS, CLSACT_EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
HTB, CLASS, NETEM = 0x50000, 0x50001, 0xA0000


class Request(NamedTuple):
    """One encoded request, and what it is about for the error text."""

    data: bytes
    what: str


def apply(requests: Sequence[Request]) -> None:
    """Carry out all requests in order; raises EmulationError naming the first that the kernel refused."""
    with open_socket() as link:
        for start in range(0, len(requests), WINDOW):
            window = requests[start : start + WINDOW]
            link.send(b"".join(_numbered(request.data, i) for i, request in enumerate(window)))
            _read_acknowledgements(link, window)


def _numbered(data: bytes, sequence: int) -> bytes:
    """nlmsghdr: the sequence number is the third 32-bit word; the answer repeats it."""
    return data[:8] + struct.pack("=I", sequence) + data[12:]


def _read_acknowledgements(link: socket.socket, window: Sequence[Request]) -> None:
    seen = 0
    while seen < len(window):
        for _, sequence, payload in messages(link.recv(1 << 16)):
            seen += 1
            code = struct.unpack_from("=i", payload)[0]
            if code:
                raise EmulationError(f"{window[sequence].what}: {_error_text(-code, payload)}")


def _error_text(errno: int, payload: bytes) -> str:
    """NLMSGERR_ATTR_MSG (1) is the kernel's own sentence, after the code and the header it repeats (20 bytes)."""
    for kind, value in attributes(payload[20:]):
        if kind == 1:
            return f"{os.strerror(errno)} ({value.rstrip(bytes(1)).decode()})"
    return os.strerror(errno)


def open_socket() -> socket.socket:
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    link.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_RCVBUFFORCE", 33), _RECEIVE_BUFFER)
    for option in (_CAP_ACK, _EXT_ACK, _GET_STRICT):
        link.setsockopt(_SOL_NETLINK, option, 1)
    return link


def messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(type, sequence number, payload) of each message of a datagram."""
    at = 0
    while at < len(data):
        length, kind, _, sequence = struct.unpack_from("=IHHI", data, at)
        yield kind, sequence, data[at + 16 : at + length]
        at += (length + 3) & ~3


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        yield kind & 0x3FFF, data[at + 4 : at + length]
        at += (length + 3) & ~3


def dump(link: socket.socket, kind: int, body: bytes) -> Iterator[bytes]:
    """The datagrams of a dump, without the closing message."""
    link.send(struct.pack("=IHHII", 16 + len(body), kind, REQUEST | DUMP, 0, 0) + body)
    while True:
        data = link.recv(1 << 18)
        end = _find_end(data)
        yield data[:end]
        if end < len(data):
            return


def _find_end(data: bytes) -> int:
    """Where NLMSG_DONE starts; an error ends a dump by an exception."""
    at = 0
    while at < len(data):
        length, kind = struct.unpack_from("=IH", data, at)
        if kind == _NLMSG_DONE:
            return at
        if kind == _NLMSG_ERROR:
            raise EmulationError(f"netlink dump: {os.strerror(-struct.unpack_from('=i', data, at + 16)[0])}")
        at += (length + 3) & ~3
    return at


def index_of(intf: str) -> int:
    """Interface index in the caller's namespace."""
    try:
        return socket.if_nametoindex(intf)
    except OSError:
        raise EmulationError(f"interface {intf} is gone") from None


def indexes() -> dict[str, int]:
    """Interface name -> index, of all in the caller's namespace."""
    return {name: index for index, name in socket.if_nameindex()}
