"""What the accelerators send: ranks and bytes -> a schedule, checked, then replayed over a transport.

To add a collective algorithm: a file in collectives/ with a function `n_ranks -> Schedule`, and a line in COLLECTIVES; a
new collective also says what it starts from and ends with, in check.py and values.py. To add a pattern: a file in patterns/
with a function `(n_ranks, Demand) -> Flows`, a line in PATTERNS, and its rule in pattern_check.py. To add a transport: a file
in transports/ and a line in TRANSPORTS. The command line, the help and the registry-wide tests pick all up from here.
"""

from collections.abc import Callable
from typing import Any

from topologies import unknown
from traffic.collectives.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from traffic.errors import TrafficError
from traffic.pattern import ALGORITHM, Demand, Pattern, pattern_schedule
from traffic.patterns.group_shift import group_shift
from traffic.patterns.incast import incast
from traffic.patterns.permutation import permutation
from traffic.patterns.uniform_random import uniform_random
from traffic.schedule import Schedule
from traffic.transports.rocev2 import RoceTransport
from traffic.transports.tcp import TcpTransport

# The first algorithm of a collective is its default.
COLLECTIVES: dict[str, dict[str, Callable[[int], Schedule]]] = {
    "all_reduce": {"ring": ring_all_reduce},
    "reduce_scatter": {"ring": ring_reduce_scatter},
    "all_gather": {"ring": ring_all_gather},
}

PATTERNS: dict[str, Pattern] = {
    "permutation": permutation,
    "uniform_random": uniform_random,
    "group_shift": group_shift,
    "incast": incast,
}

TRANSPORTS: dict[str, type[Any]] = {
    "tcp": TcpTransport,
    "rocev2": RoceTransport,
}


def schedule(collective: str, algorithm: str | None, n_ranks: int, demand: Demand | None = None) -> Schedule:
    """The schedule of a collective or a pattern; algorithm None = its default; demand: of a pattern, None = one flow per host.

    Raises TrafficError listing the known names.
    """
    if collective in PATTERNS:
        return _pattern(collective, algorithm, n_ranks, demand or Demand())
    if collective not in COLLECTIVES:
        raise TrafficError(unknown("collective", collective, (*COLLECTIVES, *PATTERNS)))
    algorithms = COLLECTIVES[collective]
    name = next(iter(algorithms)) if algorithm is None else algorithm
    if name not in algorithms:
        raise TrafficError(unknown(f"algorithm of {collective}", name, algorithms))
    if n_ranks < 1:
        raise TrafficError(f"{n_ranks} ranks: a collective needs at least one")
    return algorithms[name](n_ranks)


def _pattern(name: str, algorithm: str | None, n_ranks: int, demand: Demand) -> Schedule:
    if algorithm not in (None, ALGORITHM):
        raise TrafficError(unknown(f"algorithm of {name}", algorithm, (ALGORITHM,)))
    if n_ranks < 2 or demand.flows_per_host < 1:
        raise TrafficError(
            f"{n_ranks} ranks with {demand.flows_per_host} flows each: a pattern needs two ranks and one flow at least"
        )
    return pattern_schedule(name, n_ranks, PATTERNS[name](n_ranks, demand))


__all__ = ["COLLECTIVES", "PATTERNS", "TRANSPORTS", "Demand", "Schedule", "TrafficError", "schedule"]
