"""RoCEv2: a reliable connection for each of the schedule's, its frames sent and received in user space."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial

from topologies.spread import BY_FLOW, Spread
from traffic.errors import TrafficError
from traffic.framing import rocev2
from traffic.rocev2.dcqcn import Dcqcn, DcqcnParameters
from traffic.rocev2.ends import ReceivingEnd, SendingEnd
from traffic.rocev2.engine import Engine, Interface
from traffic.rocev2.frames import Frames, largest_frame_bytes
from traffic.rocev2.nic import Nic
from traffic.rocev2.nics import Ways, carried_path_mtu, open_nics
from traffic.rocev2.opcodes import Opcode
from traffic.rocev2.pacing import FixedRate, Pacer
from traffic.rocev2.queue_pair import UDP_PORT, QueuePair, first_number, linux_source_port, queue_pair_numbers
from traffic.rocev2.receiver import Receiver
from traffic.rocev2.reliability import Reliability
from traffic.rocev2.sender import Sender
from traffic.rocev2.spread import SourcePorts
from traffic.rocev2.streams import ReceivingStream, SendingStream
from traffic.schedule import Connection
from traffic.transport import Endpoint, TransportCounters, WireFlow, address_pair

_IPPROTO_UDP = 17
# What a paced sender may make up for: wake-ups are late by up to this on a busy machine.
_BURST_NS = 2_000_000


class RoceTransport:
    """`connections`, ready at once; `close()` or a `with` block ends them. Needs root.

    reliability: None = go-back-N with the largest path MTU that the interfaces carry. dcqcn: of every sender to another server,
    its rates and times as emulated; None = no congestion control, and packets that say that they cannot be marked. qps: queue
    pairs of a connection, among which each message is divided; seed: of their numbers; credits_of: packets of each flow that
    may be under way, where that is fewer than the window; rate_mbps: of each queue pair at most, without congestion control.
    Raises TransportError for hosts that have no way to each other, TrafficError for a path MTU that the interfaces do not
    carry.
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
        qps: int = 1,
        seed: int = 1,
        spread: Spread = BY_FLOW,
        credits_of: Mapping[WireFlow, int] | None = None,
        rate_mbps: float | None = None,
    ) -> None:
        self._dcqcn, self._qps, self._spread = dcqcn, qps, spread
        self._credits, self._rate_mbps = credits_of, rate_mbps
        self._nic_ips = {e.ip for e in endpoints}
        self._first_numbers = {e.host: first_number(e.host, seed) for e in endpoints}
        self.flows = self.plan(endpoints, connections, qps=qps, seed=seed)
        self.senders: dict[Connection, SendingStream] = {}
        self.receivers: dict[Connection, ReceivingStream] = {}
        # Of each flow.
        self._sending: list[SendingEnd] = []
        self._receiving: list[ReceivingEnd] = []
        # Frames that came while a socket was full.
        self._overflowed = 0
        self._nics: list[Nic] = []
        self._engine: Engine | None = None
        try:
            ways = self._open_nics(endpoints)
            self._reliability = reliability or Reliability(mtu_bytes=carried_path_mtu(self._nics))
            self._require_fit()
            self._connect(ways, _numbers(endpoints, connections, qps, seed))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "RoceTransport":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        if self._engine:
            self._engine.close()
        for nic in self._nics:
            nic.close()

    @staticmethod
    def plan(
        endpoints: Sequence[Endpoint], connections: Sequence[Connection], *, qps: int = 1, seed: int = 1
    ) -> list[WireFlow]:
        """The 5-tuples of the data, a connection's queue pairs in a row: the UDP source port follows from the queue pair
        numbers, as in Linux."""
        at = {e.rank: e for e in endpoints}
        numbers = _numbers(endpoints, connections, qps, seed)
        return [
            WireFlow(*c, *address_pair(at[c[0]], at[c[1]]), _IPPROTO_UDP, linux_source_port(*qpns), UDP_PORT, i % qps)
            for i, (c, qpns) in enumerate(zip((c for c in connections for _ in range(qps)), numbers, strict=True))
        ]

    @property
    def background(self) -> Engine:
        assert self._engine
        return self._engine

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
                paced_ns=sending.pacer.asked_ns if sending.pacer and self._rate_mbps else 0,
                pacing_took_ns=sending.pacer.took_ns if sending.pacer and self._rate_mbps else 0,
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
            "rocev2_first_queue_pair_numbers": " ".join(f"{host}={n:#x}" for host, n in self._first_numbers.items()),
            "rocev2_spread": self._spread.unit,
            "rocev2_lossless": self._told_credits(),
            "rocev2_rate_limit_mbps": "none" if self._rate_mbps is None else f"{self._rate_mbps:g}",
        }

    def _told_credits(self) -> str:
        if not self._credits:
            return "none"
        least, most = min(self._credits.values()), max(self._credits.values())
        return f"end-to-end credits in place of PFC, {least} to {most} packets each"

    # -- opening ------------------------------------------------------------------------------------------------------

    def _open_nics(self, endpoints: Sequence[Endpoint]) -> Ways:
        return open_nics(endpoints, self.flows, self._nics)

    def _require_fit(self) -> None:
        if self._reliability.mtu_bytes > (most := carried_path_mtu(self._nics)):
            raise TrafficError(f"path MTU {self._reliability.mtu_bytes}: these interfaces carry {most} at most")

    def _connect(self, ways: Ways, numbers: Sequence[tuple[int, int]]) -> None:
        # Scapy takes a second to import, and `--help` wants to know this class only.
        from traffic.rocev2.templates import templates

        r = self._reliability
        self._engine = Engine(r.timeout_ns, largest_frame_bytes(r.mtu_bytes))
        interfaces = {nic: self._engine.add(nic) for nic in self._nics}
        kinds = templates()
        pairs: dict[Connection, list[SendingEnd]] = defaultdict(list)
        for flow, qpns in zip(self.flows, numbers, strict=True):
            near, far = (interfaces[ways[at].nic] for at in _ends(flow))
            self._open_streams(flow.connection, pairs[flow.connection], near)
            self._join(flow, qpns, ways, kinds, near, far)
            pairs[flow.connection].append(self._sending[-1])

    def _open_streams(self, connection: Connection, pairs: Sequence[SendingEnd], near: Interface) -> None:
        if connection not in self.senders:
            number = -1 - 2 * len(self.senders)
            self.senders[connection] = SendingStream(number, pairs, partial(self.background.pump, near))
            self.receivers[connection] = ReceivingStream(number - 1, self.background.readable)

    def _join(
        self,
        flow: WireFlow,
        qpns: tuple[int, int],
        ways: Ways,
        kinds: Mapping[Opcode, bytes],
        near: Interface,
        far: Interface,
    ) -> None:
        """A queue pair: its two ends, each at its interface."""
        r = self._reliability.within(self._credits[flow]) if self._credits else self._reliability
        there, back = (ways[at] for at in _ends(flow))
        ips = flow.src_ip, flow.dst_ip
        # Inside a server links are other ones, and nothing marks there.
        dcqcn = self._dcqcn if flow.src_ip in self._nic_ips else None
        out = QueuePair(there.nic.mac, there.hop.mac, *ips, *qpns, flow.src_port, ect=dcqcn is not None)
        home = QueuePair(back.nic.mac, back.hop.mac, *ips[::-1], *qpns[::-1], flow.src_port)
        sending = SendingEnd(
            len(self._sending),
            Sender(r),
            Frames(kinds, out),
            near.port,
            SourcePorts(self._spread, flow.src_port),
            selective=r.selective,
            pacer=self._pacer(dcqcn),
        )
        interval_ns = dcqcn.cnp_interval_ns if dcqcn else None
        receiver = Receiver(selective=r.selective, window=r.window, cnp_interval_ns=interval_ns)
        stream = self.receivers[flow.connection]
        receiving = ReceivingEnd(receiver, Frames(kinds, home), far.port, stream, selective=r.selective)
        self._sending.append(sending)
        self._receiving.append(receiving)
        near.ends[qpns[0]], far.ends[qpns[1]] = sending, receiving
        self.background.watch(flow.connection, sending)

    def _pacer(self, dcqcn: DcqcnParameters | None) -> Pacer | None:
        if dcqcn:
            return Pacer(Dcqcn(dcqcn), _BURST_NS)
        return Pacer(FixedRate(self._rate_mbps), _BURST_NS) if self._rate_mbps else None


def _numbers(
    endpoints: Sequence[Endpoint], connections: Sequence[Connection], qps: int, seed: int
) -> list[tuple[int, int]]:
    return queue_pair_numbers({e.rank: e.host for e in endpoints}, connections, qps, seed)


def _ends(flow: WireFlow) -> tuple[tuple[int, str], tuple[int, str]]:
    """Where the ways of a flow are: there, and back."""
    return (flow.src_rank, flow.dst_ip), (flow.dst_rank, flow.src_ip)
