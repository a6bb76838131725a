"""How all pictures look, and how a matplotlib figure becomes SVG that may stand beside others in one document."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from topologies.drawing import RAMP

INK, SOFT, GRID, PAPER = "#1f2933", "#52606d", "#dde3e9", "#ffffff"
# Wong, "Points of view: Color blindness", Nature Methods 8 (2011), without its black and yellow: yellow lines cannot be seen on
# white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
DASHES = ("-", "--", "-.", ":")
# One unit of matplotlib's SVG is a pixel where the page has its full width.
_WIDTH = 1152
_RC: dict[str, Any] = {
    # Text stays text: it can be searched, copied and read aloud, and the file is small.
    "svg.fonttype": "none",
    "font.family": ["sans-serif"],
    # The first, which matplotlib brings, is the widest of the usual ones: what fits with it fits with the others.
    "font.sans-serif": ["DejaVu Sans", "system-ui", "Segoe UI", "Arial", "sans-serif"],
    "font.size": 12,
    "axes.titlesize": 13,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 12,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 6 / 72,
    "figure.constrained_layout.w_pad": 6 / 72,
    "savefig.dpi": 72,
    "figure.dpi": 72,
    "image.interpolation": "nearest",
    "hatch.linewidth": 0.8,
}
LOAD = LinearSegmentedColormap.from_list("load", [(at, [c / 255 for c in rgb]) for at, rgb in RAMP])


def figure(height: float) -> Figure:
    """height: in pixels; the width is the page's. Use within `styled()`."""
    made = Figure(figsize=(_WIDTH / 72, height / 72))
    FigureCanvasSVG(made)
    return made


@contextmanager
def styled() -> Iterator[None]:
    """Within it figures are made and written, whatever style the user has."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC)
        yield


def svg(drawn: Figure, name: str, label: str) -> str:
    """name: a word of its own for each picture of a document, before every id; label: for those who do not see it."""
    text = StringIO()
    # The salt makes the same ids, so that the same results make the same file.
    with mpl.rc_context({"svg.hashsalt": name}):
        drawn.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    found = text.getvalue()
    found = found[found.index("<svg") :]
    found = re.sub(r"<metadata>.*?</metadata>", "", found, flags=re.DOTALL)
    found = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", found, count=1)
    found = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", found, count=1)
    found = re.sub(r'\bid="', f'id="{name}-', found)
    found = re.sub(r'(xlink:href="|url\()#', rf"\1#{name}-", found)
    return found.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).replace("\n  ", "\n")


def plain_ticks(axes: Axes, which: str, most: int = 6) -> None:
    """Few round numbers, without offsets and exponents."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10]))
    axes.ticklabel_format(axis=which, style="plain", useOffset=False)  # type: ignore[arg-type]


def shortened(names: Iterable[str], most: int = 26) -> list[str]:
    """Long names with their middle left out."""
    return [n if len(n) <= most else f"{n[: most // 2 - 1]}…{n[-(most // 2) :]}" for n in names]
