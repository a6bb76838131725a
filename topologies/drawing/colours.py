"""Colours of links: by load, or without one by kind and rail."""

from collections.abc import Mapping
from itertools import pairwise

from topologies.fabric import Link, LinkKind

INK, PAPER, FRAME, HOST, LIGHT = "#1f2933", "#ffffff", "#9aa5b1", "#eef2f6", "#fff3d6"
_IDLE = "#c3ccd5"
_KINDS: Mapping[LinkKind, str] = {"local": "#616e7c", "global": "#5b8fc9", "circuit": "#c9952f"}
# Cables of one rail have one colour.
_RAILS = ("#7aa6d6", "#e0a458", "#7bb58a", "#c48bb0", "#8fb8b8", "#d08c7c", "#a3a35c", "#9a94c8")
# Load 0 to 1: grey, then ColorBrewer's YlOrBr, which colour-blind people tell apart. It only darkens, so it can be read on a
# grey print too; links grow wider with it.
RAMP = (
    (0.0, (211, 217, 223)), (0.25, (254, 196, 79)), (0.5, (236, 112, 20)), (0.75, (153, 52, 4)), (1.0, (70, 25, 4)),
)  # fmt: skip


def colour(load: float) -> str:
    """'#rrggbb' of a load from 0 to 1."""
    load = min(max(load, 0.0), 1.0)
    (low, a), (high, b) = next((a, b) for a, b in pairwise(RAMP) if load <= b[0])
    t = (load - low) / (high - low)
    return "#" + "".join(f"{round(x + (y - x) * t):02x}" for x, y in zip(a, b, strict=True))


def thickness(load: float) -> float:
    """Pixels of a link of this load."""
    return 1.2 + 3.6 * min(max(load, 0.0), 1.0)


def kind_colour(link: Link, rails: Mapping[str, int]) -> str:
    """rails: host -> its place in its server."""
    rail = next((rails[port.node] for port in link.ports if port.node in rails), None)
    if rail is None or link.kind == "scale-up":
        return _KINDS.get(link.kind, _IDLE)
    return _RAILS[rail % len(_RAILS)]
