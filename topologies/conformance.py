"""What every topology must hold, ours and a user's own: the registry's tests and `run_topo.py check` run the same checks."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from topologies import user_code
from topologies.addressing import FABRIC_NETWORK
from topologies.describe import Distances, describe
from topologies.errors import Refused
from topologies.fabric import MAX_INTF_NAME, Fabric
from topologies.tiers import network_switches, scale_out_links, scale_up_switches
from topologies.topology import ClosedForm, Topology, build, make

# For the checks of one topology together.
_TIME_LIMIT_S = 300.0


def check_class(cls: type[Any]) -> list[str]:
    """Findings for the topology with its default parameters."""
    try:
        topology = make(cls, cls.__name__, {})
    except Refused as refusal:
        return [str(refusal)]
    return check_topology(topology)


def check_topology(topology: Topology) -> list[str]:
    """Findings, one line each; empty = it conforms. Never raises: a build that fails is a finding."""
    try:
        return user_code.call(type(topology).__name__, lambda: list(_findings(topology)), _TIME_LIMIT_S)
    except Refused as refusal:
        return [str(refusal)]


def _findings(topology: Topology) -> Iterator[str]:
    yield from _frozen(topology)
    fabric = build(topology)
    if build(topology) != fabric:
        yield "two builds differ: build() must be deterministic"
    unusable = check_fabric(fabric)
    yield from unusable
    if not unusable:
        yield from _described(fabric)
        yield from _against_closed_form(topology, fabric)


def check_fabric(fabric: Fabric) -> list[str]:
    """Findings, one line each, on what everything else takes for granted of a fabric."""
    # The others look for what a host is plugged into.
    return list(_plugged_in(fabric)) or [finding for check in _CHECKS for finding in check(fabric)]


def _frozen(topology: Any) -> Iterator[str]:
    if not is_dataclass(topology):
        yield "it is not a dataclass: its parameters cannot be read from the command line"
    elif not vars(type(topology))["__dataclass_params__"].frozen:
        yield "its dataclass is not frozen: parameters must not change after the build"


def _against_closed_form(topology: Topology, fabric: Fabric) -> Iterator[str]:
    want = topology.closed_form()
    distances = Distances(fabric)
    have = {
        "hosts": len(fabric.accelerators),
        "switches": len(network_switches(fabric)),
        "links": len(scale_out_links(fabric)),
        "scale_up_switches": len(scale_up_switches(fabric)),
        "scale_up_links": sum(link.kind == "scale-up" for link in fabric.links),
        "diameter": distances.diameter,
        "path_diversity": distances.path_diversity,
    }
    for key, value in have.items():
        formula = getattr(want, key)
        if formula is not None and value != formula:
            yield f"{key}: closed_form() says {formula}, the built fabric has {value}"
    yield from _bisection(want, fabric)


def _bisection(want: ClosedForm, fabric: Fabric) -> Iterator[str]:
    half = len(fabric.accelerators) // 2
    if want.bisection_links is not None and not 0 <= want.bisection_links <= half:
        yield f"bisection_links: closed_form() says {want.bisection_links}, {half} hosts load {half} links at most"


def _plugged_in(fabric: Fabric) -> Iterator[str]:
    if not fabric.accelerators:
        yield "it has no hosts"
    for host in fabric.hosts:
        kinds = {link.kind for link in fabric.links_at(host.name)}
        if not kinds - {"scale-up"}:
            yield f"{host.name} has no scale-out interface"
        elif fabric.node(fabric.switch_of(host.name)).is_host:
            yield f"{host.name} is plugged into {fabric.switch_of(host.name)}: its first link must end at a switch"


def _connected(fabric: Fabric) -> Iterator[str]:
    """Over all links: rails without spines meet inside the servers."""
    seen = {fabric.hosts[0].name}
    frontier = list(seen)
    while frontier:
        reached = {far.node for node in frontier for _, far, _ in fabric.neighbours(node)} - seen
        seen |= reached
        frontier = list(reached)
    lost = [node.name for node in fabric.nodes if node.name not in seen]
    if lost:
        yield f"not connected: {len(lost)} nodes cannot be reached from {fabric.hosts[0].name}, e.g. {lost[0]}"


def _round_trip(fabric: Fabric) -> Iterator[str]:
    if Fabric.from_json(fabric.to_json()) != fabric:
        yield "it does not survive JSON: parameters must be plain numbers and texts"


def _names(fabric: Fabric) -> Iterator[str]:
    """Fabric refuses long interface names; a host's own name becomes a namespace and a Mininet node."""
    for node in fabric.nodes:
        if not node.name or len(node.name) > MAX_INTF_NAME:
            yield f"node name {node.name!r} has {len(node.name)} characters, 1 to {MAX_INTF_NAME} are allowed"


def _datapath_ids(fabric: Fabric) -> Iterator[str]:
    for dpid, n in Counter(s.dpid for s in fabric.switches).items():
        if n > 1 or not dpid:
            yield f"datapath id {dpid!r} belongs to {n} switches: each needs one of its own"


def _addresses(fabric: Fabric) -> Iterator[str]:
    for port in (port for host in fabric.hosts for port in fabric.ports_of(host.name)):
        if port.ip is None or port.mac is None:
            yield f"{port.intf} has no {'address' if port.ip is None else 'MAC'}"
        elif IPv4Address(port.ip) not in FABRIC_NETWORK:
            yield f"{port.intf} has address {port.ip}, outside {FABRIC_NETWORK}"
        elif port.ip == fabric.gateway_ip:
            yield f"{port.intf} has the virtual gateway's address {port.ip}"


def _prefixes(fabric: Fabric) -> Iterator[str]:
    """A switch's prefix is a promise to all others: its accelerators are in it, and nobody else's hosts are."""
    span = {s.name: _span(s.prefix) for s in fabric.switches if s.prefix}
    for port in (port for host in fabric.hosts for port in fabric.ports_of(host.name)):
        here = fabric.peer(port).node
        if port.ip is None or here not in span:
            continue
        address, what = int(IPv4Address(port.ip)), f"{port.node} ({port.ip}) is on {here}"
        holders = [name for name, (first, last) in span.items() if first <= address <= last]
        # A helper for which a prefix has no room is routed to by its address.
        if here not in holders and not fabric.node(port.node).is_helper:
            yield f"{what}, whose prefix {fabric.node(here).prefix} does not cover it"
        for other in holders:
            if other != here:
                yield f"{what}, but lies in the prefix {fabric.node(other).prefix} of {other}"


def _span(prefix: str) -> tuple[int, int]:
    """First and last address, as numbers."""
    network = IPv4Network(prefix)
    return int(network.network_address), int(network.broadcast_address)


def _described(fabric: Fabric) -> Iterator[str]:
    description = describe(fabric)
    n_hosts = description["hosts"] + sum(description["helpers"].values())
    if n_hosts != len(fabric.hosts) or sum(description["links"].values()) != len(fabric.links):
        yield "describe() miscounts it"


_CHECKS: tuple[Callable[[Fabric], Iterator[str]], ...] = (
    _connected, _round_trip, _names, _datapath_ids, _addresses, _prefixes,
)  # fmt: skip
