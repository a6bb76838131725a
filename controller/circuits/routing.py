"""Routing over the circuits that are set: rules of the packet switches, and the optical ones' own.

For each destination, in this order: a direct circuit; the packet network, where there is one that leads there (before the
circuit, if by a single cable); the way with the fewest circuits, then the fewest hops, of no more than `hop_limit` circuits.
What has no way has no rule, and is told. No rule points to a port without a circuit, so that none sends into the dark. The
two directions of a port may lead to different switches: what came in by it from one may leave by it to the other.

No packet circles: one that is on the packet network gets nearer there or takes a direct circuit, and one that is not has
after each hop fewer circuits, or as many and fewer hops, before it. `down` is a set of `Link.index`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from controller.actions import DecTtl, ForgetInPort
from controller.circuits.changing import CrossConnects, rules_of
from controller.policies.ecmp import spread
from controller.prefix_rules import deliver, rule_toward
from controller.routing import next_hops, prefixes_by_owner
from controller.rules import FlowRule, SwitchRules
from topologies.fabric import Fabric, Node
from topologies.shaping import OCS_ROLE

HOP_LIMIT = 4

# optical switch -> its cross-connects
Circuits = Mapping[str, CrossConnects]
# (circuits, hops) from a switch to an owner of prefixes
_Cost = tuple[int, int]


@dataclass(frozen=True)
class Edge:
    """From `switch` by `port` to `peer`, where it ends in `peer_port`; whether over a circuit."""

    switch: str
    port: int
    peer: str
    peer_port: int
    is_circuit: bool


@dataclass(frozen=True)
class OverCircuits:
    """A policy: a value that is called like any other. `set_up`: what the optical switches hold; `routed`: what packets are
    sent over, None = the same. They differ while circuits change."""

    set_up: Circuits
    routed: Circuits | None = None
    hop_limit: int = HOP_LIMIT

    def __call__(self, fabric: Fabric, down: frozenset[int], /) -> dict[str, SwitchRules]:
        ways = Ways(fabric, self.set_up if self.routed is None else self.routed, down, self.hop_limit)
        return {
            switch.name: rules_of(self.set_up.get(switch.name, {}))
            if switch.role == OCS_ROLE
            else SwitchRules((*deliver(fabric, switch.name), *ways.rules(switch)))
            for switch in fabric.switches
        }


class Ways:
    """The ports that lead toward each destination, over one set of circuits."""

    def __init__(
        self, fabric: Fabric, circuits: Circuits, down: frozenset[int] = frozenset(), hop_limit: int = HOP_LIMIT
    ) -> None:
        self._prefixes = prefixes_by_owner(fabric)
        by_packets = next_hops(fabric, down)
        self._by_packets = {
            switch: {owner: hops[its[0]] for owner, its in self._prefixes.items() if its[0] in hops}
            for switch, hops in by_packets.items()
        }
        # Ports by which packets come from another switch than the one they go to.
        self._crossed: dict[str, set[int]] = defaultdict(set)
        self._out: dict[str, list[Edge]] = defaultdict(list)
        self._into: dict[str, list[Edge]] = defaultdict(list)
        for edge in edges_of(fabric, circuits, down):
            self._out[edge.switch].append(edge)
            self._into[edge.peer].append(edge)
        for edge in (e for its in self._out.values() for e in its if e.is_circuit):
            if any(e.peer_port == edge.port and e.switch != edge.peer for e in self._into[edge.switch]):
                self._crossed[edge.switch].add(edge.port)
        self._switches = [s.name for s in fabric.switches if s.role != OCS_ROLE]
        self._toward = {owner: self._ports_toward(owner, hop_limit) for owner in self._prefixes}

    def ports(self, switch: str, owner: str) -> tuple[int, ...]:
        """The ports by which packets for the owner's hosts leave the switch; none: there is no way."""
        return self._toward[owner].get(switch, ())

    def rules(self, switch: Node) -> Iterator[FlowRule]:
        """One for each prefix of other switches that there is a way to."""
        for owner, its in self._prefixes.items():
            if owner == switch.name or not (ports := self.ports(switch.name, owner)):
                continue
            forward, _ = spread(switch, 0, ports)
            comes_back = not self._crossed[switch.name].isdisjoint(ports)
            for prefix in its:
                rule = rule_toward(prefix, forward)
                yield replace(rule, actions=(DecTtl(), ForgetInPort(), forward)) if comes_back else rule

    @property
    def unreachable(self) -> list[tuple[str, str]]:
        """(from, to) of the switches with hosts between which there is no way."""
        return [(a, b) for a in self._prefixes for b in self._prefixes if a != b and not self.ports(a, b)]

    def _ports_toward(self, owner: str, hop_limit: int) -> dict[str, tuple[int, ...]]:
        costs = self._costs(owner, hop_limit)
        found = {}
        for switch in self._switches:
            if switch == owner:
                continue
            ports = self._beside(switch, owner) or self._by_packets[switch].get(owner) or self._nearest(switch, costs)
            if ports:
                found[switch] = tuple(sorted(ports))
        return found

    def _beside(self, switch: str, owner: str) -> list[int]:
        """Direct circuits, unless a cable leads there directly."""
        direct = [edge for edge in self._out[switch] if edge.peer == owner]
        return [edge.port for edge in direct] if all(edge.is_circuit for edge in direct) else []

    def _nearest(self, switch: str, costs: Mapping[str, _Cost]) -> list[int]:
        if switch not in costs:
            return []
        return [e.port for e in self._out[switch] if e.peer in costs and _plus(costs[e.peer], e) == costs[switch]]

    def _costs(self, owner: str, hop_limit: int) -> dict[str, _Cost]:
        """Dijkstra against the direction of the edges, which circuits have."""
        costs: dict[str, _Cost] = {}
        reached: list[tuple[_Cost, str]] = [((0, 0), owner)]
        while reached:
            cost, switch = heappop(reached)
            if switch in costs:
                continue
            costs[switch] = cost
            for edge in self._into[switch]:
                further = _plus(cost, edge)
                if edge.switch not in costs and further[0] <= hop_limit:
                    heappush(reached, (further, edge.switch))
        return costs


def _plus(cost: _Cost, edge: Edge) -> _Cost:
    return cost[0] + edge.is_circuit, cost[1] + 1


def edges_of(fabric: Fabric, circuits: Circuits, down: frozenset[int] = frozenset()) -> Iterator[Edge]:
    """All links between packet switches, in each direction, and all circuits, in the one that they have."""
    roles = {s.name: s.role for s in fabric.switches}
    for link in fabric.links:
        if link.index not in down and link.kind != "circuit" and all(port.node in roles for port in link.ports):
            for here, there in (link.ports, link.ports[::-1]):
                yield Edge(here.node, here.number, there.node, there.number, False)
    for ocs in sorted(circuits):
        far = {own.number: other for own, other, link in fabric.neighbours(ocs) if link.index not in down}
        for source, target in circuits[ocs].items():
            if source in far and target in far:
                here, there = far[source], far[target]
                yield Edge(here.node, here.number, there.node, there.number, True)
