"""Optical circuit switches as devices: how many ports they have, and how long a circuit is dark while they change it.

3d-mems                a named class, with the figures that were published for it
25ms                   any device that takes so long
20us+5ms~1ms           switching + link-up, and at most so much more, drawn anew for each change
"""

import random
import re
from dataclasses import dataclass, replace
from typing import Literal

from topologies.errors import Refused, unknown
from topologies.units import parse_duration_us

# switching, link-up, jitter
_TIMES = re.compile(r"^([^+~]+)(?:\+([^+~]+))?(?:~([^+~]+))?$")


@dataclass(frozen=True)
class OcsDevice:
    """ports: fibre pairs, each an input and an output; None = as many as the fabric has. switching_us: until the light takes
    its new way; link_up_us: from then until both ends' receivers have locked on to it; jitter_us: a change takes at most
    so much longer. source: who published the figures."""

    name: str
    ports: int | None
    switching_us: float
    link_up_us: float = 0.0
    jitter_us: float = 0.0
    source: str = ""

    @property
    def shortest_dark_us(self) -> float:
        return self.switching_us + self.link_up_us

    @property
    def longest_dark_us(self) -> float:
        """What a plan has to allow for."""
        return self.shortest_dark_us + self.jitter_us

    def dark_us(self, change: int, seed: int = 0) -> float:
        """How long the circuits of the change with this number are dark: the same again for the same seed."""
        return self.shortest_dark_us + random.Random(f"{seed} {change}").uniform(0.0, self.jitter_us)

    def check_radix(self, ocs: str, cables: int) -> None:
        """Refuses a switch of the fabric that has more cables than this device has ports."""
        if self.ports is not None and cables > self.ports:
            raise Refused(
                f"{ocs} has {cables} cables, a {self.name} {self.ports} ports: spread them over more optical switches"
            )

    def dilated(self, time_dilation: float) -> "OcsDevice":
        """What is emulated in place of it."""
        return replace(
            self,
            switching_us=self.switching_us * time_dilation,
            link_up_us=self.link_up_us * time_dilation,
            jitter_us=self.jitter_us * time_dilation,
        )


# A dark beyond this is the software's, not the device's.
MOST_OF_REQUESTED = 1.5
InTheDark = Literal["drop", "divert", "hold"]


@dataclass(frozen=True)
class Manner:
    """How circuits are changed: by what device, what packets meet in the dark ('drop': they are sent into it; 'divert': before it
    they take other ways; 'hold': they wait in the queues of the ports to the circuits that come), whether new ones come up
    before old ones go where ports allow, and the seed of the device's jitter."""

    device: OcsDevice
    in_the_dark: InTheDark = "drop"
    make_before_break: bool = False
    seed: int = 0


_TOPOOPT = "Wang et al., TopoOpt, NSDI 2023, table of switching technologies"

# To add one: a line with the paper or data sheet that its figures are from.
DEVICES: dict[str, OcsDevice] = {
    device.name: device
    for device in (
        OcsDevice("2d-mems", 24, 2.8, 8.7, source="Farrington et al., SIGCOMM 2012 demonstration: 2.8 us + 8.7 us"),
        OcsDevice("rotor", 128, 20.0, source="Mellette et al., RotorNet, SIGCOMM 2017; 128 ports: SIGCOMM 2024"),
        OcsDevice("3d-mems", 384, 10_000.0, source=f"{_TOPOOPT}: 10 ms"),
        OcsDevice("piezo", 384, 25_000.0, source="Polatis Series 7000 data sheet: 25 ms"),
        # "Minutes": one is the least that the word allows.
        OcsDevice("patch-panel", 1008, 60e6, source=f"{_TOPOOPT}: robotic patch panels, minutes"),
    )
}


def parse_device(text: str) -> OcsDevice:
    """The device that a text form names."""
    if text in DEVICES:
        return DEVICES[text]
    times = _TIMES.match(text)
    try:
        parts = [parse_duration_us(part or "0") for part in times.groups()] if times else []
    except Refused:
        parts = []
    if not parts:
        raise Refused(
            f"{unknown('optical switch', text, DEVICES)}, or give its dark time, such as 25ms or 20us+5ms~1ms"
        )
    switching_us, link_up_us, jitter_us = parts
    return OcsDevice(text, None, switching_us, link_up_us, jitter_us)
