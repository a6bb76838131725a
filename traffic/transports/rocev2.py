"""RoCEv2: a reliable connection for each of the schedule's, its frames sent and received in user space.

One descriptor stands for all of it: an epoll of the hosts' NICs and of one timer. Whoever watches it calls `serve`.
"""

import errno
import heapq
import select
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial

from topologies import namespaces
from topologies.spread import BY_FLOW, Spread
from traffic.errors import TrafficError, TransportError
from traffic.framing import ROCEV2_BYTES, largest_path_mtu, rocev2
from traffic.rocev2.batch import Batch
from traffic.rocev2.dcqcn import Dcqcn, DcqcnParameters
from traffic.rocev2.ends import ReceivingEnd, SendingEnd
from traffic.rocev2.frames import Frames, largest_frame_bytes
from traffic.rocev2.next_hop import NextHop
from traffic.rocev2.nic import Nic, way_to
from traffic.rocev2.opcodes import PATH_MTUS
from traffic.rocev2.pacing import Pacer
from traffic.rocev2.packet import parse
from traffic.rocev2.port import Port
from traffic.rocev2.queue_pair import UDP_PORT, QueuePair, linux_source_port, queue_pair_numbers
from traffic.rocev2.receiver import CNP_INTERVAL_NS, Receiver
from traffic.rocev2.reliability import Reliability
from traffic.rocev2.sender import RetryExceededError, Sender
from traffic.rocev2.spread import SourcePorts
from traffic.rocev2.streams import ReceivingStream, SendingStream
from traffic.rocev2.timer import Timer
from traffic.schedule import Connection, connection_name
from traffic.transport import Endpoint, TransportCounters, WireFlow, address_pair

_IPPROTO_UDP = 17
# Below the shortest queue of a shaped link, 32 frames of its MTU: what the socket does not hold back, that queue drops.
_SEND_BUFFER_BYTES, _SEND_BUFFER_FRAMES = 64 << 10, 16
_RECEIVE_SLOTS = 64
# What a paced sender may make up for: wake-ups are late by up to this on a busy machine.
_BURST_NS = 2_000_000
# Of a host, and there may be hundreds. More than its socket takes at once gain nothing.
_SEND_SLOTS = 16


@dataclass
class _Interface:
    """In use: what leaves by it, and who is addressed there by a queue pair number."""

    nic: Nic
    port: Port
    ends: dict[int, SendingEnd | ReceivingEnd]
    watched_for_room: bool = False


