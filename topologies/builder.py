"""What every topology file uses to put a fabric together: nodes, then cables with the next free port at each end."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from topologies.addressing import host_mac
from topologies.errors import TopologyError
from topologies.fabric import HOST, Fabric, Link, LinkKind, Node, Port

DEFAULT_RATE_MBPS = 400_000.0
# What can be described in a minute: distances between switches take their number squared.
MAX_SWITCHES, MAX_LINKS = 5_000, 200_000


class FabricBuilder:
    """Collects nodes and links in order, numbers ports, names interfaces (`leaf1-eth3`) and datapath ids (1, 2, ...)."""

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        self.name = name
        self.parameters = parameters
        self._nodes: list[Node] = []
        self._links: list[Link] = []
        self._n_switches = 0
        # (address, MAC) of each of a host's interfaces
        self._addresses: dict[str, list[tuple[str, str]]] = {}
        self._n_ports: dict[str, int] = defaultdict(int)

    def switch(self, name: str, role: str, *, prefix: str | None = None, group: int | None = None) -> str:
        self._n_switches += 1
        self._require_at_most(MAX_SWITCHES, self._n_switches, "switches")
        self._nodes.append(Node(name, role, dpid=self._n_switches, prefix=prefix, group=group))
        return name

    def host(self, name: str, *ips: str, group: int | None = None) -> str:
        """A host; ips: the addresses of its interfaces in the order of its links, the scale-out NIC first."""
        self._nodes.append(Node(name, HOST, group=group))
        index = len(self._addresses)
        self._addresses[name] = [(ip, host_mac(index, interface)) for interface, ip in enumerate(ips)]
        return name

    def link(
        self, a: str, b: str, kind: LinkKind, *, rate_mbps: float = DEFAULT_RATE_MBPS, delay_us: float = 0.0
    ) -> None:
        self._require_at_most(MAX_LINKS, len(self._links) + 1, "links")
        self._links.append(Link(len(self._links), self._port(a), self._port(b), kind, rate_mbps, delay_us))

    def build(self) -> Fabric:
        return Fabric(self.name, self.parameters, tuple(self._nodes), tuple(self._links))

    def _require_at_most(self, most: int, n: int, what: str) -> None:
        """While it is put together, so that one without end is refused before memory is."""
        if n > most:
            raise TopologyError(
                f"{self.name} has more than {most:,} {what}, the most of a fabric here: use smaller parameters"
            )

    def _port(self, node: str) -> Port:
        addresses = self._addresses.get(node)
        number = self._n_ports[node] + (1 if addresses is None else 0)
        self._n_ports[node] += 1
        ip, mac = addresses[number] if addresses and number < len(addresses) else (None, None)
        return Port(node, number, f"{node}-eth{number}", mac, ip)
