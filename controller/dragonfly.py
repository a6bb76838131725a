"""Ways through a dragonfly: to a group by the fewest global links, then the fewest local ones; so too when links fail.

A way to a group may enter it anywhere, and ends inside it by local links. A group that failures have split cannot be
entered anywhere: then there are ways to each of its routers instead. Along either kind the cost falls with every hop, so
that no packet circles. `down` is a set of `Link.index`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from ipaddress import IPv4Network
from itertools import combinations

from controller.per_fabric import per_fabric
from controller.routing import prefixes
from topologies.addressing import group_prefixes
from topologies.fabric import Fabric, Node

# router -> [(own port number, router at the far end, cost of the link)]
_Graph = Mapping[str, list[tuple[int, str, int]]]
# router -> own port numbers, ascending
Ports = Mapping[str, tuple[int, ...]]


@per_fabric
def is_dragonfly(fabric: Fabric) -> bool:
    """Groups of routers, each group under a prefix that has all its hosts, every two of them joined by a global link."""
    groups = routers_by_group(fabric)
    if len(groups) < 2 or any(s.group is None or not s.prefix for s in fabric.switches):
        return False
    if any("/" not in prefix for prefix in prefixes(fabric)):
        # A host that its router's prefix had no room for.
        return False
    joined = {frozenset(fabric.node(p.node).group for p in x.ports) for x in fabric.links if x.kind == "global"}
    spans = [IPv4Network(prefix) for prefix in group_prefixes(fabric).values()]
    return all(frozenset(pair) in joined for pair in combinations(groups, 2)) and not any(
        one.overlaps(other) for one, other in combinations(spans, 2)
    )


@per_fabric
def routers_by_group(fabric: Fabric) -> Mapping[int, list[str]]:
    groups: dict[int, list[str]] = {}
    for switch in fabric.switches:
        groups.setdefault(group_of(switch), []).append(switch.name)
    return groups


def group_of(router: Node) -> int:
    return -1 if router.group is None else router.group


@dataclass(frozen=True)
class Ways:
    """to_group: group -> ports toward it, at the routers outside; to_router: router -> ports toward it, at the others of
    its group, or at all others if the group is split. direct: (router, group) with a single global link on the way."""

    to_group: Mapping[int, Ports]
    to_router: Mapping[str, Ports]
    direct: frozenset[tuple[str, int]]
    split: frozenset[int]


def ways(fabric: Fabric, down: frozenset[int] = frozenset()) -> Ways:
    return _search(fabric, down) if down else _intact_ways(fabric)


@per_fabric
def _intact_ways(fabric: Fabric) -> Ways:
    return _search(fabric, frozenset())


def _search(fabric: Fabric, down: frozenset[int]) -> Ways:
    graph, one_global = _graph(fabric, down), _global_cost(fabric)
    to_group, to_router = {}, {}
    direct: set[tuple[str, int]] = set()
    split: set[int] = set()
    for group, members in routers_by_group(fabric).items():
        inside = {name: [edge for edge in graph[name] if edge[2] < one_global] for name in members}
        cost = _costs(graph, members)
        to_group[group] = _ports(graph, cost)
        direct.update((name, group) for name, c in cost.items() if one_global <= c < 2 * one_global)
        if len(_costs(inside, members[:1])) < len(members):
            split.add(group)
        for name in members:
            within = graph if group in split else inside
            to_router[name] = _ports(within, _costs(within, [name]))
    return Ways(to_group, to_router, frozenset(direct), frozenset(split))


def _global_cost(fabric: Fabric) -> int:
    """A global link costs more than all local ones of any way."""
    return len(fabric.switches)


def _graph(fabric: Fabric, down: frozenset[int]) -> _Graph:
    graph: dict[str, list[tuple[int, str, int]]] = {switch.name: [] for switch in fabric.switches}
    for link in fabric.links:
        if link.index not in down and link.a.node in graph and link.b.node in graph:
            cost = _global_cost(fabric) if link.kind == "global" else 1
            graph[link.a.node].append((link.a.number, link.b.node, cost))
            graph[link.b.node].append((link.b.number, link.a.node, cost))
    return graph


def _costs(graph: _Graph, targets: Iterable[str]) -> dict[str, int]:
    """The cost from every router that reaches one of the targets (Dijkstra 1959)."""
    costs: dict[str, int] = {}
    queue = [(0, name) for name in targets]
    while queue:
        cost, router = heappop(queue)
        if router not in costs:
            costs[router] = cost
            for _, peer, of_link in graph[router]:
                if peer not in costs:
                    heappush(queue, (cost + of_link, peer))
    return costs


def _ports(graph: _Graph, costs: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The ports on the cheapest ways, at every router that is not itself a target."""
    return {
        router: tuple(sorted(port for port, peer, of_link in graph[router] if costs.get(peer) == cost - of_link))
        for router, cost in costs.items()
        if cost
    }
