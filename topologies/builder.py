"""What every topology file uses to put a fabric together: nodes, then cables with the next free port at each end."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from topologies.addressing import host_mac
from topologies.fabric import HOST, Fabric, Link, LinkKind, Node, Port

DEFAULT_RATE_MBPS = 400_000.0


class FabricBuilder:
    """Collects nodes and links in order, numbers ports, names interfaces (`leaf1-eth3`) and datapath ids (1, 2, ...)."""

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        self.name = name
        self.parameters = parameters
        self._nodes: list[Node] = []
        self._links: list[Link] = []
        self._n_hosts = 0
        self._n_switches = 0
        self._ip: dict[str, str] = {}
        self._mac: dict[str, str] = {}
        self._n_ports: dict[str, int] = defaultdict(int)

    def switch(self, name: str, role: str, *, prefix: str | None = None, group: int | None = None) -> str:
        self._n_switches += 1
        self._nodes.append(Node(name, role, dpid=self._n_switches, prefix=prefix, group=group))
        return name

    def host(self, name: str, ip: str, *, group: int | None = None) -> str:
        """A host whose first interface (its scale-out NIC) has the address `ip`."""
        self._nodes.append(Node(name, HOST, group=group))
        self._ip[name] = ip
        self._mac[name] = host_mac(self._n_hosts)
        self._n_hosts += 1
        return name

    def link(
        self, a: str, b: str, kind: LinkKind, *, rate_mbps: float = DEFAULT_RATE_MBPS, delay_us: float = 0.0
    ) -> None:
        self._links.append(Link(len(self._links), self._port(a), self._port(b), kind, rate_mbps, delay_us))

    def build(self) -> Fabric:
        return Fabric(self.name, self.parameters, tuple(self._nodes), tuple(self._links))

    def _port(self, node: str) -> Port:
        is_host = node in self._ip
        number = self._n_ports[node] + (0 if is_host else 1)
        self._n_ports[node] += 1
        first = is_host and number == 0
        return Port(
            node, number, f"{node}-eth{number}", self._mac[node] if first else None, self._ip[node] if first else None
        )
