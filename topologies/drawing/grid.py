"""Routers on a grid: the torus of two dimensions flat, that of three in oblique projection. Links that wrap around are
arcs; each router's hosts are to its lower right, where no link runs."""

import math
from collections.abc import Iterator
from itertools import product

from topologies.drawing.layout import (
    HOSTS_DRAWN,
    Box,
    Layout,
    Point,
    crowd_box,
    helpers_above,
    host_box,
    hosts_by_switch,
    switch_box,
    text_width,
    together,
)
from topologies.fabric import Fabric
from topologies.tiers import network_switches, scale_out_links

Coordinates = tuple[int, ...]

_ROUTER_HEIGHT, _HOST_HEIGHT, _ROW, _RISE, _LAYER_GAP, _GAP = 22.0, 14.0, 96.0, 44.0, 44.0, 10.0
# Hosts of a router drawn one by one, above each other.
_HOSTS_OF_ROUTER = 2
_ARC_ABOVE, _ARC_ASIDE = 32.0, 18.0


def grid_sizes(fabric: Fabric) -> Coordinates | None:
    """Sizes of the two or three dimensions of which the network is the torus, its switches in row-major order; None if it
    is not one. Along a dimension of 2 a single link joins both."""
    number = {switch.name: i for i, switch in enumerate(network_switches(fabric))}
    ends = ((number.get(x.a.node), number.get(x.b.node)) for x in scale_out_links(fabric))
    joined = {(min(a, b), max(a, b)) for a, b in ends if a is not None and b is not None}
    for sizes in _shapes(len(number)):
        n_pairs = len(number) * sum(1.0 if n > 2 else 0.5 for n in sizes)
        if len(joined) == n_pairs and all(pair in joined for pair in _torus_pairs(sizes)):
            return sizes
    return None


def _shapes(n: int) -> Iterator[Coordinates]:
    """Two or three sizes of 2 or more whose product is n."""
    for x in (x for x in range(2, n // 2 + 1) if n % x == 0):
        yield x, n // x
        yield from ((x, y, n // x // y) for y in range(2, n // x // 2 + 1) if n // x % y == 0)


def _torus_pairs(sizes: Coordinates) -> Iterator[tuple[int, int]]:
    """Switches that are joined, by number, the lower first."""
    for axis, size in enumerate(sizes):
        stride = math.prod(sizes[axis + 1 :])
        for i in range(math.prod(sizes)):
            last = i // stride % size == size - 1
            j = i - (size - 1) * stride if last else i + stride
            yield min(i, j), max(i, j)


def place_grid(fabric: Fabric, sizes: Coordinates) -> Layout:
    routers = [switch.name for switch in network_switches(fabric)]
    width = max(text_width(name, "switch") for name in routers)
    host_width = max((text_width(host.name, "host") for host in fabric.hosts), default=0.0)
    axes = _axes(sizes, width + host_width + 2 * _GAP)
    coordinates = dict(zip(routers, product(*map(range, sizes)), strict=True))
    boxes = {
        name: switch_box(fabric, name, _project(at, axes), width, _ROUTER_HEIGHT, name)
        for name, at in coordinates.items()
    }
    below = hosts_by_switch(fabric, fabric.accelerators)
    beside = [_beside(fabric, boxes[name], hosts, host_width) for name, hosts in below.items()]
    for name, helpers in hosts_by_switch(fabric, fabric.helpers).items():
        boxes |= helpers_above(fabric, boxes[name], helpers)
    return together([Layout(boxes, bends=_arcs(fabric, boxes, coordinates, width)), *beside])


def _beside(fabric: Fabric, router: Box, hosts: list[str], width: float) -> Layout:
    """A router's hosts above each other, or one box for them."""
    x, y = router.x + (router.width + width) / 2, router.y + (_ROUTER_HEIGHT + _HOST_HEIGHT) / 2
    if len(hosts) > (_HOSTS_OF_ROUTER if len(fabric.accelerators) <= HOSTS_DRAWN else 1):
        crowd = crowd_box(hosts, (x, y), width, _HOST_HEIGHT)
        return Layout({crowd.title: crowd}, dict.fromkeys(hosts, crowd.title))
    places = [(x, y + i * (_HOST_HEIGHT + 3)) for i in range(len(hosts))]
    return Layout({
        host: host_box(fabric, host, at, width, _HOST_HEIGHT) for host, at in zip(hosts, places, strict=True)
    })  # fmt: skip


def _axes(sizes: Coordinates, cell: float) -> list[Point]:
    """The step of each dimension. In three, all columns of (x, y) lie beside each other, so that no box hides another."""
    if len(sizes) == 2:
        return [(cell + _ARC_ASIDE, 0.0), (0.0, _ROW)]
    return [(sizes[1] * cell, 0.0), (cell, -_RISE), (0.0, sizes[1] * _RISE + _LAYER_GAP)]


def _project(at: Coordinates, axes: list[Point]) -> Point:
    steps = list(zip(at, axes, strict=True))
    return sum(n * dx for n, (dx, _) in steps), sum(n * dy for n, (_, dy) in steps)


def _arcs(
    fabric: Fabric, boxes: dict[str, Box], coordinates: dict[str, Coordinates], width: float
) -> dict[int, tuple[Point, Point]]:
    """Control points of the links that wrap around."""
    arcs: dict[int, tuple[Point, Point]] = {}
    for link in scale_out_links(fabric):
        a, b = (coordinates.get(port.node) for port in link.ports)
        if a and b and max(abs(i - j) for i, j in zip(a, b, strict=True)) > 1:
            arcs[link.index] = _arc(boxes[link.a.node], boxes[link.b.node], width)
    return arcs


def _arc(a: Box, b: Box, width: float) -> tuple[Point, Point]:
    """Bowed upwards, or to the left where the link is upright: away from the hosts."""
    dx, dy = b.x - a.x, b.y - a.y
    length = math.hypot(dx, dy)
    nx, ny = dy / length, -dx / length
    if nx > 0 or (nx == 0 and ny > 0):
        nx, ny = -nx, -ny
    bow_x, bow_y = nx * (_ARC_ASIDE + width * 0.8), ny * _ARC_ABOVE
    return (a.x + bow_x, a.y + bow_y), (b.x + bow_x, b.y + bow_y)
