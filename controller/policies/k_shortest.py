"""Up to eight shortest paths between every two switches, longer ones too, one of them chosen per flow by hash at the first.

For fabrics whose neighbours have a single shortest path, such as a torus or a random graph, which ECMP cannot spread over.
(Yen, Management Science 1971; Singla et al., "Jellyfish: Networking Data Centers Randomly", NSDI 2012.)

The first switch writes the whole path into the frame's destination MAC, as a port number per hop. Every switch takes the
lowest number and shifts the label; for that it needs a rule per port, and none per path:

    ORIGIN       from a host -> load reg0 by hash -> CHOICE; else -> TRANSIT
    CHOICE       prefix of another switch and reg0 -> the label of a path -> TRANSIT; else -> DESTINATION
    TRANSIT      a port in the label -> shift -> out; none left -> DESTINATION
    DESTINATION  a host -> out; prefix of another switch -> toward it, as `ecmp` does

Only the first switch's rules depend on paths: K per prefix, for n switches about (K + 1) n, however many hosts they have.
A switch between never has to know of a failure, and no mixture of old and new labels loops. A pair whose shortest path
does not fit into a label (more than 12 hops over switches of 7 ports, 4 over those of 127) goes by ECMP.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from controller.actions import LABEL_BITS, Action, DecTtl, GotoTable, Multipath, Output, SetField, ShiftLabel
from controller.match import Match, mac_text
from controller.paths import Path, Paths
from controller.policies.ecmp import ecmp
from controller.prefix_rules import BASE_PRIORITY, KEPT_RULES
from controller.routing import Adjacency, adjacency, attached, prefixes
from controller.rules import FlowRule, SwitchRules
from topologies.addressing import FABRIC_NETWORK
from topologies.fabric import Fabric, Node

K = 8
ORIGIN, CHOICE, TRANSIT, DESTINATION = range(4)

_EVERYTHING = str(FABRIC_NETWORK)
# A unicast, locally administered MAC whose label is empty.
_NO_LABEL = 0x02 << LABEL_BITS


def k_shortest(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
    graph, owners = adjacency(fabric), prefixes(fabric)
    labels = _Labels.of(graph)
    paths = _all_paths(fabric, down)
    by_ecmp = ecmp(fabric, down)
    return {
        switch.name: SwitchRules(
            (
                *_origin(fabric, switch),
                *(_choice(switch.name, owners, paths, labels) if attached(fabric, switch.name) else ()),
                *_transit(graph[switch.name], labels),
                *(FlowRule(f.match, f.actions, f.priority, DESTINATION) for f in by_ecmp[switch.name].flows),
            )
        )
        for switch in fabric.switches
    }


# -- paths ----------------------------------------------------------------------------------------------------------


def _all_paths(fabric: Fabric, down: frozenset[int]) -> dict[tuple[str, str], list[Path]]:
    """(source, target) -> its paths by place, for every two switches with hosts that have any; a place that has lost its
    path to a failure has another one's, the others keep theirs."""
    dead = {(port.node, port.number) for link in fabric.links if link.index in down for port in link.ports}
    links = tuple((switch, tuple(edges)) for switch, edges in adjacency(fabric).items())
    owners = tuple(dict.fromkeys(prefixes(fabric).values()))
    usable, result = Paths(adjacency(fabric, down)), {}
    for pair, (turn, paths) in _intact_paths(links, owners).items():
        if dead.isdisjoint(step for path in paths for step in path):
            result[pair] = paths
        else:
            result[pair] = _refilled(paths, dead, usable.shortest(*pair, K, turn))
    return result


@lru_cache(maxsize=4)
def _intact_paths(
    links: tuple[tuple[str, tuple[tuple[int, str], ...]], ...], owners: tuple[str, ...]
) -> Mapping[tuple[str, str], tuple[int, list[Path]]]:
    """(source, target) -> their `turn`, and their paths with no link down. Kept, for a failure concerns few of them."""
    paths = Paths({switch: list(edges) for switch, edges in links})
    return {
        (source, target): (i + j, paths.shortest(source, target, K, turn=i + j))
        for i, source in enumerate(owners)
        for j, target in enumerate(owners)
        if i != j
    }


