"""Where a fabric's circuits can be: which port of which switch ends in which port of which optical switch.

What circuits join are ends: the switches that have cables to an optical one, those of one group together (a dragonfly's
group is one end, a leaf another). An end's uplinks are numbered from 0; all ends' k-th lead to the same optical switch, so
that any matching of the ends can be set on the k-th uplinks.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.circuits.changing import CrossConnects
from controller.circuits.device import OcsDevice
from controller.circuits.slices import Matching
from controller.per_fabric import per_fabric
from topologies.errors import Refused
from topologies.fabric import Fabric
from topologies.shaping import OCS_ROLE


@dataclass(frozen=True)
class Uplink:
    """A cable from a packet switch to an optical one. `end` and `number`: whose uplink, and which of it."""

    switch: str
    port: int
    ocs: str
    ocs_port: int
    end: int
    number: int

    def __str__(self) -> str:
        return f"{self.switch} port {self.port}"


@dataclass(frozen=True)
class Uplinks:
    """ends: their names; of[i][k]: the k-th uplink of the i-th end."""

    ends: tuple[str, ...]
    of: tuple[tuple[Uplink, ...], ...]

    @property
    def per_end(self) -> int:
        return len(self.of[0])

    def cross_connects(self, matchings: Sequence[Matching]) -> dict[str, CrossConnects]:
        """name of the optical switch -> what it must join. Where there are fewer matchings than uplinks they take turns:
        one matching is a trunk of all uplinks."""
        if self.per_end % len(matchings):
            raise Refused(
                f"{len(matchings)} matchings cannot be spread evenly over {self.per_end} uplinks: use a divisor of it"
            )
        result: dict[str, dict[int, int]] = {uplink.ocs: {} for uplink in self.of[0]}
        for number in range(self.per_end):
            for end, peer in enumerate(matchings[number % len(matchings)]):
                if peer is not None:
                    source, target = self.of[end][number], self.of[peer][number]
                    result[source.ocs][source.ocs_port] = target.ocs_port
        return dict(result)

    def at(self, switch: str) -> Mapping[int, Uplink]:
        """port -> the uplink there, for one switch."""
        return {uplink.port: uplink for uplinks in self.of for uplink in uplinks if uplink.switch == switch}


@per_fabric
def uplinks(fabric: Fabric) -> Uplinks:
    """Raises Refused where there are none, or a matching of the ends could not be set on every uplink."""
    cables: dict[str, list[_Cable]] = defaultdict(list)
    for switch in fabric.switches:
        if switch.role != OCS_ROLE:
            key = switch.name if switch.group is None else f"group {switch.group + 1}"
            cables[key].extend(_cables(fabric, switch.name))
    by_name = {_name(key, its): its for key, its in cables.items() if its}
    if not by_name:
        raise Refused(f"fabric {fabric.name} has no optical switch: use ocs-leaf or ocs-dragonfly")
    _check_alike(fabric.name, by_name)
    return Uplinks(
        tuple(by_name),
        tuple(tuple(Uplink(*cable, end, k) for k, cable in enumerate(its)) for end, its in enumerate(by_name.values())),
    )


def check_radix(fabric: Fabric, device: OcsDevice) -> None:
    """Refuses a device that has fewer ports than an optical switch of the fabric has cables."""
    for switch in fabric.switches:
        if switch.role == OCS_ROLE:
            device.check_radix(switch.name, len(fabric.links_at(switch.name)))


# (switch, its port, optical switch, its port)
_Cable = tuple[str, int, str, int]


def _cables(fabric: Fabric, switch: str) -> list[_Cable]:
    cables = ((switch, own.number, far.node, far.number) for own, far, _ in fabric.neighbours(switch))
    return sorted(cable for cable in cables if fabric.node(cable[2]).role == OCS_ROLE)


def _name(key: str, cables: Iterable[_Cable]) -> str:
    """One switch's own name; of several, their group's."""
    switches = {switch for switch, _, _, _ in cables}
    return switches.pop() if len(switches) == 1 else key


def _check_alike(fabric: str, cables: Mapping[str, list[_Cable]]) -> None:
    (first, wanted), *others = ((end, [ocs for _, _, ocs, _ in its]) for end, its in cables.items())
    for end, found in others:
        if found != wanted:
            raise Refused(
                f"fabric {fabric}: the uplinks of {end} lead to {', '.join(found)}, those of {first} to "
                f"{', '.join(wanted)}: cable all alike, or no matching of all can be set"
            )
