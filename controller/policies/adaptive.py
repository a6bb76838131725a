"""ECMP, until a link is hot: then an elephant on it, an announced flow that takes a good part of it, moves to where there is
room.

Which links are hot, port counters say; which flows are on them follows from the rules. What a flow sends is estimated: the
flows of a hot link share what it carries as their announced rates are. A flow moves only where it leaves every link clearly
emptier than the one that it came from, one per hot link and decision, and then stays for a while: so its packets are
reordered at most once per move, and nothing oscillates. (As Hedera, Al-Fares et al., NSDI 2010, with flows announced.)
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from controller.dataplane import DataPlane, DataPlaneError
from controller.demand import Demand
from controller.exact_rules import with_exact
from controller.flow import Flow
from controller.loads import Loads
from controller.paths import Path
from controller.placement import Candidates
from controller.policies.ecmp import ecmp
from controller.rules import SwitchRules
from topologies.fabric import Fabric

# A link busier than this is hot.
_HOT = 0.9
# An elephant takes at least this part of its link's rate.
_ELEPHANT = 0.1
# A move must leave every link of the new path emptier than the hot one was, by this.
_MARGIN = 0.1
# A flow that has moved stays for so many readings.
HOLD_READINGS = 20


@dataclass(frozen=True)
class Adaptive:
    """`moved`: flow -> the path it has been moved to; `moves`: how often; `moved_at`: the reading of its last move."""

    demands: tuple[Demand, ...] = ()
    moved: Mapping[Flow, Path] = field(default_factory=dict)
    moves: Mapping[Flow, int] = field(default_factory=dict)
    moved_at: Mapping[Flow, int] = field(default_factory=dict)
    # Changes nothing by itself.
    readings: int = field(default=0, compare=False)

    multipath: ClassVar[bool] = True
    period_s: ClassVar[float] = 0.5

    def __call__(self, fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
        """A flow whose path has died goes by ECMP while it is dead."""
        dead = {(port.node, port.number) for link in fabric.links if link.index in down for port in link.ports}
        live = {flow: path for flow, path in self.moved.items() if dead.isdisjoint(path)}
        return with_exact(ecmp(fabric, down), live)

    def announced(self, fabric: Fabric, demands: tuple[Demand, ...]) -> "Adaptive":
        """Flows that were known stay where they are."""
        candidates = Candidates(fabric)
        for demand in demands:
            candidates.check(demand.flow)
        flows = {demand.flow for demand in demands}
        kept = {flow: path for flow, path in self.moved.items() if flow in flows}
        return replace(self, demands=demands, moved=kept)

    def react(self, fabric: Fabric, down: frozenset[int], loads: Loads) -> "Adaptive":
        now = replace(self, readings=self.readings + 1)
        hot = sorted(
            (intf for intf in _between_switches(fabric) if loads.get(intf, 0.0) >= _HOT), key=lambda x: -loads[x]
        )
        if not hot or not self.demands:
            return now
        board = _Measured(fabric, loads, _ways(fabric, down, self))
        candidates = Candidates(fabric, down)
        for intf in hot:
            free = [demand for demand in board.on(intf) if not now.holds(demand.flow)]
            if found := _best_move(board, intf, free, candidates):
                demand, path = found
                board.move(demand, path, intf)
                now = now._with_move(demand.flow, path)
        return now

    def holds(self, flow: Flow) -> bool:
        """Whether the flow has moved a short while ago."""
        return flow in self.moved_at and self.readings - self.moved_at[flow] <= HOLD_READINGS

    def _with_move(self, flow: Flow, path: Path) -> "Adaptive":
        return replace(
            self,
            moved={**self.moved, flow: path},
            moves={**self.moves, flow: self.moves.get(flow, 0) + 1},
            moved_at={**self.moved_at, flow: self.readings},
        )

    def summary(self) -> dict[str, Any]:
        """Which flows were moved, how often, and the switches that they go through now."""
        moved = {
            str(flow): {"moves": self.moves[flow], "through": [switch for switch, _ in path]}
            for flow, path in self.moved.items()
        }
        return {"flows": len(self.demands), "moves": sum(self.moves.values()), "moved": moved}

    def __str__(self) -> str:
        return "adaptive"


def _between_switches(fabric: Fabric) -> Iterator[str]:
    """Egress interfaces of links that a flow can avoid: not those to hosts."""
    for link in fabric.links:
        if not any(fabric.node(port.node).is_host for port in link.ports):
            yield from (port.intf for port in link.ports)


def _ways(fabric: Fabric, down: frozenset[int], policy: Adaptive) -> dict[Demand, list[str]]:
    """demand -> the egress interfaces of the switches on its way; one that has no way is left out."""
    plane, ways = DataPlane(fabric, policy(fabric, down), down), {}
    for demand in policy.demands:
        try:
            ways[demand] = [port.intf for port in plane.path(demand.flow)[1:]]
        except DataPlaneError:
            continue
    return ways


class _Measured:
    """Loads of links as measured, and as they will be after the moves of this decision."""

    def __init__(self, fabric: Fabric, loads: Loads, ways: dict[Demand, list[str]]) -> None:
        self._fabric = fabric
        self._intf = {(p.node, p.number): p.intf for link in fabric.links for p in link.ports}
        self._load = dict(loads)
        self._ways = ways

    def on(self, intf: str) -> list[Demand]:
        return [demand for demand, way in self._ways.items() if intf in way]

    def load(self, intf: str) -> float:
        return self._load.get(intf, 0.0)

    def share(self, demand: Demand, intf: str) -> float:
        """What the demand takes of the link, by estimate."""
        return self.load(intf) * demand.rate_mbps / sum(other.rate_mbps for other in self.on(intf))

    def peak_with(self, demand: Demand, path: Path, hot: str) -> float:
        """The load of the fullest link that the demand would newly use; infinite if it would stay on the hot one."""
        way = self._along(path)
        if hot in way:
            return float("inf")
        rate_mbps = self.share(demand, hot) * self._fabric.link_of(hot).rate_mbps
        new = [intf for intf in way if intf not in self._ways[demand]]
        return max((self.load(x) + rate_mbps / self._fabric.link_of(x).rate_mbps for x in new), default=0.0)

    def move(self, demand: Demand, path: Path, hot: str) -> None:
        rate_mbps = self.share(demand, hot) * self._fabric.link_of(hot).rate_mbps
        last = self._ways[demand][-1]
        way = [*self._along(path), last]
        for intf in self._ways[demand]:
            self._load[intf] = self.load(intf) - rate_mbps / self._fabric.link_of(intf).rate_mbps
        for intf in way:
            self._load[intf] = self.load(intf) + rate_mbps / self._fabric.link_of(intf).rate_mbps
        self._ways[demand] = way

    def _along(self, path: Path) -> list[str]:
        return [self._intf[hop] for hop in path]


def _best_move(
    board: _Measured, hot: str, demands: Iterable[Demand], candidates: Candidates
) -> tuple[Demand, Path] | None:
    """Of the elephants on the hot link, the one that finds most room elsewhere, and where; None if it would not help."""
    found = min(_moves(board, hot, demands, candidates), key=lambda move: move[0], default=None)
    return found[1:] if found and found[0] <= board.load(hot) - _MARGIN else None


def _moves(
    board: _Measured, hot: str, demands: Iterable[Demand], candidates: Candidates
) -> Iterator[tuple[float, Demand, Path]]:
    if board.load(hot) < _HOT:
        return
    for demand in demands:
        if board.share(demand, hot) >= _ELEPHANT:
            for path in candidates.of(demand.flow):
                yield board.peak_with(demand, path, hot), demand, path