class RoceTransport:
    """`connections`, ready at once; `close()` or a `with` block ends them. Needs root.

    reliability: None = go-back-N with the largest path MTU that the interfaces carry. dcqcn: of every sender to another server,
    its rates and times as emulated; None = no congestion control, and packets that say that they cannot be marked. qps: queue
    pairs of a connection, among which each message is divided. Raises TransportError for hosts that have no way to each other,
    TrafficError for a path MTU that the interfaces do not carry.
    """

    name = "rocev2"
    framing = staticmethod(rocev2)

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        connections: Sequence[Connection],
        *,
        reliability: Reliability | None = None,
        dcqcn: DcqcnParameters | None = None,
        cnp_interval_ns: int = CNP_INTERVAL_NS,
        qps: int = 1,
        spread: Spread = BY_FLOW,
    ) -> None:
        self._dcqcn, self._cnp_interval_ns = dcqcn, cnp_interval_ns
        self._qps, self._spread = qps, spread
        self._nic_ips = {e.ip for e in endpoints}
        self.flows = self.plan(endpoints, connections, qps=qps)
        self.senders: dict[Connection, SendingStream] = {}
        self.receivers: dict[Connection, ReceivingStream] = {}
        # Of each flow.
        self._sending: list[SendingEnd] = []
        self._receiving: list[ReceivingEnd] = []
        # Frames that are no valid packet for anybody here; and those that came while a socket was full.
        self.strays = self._overflowed = 0
        self._interfaces: dict[int, _Interface] = {}
        self._readable: dict[int, None] = {}
        self._timer = Timer()
        # When retransmission timers are to be looked at; and whom a pacer holds, until when.
        self._retry_ns: int | None = None
        self._held: list[tuple[int, int, SendingEnd]] = []
        self._are_held: set[SendingEnd] = set()
        self._poll = select.epoll()
        self._nics: list[Nic] = []
        try:
            ways = self._open_nics(endpoints)
            self._reliability = reliability or Reliability(mtu_bytes=self._largest_path_mtu())
            self._require_fit()
            self._connect(queue_pair_numbers({e.rank: e.host for e in endpoints}, connections, qps), ways)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "RoceTransport":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._poll.close()
        self._timer.close()
        for nic in self._nics:
            nic.close()

    @staticmethod
    def plan(endpoints: Sequence[Endpoint], connections: Sequence[Connection], *, qps: int = 1) -> list[WireFlow]:
        """The 5-tuples of the data, a connection's queue pairs in a row: the UDP source port follows from the queue pair
        numbers, as in Linux."""
        at = {e.rank: e for e in endpoints}
        numbers = queue_pair_numbers({e.rank: e.host for e in endpoints}, connections, qps)
        return [
            WireFlow(*c, *address_pair(at[c[0]], at[c[1]]), _IPPROTO_UDP, linux_source_port(*qpns), UDP_PORT, i % qps)
            for i, (c, qpns) in enumerate(zip((c for c in connections for _ in range(qps)), numbers, strict=True))
        ]

    # -- what is told -------------------------------------------------------------------------------------------------

    def counters(self) -> TransportCounters:
        each = self.counters_by_connection().values()
        self._overflowed += sum(nic.dropped() for nic in self._nics)
        return sum(each, TransportCounters(0, 0, self._overflowed))

    def counters_by_connection(self) -> dict[Connection, TransportCounters]:
        """Hosts' losses are nobody's in particular."""
        found = dict.fromkeys(self.senders, TransportCounters(0, 0))
        for flow, sending, receiving in zip(self.flows, self._sending, self._receiving, strict=True):
            found[flow.connection] += TransportCounters(
                retransmits=sending.sender.retransmitted,
                segments=sending.sent,
                out_of_order=receiving.receiver.out_of_order,
                naks=sending.naks,
                cnps=sending.cnps,
                timeouts=sending.sender.timeouts,
            )
        return found

    def settings(self) -> Mapping[str, str]:
        r, dcqcn = self._reliability, self._dcqcn
        return {
            "rocev2_path_mtu": str(r.mtu_bytes),
            "rocev2_window": str(r.window),
            "rocev2_ack_every": str(r.ack_every),
            "rocev2_timeout_ms": f"{r.timeout_ns / 1e6:g}",
            "rocev2_reorder": str(r.reorder),
            "rocev2_recovery": "selective repeat" if r.selective else "go-back-N",
            "rocev2_congestion_control": "dcqcn" if dcqcn else "none",
            **({f"rocev2_dcqcn_{f.name}": f"{getattr(dcqcn, f.name):g}" for f in fields(dcqcn)} if dcqcn else {}),
            "rocev2_queue_pairs": str(self._qps),
            "rocev2_spread": self._spread.unit,
        }

    # -- opening ------------------------------------------------------------------------------------------------------

    def _open_nics(self, endpoints: Sequence[Endpoint]) -> dict[tuple[int, str], tuple[Nic, NextHop]]:
        """(rank, address of a peer) -> the way there. Each host's interfaces are opened once, in its namespace."""
        peers: dict[int, set[str]] = defaultdict(set)
        for flow in self.flows:
            peers[flow.src_rank].add(flow.dst_ip)
            peers[flow.dst_rank].add(flow.src_ip)
        nics: dict[tuple[str | None, str], Nic] = {}
        ways = {}

        def look(endpoint: Endpoint) -> None:
            for ip in sorted(peers[endpoint.rank]):
                hop = way_to(ip)
                at = endpoint.netns, hop.intf
                if at not in nics:
                    nics[at] = Nic(hop.intf, send_buffer_bytes=_SEND_BUFFER_BYTES)
                    self._nics.append(nics[at])
                    nics[at].limit_send_buffer(min(_SEND_BUFFER_BYTES, _SEND_BUFFER_FRAMES * nics[at].mtu_bytes))
                ways[endpoint.rank, ip] = nics[at], hop

        inside = [(e.netns, e) for e in endpoints if e.netns is not None]
        namespaces.each(inside, look)
        for endpoint in endpoints:
            if endpoint.netns is None:
                look(endpoint)
        return ways

    def _largest_path_mtu(self) -> int:
        carried = min((nic.mtu_bytes for nic in self._nics), default=PATH_MTUS[-1] + ROCEV2_BYTES)
        if (largest := largest_path_mtu(carried)) is None:
            raise TrafficError(
                f"an interface of MTU {carried} carries no RoCEv2: use {PATH_MTUS[0] + ROCEV2_BYTES} or more"
            )
        return largest

    def _require_fit(self) -> None:
        if self._reliability.mtu_bytes > (most := self._largest_path_mtu()):
            raise TrafficError(f"path MTU {self._reliability.mtu_bytes}: these interfaces carry {most} at most")

    def _connect(self, numbers: Sequence[tuple[int, int]], ways: Mapping[tuple[int, str], tuple[Nic, NextHop]]) -> None:
        # Scapy takes a second to import, and `--help` wants to know this class only.
        from traffic.rocev2.templates import templates

        r = self._reliability
        slot_bytes = largest_frame_bytes(r.mtu_bytes)
        self._incoming = Batch(_RECEIVE_SLOTS, slot_bytes)
        for nic in self._nics:
            port = Port(nic.fileno(), Batch(_SEND_SLOTS, slot_bytes))
            self._interfaces[nic.fileno()] = _Interface(nic, port, {})
            self._poll.register(nic.fileno(), select.EPOLLIN)
        self._poll.register(self._timer.fileno(), select.EPOLLIN)
        kinds = templates()
        pairs: dict[Connection, list[SendingEnd]] = defaultdict(list)
        for i, (flow, (src_qpn, dst_qpn)) in enumerate(zip(self.flows, numbers, strict=True)):
            (out, there), (home, back) = ways[flow.src_rank, flow.dst_ip], ways[flow.dst_rank, flow.src_ip]
            ips = flow.src_ip, flow.dst_ip
            # Inside a server links are other ones, and nothing marks there.
            dcqcn = self._dcqcn if flow.src_ip in self._nic_ips else None
            ect = dcqcn is not None
            data = Frames(kinds, QueuePair(out.mac, there.mac, *ips, src_qpn, dst_qpn, flow.src_port, ect=ect))
            answers = Frames(kinds, QueuePair(home.mac, back.mac, *ips[::-1], dst_qpn, src_qpn, flow.src_port))
            near, far = self._interfaces[out.fileno()], self._interfaces[home.fileno()]
            c = flow.connection
            if c not in self.senders:
                number = -1 - 2 * len(self.senders)
                self.senders[c] = SendingStream(number, pairs[c], partial(self._pump, near))
                self.receivers[c] = ReceivingStream(number - 1, self._readable)
            sending = SendingEnd(
                i,
                Sender(r),
                data,
                near.port,
                SourcePorts(self._spread, flow.src_port),
                selective=r.selective,
                pacer=Pacer(Dcqcn(dcqcn), _BURST_NS) if dcqcn else None,
            )
            receiver = Receiver(selective=r.selective, window=r.window, cnp_interval_ns=self._cnp_interval_ns)
            receiving = ReceivingEnd(receiver, answers, far.port, self.receivers[c], selective=r.selective)
            pairs[c].append(sending)
            self._sending.append(sending)
            self._receiving.append(receiving)
            near.ends[src_qpn], far.ends[dst_qpn] = sending, receiving

    # -- the background -----------------------------------------------------------------------------------------------

    @property
    def background(self) -> "RoceTransport":
        return self

    def fileno(self) -> int:
        return self._poll.fileno()

    def serve(self) -> Iterator[int]:
        """A batch of frames from each interface, what they ask for, and what is due; then the streams that can be read."""
        due = False
        for fd, events in self._poll.poll(0):
            if fd == self._timer.fileno():
                due = True
                continue
            interface = self._interfaces[fd]
            if events & select.EPOLLOUT:
                interface.port.blocked = False
            if events & ~select.EPOLLOUT:
                self._receive(interface)
            self._pump(interface)
        if due:
            self._on_time()
        while self._readable:
            yield from list(self._readable)

    def _receive(self, interface: _Interface) -> None:
        now_ns = time.monotonic_ns()
        try:
            frames = self._incoming.receive(interface.nic.fileno())
        except OSError as error:
            if error.errno != errno.ENETDOWN:
                raise TransportError(f"{interface.nic.intf}: {error.strerror}") from None
            # Said once when the interface goes down; what is lost meanwhile comes again, or the retries end.
            return
        for frame in frames:
            packet = parse(frame)
            end = interface.ends.get(packet.dst_qpn) if packet else None
            if packet is None or end is None:
                self.strays += 1
            else:
                end.on_packet(packet, now_ns)

    def _pump(self, interface: _Interface) -> None:
        now_ns = time.monotonic_ns()
        port = interface.port
        sent_before = port.sent
        port.pump(now_ns)
        if port.blocked != interface.watched_for_room:
            interface.watched_for_room = port.blocked
            room = select.EPOLLOUT if port.blocked else 0
            self._poll.modify(interface.nic.fileno(), select.EPOLLIN | room)
        if self._retry_ns is None and port.sent > sent_before:
            # Nobody's deadline can be sooner; whose it is shows when it is over.
            self._retry_ns = now_ns + self._reliability.timeout_ns
        self._hold(port, now_ns)
        self._arm()

    def _hold(self, port: Port, now_ns: int) -> None:
        """Those that the port let go of because their pacer holds them."""
        for source in port.given_up():
            if isinstance(source, SendingEnd) and source.held_until_ns > now_ns and source not in self._are_held:
                self._are_held.add(source)
                heapq.heappush(self._held, (source.held_until_ns, source.number, source))

    def _arm(self) -> None:
        wanted = min((t for t in (self._retry_ns, self._held[0][0] if self._held else None) if t), default=None)
        if wanted != self._timer.deadline_ns:
            self._timer.set(wanted)

    def _on_time(self) -> None:
        now_ns = time.monotonic_ns()
        # Set anew even for the same time: only then it is not readable any more.
        self._timer.set(None)
        while self._held and self._held[0][0] <= now_ns:
            _, _, end = heapq.heappop(self._held)
            self._are_held.discard(end)
            end.go_on()
        if self._retry_ns is not None and self._retry_ns <= now_ns:
            self._retry(now_ns)
        for interface in self._interfaces.values():
            self._pump(interface)
        self._arm()

    def _retry(self, now_ns: int) -> None:
        for flow, end in zip(self.flows, self._sending, strict=True):
            try:
                end.on_time(now_ns)
            except RetryExceededError as error:
                raise RetryExceededError(f"the connection {connection_name(flow.connection)} broke: {error}") from None
        deadlines = [end.sender.deadline_ns for end in self._sending if end.sender.deadline_ns is not None]
        self._retry_ns = min(deadlines, default=None)
