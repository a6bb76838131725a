"""Equal-cost shortest paths over any fabric: which ports of a switch lead toward which prefix.

Nothing here knows a spine from a leaf. A switch owns the prefixes of the hosts attached to it; a breadth-first search
from each owner over the switches gives every other switch its next hops. `down` is a set of `Link.index`.
"""

from collections.abc import Mapping
from ipaddress import IPv4Network

from controller.match import ipv4_int, value_and_mask
from controller.per_fabric import per_fabric
from topologies.fabric import Fabric, Port

# switch -> [(own port number, switch at the far end)], by port number
Adjacency = Mapping[str, list[tuple[int, str]]]
# switch -> prefix -> own port numbers, ascending
NextHops = Mapping[str, Mapping[str, tuple[int, ...]]]


def adjacency(fabric: Fabric, down: frozenset[int] = frozenset()) -> Adjacency:
    """Switch-to-switch links that are up, without circuits: an optical switch forwards light, it does not route."""
    result: dict[str, list[tuple[int, str]]] = {switch.name: [] for switch in fabric.switches}
    for link in fabric.links:
        if link.index not in down and link.kind != "circuit" and link.a.node in result and link.b.node in result:
            result[link.a.node].append((link.a.number, link.b.node))
            result[link.b.node].append((link.b.number, link.a.node))
    return {switch: sorted(links) for switch, links in result.items()}


def attached(fabric: Fabric, switch: str) -> list[tuple[Port, Port]]:
    """(switch's port, host's port) for every host interface with an address."""
    return [(own, far) for own, far, _ in fabric.neighbours(switch) if far.ip is not None]


def switch_of_address(fabric: Fabric) -> dict[str, str]:
    """address of a host's interface -> the switch that it is attached to."""
    return {far.ip: s.name for s in fabric.switches for _, far in attached(fabric, s.name) if far.ip}


@per_fabric
def prefixes(fabric: Fabric) -> Mapping[str, str]:
    """prefix -> the switch that owns it: its own prefix, and the addresses of attached hosts which that leaves out."""
    result: dict[str, str] = {}
    for switch in fabric.switches:
        hosts = [far.ip for _, far in attached(fabric, switch.name) if far.ip]
        if switch.prefix and hosts:
            result[str(IPv4Network(switch.prefix))] = switch.name
            value, mask = value_and_mask(switch.prefix)
            hosts = [ip for ip in hosts if ipv4_int(ip) & mask != value]
        result.update((ip, switch.name) for ip in hosts)
    return result


@per_fabric
def prefixes_by_owner(fabric: Fabric) -> Mapping[str, list[str]]:
    owned: dict[str, list[str]] = {}
    for prefix, owner in prefixes(fabric).items():
        owned.setdefault(owner, []).append(prefix)
    return owned


def distances(graph: Adjacency, source: str) -> dict[str, int]:
    """Hops from every switch that reaches `source`."""
    hops = {source: 0}
    frontier = [source]
    while frontier:
        reached = []
        for switch in frontier:
            for _, peer in graph[switch]:
                if peer not in hops:
                    hops[peer] = hops[switch] + 1
                    reached.append(peer)
        frontier = reached
    return hops


def next_hops(fabric: Fabric, down: frozenset[int] = frozenset()) -> NextHops:
    """The ports on shortest paths, per switch and prefix; a prefix that a switch cannot reach is absent.

    While every switch keeps one of its ports toward an owner, no distance to that owner changes: only where one loses its
    last is there a new search.
    """
    intact = _intact_next_hops(fabric)
    dead = _dead_ports(fabric, down)
    if not dead:
        return intact
    result = {switch: dict(hops) for switch, hops in intact.items()}
    graph = adjacency(fabric, down)
    for owner, its_prefixes in prefixes_by_owner(fabric).items():
        before = {switch: intact[switch].get(its_prefixes[0], ()) for switch in dead}
        after = {switch: tuple(p for p in ports if p not in dead[switch]) for switch, ports in before.items()}
        if any(before[switch] and not after[switch] for switch in dead):
            searched = _ports_toward(graph, owner)
            after = {switch: searched.get(switch, ()) for switch in graph}
        for switch, ports in after.items():
            for prefix in its_prefixes:
                if ports:
                    result[switch][prefix] = ports
                else:
                    result[switch].pop(prefix, None)
    return result


@per_fabric
def _intact_next_hops(fabric: Fabric) -> NextHops:
    graph = adjacency(fabric)
    result: dict[str, dict[str, tuple[int, ...]]] = {switch: {} for switch in graph}
    for owner, its_prefixes in prefixes_by_owner(fabric).items():
        for switch, ports in _ports_toward(graph, owner).items():
            result[switch].update(dict.fromkeys(its_prefixes, ports))
    return result


def _ports_toward(graph: Adjacency, owner: str) -> dict[str, tuple[int, ...]]:
    """switch -> its ports on shortest paths, for all that reach the owner."""
    hops = distances(graph, owner)
    return {
        switch: tuple([port for port, peer in graph[switch] if hops[peer] < n_hops])
        for switch, n_hops in hops.items()
        if n_hops
    }


def _dead_ports(fabric: Fabric, down: frozenset[int]) -> dict[str, set[int]]:
    """switch -> its ports whose link to another switch is down."""
    dead: dict[str, set[int]] = {}
    for link in fabric.links:
        if link.index in down and not any(fabric.node(port.node).is_host for port in link.ports):
            for port in link.ports:
                dead.setdefault(port.node, set()).add(port.number)
    return dead


def places(intact: tuple[int, ...], usable: tuple[int, ...]) -> tuple[int | None, ...]:
    """The usable ports, each in the place it has when nothing is down; a missing one's place is None (vacant), ports of
    a detour come last. Rendezvous hashing over places then moves only the flows that must move.

    >>> places((1, 2, 3), (1, 3))
    (1, None, 3)
    """
    if usable == intact:
        return intact
    return (*(p if p in usable else None for p in intact), *(p for p in usable if p not in intact))
