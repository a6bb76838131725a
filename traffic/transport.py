"""What the replay engine asks of a transport, and what a transport tells of itself."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Protocol

from traffic.schedule import Connection


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a rank lives: its host, that host's address, and the namespace its sockets are made in: its name, as
    `ip netns exec` takes it, or its path; None = this one. domain, scale_up_ip: the HB domain's number and the host's address
    in it; None = in none."""

    rank: int
    host: str
    ip: str
    netns: str | None = None
    domain: int | None = None
    scale_up_ip: str | None = None


def address_pair(src: Endpoint, dst: Endpoint) -> tuple[str, str]:
    """The addresses between which two ranks speak: inside an HB domain those of the scale-up interfaces, as NCCL does, else
    those of the NICs. A socket bound to its own leaves by the right interface: the other's is routed through no other."""
    if src.domain is not None and src.domain == dst.domain and src.scale_up_ip and dst.scale_up_ip:
        return src.scale_up_ip, dst.scale_up_ip
    return src.ip, dst.ip


@dataclass(frozen=True, slots=True)
class WireFlow:
    """The 5-tuple that carries one connection's data, or of several queue pairs one's part, known before the first packet.

    proto: IANA's number; qp: which of the connection's queue pairs.
    """

    src_rank: int
    dst_rank: int
    channel: int
    src_ip: str
    dst_ip: str
    proto: int
    src_port: int
    dst_port: int
    qp: int = 0

    @property
    def connection(self) -> Connection:
        return self.src_rank, self.dst_rank, self.channel


@dataclass(frozen=True, slots=True)
class TransportCounters:
    """Cumulative since the transport was opened: segments sent again, and segments sent. Of a transport in user space also:

    dropped_host: frames that came to a full socket of their host; out_of_order: packets that came before one that was sent
    earlier; naks, cnps: that came back to senders; timeouts: of retransmission timers; lost_bytes: of the data that never came,
    where nobody sends it again; paced_ns, pacing_took_ns: what the frames of paced senders should have taken, and took.
    """

    retransmits: int
    segments: int
    dropped_host: int = 0
    out_of_order: int = 0
    naks: int = 0
    cnps: int = 0
    timeouts: int = 0
    lost_bytes: int = 0
    paced_ns: int = 0
    pacing_took_ns: int = 0

    def __add__(self, other: "TransportCounters") -> "TransportCounters":
        return TransportCounters(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, before: "TransportCounters") -> "TransportCounters":
        return TransportCounters(*(a - b for a, b in zip(astuple(self), astuple(before), strict=True)))


class Stream(Protocol):
    """A connection's data, in its one direction: non-blocking, ordered, reliable, with a descriptor that epoll can watch."""

    def fileno(self) -> int:
        """Negative: not a descriptor but a number, by which the transport's background tells that the stream can be read;
        such a stream takes all that is sent."""

    def send(self, data: memoryview, /) -> int: ...

    def recv_into(self, buffer: memoryview, /) -> int: ...

    def expect(self, n_bytes: int, /) -> None:
        """Be readable once `n_bytes` have come, not at every segment. A hint: earlier is allowed, never later."""


class Background(Protocol):
    """What a transport in user space does between the calls of its streams: packets in and out, timers."""

    def fileno(self) -> int:
        """Readable when there is something to do; an epoll descriptor is one, and epoll can watch it."""

    def serve(self) -> Iterable[int]:
        """Do it, and tell the streams that can be read, by fileno; again those that still can be after they were read."""


class Transport(Protocol):
    """Open streams. Both mappings have one entry per connection; sending and receiving ends are apart.

    `settings` tells what is in force, not what was asked for; `counters` sums over `counters_by_connection`.
    """

    name: str

    @property
    def flows(self) -> Sequence[WireFlow]: ...

    @property
    def senders(self) -> Mapping[Connection, Stream]: ...

    @property
    def receivers(self) -> Mapping[Connection, Stream]: ...

    @property
    def background(self) -> Background | None:
        """None where the kernel does the work and streams have descriptors."""

    def counters(self) -> TransportCounters: ...

    def counters_by_connection(self) -> Mapping[Connection, TransportCounters]: ...

    def settings(self) -> Mapping[str, str]: ...

    def close(self) -> None: ...
