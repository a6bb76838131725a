"""Where an emulated fabric has lost frames, as the kernel counts them: interface -> frames since it was made. An edge."""

from collections.abc import Sequence

from topologies import namespaces, netlink_readings, wires
from topologies.fabric import Fabric, Link


def in_host_queues(fabric: Fabric) -> dict[str, int]:
    def drops(host: str) -> dict[str, int]:
        mine = {port.intf for port in fabric.ports_of(host)}
        return {intf: n for intf, n in netlink_readings.qdisc_drops().items() if intf in mine}

    found = namespaces.each(((h.name, h.name) for h in fabric.hosts), drops)
    return {intf: n for host in found for intf, n in host.items()}


def in_switch_queues(fabric: Fabric) -> dict[str, int]:
    mine = {port.intf for switch in fabric.switches for port in fabric.ports_of(switch.name)}
    return {intf: n for intf, n in netlink_readings.qdisc_drops().items() if intf in mine}


def behind_interfaces(fabric: Fabric, delayed: Sequence[Link]) -> dict[str, int]:
    """That left an interface and that the far end did not take (its receive backlog was full, its MTU too small) or a delay
    line had no room for."""

    def drops() -> dict[str, int]:
        return {intf: counters.tx_dropped for intf, counters in netlink_readings.link_counters().items()}

    mine = {port.intf for link in fabric.links for port in link.ports}
    found = [drops(), *namespaces.each(((h.name, None) for h in fabric.hosts), lambda _: drops())]
    lost = {intf: n for here in found for intf, n in here.items() if intf in mine}
    if delayed:
        (in_the_middle,) = namespaces.each([(wires.NAMESPACE, list(delayed))], wires.drops)
        for intf, n in in_the_middle.items():
            lost[intf] += n
    return lost
