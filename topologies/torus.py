"""Torus: routers on a grid of two or three dimensions, each joined to the next along every one, the last to the first.

The fabric of Google's TPU pods, Blue Gene/L and Cray's Gemini. Along a dimension of 2 the next router and the one before
are the same: one cable joins them, not two.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from math import factorial, prod

from topologies.addressing import host_ip, leaf_prefixes
from topologies.builder import FabricBuilder
from topologies.errors import TopologyError
from topologies.fabric import Fabric
from topologies.topology import ClosedForm, require_at_least

_AXES = "xyz"
Coordinates = tuple[int, ...]


@dataclass(frozen=True)
class Torus:
    """dims: routers along each dimension, '4x4' or '4x4x4'; hosts_per_router: accelerators on each."""

    dims: str = "4x4"
    hosts_per_router: int = 1

    def __post_init__(self) -> None:
        require_at_least(self, hosts_per_router=1)
        sizes = self.dims.split("x")
        if not 1 <= len(sizes) <= len(_AXES) or not all(n.isdecimal() and int(n) >= 2 for n in sizes):
            raise TopologyError(f"dims={self.dims!r}: write one to three sizes of 2 or more, as 4x4 or 4x4x4")

    @property
    def sizes(self) -> Coordinates:
        return tuple(int(n) for n in self.dims.split("x"))

    def build(self) -> Fabric:
        fabric = FabricBuilder("torus", asdict(self))
        prefixes = leaf_prefixes(prod(self.sizes), self.hosts_per_router)
        places = list(product(*map(range, self.sizes)))
        routers = {at: fabric.switch(_name(at), "router", prefix=str(prefixes[i])) for i, at in enumerate(places)}
        for i, router in enumerate(routers.values()):
            for j in range(self.hosts_per_router):
                name = fabric.host(f"h{i * self.hosts_per_router + j + 1}", host_ip(prefixes[i], j))
                fabric.link(name, router, "scale-out")
        for at in places:
            for far in self._next(at):
                fabric.link(routers[at], routers[far], "scale-out")
        return fabric.build()

    def _next(self, at: Coordinates) -> Iterator[Coordinates]:
        """The next router along each dimension; none from the last of two, whose cable the first has placed."""
        for axis, size in enumerate(self.sizes):
            if size > 2 or at[axis] == 0:
                yield (*at[:axis], (at[axis] + 1) % size, *at[axis + 1 :])

    def closed_form(self) -> ClosedForm:
        """Bisection: across the longest dimension, where that is even; an odd one has no formula. Paths: the steps to the
        farthest router in any order, in either direction along an even dimension."""
        routers, longest = prod(self.sizes), max(self.sizes)
        hosts, steps = routers * self.hosts_per_router, [n // 2 for n in self.sizes]
        cut = routers // longest * _cables_around(longest)
        return ClosedForm(
            hosts=hosts,
            switches=routers,
            links=hosts + sum(routers * _cables_around(n) // 2 for n in self.sizes),
            diameter=sum(steps),
            bisection_links=min(cut, hosts // 2) if longest % 2 == 0 else None,
            path_diversity=factorial(sum(steps))
            // prod(map(factorial, steps))
            * 2 ** sum(_is_ring(n) for n in self.sizes),
        )


def _name(at: Coordinates) -> str:
    """(0, 2) -> 'x1y3'."""
    return "".join(f"{axis}{i + 1}" for axis, i in zip(_AXES, at, strict=False))


def _cables_around(size: int) -> int:
    """Cables of a router along a dimension."""
    return 2 if size > 2 else 1


def _is_ring(size: int) -> bool:
    """The farthest router along a dimension is as far in both directions, on different cables."""
    return size > 2 and size % 2 == 0
