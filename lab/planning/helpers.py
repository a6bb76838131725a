"""Where the helpers of an algorithm stand: reducers in an aggregation tree, as SHARP has them, or parameter servers.

Unless switches are stated, a tree of reducers has one at every member's switch, one on top, at the switch from which the
farthest of those is nearest, and one wherever ways from there to them part. Stated or not, a member sends to the nearest
reducer, and a reducer to the nearest of those that are closer to the top, one on its shortest way there if there is any.

Servers stand at the first member's switch, one unless several are stated.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import traffic
from controller.routing import Adjacency, adjacency, distances
from lab.errors import LabError
from lab.planning.experiment import Experiment
from topologies import Fabric
from topologies.helpers import SERVER, with_helpers
from topologies.units import format_rate
from traffic.trees import ROOT

# Of helpers, in a line of text.
_NAMED = 6


@dataclass(frozen=True)
class Helpers:
    """role; at: the switch of each; rates_mbps: of each one's link; parents: of reducers, as `collectives.in_network` has
    them, else ()."""

    role: str
    at: tuple[str, ...]
    rates_mbps: tuple[float, ...]
    parents: tuple[int, ...] = ()

    def attached(self, fabric: Fabric, delay_us: float) -> Fabric:
        return with_helpers(fabric, self.at, self.rates_mbps, role=self.role, delay_us=delay_us)


def role_needed(e: Experiment) -> str | None:
    """Of the helpers that the experiment's algorithm needs. Refuses settings of helpers that no algorithm asks for."""
    known = {} if e.workload else traffic.COLLECTIVES.get(e.collective, {})
    role = traffic.HELPERS.get(e.algorithm) if e.algorithm in known and e.algorithm is not None else None
    if role is None and (e.helpers_at or e.helper_rate_mbps is not None):
        option = "--helpers-at" if e.helpers_at else "--helper-rate"
        raise LabError(
            f"{option} is not for {e.collective} by {e.algorithm or 'its own algorithm'}, which has no helpers: use it with "
            f"--algorithm {' or '.join(traffic.HELPERS)}"
        )
    return role


def helpers_of(e: Experiment, fabric: Fabric, members: Sequence[str]) -> Helpers | None:
    """None where the algorithm needs none. members: rank -> host name."""
    role = role_needed(e)
    if role is None:
        return None
    # Refuses what is no switch, before ways to it are searched.
    with_helpers(fabric, e.helpers_at, 1.0, role=role)
    nic_mbps = max(fabric.link_of(fabric.scale_out_port(host).intf).rate_mbps for host in members)
    below = [fabric.switch_of(host) for host in members]
    if role == SERVER:
        at = e.helpers_at or (below[0],)
        return Helpers(role, at, (e.helper_rate_mbps or nic_mbps,) * len(at))
    tree = _Tree(adjacency(fabric), below)
    at = e.helpers_at or tree.chosen()
    parents = tree.parents(at)
    # What comes from below and from above, each at a NIC's rate.
    spoken_to = [parents.count(len(members) + i) + (parents[len(members) + i] != ROOT) for i in range(len(at))]
    return Helpers(role, at, tuple(e.helper_rate_mbps or n * nic_mbps for n in spoken_to), parents)


def told(fabric: Fabric, hosts: Sequence[str]) -> str:
    """'reducer1 at leaf1 (2Tbit), ... and 3 more'."""
    ports = [fabric.scale_out_port(host) for host in hosts[:_NAMED]]
    named = [f"{p.node} at {fabric.peer(p).node} ({format_rate(fabric.link_of(p.intf).rate_mbps)})" for p in ports]
    return ", ".join(named) + (f" and {len(hosts) - _NAMED} more" if len(hosts) > _NAMED else "")


class _Tree:
    """Over the switches that carry packets. below: the switch of each member."""

    def __init__(self, graph: Adjacency, below: Sequence[str]) -> None:
        self._graph, self._below = graph, below
        self._leaves = tuple(dict.fromkeys(below))
        self._from_leaf = {leaf: distances(graph, leaf) for leaf in self._leaves}

    def chosen(self) -> tuple[str, ...]:
        """The members' switches, then those at which ways part, the top one last."""
        top = self._top(tuple(self._graph))
        hops = distances(self._graph, top)
        ways = [list(self._way_up(leaf, hops)) for leaf in self._leaves]
        # What each switch on a way hears from below.
        children: dict[str, set[str]] = {}
        for below, above in (step for way in ways for step in pairwise(way)):
            children.setdefault(above, set()).add(below)
        inner = {name for name, heard in children.items() if len(heard) > 1} | {top}
        inner_first = sorted(inner.difference(self._leaves), key=lambda name: -hops[name])
        return (*self._leaves, *inner_first)

    def _way_up(self, leaf: str, hops: Mapping[str, int]) -> Iterator[str]:
        """A shortest one, the same from wherever two ways meet."""
        at = leaf
        yield at
        while hops[at]:
            at = next(far for _, far in self._graph[at] if hops[far] < hops[at])
            yield at

    def _top(self, among: Sequence[str]) -> str:
        """The one from which the farthest member's switch is nearest; of equals the one that is nearest to all of them."""
        reached = [s for s in among if all(s in hops for hops in self._from_leaf.values())]
        if not reached:
            raise LabError(
                "in-network: no reducer is reached from every rank over the scale-out network: use --helpers-at with a switch "
                "that is, another --algorithm, or another --topology"
            )
        away = {s: [hops[s] for hops in self._from_leaf.values()] for s in reached}
        return min(reached, key=lambda s: (max(away[s]), sum(away[s])))

    def parents(self, at: Sequence[str]) -> tuple[int, ...]:
        """Of the members, then of the reducers at these switches. Refuses a reducer that nothing comes to."""
        n, top = len(self._below), self._top(at)
        hops = [distances(self._graph, switch) for switch in at]
        nearest = {leaf: min((far[leaf], i) for i, far in enumerate(hops) if leaf in far)[1] for leaf in self._leaves}
        to_top = hops[at.index(top)]
        above = []
        for i, switch in enumerate(at):
            closer = [
                (hops[i][other] + to_top[other], hops[i][other], j)
                for j, other in enumerate(at)
                if other in hops[i] and switch in to_top and to_top[other] < to_top[switch]
            ]
            above.append(n + min(closer)[2] if closer else ROOT)
        parents = (*(n + nearest[leaf] for leaf in self._below), *above)
        for i, switch in enumerate(at):
            if n + i not in parents:
                raise LabError(f"in-network: the reducer at {switch} would have nothing to add up: leave it out")
        return parents
