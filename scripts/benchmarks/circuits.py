"""When does a change of circuits pay? The same question at two scales, whose answers must be one.

Four leaves of two hosts send to the opposite leaf. On a ring of circuits that is two hops away, and every uplink carries both
neighbours' bytes: what takes 8 S / B with the opposite leaves joined takes 16 S / B. A change is dark for d. Of S bytes a host
that are still to be sent at the change the two are equal at S* = d B / 8, and the gain is 2 x / (1 + x), where x = S / S*.
"""

import sys
import tempfile
from pathlib import Path

from benchmarks import machine
from benchmarks.figure import Figure, Target, figure, joined

_FABRIC = "ocs-leaf:leaves=4,hosts_per_leaf=2,uplinks=2,ocs=2"
_RING = '"leaf1 - leaf2", "leaf2 - leaf3", "leaf3 - leaf4", "leaf4 - leaf1"'
_OPPOSITE = '"leaf1 - leaf3", "leaf1 - leaf3", "leaf2 - leaf4", "leaf2 - leaf4"'
_STAY = f"[[slices]]\nlength = '1s'\ncircuits = [{_RING}]\n"
_CHANGE = f"cycles = 'once'\n{_STAY.replace('1s', '3ms')}[[slices]]\nlength = '1s'\ncircuits = [{_OPPOSITE}]\n"
# Of 400 Gbit/s: S* is 100 MB.
_DARK, _BREAK_EVEN_BYTES = "2ms", 100_000_000
# A slice has to be longer than its dark: the ring's, and the bytes that a host sends in it, at half of its rate.
_RING_S, _RING_BYTES = 3e-3, 75_000_000
_MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)
# Half of the rates and twice of the bytes: everything takes four times as long.
_SCALES = ("20000:50", "40000:25")
_DEADLINE_S = 240


def break_even(*, quick: bool) -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory(prefix="bench-") as made:
        stay, change = Path(made) / "stay.toml", Path(made) / "change.toml"
        stay.write_text(_STAY)
        change.write_text(_CHANGE)
        for multiple in _MULTIPLES[2:3] if quick else _MULTIPLES:
            gains, notes = [], list[str]()
            for scale in _SCALES:
                (before_s, before), (after_s, after) = (_timed(plan, multiple, scale) for plan in (stay, change))
                gains.append((before_s - _RING_S) / (after_s - _RING_S))
                notes += [before, after]
            name = f"gain at {multiple:g} S*"
            figures.append(figure(name, gains[0], "", Target("ratio", 0.85, 1.15), peer=gains[1], note=joined(*notes)))
            law = 2 * multiple / (1 + multiple)
            figures.append(figure(f"{name}, by the law", gains[0], "", Target("ratio", 0.8, 1.2), peer=law))
    return figures


def _timed(plan: Path, multiple: float, scale: str) -> tuple[float, str]:
    n_bytes = _RING_BYTES + round(multiple * _BREAK_EVEN_BYTES)
    circuits = ("--circuits", plan, "--dark", _DARK, "--in-the-dark", "hold")
    pattern = ("--collective", "group_shift", "--group-size", 2, "--group-shift", 2, "--flows-per-host", 8)
    traffic = (*pattern, "--spread", "packet", "-b", n_bytes, "-e", n_bytes, "-n", 1, "-w", 0)
    network = ("--topology", _FABRIC, "--scale", scale)
    _, (row,) = machine.run(*network, *circuits, *traffic, python=sys.executable, deadline_s=_DEADLINE_S)
    return float(row["time_s"]), machine.complaint(row)
