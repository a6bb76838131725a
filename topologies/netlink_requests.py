"""rtnetlink requests as bytes, encoded by pyroute2's message classes.

That takes 0.1-0.5 ms for a message, so the messages of equal shapes are encoded once and differ only in the interface index.
"""

import socket
import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from pyroute2.netlink import nlmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg
from pyroute2.netlink.rtnl.tcmsg import cls_u32, plugins, sched_pfifo, tcmsg

from topologies import tbf
from topologies.netlink import (
    ACK,
    CLASS,
    CLSACT_EGRESS,
    CLSACT_HANDLE,
    CLSACT_INGRESS,
    HTB,
    NETEM,
    REQUEST,
    TC_ROOT,
    Request,
)
from topologies.shaping import Shape

# linux/netlink.h, linux/rtnetlink.h
_REPLACE, _EXCL, _CREATE = 0x100, 0x200, 0x400
_NEW = _CREATE | _EXCL
_RTM_NEWLINK, _RTM_DELLINK = 16, 17
_RTM_NEWADDR, _RTM_NEWROUTE, _RTM_NEWNEIGH = 20, 24, 28
_RTM_NEWQDISC, _RTM_NEWTCLASS, _RTM_NEWTFILTER = 36, 40, 44
_IFF_UP = 1
_NUD_PERMANENT = 0x80
_RTAX_RTO_MIN = 13
_RTNH_F_ONLINK = 4
_RT_SCOPE_LINK = 253
_ETHERNET = 1  # TC_LINKLAYER_ETHERNET: the kernel then needs no rate table
_FIFO = 0x500000
_CLSACT = 0xFFFFFFF1
_DIRECT_ACTION = 1  # TCA_BPF_FLAG_ACT_DIRECT: the program's result is what happens to the frame
_FIRST_PRIORITY, _ETH_P_ALL = 1 << 16, 3
_MAX_U32 = 2**32 - 1

# pyroute2 knows pfifo; bfifo's only option is the same struct, counted in bytes.
plugins["bfifo"] = sched_pfifo


class End(NamedTuple):
    """One end of a cable to make. mac: None = the kernel's choice; netns_fd: the namespace it goes to (None = here);
    group: a number to delete it by."""

    name: str
    mac: str | None
    mtu: int
    netns_fd: int | None = None
    group: int = 0


def veth(a: End, b: End) -> Request:
    """A cable, both ends down: the kernel opens neither before it knows its peer."""
    peer = {"attrs": _link_attrs(b)}
    info = [("IFLA_INFO_KIND", "veth"), ("IFLA_INFO_DATA", {"attrs": [("VETH_INFO_PEER", peer)]})]
    attrs = [*_link_attrs(a), ("IFLA_LINKINFO", {"attrs": info})]
    return _request(ifinfmsg, _RTM_NEWLINK, _NEW, {}, attrs, f"link {a.name} to {b.name}")


def set_link(index: int, intf: str, *, up: bool) -> Request:
    return Request(_at_index(_up_or_down(up), index), f"{intf} {'up' if up else 'down'}")


def one_segment_at_a_time(index: int, intf: str) -> Request:
    """What TCP hands to the interface is one frame: else it is up to 64 kB, cut into frames behind all filters and queues,
    whatever offloads say (sk_setup_caps in the kernel's net/core/sock.c)."""
    attrs = [("IFLA_GSO_MAX_SEGS", 1)]
    return _request(ifinfmsg, _RTM_NEWLINK, 0, {"index": index}, attrs, f"segments of {intf}")


@lru_cache
def _up_or_down(up: bool) -> bytes:
    return _encode(ifinfmsg, _RTM_NEWLINK, 0, {"flags": _IFF_UP if up else 0, "change": _IFF_UP}, ())


def delete_group(group: int) -> Request:
    """Every link whose end here is in the group, together: one by one each would wait for the kernel's readers."""
    return _request(ifinfmsg, _RTM_DELLINK, 0, {}, [("IFLA_GROUP", group)], f"removing the links of group {group:#x}")


def address(index: int, ip: str, prefix_length: int) -> Request:
    fields = {"family": socket.AF_INET, "index": index, "prefixlen": prefix_length}
    return _request(ifaddrmsg, _RTM_NEWADDR, _NEW, fields, [("IFA_LOCAL", ip), ("IFA_ADDRESS", ip)], f"address {ip}")


