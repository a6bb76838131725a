"""The synchronous parameter server: workers push their buffers, servers add them up, workers pull the sums.

k servers hold S/k each. A server adds n pushes and only then sends n times its share: T = 2 n S/(k B), both phases one after
the other, and n senders at each server at a time. That is n^2/(n-1) times the ring for one server. With a server beside every
worker (sharded) ranks send and receive 2(n-1)/n S as in the ring, in two steps.
"""

import numpy as np

from traffic.columns import ColumnBuilder, Numbers
from traffic.errors import TrafficError
from traffic.schedule import Schedule


def parameter_server_all_reduce(n_ranks: int, n_servers: int = 1) -> Schedule:
    """The servers are helpers, ranks n_ranks .. n_ranks + n_servers - 1. Raises TrafficError without a server."""
    if n_servers < 1:
        raise TrafficError(f"{n_servers} parameter servers: use one or more")
    # One rank has its sum.
    servers = n_ranks + np.arange(n_servers if n_ranks > 1 else 0)
    return _push_and_pull("parameter-server", n_ranks, servers, n_servers)


def sharded_parameter_server_all_reduce(n_ranks: int) -> Schedule:
    """Every rank is also a server, of its share."""
    return _push_and_pull("parameter-server-sharded", n_ranks, np.arange(n_ranks), n_ranks)


def _push_and_pull(algorithm: str, n: int, servers: Numbers, n_shares: int) -> Schedule:
    n_helpers = int((servers >= n).sum())
    columns = ColumnBuilder("all_reduce", algorithm, n + n_helpers, n_shares, n_members=n)
    share, worker = np.divmod(np.arange(len(servers) * n), n)
    elsewhere = worker != servers[share]
    share, worker = share[elsewhere], worker[elsewhere]
    pushed = columns.sends(worker, servers[share], share, reduce=True)
    # A server's pulls wait for one operation each, not for n pushes each.
    whole = columns.joins(servers, pushed.reshape(len(servers), len(pushed) // max(len(servers), 1)))
    columns.sends(servers[share], worker, share, reduce=False, after=whole[share][:, None])
    return columns.build()
