"""A fabric as an SVG picture: tiers as rows, with pods and servers framed; a fabric without tiers as a ring of groups. Links
are coloured by load on request.

Pure text building: opens in any browser, needs nothing from outside.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from topologies.fabric import Fabric, Link
from topologies.tiers import hb_domains, rows, scale_out_links, tiers

WIDTH = 1120
_ROW_HEIGHT, _CROWDED_ROW_HEIGHT, _TOP = 108, 190, 36
_CROWDED_LINKS = 200
_HOSTS_DRAWN = 64
_SCALE_UP_DROP = 40
_INK, _PAPER, _IDLE, _FRAME = "#1f2933", "#ffffff", "#c3ccd5", "#9aa5b1"
# Cables of one rail have one colour.
_RAILS = ("#7aa6d6", "#e0a458", "#7bb58a", "#c48bb0", "#8fb8b8", "#d08c7c", "#a3a35c", "#9a94c8")
# Load 0 to 1: grey through blue and amber to red, told apart by lightness too.
_RAMP = ((0.0, (195, 204, 213)), (0.35, (86, 140, 200)), (0.7, (232, 163, 61)), (1.0, (197, 48, 48)))

Point = tuple[float, float]


@dataclass(frozen=True)
class _Box:
    """A node on the picture, or all hosts of one switch as one box. name is what to write; '' writes nothing."""

    x: float
    y: float
    width: float
    name: str
    title: str
    host: bool

    @property
    def height(self) -> float:
        return 18.0 if self.host else 26.0


def svg(fabric: Fabric, utilisation: Mapping[str, float] | None = None) -> str:
    """utilisation: egress interface -> share of the link's rate; None draws all links alike."""
    layered = not _has_peers(fabric)
    boxes, condensed = (_layered if layered else _circular)(fabric)
    height = max(box.y for box in boxes.values()) + 44 if boxes else 40
    links = sorted(fabric.links, key=lambda x: max((utilisation or {}).get(p.intf, 0.0) for p in x.ports))
    rails = {host: i for server in hb_domains(fabric) for i, host in enumerate(server)}
    lines = [line for link in links if (line := _line(fabric, link, boxes, condensed, rails, utilisation))]
    frames = _frames(fabric, boxes) if layered else []
    legend = _legend() if utilisation is not None else []
    body = "\n".join((*frames, *lines, *(_box(b) for b in boxes.values()), *legend))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="Drawing of the fabric {escape(fabric.name)}" font-family="system-ui, sans-serif">\n'
        f"{body}\n</svg>\n"
    )


def colour(load: float) -> str:
    """'#rrggbb' of a load from 0 to 1."""
    load = min(max(load, 0.0), 1.0)
    for (low, a), (high, b) in pairwise(_RAMP):
        if load <= high:
            t = (load - low) / (high - low)
            return "#" + "".join(f"{round(x + (y - x) * t):02x}" for x, y in zip(a, b, strict=True))
    return "#c53030"


def _has_peers(fabric: Fabric) -> bool:
    """Links within a tier: a dragonfly or a torus, where 'up' means nothing."""
    tier = tiers(fabric)
    return any(tier.get(x.a.node) == tier.get(x.b.node) for x in scale_out_links(fabric))


# -- placing --------------------------------------------------------------------------------------------------------


def _layered(fabric: Fabric) -> tuple[dict[str, _Box], dict[str, str]]:
    """Boxes by name, and for hosts that are drawn as one box the box that stands for each."""
    levels = rows(fabric)
    height = _CROWDED_ROW_HEIGHT if len(fabric.links) > _CROWDED_LINKS else _ROW_HEIGHT
    boxes: dict[str, _Box] = {}
    for depth, names in enumerate(reversed(levels[1:])):
        boxes |= _spread(fabric, names, _TOP + depth * height)
    y = max((box.y for box in boxes.values()), default=0.0) + _ROW_HEIGHT - 14
    if hb_domains(fabric):
        return boxes, _servers_below(fabric, boxes, y)
    return boxes, _hosts_below(fabric, boxes, lambda switch: (boxes[switch].x, y))


def _spread(fabric: Fabric, names: list[str], y: float) -> dict[str, _Box]:
    step = WIDTH / max(len(names), 1)
    width = min(96.0, step * 0.82)
    shown = _labels(names, width)
    return {
        name: _Box(step * (i + 0.5), y, width, shown[i], f"{name} ({fabric.node(name).role})", host=False)
        for i, name in enumerate(names)
    }


