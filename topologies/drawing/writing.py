"""A layout as SVG text. Links lie under boxes, busy ones over idle ones; each thing says what it is when pointed at."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape

from topologies.drawing.colours import FRAME, HOST, INK, LIGHT, PAPER, colour, kind_colour, thickness
from topologies.drawing.layout import FONT_PX, Box, Frame, Layout, Note, Point
from topologies.fabric import Fabric, Link
from topologies.tiers import hb_domains

# A small fabric keeps this width in the middle, so that it is not blown up.
_LEAST_WIDTH = 1120.0
_MARGIN, _LEGEND_HEIGHT, _NOTE_PX = 16.0, 24.0, 12
_PARALLEL_PX, _BESIDE_PX, _CROWDED_LINKS = 5.0, 3.0, 600


@dataclass(frozen=True)
class Light:
    """A circuit from switch to switch through an optical one. attributes: of its SVG element."""

    source: str
    ocs: str
    target: str
    attributes: str


def write(fabric: Fabric, layout: Layout, utilisation: Mapping[str, float] | None, lights: Iterable[Light] = ()) -> str:
    """utilisation: egress interface -> share of the link's rate; None draws links by their kind."""
    view = _view(layout, legend=utilisation is not None)
    body = "\n".join((
        *map(_frame, layout.frames),
        *_lines(fabric, layout, utilisation),
        *filter(None, (_light(layout, light) for light in lights)),
        *map(_box, layout.boxes.values()),
        *map(_note, layout.notes),
        *(_legend(view) if utilisation is not None else ()),
    ))  # fmt: skip
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view.left:.0f} {view.top:.0f} {view.right - view.left:.0f} '
        f'{view.bottom - view.top:.0f}" role="img" aria-label="Drawing of the fabric {escape(fabric.name)}" '
        f'font-family="system-ui, sans-serif">\n{body}\n</svg>\n'
    )


def _view(layout: Layout, *, legend: bool) -> Frame:
    """Whole pixels round everything, with a margin."""
    extent = layout.extent
    middle = (extent.left + extent.right) / 2
    half = max(math.ceil((extent.right - extent.left) / 2 + _MARGIN), _LEAST_WIDTH / 2)
    note_top = min((note.y - _NOTE_PX for note in layout.notes), default=extent.top)
    top = math.floor(min(extent.top, note_top) - _MARGIN - (_LEGEND_HEIGHT if legend else 0))
    return Frame(math.floor(middle - half), top, math.ceil(middle + half), math.ceil(extent.bottom + _MARGIN))


def _lines(fabric: Fabric, layout: Layout, utilisation: Mapping[str, float] | None) -> Iterable[str]:
    """The links whose ends are on the picture, the busiest last; of equal ones those inside a group last. Of those that join
    the same boxes because one stands for many hosts, only the last, which covers the others."""
    load = utilisation or {}
    rails = {host: i for server in hb_domains(fabric) for i, host in enumerate(server)}
    twins: dict[frozenset[str], list[int]] = defaultdict(list)
    for link in fabric.links:
        twins[frozenset(port.node for port in link.ports)].append(link.index)
    lines: dict[tuple[str, ...] | int, str] = {}
    for link in sorted(fabric.links, key=lambda x: (_busier(x, load), x.kind == "local")):
        nodes = [port.node for port in link.ports]
        ends = tuple(layout.stands_for.get(node, node) for node in nodes)
        if all(end in layout.boxes for end in ends):
            alike = twins[frozenset(nodes)]
            aside = (alike.index(link.index) - (len(alike) - 1) / 2) * _PARALLEL_PX
            points = _points(layout, link, aside)
            key = ends if layout.stands_for.keys() & nodes else link.index
            lines.pop(key, None)
            lines[key] = _line(points, *_look(fabric, link, rails, utilisation))
    return lines.values()


def _points(layout: Layout, link: Link, aside: float) -> list[Point]:
    """Both ends, with the control points of a curve between them; parallel cables lie side by side."""
    a, b = (layout.boxes[layout.stands_for.get(port.node, port.node)] for port in link.ports)
    length = math.hypot(b.x - a.x, b.y - a.y) or 1.0
    # The same side for both directions of a cable.
    sign = 1.0 if (a.x, a.y) < (b.x, b.y) else -1.0
    dx, dy = sign * aside * (b.y - a.y) / length, -sign * aside * (b.x - a.x) / length
    return [(x + dx, y + dy) for x, y in ((a.x, a.y), *layout.bends.get(link.index, ()), (b.x, b.y))]


def _look(fabric: Fabric, link: Link, rails: Mapping[str, int], load: Mapping[str, float] | None) -> tuple[str, str]:
    """(attributes, title) of a link. A circuit is dashed: it leads nowhere until it is set."""
    dashes = ' stroke-dasharray="6 4"' if link.kind == "circuit" else ""
    if load is None:
        width = 0.8 if len(fabric.links) > _CROWDED_LINKS else 1.4
        return f'stroke="{kind_colour(link, rails)}" stroke-width="{width}"{dashes}', fabric.label(link)
    there, back = (load.get(port.intf, 0.0) for port in link.ports)
    busier = _busier(link, load)
    width = thickness(busier) * (0.5 if len(fabric.links) > _CROWDED_LINKS else 1.0)
    title = f"{fabric.direction(link.a)} {there:.0%}, {fabric.direction(link.b)} {back:.0%}"
    return f'stroke="{colour(busier)}" stroke-width="{width:.1f}"{dashes}', title


