"""What is found of a fabric that is up, as plain data: read by `topologies.inspection`. Pure."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


class LinkEnd(NamedTuple):
    """One end of a cable: its own number in its namespace, and the other end's number in the other's (0: it has none)."""

    number: int
    peer: int
    carrier: bool = True


class IpCounts(NamedTuple):
    """Packets of one host's IP layer (RFC 4293): those that it took from its interfaces and handed on, and those that it sent."""

    delivered: int = 0
    sent: int = 0


class Plugged(NamedTuple):
    """Where Open vSwitch has an interface: the bridge, and the OpenFlow port number (-1: none, it could not be opened)."""

    bridge: str
    number: int


@dataclass(frozen=True)
class Inspection:
    """ends: by interface, each cable's; in the middle of a delayed one, too. cables: (one end, other end) as they should be.
    plugged: of the switches' interfaces, None = not known. filters: frames dropped by programs, where some hang. ip: by host.
    sent, received: by host, packets that came to its interfaces' queues, and that its interfaces received."""

    ends: Mapping[str, LinkEnd]
    cables: tuple[tuple[str, str], ...]
    plugged: Mapping[str, Plugged] | None
    filters: Mapping[str, int]
    ip: Mapping[str, IpCounts]
    sent: Mapping[str, int]
    received: Mapping[str, int]

    def peer(self, intf: str) -> str:
        """The interface whose number the end names as its peer, and which names it in turn; '' = none. Numbers are those of
        their namespaces: where several interfaces would do, the right one."""
        end = self.ends.get(intf)
        if end is None or not end.peer:
            return ""
        mutual = self._by_numbers.get((end.peer, end.number), set()) - {intf}
        return min(mutual, key=lambda name: (name not in self.expected(intf), name), default="")

    def expected(self, intf: str) -> list[str]:
        """The other end of its cable as it should be."""
        return self._expected.get(intf, [])

    @cached_property
    def _by_numbers(self) -> Mapping[tuple[int, int], set[str]]:
        found: dict[tuple[int, int], set[str]] = defaultdict(set)
        for name, end in self.ends.items():
            found[end.number, end.peer].add(name)
        return found

    @cached_property
    def _expected(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for a, b in self.cables:
            found[a].append(b)
            found[b].append(a)
        return found
