"""The fabric: what the network is, as a typed graph that everything else reads.

A `Fabric` is immutable data. Builders make it, the adapter turns it into namespaces, policies route over it, the
predictor computes on it, and JSON carries it to the controller process. Attribute names and roles are written here
once; others ask `fabric.hosts`, `fabric.peer(port)`, `fabric.links_at(node)`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from topologies.errors import TopologyError

LinkKind = Literal["scale-out", "scale-up", "local", "global", "circuit"]
HOST = "host"
# Hosts beside the accelerators, which some collective algorithms need: topologies/helpers.py attaches them.
HELPER_ROLES = ("reducer", "server")
# The kernel's limit is IFNAMSIZ = 16 with the closing zero.
MAX_INTF_NAME = 15


@dataclass(frozen=True, slots=True)
class Node:
    """A host (an accelerator, or a helper beside them) or a switch.

    `dpid` is the OpenFlow datapath id of a switch, given explicitly; `prefix` the IPv4 prefix of the hosts attached to
    it, e.g. '198.18.0.16/28'; `group` what the fabric calls its next level of hierarchy (a pod, a dragonfly group).
    """

    name: str
    role: str
    dpid: int | None = None
    prefix: str | None = None
    group: int | None = None

    @property
    def is_host(self) -> bool:
        return self.role == HOST or self.is_helper

    @property
    def is_helper(self) -> bool:
        return self.role in HELPER_ROLES


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a link. `number` is the OpenFlow port of a switch (from 1) or the ethN of a host (from 0)."""

    node: str
    number: int
    intf: str
    mac: str | None = None
    ip: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A cable: full duplex, `rate_mbps` in each direction, `delay_us` one way. Parallel cables are separate links."""

    index: int
    a: Port
    b: Port
    kind: LinkKind
    rate_mbps: float
    delay_us: float = 0.0

    @property
    def ports(self) -> tuple[Port, Port]:
        return (self.a, self.b)

    def other(self, node: str) -> Port:
        """The port at the far end, seen from `node`."""
        return self.b if self.a.node == node else self.a

    def here(self, node: str) -> Port:
        """The port at `node`."""
        return self.a if self.a.node == node else self.b


@dataclass(frozen=True)
class Fabric:
    """name: the topology's name; parameters: what it was built from; nodes and links in a stable order."""

    name: str
    parameters: Mapping[str, Any]
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    gateway_ip: str = "198.19.255.254"
    gateway_mac: str = "02:fa:b0:00:00:fe"
    _by_name: dict[str, Node] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name.update((n.name, n) for n in self.nodes)
        _check_unique("node name", ((n.name, n.name) for n in self.nodes))
        _check_unique("datapath id", ((n.dpid, n.name) for n in self.switches))
        ports = [p for link in self.links for p in link.ports]
        _check_unique("interface name", ((p.intf, p.node) for p in ports))
        _check_unique("port", (((p.node, p.number), p.intf) for p in ports))
        _check_unique("address", ((p.ip, p.intf) for p in ports if p.ip))
        for switch in self.switches:
            if switch.dpid is None or not 0 < switch.dpid < 2**64:
                raise TopologyError(f"switch {switch.name} needs a datapath id from 1 to 2^64-1, has {switch.dpid!r}")
        for port in ports:
            if port.node not in self._by_name:
                raise TopologyError(
                    f"interface {port.intf} belongs to {port.node!r}, which is not a node of the fabric"
                )
            if len(port.intf) > MAX_INTF_NAME:
                raise TopologyError(
                    f"interface name {port.intf!r} has {len(port.intf)} characters, the kernel allows {MAX_INTF_NAME}: "
                    f"give {port.node} a shorter name"
                )
        for link in self.links:
            if not link.rate_mbps > 0:
                raise TopologyError(
                    f"link {self.label(link)} has rate {link.rate_mbps:g} Mbit/s: a rate must be positive"
                )
            if link.delay_us < 0:
                raise TopologyError(
                    f"link {self.label(link)} has delay {link.delay_us:g} us: a delay cannot be negative"
                )

    # -- reading the graph ------------------------------------------------------------------------------------------

    @cached_property
    def hosts(self) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if n.is_host)

    @cached_property
    def accelerators(self) -> tuple[Node, ...]:
        """The hosts that ranks are placed on."""
        return tuple(n for n in self.hosts if not n.is_helper)

    @cached_property
    def helpers(self) -> tuple[Node, ...]:
        return tuple(n for n in self.hosts if n.is_helper)

    @cached_property
    def switches(self) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if not n.is_host)

    def node(self, name: str) -> Node:
        try:
            return self._by_name[name]
        except KeyError:
            raise TopologyError(f"fabric {self.name} has no node {name!r}") from None

    @cached_property
    def _links_at(self) -> Mapping[str, tuple[Link, ...]]:
        at: dict[str, list[Link]] = defaultdict(list)
        for link in self.links:
            at[link.a.node].append(link)
            at[link.b.node].append(link)
        return {name: tuple(links) for name, links in at.items()}

    def links_at(self, node: str) -> tuple[Link, ...]:
        """The links of a node, in the fabric's order."""
        return self._links_at.get(node, ())

    def ports_of(self, node: str) -> tuple[Port, ...]:
        """The node's ports, by number."""
        return tuple(sorted((link.here(node) for link in self.links_at(node)), key=lambda p: p.number))

    @cached_property
    def _link_of_intf(self) -> Mapping[str, Link]:
        return {port.intf: link for link in self.links for port in link.ports}

    def link_of(self, intf: str) -> Link:
        """The link that an interface is an end of."""
        return self._link_of_intf[intf]

    def peer(self, port: Port) -> Port:
        """The port at the other end of the cable."""
        return self._link_of_intf[port.intf].other(port.node)

    def scale_out_port(self, host: str) -> Port:
        """The host's NIC on the fabric (not its scale-up interface)."""
        for link in self.links_at(host):
            if link.kind != "scale-up":
                return link.here(host)
        raise TopologyError(f"host {host} has no scale-out interface")

    def scale_up_port(self, host: str) -> Port | None:
        """The host's interface inside its HB domain: the first that has an address. None where it has none."""
        ends = (link.here(host) for link in self.links_at(host) if link.kind == "scale-up")
        return next((port for port in ends if port.ip), None)

    def switch_of(self, host: str) -> str:
        """The switch that the host's scale-out NIC is plugged into."""
        return self.peer(self.scale_out_port(host)).node

    def neighbours(self, node: str) -> Iterator[tuple[Port, Port, Link]]:
        """(own port, far port, link) for every link of the node."""
        for link in self.links_at(node):
            yield link.here(node), link.other(node), link

    def label(self, link: Link) -> str:
        """'leaf1-spine2', with '#2' for the second of parallel cables."""
        twins = [x.index for x in self.links_at(link.a.node) if {x.a.node, x.b.node} == {link.a.node, link.b.node}]
        nth = f"#{twins.index(link.index) + 1}" if len(twins) > 1 else ""
        return f"{link.a.node}-{link.b.node}{nth}"

    def direction(self, egress: Port) -> str:
        """'leaf1->spine2': a link in the direction of the frames that leave through `egress`."""
        link = self._link_of_intf[egress.intf]
        far = link.other(egress.node).node
        nth = self.label(link).partition("#")
        return f"{egress.node}->{far}{nth[1]}{nth[2]}"

    # -- other fabrics made from this one ---------------------------------------------------------------------------

    def with_links(
        self, *, rate_mbps: float | None = None, delay_us: float = 0.0, keep_scale_up: bool = False
    ) -> Fabric:
        """The same fabric with its fastest scale-out links at `rate_mbps`, the others in proportion, and no scale-out link
        with less delay than `delay_us`; a long haul stays longer. What a scale-up link is to a NIC stays as well, since
        results depend on that ratio; keep_scale_up: its rate stays instead."""
        fastest = max((link.rate_mbps for link in self.links if link.kind != "scale-up"), default=1.0)
        factor = 1.0 if rate_mbps is None else rate_mbps / fastest

        def changed(link: Link) -> Link:
            if link.kind == "scale-up":
                return link if keep_scale_up else replace(link, rate_mbps=link.rate_mbps * factor)
            return replace(link, rate_mbps=link.rate_mbps * factor, delay_us=max(link.delay_us, delay_us))

        return replace(self, links=tuple(map(changed, self.links)))

    def scaled(self, *, rate_scale: float, time_dilation: float) -> Fabric:
        """What the machine emulates: every rate / rate_scale, every delay x time_dilation."""
        links = tuple(
            replace(link, rate_mbps=link.rate_mbps / rate_scale, delay_us=link.delay_us * time_dilation)
            for link in self.links
        )
        return replace(self, links=links)

    # -- JSON -------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what `describe --json` writes under 'graph' and the controller reads."""
        return {
            "name": self.name,
            "parameters": dict(self.parameters),
            "gateway_ip": self.gateway_ip,
            "gateway_mac": self.gateway_mac,
            "nodes": [asdict(n) for n in self.nodes],
            "links": [asdict(link) for link in self.links],
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Fabric:
        """The inverse of `to_dict`; also reads a whole `describe --json` document."""
        data = data.get("graph", data)
        try:
            return Fabric(
                name=data["name"],
                parameters=data["parameters"],
                nodes=tuple(Node(**n) for n in data["nodes"]),
                links=tuple(Link(**{**x, "a": Port(**x["a"]), "b": Port(**x["b"])}) for x in data["links"]),
                gateway_ip=data["gateway_ip"],
                gateway_mac=data["gateway_mac"],
            )
        except (KeyError, TypeError) as error:
            raise TopologyError(f"not a fabric file: {error}; write one with `run_topo.py describe --json`") from None

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    @staticmethod
    def from_json(text: str) -> Fabric:
        try:
            return Fabric.from_dict(json.loads(text))
        except json.JSONDecodeError as error:
            raise TopologyError(f"not a fabric file: {error}") from None


def _check_unique(what: str, keys_and_owners: Iterable[tuple[Any, str]]) -> None:
    owner_of: dict[Any, str] = {}
    for key, owner in keys_and_owners:
        if key in owner_of:
            shown = f"{key:#x}" if isinstance(key, int) else f"{key!r}"
            raise TopologyError(f"{what} {shown} is used twice, by {owner_of[key]} and {owner}: each must be unique")
        owner_of[key] = owner
