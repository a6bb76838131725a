"""Event-driven fluid model: what a collective should take while its flows share links as TCP's do, max-min fairly.

Between two events every flow has a constant rate: that of progressive filling (Bertsekas and Gallager, "Data Networks",
section 6.5.2) over the links' shaped rates, less what acknowledgements take of them. Events: a message's last byte has
left; it has arrived, and sends that waited for it may start. A connection's sends leave one after the other, each when
those it depends on have arrived; connections do not wait for each other, and local operations for nothing else.

* A message is cut into segments of MSS bytes; each is a frame with its headers; every second frame is acknowledged by a
  frame in the opposite direction, as TCP does (RFC 1122 section 4.2.3.2).
* A connection whose packets are sprayed crosses each of its links with a share of its bytes; packets that overtake each
  other cost nothing.
* Every directed link is a token bucket, as it is shaped: what it does not send fills the bucket up to its burst, and a
  message that starts takes from the buckets on its path what they all have, at once.
* A frame leaves when the bucket is not in debt, so the last one leaves its own time before it is paid for.

What is not in it: losses, TCP's start, the CPU.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from lab.model.wire import Crossed, Floats, Ints, Paths, Sends, Wire, totals, transpose
from topologies.fabric import Fabric, Port
from traffic.ranges import ranges

# Events closer together than this are one: far below a frame's time, far above float64's rounding of a run's seconds.
_AT_ONCE_S = 1e-9
# Of more sends than these, events are one that are closer than this share of a short message's time at its link's rate. What
# leaves too early is owed by what comes next, so that no byte is lost: pairwise all-to-all of 64 and 128 ranks on a fat-tree
# took 0.991 and 1.005 of the time that every event by itself gives, with a thirtieth of the events.
FINE_SENDS, _COARSE = 10_000, 0.5
# Rates by set of active connections: steps of a regular schedule ask for the same one again and again.
_REMEMBERED = 256
_TIE = 1 + 1e-9
# Links whose busy times differ by less are one as good as the other: rounding to whole elements does as much.
_AS_BUSY = 1e-3
# A flow that crosses no shaped link: a number, since 0 times infinity is none.
_UNSHAPED_BYTES_S = 1e18


@dataclass(frozen=True)
class Latency:
    """Constants of the emulator's software, calibrated on two hosts only, where nothing is shared.

    An all-reduce of 1 KiB, which the token buckets let pass at once, is two steps: 0.46 ms over one switch, 0.60 ms over
    three (lower quartiles of 300 each, two busy cores), so 2 hops + end = 0.23 ms and 4 hops + end = 0.30 ms.

    per_hop_s: a frame through a veth and the switch; end_s: from the last frame in the receiver's kernel to the next send
    in the sender's.
    """

    per_hop_s: float = 35e-6
    end_s: float = 160e-6


DEFAULT_LATENCY = Latency()


@dataclass(frozen=True)
class Prediction:
    """seconds: emulated, nan where no model knows; bottleneck: the busiest link, as 'leaf1->spine2', the first crossed of
    those that are busy for as long; tied: how many others are; ahead: by what share of its time it is busier than the next that
    is not, inf where there is none; model: who says so; bytes_by_intf: wire bytes, acknowledgements included, of one iteration
    per egress interface; busiest_s: what the busiest link needs for its bytes, 0 where there is no link; started_s, arrived_s:
    (sends,) each, empty where no model follows them."""

    seconds: float
    bottleneck: str
    bytes_by_intf: Mapping[str, float]
    model: str = ""
    tied: int = 0
    ahead: float = math.inf
    busiest_s: float = 0.0
    started_s: Floats = field(default_factory=lambda: np.zeros(0), compare=False)
    arrived_s: Floats = field(default_factory=lambda: np.zeros(0), compare=False)

    @property
    def where(self) -> str:
        """'leaf1->spine2 and 3 more'."""
        return self.bottleneck + (f" and {self.tied} more" if self.tied else "")


def prediction(fabric: Fabric, paths: Paths, wire: Wire, seconds: float, model: str) -> Prediction:
    return over_links(fabric, paths.ports, wire.carried, wire.rate_bytes_s, seconds, model)


def over_links(
    fabric: Fabric, ports: Sequence[Port], carried: Floats, rate_bytes_s: Floats, seconds: float, model: str
) -> Prediction:
    """ports: of each link its egress; carried, rate_bytes_s: (links,)."""
    busy_s = carried / rate_bytes_s
    bytes_by_intf = {port.intf: n for port, n in zip(ports, carried.tolist(), strict=True)}
    if not len(busy_s):
        return Prediction(seconds, "", bytes_by_intf, model)
    as_busy = busy_s >= busy_s.max() * (1 - _AS_BUSY)
    worst, less = int(np.argmax(as_busy)), busy_s[~as_busy]
    return Prediction(
        seconds=seconds,
        bottleneck=fabric.direction(ports[worst]),
        bytes_by_intf=bytes_by_intf,
        model=model,
        tied=len(busy_s) - len(less) - 1,
        ahead=float(busy_s[worst] / less.max() - 1) if less.any() else math.inf,
        busiest_s=float(busy_s.max()),
    )


def max_min(crossed: Crossed, capacity: Floats, n_flows: int) -> Floats:
    """(n_flows,) rates by progressive filling; a flow that crosses no link has rate inf.

    A link is full when no flow on it has less than the link's fair share on another link: that share is their rate, whatever
    becomes of links elsewhere, so all such links are filled at once. capacity: (links,), in the unit of the rates.
    """
    link, flow, part = crossed
    rates = np.full(n_flows, np.inf)
    left = capacity.copy()
    while len(link):
        users = totals(link, part, len(left))
        share = np.full(len(left), np.inf)
        np.divide(np.maximum(left, 0.0), users, out=share, where=users > 0)
        least, least_on = np.full(n_flows, np.inf), np.full(len(left), np.inf)
        np.minimum.at(least, flow, share[link])
        np.minimum.at(least_on, link, least[flow])
        full = flow[share[link] <= least_on[link] * _TIE]
        rates[full] = least[full]
        frozen = np.isfinite(rates[flow])
        left -= totals(link[frozen], rates[flow[frozen]] * part[frozen], len(left))
        link, flow, part = link[~frozen], flow[~frozen], part[~frozen]
    return rates


class Fluid:
    """One iteration of a schedule on the emulated fabric, event after event."""

    def __init__(
        self, fabric: Fabric, sends: Sends, paths: Paths, mtu: int, latency: Latency = DEFAULT_LATENCY
    ) -> None:
        self._fabric, self._sends, self._paths = fabric, sends, paths
        self._wire = Wire(fabric, sends, paths, mtu)
        n = len(sends.connections)
        link, flow, part = paths.forth.of(np.arange(n))
        self._latency_s = totals(flow, part * (self._wire.delay_s[link] + latency.per_hop_s), n) + latency.end_s
        self._waits_for = np.diff(sends.dep_start)
        users = np.repeat(np.arange(len(sends)), self._waits_for)
        self._on_arrival, self._on_leaving = (
            transpose(users[which], sends.deps[which], len(sends))
            for which in (~sends.waits_to_leave, sends.waits_to_leave)
        )
        # Each connection's sends in order, its next one, and how much of that has not left.
        self._order = np.argsort(sends.connection, kind="stable")
        edges = np.searchsorted(sends.connection[self._order], np.arange(n + 1))
        self._next, self._end = edges[:-1].copy(), edges[1:]
        self._active = np.zeros(n, dtype=bool)
        self._sending: list[Ints] = [np.zeros(0, dtype=np.int64)]
        self._left = np.zeros(n)
        # The time of each one's last frame on the slowest link of its path.
        self._unpaid_s = np.zeros(n)
        self._slowest = np.full(n, np.inf)
        np.minimum.at(self._slowest, flow, self._wire.rate_bytes_s[link])
        self._bucket = self._wire.burst_bytes.copy()
        # Of a step's messages, large and small, a share of none is small beside what it computes between them.
        self._coarse = len(sends) > FINE_SENDS and not sends.calc_s.any()
        self._at_once_s = _COARSE * self._short_message_s() if self._coarse else _AT_ONCE_S
        self._acks: Floats = np.zeros(len(self._wire.rate_bytes_s))
        self._known_rates: dict[bytes, tuple[Floats, Floats]] = {}
        self._coming: list[tuple[float, int, Ints]] = []
        self._number = count()
        self.started_s, self.arrived_s = np.full(len(sends), np.nan), np.full(len(sends), np.nan)

    def run(self) -> Prediction:
        now = 0.0
        self._compute(np.flatnonzero((self._sends.connection < 0) & (self._waits_for == 0)), now)
        self._start(np.arange(len(self._next)), now)
        while len(flows := self._flows()) or self._coming:
            rates, spare = self._rates_of(flows)
            leaving = self._left[flows] / rates - self._unpaid_s[flows]
            arriving = self._coming[0][0] - now if self._coming else np.inf
            step = max(min(leaving.min(initial=np.inf), arriving), 0.0)
            self._left[flows] -= rates * step
            np.minimum(self._bucket + spare * step, self._wire.burst_bytes, out=self._bucket)
            now += step
            gone = flows[leaving <= step + self._at_once_s]
            self._leave(gone, now)
            self._arrive(now)
        missing = np.flatnonzero(np.isnan(self.arrived_s))
        if len(missing):
            raise ValueError(f"{len(missing)} sends never start, first {missing[0]}: the dependencies form a cycle")
        whole = prediction(self._fabric, self._paths, self._wire, float(self.arrived_s.max(initial=0.0)), "fluid")
        return replace(whole, started_s=self.started_s, arrived_s=self.arrived_s)

    def _short_message_s(self) -> float:
        """What a tenth of them take no more than, alone."""
        remote = (self._sends.connection >= 0) & (self._sends.n_bytes > 0)
        times = self._wire.send_bytes[remote] / self._slowest[self._sends.connection[remote]]
        return float(np.quantile(times, 0.1)) if len(times) else 0.0

    def _flows(self) -> Ints:
        """Connections that send, sorted: of those that did or have started since, as few of a million may."""
        some = np.unique(np.concatenate(self._sending))
        self._sending = [some[self._active[some]]]
        return self._sending[0]

    # -- rates ----------------------------------------------------------------------------------------------------------

    def _rates_of(self, flows: Ints) -> tuple[Floats, Floats]:
        """The flows' rates (bytes/s), and what is left of every link's."""
        key = flows.tobytes()
        if key not in self._known_rates:
            if len(self._known_rates) >= _REMEMBERED:
                self._known_rates.clear()
            self._known_rates[key] = self._fill(flows)
        return self._known_rates[key]

    def _fill(self, flows: Ints) -> tuple[Floats, Floats]:
        p, rate = self._paths, self._wire.rate_bytes_s
        forth, back = p.forth.of(flows), p.back.of(flows)
        shaped = np.isfinite(rate[forth.link])
        filled = Crossed(*(values[shaped] for values in forth))
        # How fast acknowledgements come depends on how fast data goes: once without them, once beside them.
        acks: Floats = self._acks if self._coarse else np.zeros(len(rate))
        for _ in range(1 if self._coarse else 2):
            rates = max_min(filled, np.maximum(rate - acks, rate * 1e-3), len(flows))
            rates[np.isinf(rates)] = _UNSHAPED_BYTES_S
            acks = totals(back.link, (rates * self._wire.ack_share[flows])[back.flow] * back.share, len(rate))
        self._acks = acks
        used = totals(forth.link, rates[forth.flow] * forth.share, len(rate)) + acks
        return rates, np.where(np.isfinite(rate), np.maximum(rate - used, 0.0), 0.0)

    # -- events ---------------------------------------------------------------------------------------------------------

    def _start(self, connections: Ints, now: float) -> None:
        """Start the next send of each connection that is idle, has one, and need not wait."""
        while len(connections):
            idle = connections[~self._active[connections] & (self._next[connections] < self._end[connections])]
            ready = idle[self._waits_for[self._order[self._next[idle]]] == 0]
            self.started_s[self._order[self._next[ready]]] = now
            n_bytes = self._wire.send_bytes[self._order[self._next[ready]]]
            empty, full = ready[n_bytes == 0], ready[n_bytes > 0]
            self._active[full] = True
            self._sending.append(full)
            self._left[full] = n_bytes[n_bytes > 0]
            self._unpaid_s[full] = self._wire.last_frame_bytes[self._order[self._next[full]]] / self._slowest[full]
            self._take_from_buckets(full)
            # No byte, no message: an empty send arrives as it leaves.
            gone = self._order[self._next[empty]]
            self._come(gone, np.full(len(empty), now))
            self._next[empty] += 1
            self._release(self._on_leaving, gone, now)
            connections = empty

    def _compute(self, operations: Ints, now: float) -> None:
        self.started_s[operations] = now
        self._come(operations, now + self._sends.calc_s[operations])

    def _take_from_buckets(self, flows: Ints) -> None:
        """What all buckets of a path have, or owe."""
        link, flow, part = self._paths.forth.of(flows)
        sharers = totals(link, part, len(self._bucket))
        credit = self._left[flows].copy()
        np.minimum.at(credit, flow, self._bucket[link] / sharers[link])
        self._left[flows] -= credit
        self._bucket -= totals(link, credit[flow] * part, len(self._bucket))

    def _leave(self, connections: Ints, now: float) -> None:
        """Their sends' last frames leave; what is not paid for by then is owed by what comes next."""
        sends = self._order[self._next[connections]]
        link, flow, part = self._paths.forth.of(connections)
        self._bucket -= totals(link, self._left[connections][flow] * part, len(self._bucket))
        self._come(sends, now + self._latency_s[connections])
        self._active[connections] = False
        self._next[connections] += 1
        self._start(connections, now)
        self._release(self._on_leaving, sends, now)

    def _come(self, sends: Ints, at_s: Floats) -> None:
        for time_s in np.unique(at_s):
            heapq.heappush(self._coming, (float(time_s), next(self._number), sends[at_s == time_s]))

    def _arrive(self, now: float) -> None:
        while self._coming and self._coming[0][0] <= now + self._at_once_s:
            at_s, _, sends = heapq.heappop(self._coming)
            self.arrived_s[sends] = at_s
            self._release(self._on_arrival, sends, now)

    def _release(self, waiting: tuple[Ints, Ints], sends: Ints, now: float) -> None:
        """What waited for these sends, and for nothing else any more."""
        users_of, start = waiting
        users = users_of[ranges(start[sends], start[sends + 1] - start[sends])]
        if not len(users):
            return
        np.subtract.at(self._waits_for, users, 1)
        free = np.unique(users[self._waits_for[users] == 0])
        on = self._sends.connection[free]
        self._compute(free[on < 0], now)
        self._start(np.unique(on[on >= 0]), now)
