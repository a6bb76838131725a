"""Does adaptive routing pay? A dragonfly under the pattern that is worst for minimal routing, and under uniform traffic.

A figure is the share of its NIC's rate that a host gets while all hosts send: `sustained` in the results. Bounds are those of
a dragonfly where every host of a group sends to the next group: minimally over the one link between the two, 1 / (a p); by
detours over g - 2 groups, (g - 2) / (2 a p) (Kim et al., ISCA 2008).
"""

import sys
from collections.abc import Mapping

from benchmarks import machine
from benchmarks.figure import Figure, Target, figure

# Balanced: 72 hosts in 9 groups of 4 routers.
_A, _P, _G = 4, 2, 9
_FABRIC = f"dragonfly:a={_A},p={_P},h=2,g={_G}"
_MINIMAL_BOUND, _VALIANT_BOUND = 1 / (_A * _P), (_G - 2) / (2 * _A * _P)
# 64 flows of one window each are more than the usual 256 frames: deeper queues, which mark.
_QUEUES = ("--queue", 1000, "--ecn-threshold", "300ms")
# 1/8 of 6 Mbit/s would be eight flows of two frames of 9000 bytes a second: where minimal routing is at its worst, small
# frames on slow links, so that the flows take turns.
_USUAL = ("--link-rate", "6Mbit", *_QUEUES)
_SLOW = ("--link-rate", "1Mbit", "--mtu", 1500, *_QUEUES)
_HOST_BYTES = 6_000_000
_SLOW_HOST_BYTES = 1_000_000
_QUICK = 4
_DEADLINE_S = 240


def adversarial(*, quick: bool) -> list[Figure]:
    """Where it is judged by a ratio, the peer is the routing that does best but for this one."""
    part = _QUICK if quick else 1
    shift = ("group_shift", "--group-size", _A * _P)
    minimal = _run("minimal", shift, _SLOW, _SLOW_HOST_BYTES // part)
    valiant, ugal = (_run(routing, shift, _USUAL, _HOST_BYTES // part) for routing in ("valiant", "ugal"))
    best = max(_sustained(minimal), _sustained(valiant))
    figures = [
        _figure("group_shift, minimal / 1/(a p)", minimal, Target("ratio", 0.8, 1.05), _MINIMAL_BOUND),
        _figure("group_shift, valiant / its bound", valiant, Target("ratio", 0.8, 1.05), _VALIANT_BOUND),
        _figure("group_shift, ugal / the better", ugal, Target("ratio", low=0.9), best),
    ]
    minimal, valiant, ugal = (
        _run(routing, ("uniform_random",), _USUAL, _HOST_BYTES // part) for routing in ("minimal", "valiant", "ugal")
    )
    return [
        *figures,
        _figure("uniform, minimal / valiant", minimal, Target("ratio", low=1.2), _sustained(valiant)),
        _figure("uniform, ugal / minimal", ugal, Target("ratio", low=0.9), _sustained(minimal)),
    ]


def _run(routing: str, pattern: tuple[object, ...], network: tuple[object, ...], host_bytes: int) -> Mapping[str, str]:
    """The one row of a run as written, 8 flows a host."""
    traffic = ("--collective", *pattern, "--flows-per-host", 8, "-b", host_bytes, "-e", host_bytes, "-n", 1, "-w", 0)
    arguments = ("--topology", _FABRIC, "--routing", routing, "--scale", 1, *network, *traffic)
    _, (row,) = machine.run(*arguments, python=sys.executable, deadline_s=_DEADLINE_S)
    return row


def _sustained(row: Mapping[str, str]) -> float:
    return float(row["sustained"] or "nan")


def _figure(name: str, row: Mapping[str, str], target: Target, peer: float) -> Figure:
    note = machine.complaint(row)
    return figure(name, _sustained(row), "of the NIC", target, peer=peer, note=note)