def _busier(link: Link, load: Mapping[str, float]) -> float:
    """Load of the link's busier direction."""
    return max(load.get(port.intf, 0.0) for port in link.ports)


def _line(points: list[Point], attributes: str, title: str) -> str:
    title = f"<title>{escape(title)}</title>"
    if len(points) == 2:
        (x1, y1), (x2, y2) = points
        return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {attributes}>{title}</line>'
    start, *others = (f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{start}C{" ".join(others)}" fill="none" {attributes}>{title}</path>'


def _light(layout: Layout, light: Light) -> str:
    """Along its two cables, with a bend at the optical switch; the other direction lies beside it. '' where an end is not on
    the picture."""
    a, lens, b = (layout.box_of(name) for name in (light.source, light.ocs, light.target))
    if a is None or lens is None or b is None:
        return ""
    length = math.hypot(b.x - a.x, b.y - a.y) or 1.0
    dx, dy = _BESIDE_PX * (b.y - a.y) / length, -_BESIDE_PX * (b.x - a.x) / length
    (x1, y1), (x2, y2) = (_towards(lens, end, lens.height) for end in (a, b))
    path = (
        f"M{a.x + dx:.1f} {a.y + dy:.1f}L{x1 + dx:.1f} {y1 + dy:.1f}Q{lens.x + dx:.1f} {lens.y + dy:.1f} {x2 + dx:.1f} "
        f"{y2 + dy:.1f}L{b.x + dx:.1f} {b.y + dy:.1f}"
    )
    return f'<path d="{path}" fill="none" {light.attributes}/>'


def _towards(start: Box, end: Box, distance: float) -> Point:
    """The point so far from one box's centre, on the way to another's."""
    share = min(distance / (math.hypot(end.x - start.x, end.y - start.y) or 1.0), 1.0)
    return start.x + share * (end.x - start.x), start.y + share * (end.y - start.y)


def _box(box: Box) -> str:
    ink = PAPER if box.kind == "switch" else INK
    size = FONT_PX[box.kind]
    text = (
        f'<text x="{box.x:.1f}" y="{box.y + size * 0.36:.1f}" font-size="{size}" text-anchor="middle" fill="{ink}">'
        f"{escape(box.text)}</text>"
        if box.text
        else ""
    )
    return f"<g><title>{escape(box.title)}</title>{_outline(box)}{text}</g>"


def _outline(box: Box) -> str:
    """A rectangle; of an optical switch, a lens."""
    (left, top), (right, _) = box.corners
    if box.kind == "optical":
        return (
            f'<path d="M{left:.1f} {box.y:.1f}Q{box.x:.1f} {box.y - box.height:.1f} {right:.1f} {box.y:.1f}Q{box.x:.1f} '
            f'{box.y + box.height:.1f} {left:.1f} {box.y:.1f}Z" fill="{LIGHT}" stroke="{INK}" stroke-dasharray="3 2"/>'
        )
    fill = HOST if box.kind == "host" else INK
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'rx="{min(4.0, box.width / 4):.1f}" fill="{fill}" stroke="{INK}" stroke-width="0.8"/>'
    )


def _frame(frame: Frame) -> str:
    r = frame.radius
    arc = f"a{r:.1f} {r:.1f} 0 0 1"
    across, down = frame.right - frame.left - 2 * r, frame.bottom - frame.top - 2 * r
    return (
        f'<path d="M{frame.left + r:.1f} {frame.top:.1f}h{across:.1f}{arc} {r:.1f} {r:.1f}v{down:.1f}{arc} {-r:.1f} {r:.1f}'
        f'h{-across:.1f}{arc} {-r:.1f} {-r:.1f}v{-down:.1f}{arc} {r:.1f} {-r:.1f}Z" fill="none" stroke="{FRAME}" '
        f'stroke-dasharray="4 3"/>'
    )


def _note(note: Note) -> str:
    return (
        f'<text x="{note.x:.1f}" y="{note.y:.1f}" font-size="{_NOTE_PX}" text-anchor="middle" fill="{INK}">'
        f"{escape(note.text)}</text>"
    )


def _legend(view: Frame) -> list[str]:
    """The colours and widths of load, top right."""
    left, y = view.right - _MARGIN - 390, view.top + _MARGIN
    scale = [
        f'<rect x="{left + i * 16:.0f}" y="{y - 4 - thickness(i / 10):.1f}" width="16" height="{2 * thickness(i / 10):.1f}" '
        f'fill="{colour(i / 10)}"/>'
        for i in range(11)
    ]
    labels = ((left - 6, "end", "0 %"), (left + 182, "start", "100 % of the link's rate"))
    texts = [
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="12" text-anchor="{anchor}" fill="{INK}">{text}</text>'
        for x, anchor, text in labels
    ]
    return scale + texts
