"""What is placed where: boxes, frames, curves and notes, in pixels, x to the right and y down."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from topologies.fabric import Fabric, Node
from topologies.shaping import OCS_ROLE
from topologies.tiers import network_switches

BoxKind = Literal["switch", "optical", "host"]
Point = tuple[float, float]

# More than these are drawn as one box for each switch or server.
HOSTS_DRAWN = 96
FONT_PX: Mapping[BoxKind, int] = {"switch": 12, "optical": 12, "host": 11}
# Digits of the widest common sans-serif faces, in em.
_CHARACTER_EM = 0.64
_TEXT_MARGIN = 4.0
_HELPER_HEIGHT, _HELPER_GAP = 18.0, 6.0


@dataclass(frozen=True)
class Box:
    """A node, or all hosts of a switch or server as one box. x, y: its centre; text: written inside, '' for none; title:
    shown when pointed at."""

    x: float
    y: float
    width: float
    height: float
    kind: BoxKind
    text: str
    title: str

    @property
    def corners(self) -> tuple[Point, Point]:
        """Top left, bottom right."""
        w, h = self.width / 2, self.height / 2
        return (self.x - w, self.y - h), (self.x + w, self.y + h)


@dataclass(frozen=True)
class Frame:
    """A dashed outline round what belongs together; radius: of its corners, half its width makes a circle."""

    left: float
    top: float
    right: float
    bottom: float
    radius: float = 6.0


@dataclass(frozen=True)
class Note:
    """Text above the middle of a link."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Layout:
    """boxes: by node, or by title where one box stands for many hosts; stands_for: host -> that title; bends: link index ->
    control points of its curve (cubic Bezier), links without are straight."""

    boxes: Mapping[str, Box]
    stands_for: Mapping[str, str] = field(default_factory=dict)
    frames: tuple[Frame, ...] = ()
    bends: Mapping[int, tuple[Point, Point]] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    def box_of(self, node: str) -> Box | None:
        return self.boxes.get(self.stands_for.get(node, node))

    @property
    def extent(self) -> Frame:
        """The smallest frame that holds everything: a Bezier curve stays inside the hull of its control points."""
        points = [corner for box in self.boxes.values() for corner in box.corners]
        points += [point for frame in self.frames for point in ((frame.left, frame.top), (frame.right, frame.bottom))]
        points += [point for bend in self.bends.values() for point in bend]
        xs, ys = zip(*(points or [(0.0, 0.0)]), strict=True)
        return Frame(min(xs), min(ys), max(xs), max(ys))

    def moved(self, dx: float, dy: float) -> Layout:
        return Layout(
            boxes={key: replace(box, x=box.x + dx, y=box.y + dy) for key, box in self.boxes.items()},
            stands_for=self.stands_for,
            frames=tuple(Frame(f.left + dx, f.top + dy, f.right + dx, f.bottom + dy, f.radius) for f in self.frames),
            bends={index: ((p + dx, q + dy), (r + dx, s + dy)) for index, ((p, q), (r, s)) in self.bends.items()},
            notes=tuple(replace(note, x=note.x + dx, y=note.y + dy) for note in self.notes),
        )


def together(layouts: Sequence[Layout]) -> Layout:
    """All of them on one picture, as they are."""
    return Layout(
        boxes={key: box for layout in layouts for key, box in layout.boxes.items()},
        stands_for={host: key for layout in layouts for host, key in layout.stands_for.items()},
        frames=tuple(frame for layout in layouts for frame in layout.frames),
        bends={index: bend for layout in layouts for index, bend in layout.bends.items()},
        notes=tuple(note for layout in layouts for note in layout.notes),
    )


def switch_box(fabric: Fabric, name: str, at: Point, width: float, height: float, text: str) -> Box:
    role = fabric.node(name).role
    kind: BoxKind = "optical" if role == OCS_ROLE else "switch"
    return Box(*at, width, height, kind, text, f"{name} ({role})")


def host_box(fabric: Fabric, name: str, at: Point, width: float, height: float) -> Box:
    text = next((t for t in (name, _number(name)) if text_width(t, "host") <= width), "")
    role = f" ({fabric.node(name).role})" if fabric.node(name).is_helper else ""
    return Box(*at, width, height, "host", text, f"{name}{role} on {fabric.switch_of(name)}")


def crowd_box(hosts: Sequence[str], at: Point, width: float, height: float) -> Box:
    """One box for all of them. Its title is its key in a layout."""
    texts = (f"{len(hosts)} hosts", str(len(hosts)), "")
    text = next(t for t in texts if not t or text_width(t, "host") <= width)
    return Box(*at, width, height, "host", text, f"{len(hosts)} hosts: {hosts[0]} .. {hosts[-1]}")


def text_width(text: str, kind: BoxKind) -> float:
    """What a box needs to hold it; an upper bound, as fonts differ."""
    return len(text) * FONT_PX[kind] * _CHARACTER_EM + _TEXT_MARGIN


def labels(names: Sequence[str], width: float) -> list[str]:
    """Full names where all fit, else the numbers at their ends, else nothing."""
    for texts in (list(names), [_number(name) for name in names]):
        if all(text and text_width(text, "switch") <= width for text in texts):
            return texts
    return [""] * len(names)


def _number(name: str) -> str:
    """Of several nodes side by side, what tells them apart: the digits at the end."""
    return name[len(name.rstrip("0123456789")) :]


def frame_round(boxes: Iterable[Box], aside: float, above: float) -> Frame:
    """aside, above: from the outermost boxes to the outline."""
    corners = [corner for box in boxes for corner in box.corners]
    xs, ys = zip(*corners, strict=True)
    return Frame(min(xs) - aside, min(ys) - above, max(xs) + aside, max(ys) + above)


def hosts_by_switch(fabric: Fabric, hosts: Iterable[Node] | None = None) -> dict[str, list[str]]:
    """Those of the network's switches that have hosts, in the fabric's order. hosts: the ones asked for, None = all."""
    by_switch: dict[str, list[str]] = {switch.name: [] for switch in network_switches(fabric)}
    for host in fabric.hosts if hosts is None else hosts:
        by_switch[fabric.switch_of(host.name)].append(host.name)
    return {switch: hosts for switch, hosts in by_switch.items() if hosts}


def helpers_above(fabric: Fabric, switch: Box, names: Sequence[str]) -> dict[str, Box]:
    """A switch's helpers side by side on top of it."""
    step, y = switch.width / len(names), switch.y - (switch.height + _HELPER_HEIGHT) / 2 - _HELPER_GAP
    left = switch.x - switch.width / 2
    return {
        name: host_box(fabric, name, (left + step * (i + 0.5), y), step * 0.94, _HELPER_HEIGHT)
        for i, name in enumerate(names)
    }


def on_circle(centre: Point, radius: float, angle: float) -> Point:
    return centre[0] + radius * math.cos(angle), centre[1] + radius * math.sin(angle)


def polygon_radius(n: int, side: float) -> float:
    """Of the circle on which n points lie `side` apart."""
    return side / (2 * math.sin(math.pi / n)) if n > 1 else 0.0
