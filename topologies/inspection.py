"""What the kernel and Open vSwitch hold of a fabric that is up, read from outside of all that made it.

It knows nothing of what was asked for: `lab.measuring.diagnosis` compares. One pass through every namespace, and one
question to the database; counters are cumulative.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from topologies import namespaces, netlink_readings, wires
from topologies.errors import EmulationError
from topologies.fabric import Fabric
from topologies.inspected import Inspection, IpCounts, LinkEnd, Plugged
from topologies.ovs_daemons import RUN_DIR
from topologies.ovs_database import Database, select

_SNMP = Path("/proc/thread-self/net/snmp")


class _Seen(NamedTuple):
    """In one namespace."""

    ends: dict[str, LinkEnd]
    filters: dict[str, int]
    ip: IpCounts
    sent: int
    received: int


def inspect(fabric: Fabric, run_dir: Path = RUN_DIR) -> Inspection:
    """In the namespace of the switches, with the hosts' by their names."""
    delayed = any(link.delay_us for link in fabric.links)
    names = [host.name for host in fabric.hosts]
    own = {name: {port.intf for port in fabric.ports_of(name)} for name in names}
    inside = dict(zip(names, namespaces.each(((name, own[name]) for name in names), _look), strict=True))
    here = netlink_readings.link_ends()
    seen = [*inside.values(), *(namespaces.each([(wires.NAMESPACE, set[str]())], _look) if delayed else ())]
    ends = {intf: end for one in seen for intf, end in one.ends.items()}
    filters = {intf: counts for one in seen for intf, counts in one.filters.items()}
    mine = {port.intf for switch in fabric.switches for port in fabric.ports_of(switch.name)}
    ends.update((intf, end) for intf, end in here.items() if intf in mine)
    filters.update((intf, n) for intf, n in netlink_readings.filter_drops().items() if intf in mine)
    return Inspection(
        ends=ends,
        cables=tuple(_cables(fabric)),
        plugged=_asked(run_dir),
        filters=filters,
        ip={name: one.ip for name, one in inside.items()},
        sent={name: one.sent for name, one in inside.items()},
        received={name: one.received for name, one in inside.items()},
    )


def _cables(fabric: Fabric) -> Iterator[tuple[str, str]]:
    for link in fabric.links:
        ends = (link.a.intf, link.b.intf)
        if link.delay_us:
            yield from zip(ends, wires.names(link), strict=True)
        else:
            yield ends


def _look(intfs: set[str]) -> _Seen:
    counters = [n for intf, n in netlink_readings.link_counters().items() if intf in intfs or intf == "lo"]
    return _Seen(
        netlink_readings.link_ends(),
        netlink_readings.filter_drops(),
        _ip_counts(_SNMP.read_text()),
        sum(n.tx_packets for n in counters) + _held(intfs),
        sum(n.rx_packets for n in counters),
    )


def _held(intfs: set[str]) -> int:
    """Packets that wait in the interfaces' queues, and that these dropped: their loss is no secret."""
    return sum(
        queue.waiting + queue.dropped for intf, queue in netlink_readings.queue_counts().items() if intf in intfs
    )


def _ip_counts(text: str) -> IpCounts:
    """proc(5): two lines that begin with 'Ip:', names and numbers."""
    names, numbers = (line.split()[1:] for line in text.splitlines() if line.startswith("Ip:"))
    found = dict(zip(names, map(int, numbers), strict=True))
    # Fragments are one packet when they are whole; what is forwarded is not delivered.
    delivered = found["InDelivers"] + found["ForwDatagrams"] + found["ReasmReqds"] - found["ReasmOKs"]
    return IpCounts(delivered, found["OutRequests"])


def _asked(run_dir: Path) -> dict[str, Plugged] | None:
    """None where the database has gone: what is still there of the fabric is worth a look."""
    try:
        return _plugged(run_dir)
    except (OSError, EmulationError):
        return None


def _plugged(run_dir: Path) -> dict[str, Plugged]:
    with Database(run_dir) as db:
        bridges, ports, interfaces = (
            answer["rows"]
            for answer in db.transact(
                select("Bridge", [], "name", "ports"),
                select("Port", [], "_uuid", "interfaces"),
                select("Interface", [], "_uuid", "name", "ofport"),
            )
        )
    bridge_of = {uuid: row["name"] for row in bridges for uuid in _uuids(row["ports"])}
    port_of = {uuid: row["_uuid"][1] for row in ports for uuid in _uuids(row["interfaces"])}
    found = {}
    for row in interfaces:
        bridge = bridge_of.get(port_of.get(row["_uuid"][1], ""), "")
        found[row["name"]] = Plugged(bridge, row["ofport"] if isinstance(row["ofport"], int) else -1)
    return found


def _uuids(value: Any) -> list[str]:
    """RFC 7047: a set of one is written as its member."""
    return [uuid for _, uuid in (value[1] if value[0] == "set" else [value])]
