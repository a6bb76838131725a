"""Data centres side by side, each framed, with the border routers on top and the long-haul links among them."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

from topologies.drawing.layout import (
    Box,
    Frame,
    Layout,
    Note,
    Point,
    helpers_above,
    hosts_by_switch,
    switch_box,
    text_width,
    together,
)
from topologies.fabric import Fabric, Link
from topologies.multi_dc import BORDER_ROLE
from topologies.units import format_rate

_BORDER_HEIGHT, _BORDER_ROW, _MARGIN, _BETWEEN, _ARC, _NOTE_ABOVE = 26.0, 70.0, 18.0, 150.0, 70.0, 10.0


def sites(fabric: Fabric) -> list[tuple[str, Fabric]]:
    """(border router, the fabric behind it) of each site: what is still joined without the long-haul links. None where two
    border routers are on the same site."""
    borders = [switch.name for switch in fabric.switches if switch.role == BORDER_ROLE]
    site_of: dict[str, str] = {}
    for border in borders:
        reached, seen = [border], {border}
        for node in reached:
            far = {port.node for _, port, link in fabric.neighbours(node) if not _is_long_haul(fabric, link)} - seen
            reached += far
            seen |= far
        if not seen.isdisjoint(site_of):
            return []
        site_of |= dict.fromkeys(reached, border)
    return [(border, _part(fabric, border, site_of)) for border in borders]


def _part(fabric: Fabric, border: str, site_of: dict[str, str]) -> Fabric:
    """The site without its border router and what is on that."""
    inside = {node for node, site in site_of.items() if site == border} - {border}
    inside -= set(_helpers_on(fabric, border))
    return replace(
        fabric,
        nodes=tuple(node for node in fabric.nodes if node.name in inside),
        links=tuple(link for link in fabric.links if {port.node for port in link.ports} <= inside),
    )


def _helpers_on(fabric: Fabric, border: str) -> list[str]:
    return hosts_by_switch(fabric, fabric.helpers).get(border, [])


def _is_long_haul(fabric: Fabric, link: Link) -> bool:
    return all(fabric.node(port.node).role == BORDER_ROLE for port in link.ports)


def place_sites(fabric: Fabric, parts: list[tuple[str, Layout]]) -> Layout:
    """parts: (border router, layout of the site without it)."""
    width = max(text_width(border, "switch") for border, _ in parts) + 16
    placed = [_framed(fabric, border, layout, width) for border, layout in parts]
    widths = [layout.extent.right + _BETWEEN for layout in placed]
    moved = [layout.moved(x, 0.0) for layout, x in zip(placed, accumulate([0.0, *widths[:-1]]), strict=True)]
    whole = together(moved)
    order = {border: i for i, (border, _) in enumerate(parts)}
    return replace(
        whole,
        bends={**whole.bends, **_long_haul_arcs(fabric, whole.boxes, order)},
        notes=_long_haul_notes(fabric, whole.boxes, order),
    )


def _framed(fabric: Fabric, border: str, layout: Layout, width: float) -> Layout:
    """The site with its border router above, in a frame whose left side is at 0; the border routers of all sites have the
    same y."""
    extent = layout.extent
    box = switch_box(
        fabric, border, ((extent.left + extent.right) / 2, extent.top - _BORDER_ROW), width, _BORDER_HEIGHT, border
    )
    on_border = _helpers_on(fabric, border)
    above = helpers_above(fabric, box, on_border) if on_border else {}
    site = replace(layout, boxes={border: box, **above, **layout.boxes})
    held = site.extent
    frame = Frame(held.left - _MARGIN, held.top - _MARGIN, held.right + _MARGIN, held.bottom + _MARGIN, 10.0)
    return replace(site, frames=(frame, *site.frames)).moved(-frame.left, -box.y)


def _long_haul(fabric: Fabric, order: dict[str, int]) -> dict[tuple[str, str], list[Link]]:
    """The links of each pair of border routers, the left one first."""
    links: dict[tuple[str, str], list[Link]] = {}
    for link in fabric.links:
        if _is_long_haul(fabric, link):
            left, right = sorted((link.a.node, link.b.node), key=order.__getitem__)
            links.setdefault((left, right), []).append(link)
    return links


def _rise(left: str, right: str, order: dict[str, int]) -> float:
    """Height of the control points above the border routers: none between neighbours, else above all links passed over."""
    return _ARC * (order[right] - order[left] - 1)


def _long_haul_arcs(fabric: Fabric, boxes: Mapping[str, Box], order: dict[str, int]) -> dict[int, tuple[Point, Point]]:
    arcs: dict[int, tuple[Point, Point]] = {}
    for (left, right), links in _long_haul(fabric, order).items():
        rise = _rise(left, right, order)
        if rise:
            a, b = boxes[left], boxes[right]
            arcs |= {link.index: ((a.x, a.y - rise), (b.x, b.y - rise)) for link in links}
    return arcs


def _long_haul_notes(fabric: Fabric, boxes: Mapping[str, Box], order: dict[str, int]) -> tuple[Note, ...]:
    """Above the middle of each pair's links; a curve reaches three quarters of the height of its control points."""
    notes: list[Note] = []
    for (left, right), links in _long_haul(fabric, order).items():
        a, b = boxes[left], boxes[right]
        y = a.y - 0.75 * _rise(left, right, order) - _NOTE_ABOVE
        count = f"{len(links)} x " if len(links) > 1 else ""
        text = f"{count}{format_rate(links[0].rate_mbps)}, {_delay(links[0].delay_us)}"
        notes.append(Note((a.x + b.x) / 2, y, text))
    return tuple(notes)


def _delay(delay_us: float) -> str:
    return f"{delay_us / 1000:g} ms" if delay_us >= 1000 else f"{delay_us:g} us"
