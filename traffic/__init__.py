"""What the accelerators send: ranks and bytes -> a schedule, checked, then replayed over a transport.

To add a collective algorithm: a file in collectives/ with a function `n_ranks -> Schedule`, and a line in COLLECTIVES; a
new collective also says what it starts from and ends with, in check.py and values.py. To add a transport: a file in
transports/ and a line in TRANSPORTS. The command line, the help and the registry-wide tests pick both up from here.
"""

from collections.abc import Callable
from typing import Any

from topologies import unknown
from traffic.collectives.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from traffic.errors import TrafficError
from traffic.schedule import Schedule
from traffic.transports.tcp import TcpTransport

# The first algorithm of a collective is its default.
COLLECTIVES: dict[str, dict[str, Callable[[int], Schedule]]] = {
    "all_reduce": {"ring": ring_all_reduce},
    "reduce_scatter": {"ring": ring_reduce_scatter},
    "all_gather": {"ring": ring_all_gather},
}

TRANSPORTS: dict[str, type[Any]] = {
    "tcp": TcpTransport,
}


def schedule(collective: str, algorithm: str | None, n_ranks: int) -> Schedule:
    """The schedule of a collective; algorithm None = its default. Raises TrafficError listing the known names."""
    if collective not in COLLECTIVES:
        raise TrafficError(unknown("collective", collective, COLLECTIVES))
    algorithms = COLLECTIVES[collective]
    name = next(iter(algorithms)) if algorithm is None else algorithm
    if name not in algorithms:
        raise TrafficError(unknown(f"algorithm of {collective}", name, algorithms))
    if n_ranks < 1:
        raise TrafficError(f"{n_ranks} ranks: a collective needs at least one")
    return algorithms[name](n_ranks)


__all__ = ["COLLECTIVES", "TRANSPORTS", "Schedule", "TrafficError", "schedule"]
