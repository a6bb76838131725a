"""What the accelerators send: ranks and bytes -> a schedule, checked, then replayed over a transport.

To add a collective algorithm: a file in collectives/ with a function `Layout -> Schedule`, and a line in COLLECTIVES; a
new collective also says what it starts from and ends with, in contracts.py. To add a pattern: a file in patterns/
with a function `(n_ranks, Demand) -> Flows`, a line in PATTERNS, and its rule in pattern_check.py. To add a transport: a file
in transports/ and a line in TRANSPORTS. The command line, the help and the registry-wide tests pick all up from here.
"""

from collections.abc import Callable
from typing import Any

from topologies import unknown
from topologies.helpers import REDUCER, SERVER
from traffic.collectives.all_to_all import (
    direct_all_to_all,
    direct_all_to_all_v,
    pairwise_all_to_all,
    pairwise_all_to_all_v,
    xor_all_to_all,
)
from traffic.collectives.broadcast import binomial_broadcast, direct_broadcast, ring_broadcast
from traffic.collectives.direct import direct_all_gather, direct_reduce_scatter
from traffic.collectives.double_binary_tree import double_binary_tree_all_reduce
from traffic.collectives.gather import binomial_gather, binomial_scatter, direct_gather, direct_scatter
from traffic.collectives.halving_doubling import (
    doubling_all_gather,
    doubling_halving_all_reduce,
    halving_doubling_all_reduce,
    halving_reduce_scatter,
)
from traffic.collectives.hierarchical import hierarchical_all_reduce
from traffic.collectives.in_network import reducer_tree_all_reduce
from traffic.collectives.parameter_server import parameter_server_all_reduce, sharded_parameter_server_all_reduce
from traffic.collectives.pxn import pxn_all_to_all
from traffic.collectives.rail_ring import rail_ring_all_gather, rail_ring_all_reduce, rail_ring_reduce_scatter
from traffic.collectives.recursive_doubling import recursive_doubling_all_reduce
from traffic.collectives.reduce import binomial_reduce, direct_reduce, ring_reduce
from traffic.collectives.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from traffic.collectives.sendrecv import direct_sendrecv
from traffic.errors import TrafficError
from traffic.layout import Layout
from traffic.pattern import ALGORITHM, Demand, Pattern, pattern_schedule
from traffic.patterns.group_shift import group_shift
from traffic.patterns.incast import incast
from traffic.patterns.permutation import permutation
from traffic.patterns.uniform_random import uniform_random
from traffic.schedule import Schedule
from traffic.transports.rocev2 import RoceTransport
from traffic.transports.tcp import TcpTransport
from traffic.transports.udp import UdpTransport

Algorithm = Callable[[Layout], Schedule]


def _of_ranks(make: Callable[[int], Schedule]) -> Algorithm:
    """An algorithm to which only the number of ranks matters."""
    return lambda layout: make(layout.n_ranks)


def _rooted(make: Callable[[int, int], Schedule]) -> Algorithm:
    """One to which only that and the root matter."""
    return lambda layout: make(layout.n_ranks, layout.root)


