"""A fabric as an SVG picture that shows its structure as the papers draw it. Links are coloured by load on request.

Pure text building: the picture opens in any browser and needs nothing from outside. The files of this package place boxes
(rows, clusters, grid, sites), `kinds` chooses among them by the graph, and `writing` turns what is placed into SVG.
"""

from collections.abc import Iterable, Mapping

from topologies.drawing.colours import RAMP, colour
from topologies.drawing.kinds import place
from topologies.drawing.writing import Light, write
from topologies.fabric import Fabric


def svg(fabric: Fabric, utilisation: Mapping[str, float] | None = None, lights: Iterable[Light] = ()) -> str:
    """utilisation: egress interface -> share of the link's rate; None draws links by their kind; lights: circuits."""
    return write(fabric, place(fabric), utilisation, lights)


__all__ = ["RAMP", "Light", "colour", "place", "svg"]