def _refilled(intact: list[Path], dead: set[tuple[str, int]], usable: list[Path]) -> list[Path]:
    """Paths that live are still among the k shortest, and keep their places; the others go to the rest, if any.

    >>> a, b, c = ((("s1", 1),), (("s1", 2),), (("s1", 3),))
    >>> _refilled([a, b], {("s1", 1)}, [b, c])
    [(('s1', 3),), (('s1', 2),)]
    """
    live = [path for path in intact if dead.isdisjoint(path)]
    rest = iter([path for path in usable if path not in live][: len(intact) - len(live)])
    kept = [path if dead.isdisjoint(path) else next(rest, None) for path in intact]
    found = [path for path in kept if path]
    return [path or found[i % len(found)] for i, path in enumerate(kept)] if found else []


@dataclass(frozen=True)
class _Labels:
    """Paths as destination MACs: the ports by which switches are left, n_bits each, the first in the lowest bits."""

    n_bits: int

    @staticmethod
    def of(graph: Adjacency) -> "_Labels":
        ports = [number for edges in graph.values() for number, _ in edges]
        return _Labels(max(ports, default=1).bit_length())

    def fits(self, path: Path) -> bool:
        # The highest field stays 0, for shifts to copy.
        return len(path) <= LABEL_BITS // self.n_bits - 1

    def mac(self, path: Path) -> str:
        label = sum(port << i * self.n_bits for i, (_, port) in enumerate(path))
        return mac_text(_NO_LABEL | label)

    def next_is(self, port: int) -> str:
        """Matches the labels whose lowest number is the port; 0: the empty ones."""
        mask = (1 << self.n_bits) - 1
        return f"{mac_text(_NO_LABEL | port)}/{mac_text(0xFF << LABEL_BITS | mask)}"


# -- the tables, in order -------------------------------------------------------------------------------------------


def _origin(fabric: Fabric, switch: Node) -> Iterator[FlowRule]:
    for port, _ in attached(fabric, switch.name):
        load = Multipath((switch.dpid or 0) & 0xFFFF, K, 0)
        yield _rule(ORIGIN, 1, Match(port.number, ipv4_dst=_EVERYTHING), load, GotoTable(CHOICE))
    yield _rule(ORIGIN, 0, Match(ipv4_dst=_EVERYTHING), GotoTable(TRANSIT))


def _choice(
    switch: str, owners: Mapping[str, str], paths: Mapping[tuple[str, str], list[Path]], labels: _Labels
) -> Iterator[FlowRule]:
    """owners: prefix -> its switch."""
    for prefix, owner in owners.items():
        yield from _slots(prefix, tuple(paths.get((switch, owner), ())), labels)
    unlabelled = SetField("eth_dst", mac_text(_NO_LABEL))
    yield _rule(CHOICE, 0, Match(ipv4_dst=_EVERYTHING), unlabelled, GotoTable(DESTINATION))


@lru_cache(KEPT_RULES // K)
def _slots(prefix: str, paths: tuple[Path, ...], labels: _Labels) -> tuple[FlowRule, ...]:
    """The label for each value of reg0; none if no path fits into one."""
    macs = [labels.mac(path) for path in paths if labels.fits(path)]
    return tuple(
        _rule(
            CHOICE,
            1,
            Match(ipv4_dst=prefix, reg0=slot),
            SetField("eth_dst", macs[slot % len(macs)]),
            GotoTable(TRANSIT),
        )
        for slot in range(K if macs else 0)
    )


def _transit(edges: list[tuple[int, str]], labels: _Labels) -> Iterator[FlowRule]:
    yield _rule(TRANSIT, 0, Match(ipv4_dst=_EVERYTHING, eth_dst=labels.next_is(0)), GotoTable(DESTINATION))
    for number, _ in edges:
        match = Match(ipv4_dst=_EVERYTHING, eth_dst=labels.next_is(number))
        yield _rule(TRANSIT, 0, match, DecTtl(), ShiftLabel(labels.n_bits), Output(number))


def _rule(table: int, rank: int, match: Match, *actions: Action) -> FlowRule:
    return FlowRule(match, actions, BASE_PRIORITY + rank, table)