# The first algorithm of a collective is its default.
COLLECTIVES: dict[str, dict[str, Algorithm]] = {
    "all_reduce": {
        "ring": _of_ranks(ring_all_reduce),
        "halving-doubling": _of_ranks(halving_doubling_all_reduce),
        "doubling-halving": _of_ranks(doubling_halving_all_reduce),
        "recursive-doubling": _of_ranks(recursive_doubling_all_reduce),
        "double-binary-tree": _of_ranks(double_binary_tree_all_reduce),
        "rail-ring": rail_ring_all_reduce,
        "hierarchical": hierarchical_all_reduce,
        "in-network": reducer_tree_all_reduce,
        "parameter-server": lambda layout: parameter_server_all_reduce(layout.n_ranks, layout.n_servers),
        "parameter-server-sharded": _of_ranks(sharded_parameter_server_all_reduce),
    },
    "reduce_scatter": {
        "ring": _of_ranks(ring_reduce_scatter),
        "rail-ring": rail_ring_reduce_scatter,
        "halving": _of_ranks(halving_reduce_scatter),
        "direct": _of_ranks(direct_reduce_scatter),
    },
    "all_gather": {
        "ring": _of_ranks(ring_all_gather),
        "rail-ring": rail_ring_all_gather,
        "doubling": _of_ranks(doubling_all_gather),
        "direct": _of_ranks(direct_all_gather),
    },
    "all_to_all": {
        "pairwise": _of_ranks(pairwise_all_to_all),
        "pairwise-xor": _of_ranks(xor_all_to_all),
        "direct": _of_ranks(direct_all_to_all),
        "hierarchical": pxn_all_to_all,
    },
    "all_to_all_v": {
        "pairwise": pairwise_all_to_all_v,
        "direct": direct_all_to_all_v,
    },
    "broadcast": {
        "ring": _rooted(ring_broadcast),
        "binomial": _rooted(binomial_broadcast),
        "direct": _rooted(direct_broadcast),
    },
    "reduce": {
        "ring": _rooted(ring_reduce),
        "binomial": _rooted(binomial_reduce),
        "direct": _rooted(direct_reduce),
    },
    "gather": {"direct": _rooted(direct_gather), "binomial": _rooted(binomial_gather)},
    "scatter": {"direct": _rooted(direct_scatter), "binomial": _rooted(binomial_scatter)},
    "sendrecv": {"direct": _of_ranks(direct_sendrecv)},
}

# Algorithms that need ranks beside the collective's members -> the role of the hosts that those run on.
HELPERS: dict[str, str] = {"in-network": REDUCER, "parameter-server": SERVER}

PATTERNS: dict[str, Pattern] = {
    "permutation": permutation,
    "uniform_random": uniform_random,
    "group_shift": group_shift,
    "incast": incast,
}

TRANSPORTS: dict[str, type[Any]] = {
    "tcp": TcpTransport,
    "rocev2": RoceTransport,
    "udp": UdpTransport,
}


def schedule(collective: str, algorithm: str | None, layout: Layout | int, demand: Demand | None = None) -> Schedule:
    """The schedule of a collective or a pattern; algorithm None = its default; layout: or the number of ranks alone; demand:
    of a pattern, None = one flow per host.

    Raises TrafficError listing the known names.
    """
    if collective in PATTERNS:
        n_ranks = layout if isinstance(layout, int) else layout.n_ranks
        return _pattern(collective, algorithm, n_ranks, demand or Demand())
    if collective not in COLLECTIVES:
        raise TrafficError(unknown("collective", collective, (*COLLECTIVES, *PATTERNS)))
    algorithms = COLLECTIVES[collective]
    name = next(iter(algorithms)) if algorithm is None else algorithm
    if name not in algorithms:
        raise TrafficError(unknown(f"algorithm of {collective}", name, algorithms))
    return algorithms[name](Layout(layout) if isinstance(layout, int) else layout)


def _pattern(name: str, algorithm: str | None, n_ranks: int, demand: Demand) -> Schedule:
    if algorithm not in (None, ALGORITHM):
        raise TrafficError(unknown(f"algorithm of {name}", algorithm, (ALGORITHM,)))
    if n_ranks < 2 or demand.flows_per_host < 1:
        raise TrafficError(
            f"{n_ranks} ranks with {demand.flows_per_host} flows each: a pattern needs two ranks and one flow at least"
        )
    return pattern_schedule(name, n_ranks, PATTERNS[name](n_ranks, demand))


__all__ = [
    "COLLECTIVES",
    "HELPERS",
    "PATTERNS",
    "TRANSPORTS",
    "Algorithm",
    "Demand",
    "Layout",
    "Schedule",
    "TrafficError",
    "schedule",
]