def _labels(names: list[str], width: float) -> list[str]:
    """Full names where they fit, else the number at their end, else nothing."""
    if all(len(n) * 7.2 < width for n in names):
        return names
    short = [n[len(n.rstrip("0123456789")) :] for n in names]
    return short if all(s and len(s) * 7.2 < width for s in short) else [""] * len(names)


def _circular(fabric: Fabric) -> tuple[dict[str, _Box], dict[str, str]]:
    """Switches on a circle in the fabric's order, which keeps groups together; hosts outside."""
    switches = [s.name for s in fabric.switches if s.name in tiers(fabric)]
    radius, centre = 270.0, (WIDTH / 2, 400.0)
    width = min(74.0, 2 * math.pi * radius / max(len(switches), 1) * 0.8)
    shown = _labels(switches, width)
    boxes: dict[str, _Box] = {}
    angle: dict[str, float] = {}
    group = {s.name: s.group for s in fabric.switches}
    gaps = sum(group[a] != group[b] for a, b in zip(switches, switches[1:] + switches[:1], strict=True))
    step = 2 * math.pi / max(len(switches) + 0.6 * gaps, 1)
    at = -math.pi / 2
    for i, name in enumerate(switches):
        angle[name] = at
        x, y = centre[0] + radius * math.cos(at), centre[1] + radius * math.sin(at)
        boxes[name] = _Box(x, y, width, shown[i], f"{name} ({fabric.node(name).role})", host=False)
        at += step * (1.6 if group[name] != group[switches[(i + 1) % len(switches)]] else 1.0)

    def outside(switch: str) -> Point:
        return centre[0] + 1.3 * radius * math.cos(angle[switch]), centre[1] + 1.3 * radius * math.sin(angle[switch])

    return boxes, _hosts_below(fabric, boxes, outside)


def _hosts_below(fabric: Fabric, boxes: dict[str, _Box], place: Callable[[str], Point]) -> dict[str, str]:
    """Adds the hosts, by switch. Returns host -> box."""
    by_switch: dict[str, list[str]] = {}
    for host in fabric.hosts:
        by_switch.setdefault(fabric.switch_of(host.name), []).append(host.name)
    room = WIDTH / max(len(by_switch), 1) * 0.9
    stands_for: dict[str, str] = {}
    for switch, hosts in by_switch.items():
        stands_for |= _hosts_at(fabric, boxes, hosts, place(switch), room)
    return stands_for


def _servers_below(fabric: Fabric, boxes: dict[str, _Box], y: float) -> dict[str, str]:
    """Adds the hosts, by server, and under them their scale-up switches. Returns host -> box."""
    servers = hb_domains(fabric)
    inside = {name for server in servers for name in server}
    servers += [[host.name] for host in fabric.hosts if host.name not in inside]
    room = WIDTH / len(servers)
    stands_for: dict[str, str] = {}
    for i, hosts in enumerate(servers):
        x = room * (i + 0.5)
        stands_for |= _hosts_at(fabric, boxes, hosts, (x, y), room * 0.9)
        if hosts[0] in boxes:
            left, right = boxes[hosts[0]], boxes[hosts[-1]]
            width = right.x - left.x + left.width
            for name in _scale_up_switches(fabric, hosts):
                boxes[name] = _Box(x, y + _SCALE_UP_DROP, width, name, f"{name}: HB domain of {len(hosts)}", host=False)
    return stands_for


def _hosts_at(fabric: Fabric, boxes: dict[str, _Box], hosts: list[str], at: Point, room: float) -> dict[str, str]:
    """Adds neighbours: a box each where the fabric's hosts are few, else one for all. Returns host -> box."""
    x, y = at
    if len(fabric.hosts) > _HOSTS_DRAWN:
        text = next((t for t in (f"{len(hosts)} hosts", str(len(hosts))) if len(t) * 6.6 < room), "")
        title = f"{len(hosts)} hosts: {hosts[0]} .. {hosts[-1]}"
        boxes[title] = _Box(x, y, min(room, 64.0), text, title, host=True)
        return dict.fromkeys(hosts, title)
    step = min(room / len(hosts), 44.0)
    for i, name in enumerate(hosts):
        left, text = x + (i - (len(hosts) - 1) / 2) * step, name if len(name) * 6.6 < step else ""
        boxes[name] = _Box(left, y, step * 0.84, text, f"{name} on {fabric.switch_of(name)}", host=True)
    return {name: name for name in hosts}


