"""Tiers as rows, hosts at the bottom: the folded-Clos fabrics. Pods, units and servers are framed; optical circuit switches
have a row of their own above the packet switches of their tier, helpers stand on their switches."""

from collections.abc import Iterator

from topologies.drawing.layout import (
    HOSTS_DRAWN,
    Box,
    Frame,
    Layout,
    Point,
    crowd_box,
    frame_round,
    helpers_above,
    host_box,
    hosts_by_switch,
    labels,
    switch_box,
)
from topologies.fabric import Fabric
from topologies.shaping import OCS_ROLE
from topologies.tiers import hb_domains, rows

_SWITCH_WIDTH, _SWITCH_HEIGHT, _HOST_WIDTH, _HOST_HEIGHT, _CROWD_WIDTH = 96.0, 26.0, 37.0, 18.0, 64.0
# A server's hosts are below many leaves: from less high, the lines would run behind its other hosts.
_ROW, _CROWDED_ROW, _HOST_ROW, _SERVER_ROW, _SCALE_UP_ROW = 108.0, 190.0, 94.0, 150.0, 40.0
_CROWDED_LINKS = 200
# A narrower box cannot be pointed at.
_NARROWEST_HOST = 8.0


def place_rows(fabric: Fabric, width: float) -> Layout:
    height = _CROWDED_ROW if len(fabric.links) > _CROWDED_LINKS else _ROW
    boxes: dict[str, Box] = {}
    for depth, names in enumerate(_levels(fabric)):
        boxes |= _spread(fabric, names, width, depth * height)
    lowest = max((box.y for box in boxes.values()), default=0.0)
    if hb_domains(fabric):
        below = _servers_below(fabric, width, lowest + _SERVER_ROW)
    else:
        below = _hosts_below(fabric, boxes, width, lowest + _HOST_ROW)
    boxes |= below.boxes
    helpers = hosts_by_switch(fabric, fabric.helpers)
    for switch, names in helpers.items():
        boxes |= helpers_above(fabric, boxes[switch], names)
    return Layout(boxes, below.stands_for, (*_pod_frames(fabric, boxes, helpers), *below.frames))


def _levels(fabric: Fabric) -> Iterator[list[str]]:
    """The switches of each row, the top one first."""
    for names in reversed(rows(fabric)[1:]):
        optical = [name for name in names if fabric.node(name).role == OCS_ROLE]
        packet = [name for name in names if fabric.node(name).role != OCS_ROLE]
        yield from filter(None, (optical, packet))


def _spread(fabric: Fabric, names: list[str], width: float, y: float) -> dict[str, Box]:
    step = width / len(names)
    box_width = min(_SWITCH_WIDTH, step * 0.82)
    return {
        name: switch_box(fabric, name, (step * (i + 0.5), y), box_width, _SWITCH_HEIGHT, text)
        for i, (name, text) in enumerate(zip(names, labels(names, box_width), strict=True))
    }


def _hosts_below(fabric: Fabric, boxes: dict[str, Box], width: float, y: float) -> Layout:
    """The hosts by switch, each switch's below it."""
    by_switch = hosts_by_switch(fabric, fabric.accelerators)
    room = width / max(len(by_switch), 1) * 0.9
    return _neighbours(fabric, [(hosts, (boxes[switch].x, y)) for switch, hosts in by_switch.items()], room)


def _servers_below(fabric: Fabric, width: float, y: float) -> Layout:
    """The hosts by server, each server framed with its scale-up switches, which are left out where a server is one box."""
    servers = hb_domains(fabric)
    inside = {name for server in servers for name in server}
    alone = [[host.name] for host in fabric.accelerators if host.name not in inside]
    room = width / len(servers + alone)
    hosts = _neighbours(fabric, [(s, (room * (i + 0.5), y)) for i, s in enumerate(servers + alone)], room * 0.9)
    if hosts.stands_for:
        return hosts
    boxes, frames = dict(hosts.boxes), []
    for server in servers:
        scale_up = _scale_up_boxes(fabric, [boxes[host] for host in server], server)
        boxes |= scale_up
        outlined = [*(boxes[host] for host in server), *scale_up.values()]
        frames.append(frame_round(outlined, aside=min(8.0, 0.08 * boxes[server[0]].width), above=8.0))
    return Layout(boxes, frames=tuple(frames))


def _scale_up_boxes(fabric: Fabric, above: list[Box], server: list[str]) -> dict[str, Box]:
    """As wide as the server's hosts, and below them."""
    far = [far.node for host in server for _, far, link in fabric.neighbours(host) if link.kind == "scale-up"]
    names = [name for name in dict.fromkeys(far) if not fabric.node(name).is_host]
    width = above[-1].x - above[0].x + above[0].width
    x, y = (above[0].x + above[-1].x) / 2, above[0].y
    return {
        name: Box(
            x, y + (i + 1) * _SCALE_UP_ROW, width, _SWITCH_HEIGHT, "switch", labels([name], width)[0],
            f"{name}: HB domain of {len(server)}",
        )
        for i, name in enumerate(names)
    }  # fmt: skip


def _neighbours(fabric: Fabric, crowds: list[tuple[list[str], Point]], room: float) -> Layout:
    """Hosts side by side round each crowd's middle, a box each where the fabric's hosts are few, else one for all.

    room: the width that each crowd has.
    """
    most = max((len(hosts) for hosts, _ in crowds), default=1)
    step = min(room / most, _HOST_WIDTH / 0.84)
    if len(fabric.accelerators) > HOSTS_DRAWN or step < _NARROWEST_HOST:
        boxes = [crowd_box(hosts, at, min(room, _CROWD_WIDTH), _HOST_HEIGHT) for hosts, at in crowds]
        stands_for = {host: box.title for box, (hosts, _) in zip(boxes, crowds, strict=True) for host in hosts}
        return Layout({box.title: box for box in boxes}, stands_for)
    return Layout({
        host: host_box(fabric, host, (x + (i - (len(hosts) - 1) / 2) * step, y), step * 0.84, _HOST_HEIGHT)
        for hosts, (x, y) in crowds
        for i, host in enumerate(hosts)
    })  # fmt: skip


def _pod_frames(fabric: Fabric, boxes: dict[str, Box], helpers: dict[str, list[str]]) -> Iterator[Frame]:
    """Round the switches of each pod or unit and the helpers on them, where there are several of several switches."""
    groups: dict[int, list[str]] = {}
    for switch in fabric.switches:
        if switch.group is not None and switch.name in boxes:
            groups.setdefault(switch.group, []).append(switch.name)
    if len(groups) > 1 and max(map(len, groups.values())) > 1:
        for names in groups.values():
            pod = [boxes[name] for switch in names for name in (switch, *helpers.get(switch, ()))]
            yield frame_round(pod, aside=min(8.0, 0.08 * min(box.width for box in pod)), above=8.0)
