"""Groups as framed clusters on a ring: the dragonflies. Inside a cluster its switches lie on a circle, so that the links
among them show as a clique, and their hosts on a wider one. Optical circuit switches are in the middle of the ring.

A switch without a group is a cluster of its own, so a graph without any structure becomes a plain ring.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from topologies.drawing.layout import (
    HOSTS_DRAWN,
    Box,
    BoxKind,
    Frame,
    Layout,
    Point,
    crowd_box,
    host_box,
    hosts_by_switch,
    on_circle,
    polygon_radius,
    switch_box,
    text_width,
    together,
)
from topologies.fabric import Fabric
from topologies.shaping import OCS_ROLE
from topologies.tiers import network_switches, scale_out_links

# More switches are drawn as small squares without their names.
_NAMED_SWITCHES = 96
_SWITCH_HEIGHT, _HOST_HEIGHT, _SQUARE = 22.0, 14.0, 14.0
_GAP, _CLUSTER_GAP, _FRAME_MARGIN = 4.0, 14.0, 6.0
_TOP, _MIDDLE = -math.pi / 2, (0.0, 0.0)


@dataclass(frozen=True)
class _Scale:
    """Sizes that are the same in all clusters: boxes as (width, height), and the radius of each circle. named: switches have
    their names in them; crowded: one box for all hosts of a switch."""

    switch: tuple[float, float]
    host: tuple[float, float]
    optical: tuple[float, float]
    switch_circle: float
    host_circle: float
    cluster: float
    optical_circle: float
    ring: float
    named: bool
    crowded: bool

    @property
    def host_angle(self) -> float:
        """Between neighbouring hosts."""
        return 2 * math.asin(_apart(self.host) / (2 * self.host_circle))


def place_clusters(fabric: Fabric) -> Layout:
    optical, groups = _groups(fabric)
    hosts = hosts_by_switch(fabric)
    scale = _scale(fabric, optical, groups, max(map(len, hosts.values()), default=1))
    clusters = together([
        _cluster(fabric, group, hosts, _TOP + 2 * math.pi * i / len(groups), scale) for i, group in enumerate(groups)
    ])  # fmt: skip
    lenses = {
        name: switch_box(fabric, name, on_circle(_MIDDLE, scale.optical_circle, angle), *scale.optical, name)
        for name, angle in _around(optical, _TOP, turn=0.5)
    }
    return together([clusters, Layout(lenses, bends=_bent_inwards(fabric, clusters.boxes, groups))])


def _cluster(
    fabric: Fabric, group: list[str], hosts: Mapping[str, list[str]], direction: float, scale: _Scale
) -> Layout:
    """hosts: by switch; direction: from the middle of the ring, in radians."""
    centre = on_circle(_MIDDLE, scale.ring, direction)
    around = _around(group, direction, turn=0.25)
    switches = {
        name: switch_box(
            fabric, name, on_circle(centre, scale.switch_circle, angle), *scale.switch, name if scale.named else ""
        )
        for name, angle in around
    }
    frames = (_circle(centre, scale.cluster),) if len(group) > 1 else ()
    outside = [_outside(fabric, hosts.get(name, []), centre, angle, scale) for name, angle in around]
    return together([Layout(switches, frames=frames), *outside])


def _bent_inwards(fabric: Fabric, boxes: Mapping[str, Box], groups: list[list[str]]) -> dict[int, tuple[Point, Point]]:
    """Control points of the links between clusters, so that they pass inside the clusters between their ends, not through
    them."""
    cluster_of = {name: i for i, group in enumerate(groups) if len(group) > 1 for name in group}
    bends: dict[int, tuple[Point, Point]] = {}
    for link in scale_out_links(fabric):
        one, other = (cluster_of.get(port.node) for port in link.ports)
        if one is not None and other is not None and one != other:
            a, b = boxes[link.a.node], boxes[link.b.node]
            bends[link.index] = _pulled_in(a, b), _pulled_in(b, a)
    return bends


def _pulled_in(near: Box, far: Box) -> Point:
    """The control point beside `near`, towards `far` and the middle of the ring."""
    return 0.6 * near.x + 0.15 * far.x, 0.6 * near.y + 0.15 * far.y


def _groups(fabric: Fabric) -> tuple[list[str], list[list[str]]]:
    """The optical switches; the others by group."""
    optical: list[str] = []
    groups: dict[int | str, list[str]] = {}
    for switch in network_switches(fabric):
        if switch.role == OCS_ROLE:
            optical.append(switch.name)
        else:
            groups.setdefault(switch.name if switch.group is None else switch.group, []).append(switch.name)
    return optical, list(groups.values())


def _scale(fabric: Fabric, optical: list[str], groups: list[list[str]], hosts_per_switch: int) -> _Scale:
    """The smallest circles on which nothing overlaps."""
    largest = max(map(len, groups), default=1)
    crowded = len(fabric.hosts) > HOSTS_DRAWN
    around = largest * (1 if crowded else hosts_per_switch)
    names = [name for group in groups for name in group]
    named = len(names) <= _NAMED_SWITCHES
    host_names = [] if crowded else [host.name for host in fabric.hosts]
    switch = (_widest(names, "switch"), _SWITCH_HEIGHT) if named else (_SQUARE, _SQUARE)
    host = (_widest(host_names, "host"), _HOST_HEIGHT)
    light = (_widest(optical, "optical") + 16, _SWITCH_HEIGHT + 4)
    switch_circle = polygon_radius(largest, _apart(switch))
    beside = switch_circle + (_apart(switch) + _apart(host)) / 2
    host_circle = max(beside, polygon_radius(around, _apart(host)))
    cluster = host_circle + _apart(host) / 2 + _FRAME_MARGIN
    optical_circle = polygon_radius(len(optical), 1.2 * _apart(light))
    ring = polygon_radius(len(groups), 2 * cluster + _CLUSTER_GAP)
    if optical:
        ring = max(ring, optical_circle + _apart(light) / 2 + cluster)
    return _Scale(switch, host, light, switch_circle, host_circle, cluster, optical_circle, ring, named, crowded)


def _widest(names: list[str], kind: BoxKind) -> float:
    return max((text_width(name, kind) for name in names), default=_SQUARE)


def _apart(size: tuple[float, float]) -> float:
    """How far apart the centres of two upright boxes must be so that they cannot overlap in any direction."""
    return math.hypot(*size) + _GAP


def _around(names: list[str], direction: float, turn: float) -> list[tuple[str, float]]:
    """(name, angle), evenly round a circle: one alone in the given direction, several turned away from it by a share of the
    angle between them. A quarter leaves none of them in front of another, seen from there."""
    step = 2 * math.pi / max(len(names), 1)
    first = direction + (step * turn if len(names) > 1 else 0.0)
    return [(name, first + i * step) for i, name in enumerate(names)]


def _outside(fabric: Fabric, hosts: list[str], centre: Point, angle: float, scale: _Scale) -> Layout:
    """A switch's hosts side by side on the wider circle, or one box for them."""
    if scale.crowded and hosts:
        crowd = crowd_box(hosts, on_circle(centre, scale.host_circle, angle), *scale.host)
        return Layout({crowd.title: crowd}, dict.fromkeys(hosts, crowd.title))
    first = angle - (len(hosts) - 1) / 2 * scale.host_angle
    places = [on_circle(centre, scale.host_circle, first + i * scale.host_angle) for i in range(len(hosts))]
    return Layout({host: host_box(fabric, host, at, *scale.host) for host, at in zip(hosts, places, strict=True)})


def _circle(centre: Point, radius: float) -> Frame:
    x, y = centre
    return Frame(x - radius, y - radius, x + radius, y + radius, radius)
