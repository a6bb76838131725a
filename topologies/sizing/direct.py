"""Sizes of the fabrics whose every switch has hosts: dragonfly and torus."""

from collections.abc import Iterator
from math import prod

from topologies.dragonfly import Dragonfly
from topologies.sizing.size import Size, Unreachable, Want
from topologies.torus import Torus


def dragonfly(want: Want) -> Size:
    """Balanced, a = 2 p = 2 h, with 4 h - 1 ports: of every h that fits the radix the fewest groups, of these the fewest
    routers.

    Doubling adds as many groups. Each group has all others to reach with the same a h global links, so m links between two
    groups become m' = floor(a h / (2 g - 1)), and the rest move; a dragonfly too large for that is built anew, with a
    larger h.
    """
    candidates = list(balanced(want, max_groups=None))
    found = min(candidates, key=lambda d: (d.a * d.groups, d.closed_form().links), default=None)
    if found is None:
        h = (want.radix + 1) // 4
        raise Unreachable(f"h={h} is the largest balanced dragonfly of radix {want.radix}", 2 * h * h * (2 * h * h + 1))
    form, local, g = found.closed_form(), found.a * (found.a - 1) // 2 * found.groups, found.groups
    between = form.links - form.hosts - local
    return Size(
        "dragonfly",
        {"a": found.a, "p": found.p, "h": found.h, "g": g},
        hosts=form.hosts,
        switches=form.switches,
        cables={"in-rack": form.hosts, "local": local, "global": between},
        bisection_links=form.bisection_links,
        diameter=form.diameter or (2 if found.links_per_pair >= found.a else 3),
        path_diversity=form.path_diversity,
        radix=4 * found.h - 1,
        moved=_moved(found, want, local + between),
        shape={"a / h": found.a / found.h, "p / h": found.p / found.h, "groups": g},
        note="" if form.bisection_links is not None else "no formula for the bisection of this number of groups",
    )


def balanced(want: Want, max_groups: int | None) -> Iterator[Dragonfly]:
    """The balanced dragonflies that are large enough, each with its fewest groups, at least two."""
    for h in range(1, (want.radix + 1) // 4 + 1):
        groups = max(2, -(-want.accelerators // (2 * h * h)))
        if groups <= min(2 * h * h + 1, max_groups or groups):
            yield Dragonfly(a=2 * h, p=h, h=h, g=groups)


def _moved(small: Dragonfly, want: Want, switch_cables: int) -> int | None:
    slots, g = small.a * small.h, small.groups
    if 2 * g - 1 <= slots:
        return g * (g - 1) // 2 * (small.links_per_pair - slots // (2 * g - 1))
    larger = balanced(Want(2 * want.accelerators, want.radix), max_groups=None)
    return switch_cables if any(larger) else None


def torus(want: Want) -> Size:
    """Three dimensions, none more than twice another, the longest even so that it can be halved; one accelerator on each
    router, which is thus a part of it, as in a TPU.

    Doubling doubles the shortest dimension: the cable that closes each of its rings is cut (one of 2 routers is no ring).
    """
    if want.radix < _ROUTER_PORTS:
        raise Unreachable(f"a router of three dimensions needs radix {_ROUTER_PORTS}, not {want.radix}", 0)
    sizes = min(_boxes(want.accelerators), key=lambda s: (prod(s), sum(s)))
    found = Torus("x".join(map(str, sizes)))
    form, shortest = found.closed_form(), min(sizes)
    return Size(
        "torus",
        {"dims": found.dims},
        hosts=form.hosts,
        switches=form.switches,
        cables={"in-rack": form.hosts, "local": form.links - form.hosts},
        bisection_links=form.bisection_links,
        diameter=form.diameter,
        path_diversity=form.path_diversity,
        radix=1 + sum(2 if n > 2 else 1 for n in sizes),
        moved=prod(sizes) // shortest if shortest > 2 else 0,
        shape={"longest / shortest dimension": max(sizes) / shortest},
        note="a router for each accelerator",
    )


_ROUTER_PORTS = 7


def _boxes(routers: int) -> Iterator[tuple[int, int, int]]:
    """(x, y, z), 2 <= x <= y <= z <= 2 x, z even, with at least so many routers; of each x and y the smallest z."""
    x = 2
    while True:
        for y in range(x, 2 * x + 1):
            z = max(y, -(-routers // (x * y)))
            z += z % 2
            if z <= 2 * x:
                yield x, y, z
        # From here on even the smallest box is larger than it need be.
        if x**3 >= 2 * routers:
            return
        x += 1
