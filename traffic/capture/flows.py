"""Captures as a table of flows: what each sent, sent again, lost its order of, was marked with, and how long it was under way."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cmp_to_key
from typing import NamedTuple

import numpy as np

from traffic.capture.dissect import TCP, Segment, dissect
from traffic.capture.frame import Capture
from traffic.rocev2.psn import MODULUS, unwrap

_SEQUENCE_MODULUS = 1 << 32


class FlowKey(NamedTuple):
    """A 5-tuple; of RoCEv2 the queue pair that it is for, and no source port, which a sender may change with every packet."""

    src: str
    dst: str
    proto: int
    src_port: int | None
    dst_port: int
    qpn: int | None


@dataclass(frozen=True)
class Flow:
    """points: where it was seen, in the order in which its packets passed them. Of the point that saw most of it: packets,
    n_bytes (payload, each byte once), messages, resent (packets seen there before), acks, naks, cnps, src_ports. Of the last:
    out_of_order (packets that came behind a later one), ce (marked ones). missing: packets that the last never saw. delay_us:
    from the first to the last, of packets that passed both once: least, median, 99th percentile and most; None where there are
    none."""

    key: FlowKey
    points: tuple[str, ...]
    src_ports: tuple[int, ...]
    packets: int
    n_bytes: int
    messages: int
    resent: int
    out_of_order: int
    ce: int
    acks: int
    naks: int
    cnps: int
    missing: int
    delay_us: tuple[float, ...] | None


class Flows(NamedTuple):
    """other_frames: of no flow that is known here; missed_frames: that the captures do not have."""

    flows: list[Flow]
    other_frames: int
    missed_frames: int


@dataclass
class _Seen:
    """A flow at one point. first_ns: of each of its packets, by its number without wrapping; times: how often each passed."""

    began_ns: int
    counts: Counter[str] = field(default_factory=Counter)
    src_ports: set[int] = field(default_factory=set)
    first_ns: dict[int, int] = field(default_factory=dict)
    times: Counter[int] = field(default_factory=Counter)
    highest: int | None = None

    def add(self, s: Segment, time_ns: int) -> None:
        self.src_ports.add(s.src_port)
        self.counts["packets"] += 1
        self.counts["ce"] += s.ce
        if s.kind != "data":
            self.counts[s.kind] += 1
        elif s.qpn is not None:
            self._number(unwrap(s.number, self.highest) if self.highest is not None else s.number, s, time_ns)
        elif s.proto == TCP and s.n_bytes:
            self._number(self._sequence(s.number), s, time_ns)
        else:
            # UDP has no numbers: nobody can tell one from another.
            self.counts["bytes"] += s.n_bytes

    def _sequence(self, number: int) -> int:
        if self.highest is None:
            return number
        ahead = (number - self.highest + _SEQUENCE_MODULUS // 2) % _SEQUENCE_MODULUS - _SEQUENCE_MODULUS // 2
        return self.highest + ahead

    def _number(self, number: int, s: Segment, time_ns: int) -> None:
        self.times[number] += 1
        if number in self.first_ns:
            self.counts["resent"] += 1
            return
        self.first_ns[number] = time_ns
        self.counts["bytes"] += s.n_bytes
        self.counts["messages"] += s.ends_message
        if self.highest is not None and number < self.highest:
            self.counts["out_of_order"] += 1
        else:
            self.highest = number


def flows(captures: Iterable[Capture]) -> Flows:
    """Of all points together, the flow with the most bytes first."""
    seen: dict[FlowKey, dict[str, _Seen]] = {}
    other = missed = 0
    for capture in captures:
        missed += capture.missed
        for frame in capture.frames:
            segment = dissect(frame)
            if segment is None:
                other += 1
                continue
            at = seen.setdefault(_key(segment), {})
            if capture.point not in at:
                at[capture.point] = _Seen(frame.time_ns)
            at[capture.point].add(segment, frame.time_ns)
    found = [_flow(key, at) for key, at in seen.items()]
    return Flows(sorted(found, key=lambda f: (-f.n_bytes, -f.packets, str(f.key))), other, missed)


def _key(s: Segment) -> FlowKey:
    return FlowKey(s.src, s.dst, s.proto, s.src_port if s.qpn is None else None, s.dst_port, s.qpn)


def _flow(key: FlowKey, at: dict[str, _Seen]) -> Flow:
    def order(a: str, b: str) -> int:
        return _order(at[a], at[b], key)

    points = sorted(at, key=cmp_to_key(order))
    first, last = at[points[0]], at[points[-1]]
    # Of packets that take several paths a link sees a part.
    most = max((at[point] for point in points), key=lambda seen: (len(seen.first_ns), seen.counts["packets"]))
    c = most.counts
    delays = _delays_us(first, last, key) if len(points) > 1 else []
    return Flow(
        key=key,
        points=tuple(points),
        src_ports=tuple(sorted(most.src_ports)),
        packets=c["packets"],
        n_bytes=c["bytes"],
        messages=c["messages"],
        resent=c["resent"],
        out_of_order=last.counts["out_of_order"],
        ce=last.counts["ce"],
        acks=c["ack"],
        naks=c["nak"],
        cnps=c["cnp"],
        missing=len(_names(most, key) - _names(last, key)),
        delay_us=tuple(np.percentile(delays, [0, 50, 99, 100]).tolist()) if len(delays) else None,
    )


def _order(a: _Seen, b: _Seen, key: FlowKey) -> int:
    """Negative: a packet passes a before b. Without one that passed both, who saw the flow first."""
    delays = _delays_us(b, a, key)
    return int(np.sign(np.median(delays))) if len(delays) else a.began_ns - b.began_ns


def _names(seen: _Seen, key: FlowKey) -> set[int]:
    """Its packets as both points call them, each of which may have begun to count elsewhere."""
    return {_name(number, key) for number in seen.first_ns}


def _name(number: int, key: FlowKey) -> int:
    return number % (MODULUS if key.qpn is not None else _SEQUENCE_MODULUS)


def _delays_us(first: _Seen, last: _Seen, key: FlowKey) -> list[float]:
    """Of packets that passed both once: one that was sent again may have been lost between them."""
    left = {_name(n, key): t for n, t in first.first_ns.items() if first.times[n] == 1}
    came = {_name(n, key): t for n, t in last.first_ns.items() if last.times[n] == 1}
    return [(came[name] - left[name]) / 1e3 for name in left.keys() & came.keys()]
