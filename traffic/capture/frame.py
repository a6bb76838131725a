"""A frame that passed a point, and the frames of one point."""

from typing import NamedTuple


class Frame(NamedTuple):
    """time_ns: since 1970; data: its beginning, n_bytes: its whole length; outgoing: it left the node there, None = not known."""

    time_ns: int
    data: bytes
    n_bytes: int
    outgoing: bool | None = None


class Capture(NamedTuple):
    """point: the interface's name; missed: frames that passed and are not here."""

    point: str
    frames: list[Frame]
    missed: int = 0