def _scale_up_switches(fabric: Fabric, hosts: list[str]) -> list[str]:
    far = (far.node for host in hosts for _, far, link in fabric.neighbours(host) if link.kind == "scale-up")
    return [name for name in dict.fromkeys(far) if not fabric.node(name).is_host]


# -- drawing --------------------------------------------------------------------------------------------------------


def _line(
    fabric: Fabric,
    link: Link,
    boxes: Mapping[str, _Box],
    stands_for: Mapping[str, str],
    rails: Mapping[str, int],
    load: Mapping[str, float] | None,
) -> str:
    a, b = (boxes.get(stands_for.get(p.node, p.node)) for p in link.ports)
    if a is None or b is None:
        return ""
    shift = _shift(fabric, link)
    stroke, width, title = _idle_colour(link, rails), 1.4, fabric.label(link)
    if load is not None:
        there, back = (load.get(p.intf, 0.0) for p in link.ports)
        stroke, width = colour(max(there, back)), 1.2 + 2.2 * min(max(there, back), 1.0)
        title = f"{fabric.direction(link.a)} {there:.0%}, {fabric.direction(link.b)} {back:.0%}"
    return (
        f'<line x1="{a.x + shift:.1f}" y1="{a.y:.1f}" x2="{b.x + shift:.1f}" y2="{b.y:.1f}" stroke="{stroke}" '
        f'stroke-width="{width:.1f}"><title>{escape(title)}</title></line>'
    )


def _idle_colour(link: Link, rails: Mapping[str, int]) -> str:
    rail = next((rails[p.node] for p in link.ports if p.node in rails), None)
    return _IDLE if rail is None or link.kind == "scale-up" else _RAILS[rail % len(_RAILS)]


def _shift(fabric: Fabric, link: Link) -> float:
    """Parallel cables lie side by side."""
    twins = [x.index for x in fabric.links_at(link.a.node) if {x.a.node, x.b.node} == {link.a.node, link.b.node}]
    return (twins.index(link.index) - (len(twins) - 1) / 2) * 5.0


def _box(box: _Box) -> str:
    fill, ink, size = ("#eef2f6", _INK, 11) if box.host else (_INK, _PAPER, 12)
    text = (
        f'<text x="{box.x:.1f}" y="{box.y + size * 0.36:.1f}" font-size="{size}" text-anchor="middle" fill="{ink}">'
        f"{escape(box.name)}</text>"
        if box.name
        else ""
    )
    return (
        f'<g><title>{escape(box.title)}</title><rect x="{box.x - box.width / 2:.1f}" y="{box.y - box.height / 2:.1f}" '
        f'width="{box.width:.1f}" height="{box.height}" rx="4" fill="{fill}" stroke="{_INK}" stroke-width="0.8"/>{text}</g>'
    )


def _frames(fabric: Fabric, boxes: Mapping[str, _Box]) -> list[str]:
    """Round the switches of each pod or unit, and round each server."""
    groups: dict[int | None, list[str]] = {}
    for switch in fabric.switches:
        groups.setdefault(switch.group, []).append(switch.name)
    groups.pop(None, None)
    pods = list(groups.values()) if len(groups) > 1 and max(map(len, groups.values())) > 1 else []
    servers = [[*hosts, *_scale_up_switches(fabric, hosts)] for hosts in hb_domains(fabric)]
    return [_frame([boxes[n] for n in names]) for names in (*pods, *servers) if all(n in boxes for n in names)]


def _frame(boxes: list[_Box]) -> str:
    left, right = min(b.x - b.width / 2 for b in boxes), max(b.x + b.width / 2 for b in boxes)
    top, bottom = min(b.y - b.height / 2 for b in boxes), max(b.y + b.height / 2 for b in boxes)
    aside = min(8.0, 0.08 * min(b.width for b in boxes))
    return (
        f'<path d="M{left - aside:.1f} {top - 8:.1f}H{right + aside:.1f}V{bottom + 8:.1f}H{left - aside:.1f}Z" '
        f'fill="none" stroke="{_FRAME}" stroke-dasharray="4 3"/>'
    )


def _legend() -> list[str]:
    cells = [
        f'<rect x="{WIDTH - 230 + i * 16}" y="6" width="16" height="9" fill="{colour(i / 9)}"/>' for i in range(10)
    ]
    labels = ((WIDTH - 236, "end", "idle"), (WIDTH - 64, "start", "full rate"))
    texts = [
        f'<text x="{x}" y="14" font-size="11" text-anchor="{anchor}" fill="{_INK}">{text}</text>'
        for x, anchor, text in labels
    ]
    return cells + texts