def route(
    index: int,
    network: str,
    via: str | None,
    congestion_control: str | None = None,
    least_timeout_ms: int | None = None,
) -> Request:
    """network: '198.18.0.0/15'. via: a gateway on this interface, whatever its own address; None = on the link.
    congestion_control, least_timeout_ms (for retransmission): of every TCP connection that takes the route."""
    destination, _, length = network.partition("/")
    fields = {"family": socket.AF_INET, "dst_len": int(length), "table": 254, "proto": 4, "type": 1}
    attrs: list[tuple[str, Any]] = [("RTA_DST", destination), ("RTA_OIF", index)]
    if via is None:
        fields["scope"] = _RT_SCOPE_LINK
    else:
        fields["flags"] = _RTNH_F_ONLINK
        attrs.append(("RTA_GATEWAY", via))
    metrics: list[tuple[str, Any]] = []
    if congestion_control is not None:
        metrics.append(("RTAX_CC_ALGO", congestion_control))
    if least_timeout_ms is not None:
        # Heeded only if it is locked (tcp_rto_min in the kernel's net/ipv4/tcp_input.c).
        metrics += [("RTAX_LOCK", 1 << _RTAX_RTO_MIN), ("RTAX_RTO_MIN", least_timeout_ms)]
    if metrics:
        attrs.append(("RTA_METRICS", {"attrs": metrics}))
    return _request(rtmsg, _RTM_NEWROUTE, _CREATE | _REPLACE, fields, attrs, f"route to {network}")


def neighbour(index: int, ip: str, mac: str) -> Request:
    """A permanent entry: never asked for, never forgotten, and exempt from the kernel's table limits."""
    fields = {"family": socket.AF_INET, "ifindex": index, "state": _NUD_PERMANENT}
    attrs = [("NDA_DST", ip), ("NDA_LLADDR", mac)]
    return _request(ndmsg, _RTM_NEWNEIGH, _CREATE | _REPLACE, fields, attrs, f"neighbour {ip}")


def shaping(index: int, intf: str, shape: Shape) -> list[Request]:
    """HTB, its class and the queue, or TBF, on an interface that has no qdisc of its own."""
    if shape.kind == "tbf":
        return [Request(_tbf(shape, index, _NEW), f"tbf on {intf}")]
    templates = _shaping_templates(shape)
    parts = (("htb", templates[0]), ("class", templates[1]), ("bfifo", templates[2]))
    return [Request(_at_index(data, index), f"{part} on {intf}") for part, data in parts]


def netem(index: int, intf: str, delay_ticks: int, limit_frames: int) -> Request:
    """A delay line for all that leaves the interface. delay: in 64 ns ticks; limit: the frames that may be in it."""
    options = {"delay": delay_ticks, "limit": limit_frames}
    fields = {"index": index, "handle": NETEM, "parent": TC_ROOT}
    attrs = [("TCA_KIND", "netem"), ("TCA_OPTIONS", options)]
    return _request(tcmsg, _RTM_NEWQDISC, _NEW, fields, attrs, f"netem on {intf}")


def pass_on(index: int, to: int, intf: str) -> list[Request]:
    """Hand every frame that arrives at an interface to another's egress. Matched by u32: not every kernel has matchall."""
    action = {"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": to}
    options = cls_u32.get_parameters({"action": action, "target": 0, "keys": ["0x0/0x0+0"]})
    every_frame = {"index": index, "parent": CLSACT_INGRESS, "info": _FIRST_PRIORITY | socket.htons(_ETH_P_ALL)}
    attrs = [("TCA_KIND", "u32"), ("TCA_OPTIONS", options)]
    return [_clsact(index, intf), _request(tcmsg, _RTM_NEWTFILTER, _NEW, every_frame, attrs, f"redirection on {intf}")]


def program(
    index: int, intf: str, program_fd: int, name: str, *, on_arrival: bool = False, place: int = 1
) -> list[Request]:
    """Run an eBPF program on every frame that leaves the interface, before its qdisc, or that arrives; instead of the one that
    was in that place before. Those at lower places see a frame first."""
    parent = CLSACT_INGRESS if on_arrival else CLSACT_EGRESS
    every_frame = {"index": index, "handle": 1, "parent": parent, "info": place << 16 | socket.htons(_ETH_P_ALL)}
    options = [("TCA_BPF_FD", program_fd), ("TCA_BPF_NAME", name), ("TCA_BPF_FLAGS", _DIRECT_ACTION)]
    attrs = [("TCA_KIND", "bpf"), ("TCA_OPTIONS", {"attrs": options})]
    what = f"program {name} on {intf}"
    return [_clsact(index, intf), _request(tcmsg, _RTM_NEWTFILTER, _CREATE | _REPLACE, every_frame, attrs, what)]


