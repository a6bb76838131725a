"""Routes and neighbours as the kernel prints them."""

import pytest

from traffic.errors import TransportError
from traffic.rocev2.next_hop import NextHop, next_hop

# 198.18.0.0/15 via 198.19.255.254 on h1-eth0; 198.18.0.9 itself on h1-eth1; 10.0.0.0/8 on a route that is down.
ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
h1-eth0\t000012C6\tFEFF13C6\t0003\t0\t0\t0\t0000FEFF\t0\t0\t0
h1-eth1\t090012C6\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0
h1-eth2\t0000000A\t00000000\t0000\t0\t0\t0\t000000FF\t0\t0\t0
"""
NEIGHBOURS = """IP address       HW type     Flags       HW address            Mask     Device
198.18.0.9       0x1         0x6         02:00:00:00:00:09     *        h1-eth0
198.19.255.254   0x1         0x6         0a:00:00:00:00:01     *        h1-eth0
198.18.0.9       0x1         0x6         02:00:00:00:01:09     *        h1-eth1
"""


def test_a_gateway_gives_its_mac() -> None:
    assert next_hop("198.19.3.4", ROUTES, NEIGHBOURS) == NextHop("h1-eth0", "0a:00:00:00:00:01")


def test_the_longest_prefix_wins_and_the_neighbour_is_the_one_of_its_interface() -> None:
    assert next_hop("198.18.0.9", ROUTES, NEIGHBOURS) == NextHop("h1-eth1", "02:00:00:00:01:09")


@pytest.mark.parametrize("ip", ["192.0.2.1", "10.0.0.1"])
def test_no_route_is_an_error(ip: str) -> None:
    with pytest.raises(TransportError, match=f"^no route to {ip}$"):
        next_hop(ip, ROUTES, NEIGHBOURS)


def test_no_neighbour_is_an_error() -> None:
    with pytest.raises(
        TransportError, match=r"^no neighbour entry for 198\.18\.0\.9 on h1-eth1: frames to 198\.18\.0\.9"
    ):
        next_hop("198.18.0.9", ROUTES, NEIGHBOURS[: NEIGHBOURS.rindex("198.18")])
