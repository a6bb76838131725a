"""Schedules and traffic that people have: a file -> our Schedule, and back. One file per format; pure: bytes in, data out.

To add a format: a file with a function `Source -> Schedule` (raising TrafficError with the line) and a line in READERS; to write
one: `Schedule, elements of a buffer -> text` and a line in WRITERS. The command line and the help pick both up from here.
"""

from collections.abc import Callable, Sequence
from pathlib import PurePath

from topologies import unknown
from traffic.errors import TrafficError
from traffic.formats.chakra import read_chakra
from traffic.formats.goal import read_goal
from traffic.formats.goal_export import to_goal
from traffic.formats.htsim import read_htsim
from traffic.formats.matrix import read_matrix
from traffic.formats.msccl import read_msccl
from traffic.formats.msccl_export import to_msccl
from traffic.formats.nccl_log import read_nccl_rings, read_nccl_trees
from traffic.formats.simai import read_simai
from traffic.formats.source import Source
from traffic.schedule import Schedule

READERS: dict[str, Callable[[Source], Schedule]] = {
    "msccl": read_msccl,
    "goal": read_goal,
    "matrix": read_matrix,
    "htsim": read_htsim,
    "simai": read_simai,
    "nccl-ring": read_nccl_rings,
    "nccl-tree": read_nccl_trees,
}
# Traces of which each rank has its own.
READERS_OF_RANKS: dict[str, Callable[[Sequence[Source]], Schedule]] = {
    "chakra": read_chakra,
}
FORMATS = (*READERS, *READERS_OF_RANKS)
# What says how a buffer is cut, not how large it is.
UNSIZED = ("msccl", "nccl-ring", "nccl-tree")
# What a file is, if nobody says so.
_SUFFIXES = {
    ".xml": "msccl",
    ".goal": "goal",
    ".matrix": "matrix",
    ".cm": "htsim",
    ".txt": "simai",
    ".et": "chakra",
    ".log": "nccl-ring",
}
WRITERS: dict[str, Callable[[Schedule, int], str]] = {
    "msccl": lambda schedule, _: to_msccl(schedule),
    "goal": to_goal,
}


def split_spec(spec: str) -> tuple[str, str]:
    """'goal:FILE' or 'FILE.goal' -> format and file. Raises TrafficError for a format that is not known."""
    name, colon, file = spec.partition(":")
    if colon and name in FORMATS:
        return name, file
    suffix = PurePath(spec).suffix
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix], spec
    if colon and name.isidentifier() and not suffix:
        raise TrafficError(unknown("format", name, FORMATS))
    raise TrafficError(
        f"schedule {spec!r}: write FORMAT:FILE, with one of the formats {', '.join(FORMATS)}, or a file in {', '.join(_SUFFIXES)}"
    )


def read_schedule(format_: str, sources: Sequence[Source]) -> Schedule:
    """sources: one, or of READERS_OF_RANKS each rank's. Raises TrafficError naming the file, and its line where it has lines."""
    if format_ in READERS_OF_RANKS:
        return READERS_OF_RANKS[format_](sources)
    (source,) = sources
    return READERS[format_](source)
