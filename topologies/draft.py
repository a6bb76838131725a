"""A fabric as a file from elsewhere gives it. What the file leaves out is assigned as FabricBuilder does:

role      none in the file: a node with one link is a host, any other a switch; some: the rest are switches
dpid      the lowest free one from 1, node after node
port      the lowest free one of its node, link after link
prefix    of a switch with hosts: a free block, as large as the others that are assigned

Interface names, addresses and MACs are never in a file: they follow from names, prefixes and order.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from itertools import count, pairwise
from typing import Any, get_args

from topologies.addressing import FABRIC_NETWORK, host_ip, host_mac, leaf_prefixes, scale_up_prefixes
from topologies.builder import DEFAULT_RATE_MBPS
from topologies.errors import TopologyError, unknown
from topologies.fabric import HOST, Fabric, Link, LinkKind, Node, Port

SWITCH = "switch"
# Becomes the name of interfaces, namespaces and bridges.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
# OpenFlow 1.3 reserves the numbers above (OFPP_MAX).
_MAX_PORT = 0xFF00


@dataclass(frozen=True)
class DraftLink:
    """A cable between two nodes; a_port, b_port: numbers as in `Port`, None where the file gives none."""

    a: str
    b: str
    kind: LinkKind = "scale-out"
    rate_mbps: float = DEFAULT_RATE_MBPS
    delay_us: float = 0.0
    a_port: int | None = None
    b_port: int | None = None

    @property
    def label(self) -> str:
        return f"link {self.a}-{self.b}"


def draft_node(name: str, given: Mapping[str, Any]) -> Node:
    """From attributes by name, as text or as JSON has them: role ('' where not given), dpid, prefix, group."""
    if not _NAME.fullmatch(name):
        raise TopologyError(
            f"node {name!r}: a name has letters, digits, - and _ only, for interfaces are named after it"
        )
    what = f"node {name}"
    return Node(
        name,
        str(given.get("role", "")),
        dpid=_whole(what, given, "dpid"),
        prefix=_prefix(what, given),
        group=_whole(what, given, "group"),
    )


def draft_link(a: str, b: str, given: Mapping[str, Any]) -> DraftLink:
    """From attributes by name: kind, rate_mbps, delay_us, ports ('leaf1-eth5,spine1-eth1', one end or both in any order)."""
    what = f"link {a}-{b}"
    kind = given.get("kind", DraftLink.kind)
    if kind not in get_args(LinkKind):
        raise TopologyError(f"{what}: {unknown('kind', str(kind), get_args(LinkKind))}")
    ports = _ports(what, given, a, b)
    return DraftLink(
        a,
        b,
        kind,
        _number(what, given, "rate_mbps", DraftLink.rate_mbps),
        _number(what, given, "delay_us", DraftLink.delay_us),
        ports.get(a),
        ports.get(b),
    )


def complete(name: str, parameters: Mapping[str, Any], nodes: Sequence[Node], links: Sequence[DraftLink]) -> Fabric:
    """The fabric. Refuses, naming the node or the link, what is no fabric of hosts with one NIC each and switches."""
    _check_ends(nodes, links)
    _check_prefixes(nodes)
    nodes = _with_roles(nodes, links)
    hosts = {node.name: index for index, node in enumerate(n for n in nodes if n.is_host)}
    _check_hosts(hosts, links)
    nodes = _with_prefixes(_with_dpids(nodes), hosts, links)
    address = {node.name: _addresses(node) for node in nodes}
    number = _port_numbers(hosts, links)

    def port(node: str, given: int | None, far: str) -> Port:
        n = next(number[node]) if given is None else given
        ip, mac = (next(address[far]), host_mac(hosts[node], n)) if node in hosts else (None, None)
        return Port(node, n, f"{node}-eth{n}", mac, ip)

    return Fabric(
        name,
        parameters,
        tuple(nodes),
        tuple(
            Link(i, port(x.a, x.a_port, x.b), port(x.b, x.b_port, x.a), x.kind, x.rate_mbps, x.delay_us)
            for i, x in enumerate(links)
        ),
    )


# -- reading values ---------------------------------------------------------------------------------------------------


def _whole(what: str, given: Mapping[str, Any], key: str) -> int | None:
    try:
        return int(given[key]) if key in given else None
    except (TypeError, ValueError):
        raise TopologyError(f"{what}: {key}={given[key]!r} must be a whole number") from None


def _number(what: str, given: Mapping[str, Any], key: str, default: float) -> float:
    try:
        value = float(given.get(key, default))
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise TopologyError(f"{what}: {key}={given[key]!r} must be a number")
    return value


def _ports(what: str, given: Mapping[str, Any], a: str, b: str) -> dict[str, int]:
    """node -> port number. By node, because programs that pass a graph on may turn an edge around."""
    ports: dict[str, int] = {}
    for intf in filter(None, str(given.get("ports", "")).split(",")):
        node, _, number = intf.strip().rpartition("-eth")
        if node not in (a, b) or node in ports or not number.isdecimal():
            raise TopologyError(f"{what}: ports={given['ports']!r} must be like {a}-eth0,{b}-eth1, or left out")
        ports[node] = int(number)
    return ports


def _prefix(what: str, given: Mapping[str, Any]) -> str | None:
    if "prefix" not in given:
        return None
    text = str(given["prefix"])
    try:
        inside = IPv4Network(text).subnet_of(FABRIC_NETWORK)
    except ValueError:
        inside = False
    if not inside:
        raise TopologyError(f"{what}: prefix={text!r} must be an IPv4 prefix within {FABRIC_NETWORK}, or left out")
    return text


# -- checks -----------------------------------------------------------------------------------------------------------


def _check_ends(nodes: Sequence[Node], links: Sequence[DraftLink]) -> None:
    names = Counter(node.name for node in nodes)
    twice = [name for name, n in names.items() if n > 1]
    if twice:
        raise TopologyError(f"node {twice[0]} is there {names[twice[0]]} times: each needs a name of its own")
    for link in links:
        for end in (link.a, link.b):
            if end not in names:
                raise TopologyError(f"{link.label}: there is no node {end!r}")
        if link.a == link.b:
            raise TopologyError(f"{link.label}: both ends are at one node")


def _check_prefixes(nodes: Sequence[Node]) -> None:
    """Of any two that overlap, some two are neighbours in order."""
    given = sorted((IPv4Network(node.prefix), node.name) for node in nodes if node.prefix)
    for (prefix, name), (beside, other) in pairwise(given):
        if prefix.overlaps(beside):
            raise TopologyError(f"node {other}: its prefix {beside} overlaps {prefix} of {name}")


def _check_hosts(hosts: Mapping[str, int], links: Sequence[DraftLink]) -> None:
    if not hosts:
        raise TopologyError("there are no hosts: give them role=host, or no node a role and each host one link")
    nics: Counter[str] = Counter()
    for link in links:
        if link.a in hosts and link.b in hosts:
            raise TopologyError(f"{link.label}: joins two hosts, a host is joined to a switch")
        nics.update(end for end in (link.a, link.b) if end in hosts and link.kind != "scale-up")
    for host in hosts:
        if nics[host] != 1:
            raise TopologyError(
                f"node {host}: has {nics[host]} links to the network, a host has one NIC and so one link"
            )


# -- what was left out ------------------------------------------------------------------------------------------------


def _with_roles(nodes: Sequence[Node], links: Sequence[DraftLink]) -> list[Node]:
    if any(node.role for node in nodes):
        return [replace(node, role=node.role or SWITCH) for node in nodes]
    degree = Counter(end for link in links for end in (link.a, link.b))
    return [replace(node, role=HOST if degree[node.name] == 1 else SWITCH) for node in nodes]


def _with_dpids(nodes: Sequence[Node]) -> list[Node]:
    free = _free_numbers({node.dpid for node in nodes}, first=1)
    return [node if node.is_host or node.dpid is not None else replace(node, dpid=next(free)) for node in nodes]


def _port_numbers(hosts: Mapping[str, int], links: Sequence[DraftLink]) -> Mapping[str, Iterator[int]]:
    """node -> its free port numbers, ascending. Refuses given ones that no port can have."""
    taken: dict[str, set[int | None]] = defaultdict(set)
    for link in links:
        for node, port in ((link.a, link.a_port), (link.b, link.b_port)):
            first = 0 if node in hosts else 1
            if port is not None and not first <= port <= _MAX_PORT:
                raise TopologyError(f"{link.label}: port {port} at {node} must be from {first} to {_MAX_PORT}")
            taken[node].add(port)
    return {node: _free_numbers(ports, first=0 if node in hosts else 1) for node, ports in taken.items()}


def _free_numbers(taken: set[int | None], first: int) -> Iterator[int]:
    return (n for n in count(first) if n not in taken)


def _with_prefixes(nodes: Sequence[Node], hosts: Mapping[str, int], links: Sequence[DraftLink]) -> list[Node]:
    """Of the network's switches, and of those inside the servers, which have a range of their own."""
    interfaces: Counter[str] = Counter()
    network: set[str] = set()
    for link in links:
        interfaces.update(b for a, b in ((link.a, link.b), (link.b, link.a)) if a in hosts)
        network.update((link.a, link.b) if link.kind != "scale-up" else ())
    without = {n.name: interfaces[n.name] for n in nodes if n.prefix is None and interfaces[n.name]}
    taken = [IPv4Network(node.prefix) for node in nodes if node.prefix]
    outside = _free_prefixes(leaf_prefixes, {n: k for n, k in without.items() if n in network}, taken)
    inside = _free_prefixes(scale_up_prefixes, {n: k for n, k in without.items() if n not in network}, taken)
    assigned = outside | inside
    return [replace(n, prefix=str(assigned[n.name])) if n.name in assigned else n for n in nodes]


def _free_prefixes(
    blocks: Callable[[int, int], tuple[IPv4Network, ...]], interfaces: Mapping[str, int], taken: Sequence[IPv4Network]
) -> dict[str, IPv4Network]:
    """switch -> a block that overlaps none of the taken ones. interfaces: of hosts, by switch."""
    if not interfaces:
        return {}
    most = max(interfaces.values())
    (first,) = blocks(1, most)
    # A larger prefix covers so many blocks, a smaller one spoils one.
    spoilt = sum(max(1, prefix.num_addresses // first.num_addresses) for prefix in taken)
    free = (block for block in blocks(len(interfaces) + spoilt, most) if not any(map(block.overlaps, taken)))
    return dict(zip(interfaces, free, strict=False))


def _addresses(switch: Node) -> Iterator[str]:
    """For its hosts, in the order of links."""
    if switch.prefix:
        prefix = IPv4Network(switch.prefix)
        yield from (host_ip(prefix, i) for i in range(prefix.num_addresses - 1))
        raise TopologyError(f"node {switch.name}: its prefix {switch.prefix} has too few addresses for its hosts")
