"""Which interface and which MAC lead to an address, from the kernel's own tables as text."""

from ipaddress import IPv4Address
from typing import NamedTuple

from traffic.errors import TransportError

_ROUTE_UP = 0x1


class NextHop(NamedTuple):
    intf: str
    mac: str


def next_hop(ip: str, routes: str, neighbours: str) -> NextHop:
    """routes, neighbours: /proc/net/route and /proc/net/arp. Raises TransportError where frames would have no way to go."""
    address = int(IPv4Address(ip))
    found = [route for route in map(_route, routes.splitlines()[1:]) if route and address & route[0] == route[1]]
    if not found:
        raise TransportError(f"no route to {ip}")
    # The longest prefix, and of several the one with the least metric.
    _, _, gateway, _, intf = max(found, key=lambda route: (route[0], -route[3]))
    wanted = str(IPv4Address(gateway)) if gateway else ip
    for line in neighbours.splitlines()[1:]:
        neighbour, _, _, mac, _, at = line.split()
        if (neighbour, at) == (wanted, intf):
            return NextHop(intf, mac)
    raise TransportError(f"no neighbour entry for {wanted} on {intf}: frames to {ip} would have no destination MAC")


def _route(line: str) -> tuple[int, int, int, int, str] | None:
    """(mask, network, gateway, metric, interface); addresses stand there in hexadecimal as they lie in memory."""
    intf, network, gateway, flags, _, _, metric, mask, *_ = line.split()
    if not int(flags, 16) & _ROUTE_UP:
        return None
    net, via, masked = (int.from_bytes(bytes.fromhex(x), "little") for x in (network, gateway, mask))
    return masked, net, via, int(metric), intf
