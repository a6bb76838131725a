"""Captures while a run goes on, and their files at its end. An edge."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from lab.machine.bringup import Lab
from lab.planning.capture_points import CapturePoint
from lab.reporting.files import make_parents, unwritable, write_bytes
from topologies import namespaces
from traffic.capture.pcapng import written
from traffic.capture.ring import SNAP_BYTES, Ring

# A ring has room for 16 384 frames: at 100 000 a second it is full after three times this.
_INTERVAL_S = 0.05


@contextmanager
def capturing(lab: Lab, points: Sequence[CapturePoint], folder: Path) -> Iterator[None]:
    """One file for each point, <interface>.pcapng, whatever ends the block. Raises LabError where a file cannot be written."""
    if not points:
        yield
        return
    with ExitStack() as stack:
        rings = [stack.enter_context(closing(ring)) for ring in _opened(lab, points)]
        ended = threading.Event()
        reader = threading.Thread(target=_drain, args=(rings, ended), name="captures", daemon=True)
        reader.start()
        try:
            yield
        finally:
            ended.set()
            reader.join()
            _write(folder, points, rings)


def _opened(lab: Lab, points: Sequence[CapturePoint]) -> list[Ring]:
    """A switch's interfaces are in this namespace, a host's in the host's."""
    made: dict[str, Ring] = {}

    def make(point: CapturePoint) -> None:
        made[point.name] = Ring(point.port.intf)

    namespaces.each([(str(lab.net.netns_path(p.host)), p) for p in points if p.host is not None], make)
    for point in points:
        if point.host is None:
            make(point)
    return [made[point.name] for point in points]


def _drain(rings: Sequence[Ring], ended: threading.Event) -> None:
    while not ended.wait(_INTERVAL_S):
        for ring in rings:
            ring.drain()


def _write(folder: Path, points: Sequence[CapturePoint], rings: Sequence[Ring]) -> None:
    try:
        make_parents(folder)
        for point, ring in zip(points, rings, strict=True):
            write_bytes(folder / f"{point.name}.pcapng", written(ring.capture(point.name), SNAP_BYTES))
    except OSError as error:
        raise unwritable(folder, error) from None
