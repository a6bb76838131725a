"""What a host is told of the others: its routes and neighbours, as netlink requests. An edge, which computes only."""

from collections.abc import Iterator

from topologies import netlink_requests
from topologies.addressing import FABRIC_NETWORK
from topologies.fabric import Fabric, Port
from topologies.netlink import Request


def requests(
    fabric: Fabric, port: Port, index: int, addressing: str, congestion_control: str, least_timeout_ms: int
) -> Iterator[Request]:
    """The host's one route out of this interface and what it must know of the other side. index: the interface's;
    addressing: 'l3', by a virtual gateway, or 'l2'; least_timeout_ms: of TCP's retransmission."""
    gateway = fabric.gateway_ip if addressing == "l3" else None
    for network in _networks(fabric, port):
        yield netlink_requests.route(index, network, gateway, congestion_control, least_timeout_ms)
    if gateway:
        yield netlink_requests.neighbour(index, gateway, fabric.gateway_mac)
    else:
        for other in _reachable(fabric, port):
            if other.ip and other.mac:
                yield netlink_requests.neighbour(index, other.ip, other.mac)


def _networks(fabric: Fabric, port: Port) -> list[str]:
    """The whole fabric through the scale-out NIC; through a scale-up interface only its own domain."""
    if port == fabric.scale_out_port(port.node):
        return [str(FABRIC_NETWORK)]
    return [f"{other.ip}/32" for other in _reachable(fabric, port) if other.ip]


def _reachable(fabric: Fabric, port: Port) -> list[Port]:
    if port == fabric.scale_out_port(port.node):
        ports = (fabric.scale_out_port(h.name) for h in fabric.hosts)
        return [p for p in ports if p.node != port.node]
    return domain_ports(fabric, port)


def domain_ports(fabric: Fabric, port: Port) -> list[Port]:
    """The other hosts' ports that scale-up links alone reach from `port`, in the fabric's order."""
    seen, frontier = {port.node}, [fabric.peer(port)]
    reached: set[str] = set()
    while frontier:
        at = frontier.pop()
        reached.add(at.intf)
        if at.node not in seen and not fabric.node(at.node).is_host:
            seen.add(at.node)
            frontier += [far for _, far, link in fabric.neighbours(at.node) if link.kind == "scale-up"]
    ports = (p for h in fabric.hosts for p in fabric.ports_of(h.name))
    return [p for p in ports if p.intf in reached and p.node != port.node]
