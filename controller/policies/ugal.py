"""Dragonfly, UGAL: minimal where the minimal link has room, detours as Valiant's where it has not.

Per pair of groups, a share of the flows (by hash, in steps of one of `SLOTS`) goes minimally. The controller measures how
busy the global links are and moves each share by one step at most at a time, so a change moves an eighth of a pair's
flows, once. Queues are not visible to it: a link that is busy all the time stands for one with a queue.
(Singh, "Load-Balanced Routing in Interconnection Networks", PhD thesis, Stanford 2005; for the dragonfly Kim et al.,
ISCA 2008, whose routers decide per packet by their queues.)
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from math import inf
from statistics import mean
from typing import Any, ClassVar

from controller.detour import SLOTS, detoured_routes
from controller.dragonfly import group_of, is_dragonfly, routers_by_group
from controller.loads import Loads
from controller.rules import SwitchRules
from topologies.fabric import Fabric

# A minimal link busier than this has a queue; one less busy than that has room for all.
_FULL = 0.9
_ROOM = 0.5
# Shares stay while minimal and detoured links are as busy as each other, within this.
_MARGIN = 0.1


@dataclass(frozen=True)
class Ugal:
    """`detours`: (source group, destination group) -> slots that go by detours; none if absent."""

    detours: Mapping[tuple[int, int], int] = field(default_factory=dict)

    period_s: ClassVar[float] = 0.2
    has_shape = staticmethod(is_dragonfly)

    def __call__(self, fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
        shares = {pair: SLOTS - self.detours.get(pair, 0) for pair in permutations(routers_by_group(fabric), 2)}
        return detoured_routes(fabric, down, shares)

    def react(self, fabric: Fabric, down: frozenset[int], loads: Loads) -> "Ugal":
        groups, busy = routers_by_group(fabric), _between_groups(fabric, down, loads)
        detours = {
            (source, to): next_detours(
                self.detours.get((source, to), 0),
                # Without a live link of its own the pair shares those of others.
                busy.get((source, to), 1.0),
                _detoured(busy, source, to, groups),
                len(groups),
            )
            for source, to in permutations(groups, 2)
        }
        return Ugal({pair: n for pair, n in detours.items() if n})

    def summary(self) -> dict[str, Any]:
        """The minimal share of each pair of groups that has detours, e.g. {'0->1': 0.25}."""
        return {f"{source}->{to}": 1 - n / SLOTS for (source, to), n in sorted(self.detours.items())}

    def __str__(self) -> str:
        return "ugal"


def next_detours(n: int, minimal: float, detoured: float, n_groups: int) -> int:
    """Slots that a pair should detour, given those that it does, and how busy its minimal and detoured links are.

    Where both are full, the share at which a flow gets as much either way: one link against g - 2 ways of two links.
    """
    fair = round(SLOTS * (n_groups - 2) / n_groups)
    if minimal <= _ROOM or detoured >= minimal + _MARGIN:
        return max(n - 1, 0)
    if minimal >= _FULL and (detoured <= minimal - _MARGIN or 0 < n < fair):
        return min(n + 1, SLOTS)
    return n


def _between_groups(fabric: Fabric, down: frozenset[int], loads: Loads) -> dict[tuple[int, int], float]:
    """(group, group) -> how busy the live global links between them are on average, in that direction."""
    busy = defaultdict(list)
    for link in fabric.links:
        if link.kind == "global" and link.index not in down:
            for here, there in (link.ports, link.ports[::-1]):
                pair = group_of(fabric.node(here.node)), group_of(fabric.node(there.node))
                busy[pair].append(loads.get(here.intf, 0.0))
    return {pair: mean(values) for pair, values in busy.items()}


def _detoured(busy: Mapping[tuple[int, int], float], source: int, to: int, groups: Iterable[int]) -> float:
    """How busy a detour is on average: as its busier half. Infinitely, where there is none."""
    halves = [((source, via), (via, to)) for via in groups]
    ways = [max(busy[a], busy[b]) for a, b in halves if a in busy and b in busy]
    return mean(ways) if ways else inf
