"""What the emulation knows before it touches the machine."""

import pytest

from topologies.emulation import Emulation, mac
from topologies.errors import TopologyError
from topologies.fabric import Fabric, Link, Node, Port
from topologies.host_routes import domain_ports
from topologies.spine_leaf import SpineLeaf
from topologies.tcp import Tcp


def two_servers() -> Fabric:
    """Two servers of two accelerators; in each an NVSwitch, and a NIC of each accelerator on one leaf."""
    nodes = [Node("leaf1", "leaf", dpid=1), Node("nv1", "scale-up", dpid=2), Node("nv2", "scale-up", dpid=3)]
    links: list[Link] = []
    for i in range(4):
        host, server = f"h{i + 1}", i // 2 + 1
        nodes.append(Node(host, "host", group=server))
        nic = Port(host, 0, f"{host}-eth0", f"02:00:00:00:0{i}:01", f"198.18.0.{i + 1}")
        up = Port(host, 1, f"{host}-eth1", f"02:01:00:00:0{i}:01", f"198.18.64.{i + 1}")
        links.append(Link(len(links), nic, Port("leaf1", i + 1, f"leaf1-eth{i + 1}"), "scale-out", 400.0))
        far = Port(f"nv{server}", i % 2 + 1, f"nv{server}-eth{i % 2 + 1}")
        links.append(Link(len(links), up, far, "scale-up", 7200.0))
    return Fabric("test", {}, tuple(nodes), tuple(links))


def port(fabric: Fabric, intf: str) -> Port:
    return next(p for p in fabric.link_of(intf).ports if p.intf == intf)


def test_a_scale_up_domain_ends_at_its_hosts() -> None:
    fabric = two_servers()
    assert [p.intf for p in domain_ports(fabric, port(fabric, "h1-eth1"))] == ["h2-eth1"]
    assert [p.intf for p in domain_ports(fabric, port(fabric, "h4-eth1"))] == ["h3-eth1"]


def test_every_interface_has_a_mac_of_its_own() -> None:
    fabric = SpineLeaf(spines=4, leaves=8, hosts_per_leaf=4, links_per_pair=2).build()
    macs = [mac(link, p) for link in fabric.links for p in link.ports]
    assert len(set(macs)) == len(macs)
    assert all(int(m[:2], 16) & 0b11 == 0b10 for m in macs), "locally administered, unicast"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"addressing": "l4"}, "unknown addressing 'l4': choose from l2, l3"),
        ({"datapath": "user"}, "unknown datapath 'user': choose from netdev, system"),
        ({"tcp": Tcp("warp")}, "unknown congestion control 'warp': choose from "),
        ({"mtu": 65_536}, "mtu 65536 is outside 576 to 9216"),
    ],
)
def test_what_is_asked_is_checked_before_anything_is_made(options: dict[str, object], text: str) -> None:
    with pytest.raises(TopologyError) as refused:
        Emulation(two_servers(), **options)  # type: ignore[arg-type]
    assert str(refused.value).startswith(text)
