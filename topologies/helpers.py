"""Hosts beside the accelerators, for algorithms that need them: reducers that add up what ranks send, parameter servers.

Each is plugged into a switch by a link of its own and stands behind all that the fabric had, whose ports, names and addresses
stay. Its address is the next free one of the switch's prefix, so that routing by prefix finds it; where that is full, or there
is none, one that no prefix has, which is routed to by itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from ipaddress import IPv4Network
from itertools import count

from topologies.addressing import host_ip, host_mac, spare_addresses
from topologies.errors import TopologyError, unknown
from topologies.fabric import HELPER_ROLES, Fabric, Link, Node, Port
from topologies.shaping import OCS_ROLE
from topologies.tiers import network_switches

REDUCER, SERVER = HELPER_ROLES


def with_helpers(
    fabric: Fabric, at: Sequence[str], rate_mbps: float | Sequence[float], *, role: str = REDUCER, delay_us: float = 0.0
) -> Fabric:
    """The fabric with a helper at each of the switches `at`, called reducer1, reducer2, ... in their order.

    rate_mbps: of every helper's link, or of each; role: one of HELPER_ROLES. Raises TopologyError for what is no packet switch
    of the network, and where no address is left.
    """
    switches = [s.name for s in network_switches(fabric) if s.role != OCS_ROLE]
    for name in at:
        if name not in switches:
            raise TopologyError(unknown(f"switch for a {role}", name, switches))
    rates = [rate_mbps] * len(at) if isinstance(rate_mbps, (int, float)) else rate_mbps
    for switch, rate in zip(at, rates, strict=True):
        fabric = _with_one(fabric, switch, rate, role, delay_us)
    return fabric


def _with_one(fabric: Fabric, switch: str, rate_mbps: float, role: str, delay_us: float) -> Fabric:
    names = {node.name for node in fabric.nodes}
    name = next(name for name in (f"{role}{i}" for i in count(1)) if name not in names)
    number = max((port.number for port in fabric.ports_of(switch)), default=0) + 1
    own = Port(name, 0, f"{name}-eth0", _mac(fabric), _address(fabric, switch))
    link = Link(len(fabric.links), own, Port(switch, number, f"{switch}-eth{number}"), "scale-out", rate_mbps, delay_us)
    return replace(fabric, nodes=(*fabric.nodes, Node(name, role)), links=(*fabric.links, link))


def _mac(fabric: Fabric) -> str:
    taken = {port.mac for link in fabric.links for port in link.ports}
    return next(mac for mac in map(host_mac, count(len(fabric.hosts))) if mac not in taken)


def _address(fabric: Fabric, switch: str) -> str:
    taken = {port.ip for link in fabric.links for port in link.ports} | {fabric.gateway_ip}
    for ip in _candidates(fabric, switch):
        if ip not in taken:
            return ip
    raise TopologyError(
        f"{fabric.name} leaves no address for a helper at {switch}: choose a switch whose prefix has one, or fewer hosts"
    )


def _candidates(fabric: Fabric, switch: str) -> Iterator[str]:
    prefix = fabric.node(switch).prefix
    if prefix is not None:
        network = IPv4Network(prefix)
        yield from (host_ip(network, i) for i in range(network.num_addresses - 1))
    yield from spare_addresses(s.prefix for s in fabric.switches if s.prefix)