def _clsact(index: int, intf: str) -> Request:
    """What filters on ingress and egress hang on; nothing happens where it is already."""
    fields = {"index": index, "handle": CLSACT_HANDLE, "parent": _CLSACT}
    return _request(tcmsg, _RTM_NEWQDISC, _CREATE | _REPLACE, fields, [("TCA_KIND", "clsact")], f"clsact on {intf}")


def reshaping(index: int, intf: str, shape: Shape) -> list[Request]:
    """Another rate and limit for a shaped interface, in place: deleting would drop the queue and open the link."""
    what = f"rate {shape.rate_mbps:g} Mbit/s on {intf}"
    if shape.kind == "tbf":
        return [Request(_tbf(shape, index, 0), what)]
    return [Request(_at_index(data, index), what) for data in (_class(shape, 0), _fifo(shape, 0))]


@lru_cache(maxsize=1024)
def _shaping_templates(shape: Shape) -> tuple[bytes, bytes, bytes]:
    return _htb(), _class(shape, _NEW), _fifo(shape, _NEW)


def _tbf(shape: Shape, index: int, flags: int) -> bytes:
    return tbf.request(index, tbf.options(shape.rate_bytes_s, shape.burst_bytes, shape.limit_bytes), flags)


def _htb() -> bytes:
    default = {"version": 3, "rate2quantum": 10, "defcls": 1}
    options = {"attrs": [("TCA_HTB_INIT", default)]}
    fields = {"handle": HTB, "parent": TC_ROOT}
    return _encode(tcmsg, _RTM_NEWQDISC, _NEW, fields, [("TCA_KIND", "htb"), ("TCA_OPTIONS", options)])


def _class(shape: Shape, flags: int) -> bytes:
    rate = min(shape.rate_bytes_s, _MAX_U32)
    parameters = {"rate": rate, "ceil": rate, "buffer": shape.burst_ticks, "cbuffer": shape.burst_ticks}
    parameters |= {f"{x}_{key}": value for x in ("rate", "ceil") for key, value in _RATE_SPEC.items()}
    attrs: list[tuple[str, Any]] = [("TCA_HTB_PARMS", parameters | {"quantum": shape.quantum, "level": 0, "prio": 0})]
    if shape.rate_bytes_s > _MAX_U32:
        attrs += [("TCA_HTB_RATE64", shape.rate_bytes_s), ("TCA_HTB_CEIL64", shape.rate_bytes_s)]
    fields = {"handle": CLASS, "parent": HTB}
    return _encode(tcmsg, _RTM_NEWTCLASS, flags, fields, [("TCA_KIND", "htb"), ("TCA_OPTIONS", {"attrs": attrs})])


# struct tc_ratespec; pyroute2 calls its link layer byte __reserved, as old headers did.
_RATE_SPEC = {"cell_log": 0, "__reserved": _ETHERNET, "overhead": 0, "cell_align": 0, "mpu": 0}


def _fifo(shape: Shape, flags: int) -> bytes:
    fields = {"handle": _FIFO, "parent": CLASS}
    options = {"limit": shape.limit_bytes}
    return _encode(tcmsg, _RTM_NEWQDISC, flags, fields, [("TCA_KIND", "bfifo"), ("TCA_OPTIONS", options)])


def _at_index(template: bytes, index: int) -> bytes:
    """struct tcmsg and ifinfomsg: the index is the 32-bit word after nlmsghdr (16 bytes) and family and padding (4)."""
    return template[:20] + struct.pack("=i", index) + template[24:]


def _link_attrs(end: End) -> list[tuple[str, Any]]:
    attrs: list[tuple[str, Any]] = [("IFLA_IFNAME", end.name), ("IFLA_MTU", end.mtu), ("IFLA_GROUP", end.group)]
    if end.mac is not None:
        attrs.append(("IFLA_ADDRESS", end.mac))
    return attrs if end.netns_fd is None else [*attrs, ("IFLA_NET_NS_FD", end.netns_fd)]


def _request(cls: type[Any], kind: int, flags: int, fields: dict[str, Any], attrs: Iterable[Any], what: str) -> Request:
    return Request(_encode(cls, kind, flags, fields, attrs), what)


def _encode(cls: type[nlmsg], kind: int, flags: int, fields: dict[str, Any], attrs: Iterable[Any]) -> bytes:
    message = cls()
    message["header"].update(type=kind, flags=REQUEST | ACK | flags, sequence_number=0)
    message.update(fields)
    message["attrs"] = list(attrs)
    message.encode()
    return bytes(message.data)
