"""Where frames are captured: `--pcap h1,leaf1->spine2`. Pure."""

from dataclasses import dataclass

from lab.errors import LabError
from topologies import Fabric, Port


@dataclass(frozen=True)
class CapturePoint:
    """port: frames that leave and enter by it; host: in whose namespace it is, None = a switch's. name: of the file."""

    port: Port
    host: str | None

    @property
    def name(self) -> str:
        return self.port.intf


def capture_points(text: str, fabric: Fabric) -> list[CapturePoint]:
    """A host is its NIC; a link, written leaf1->spine2 or as its interface, the end that the first node has of it.

    Raises LabError for what is neither.
    """
    known = {port.intf: port for node in fabric.nodes for port in fabric.ports_of(node.name)}
    directions = {fabric.direction(port): port for port in known.values()}
    hosts = {host.name: fabric.scale_out_port(host.name) for host in fabric.hosts}
    names = {**known, **directions, **hosts}
    points = {}
    for name in (part.strip() for part in text.split(",")):
        if name not in names:
            raise LabError(
                f"--pcap {name!r} is no host and no link of {fabric.name}: write a host such as {next(iter(hosts))}, or a link "
                f"such as {next(iter(directions))}"
            )
        port = names[name]
        points[port.intf] = CapturePoint(port, port.node if fabric.node(port.node).is_host else None)
    return list(points.values())
