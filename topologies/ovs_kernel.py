"""Open vSwitch's kernel datapath, asked over generic netlink, in the caller's namespace: is it there, what it has lost."""

import socket
import struct

from topologies.netlink import ACK, REQUEST, attributes, dump, messages

# linux/netlink.h, linux/genetlink.h, linux/openvswitch.h
_NETLINK_GENERIC, _GENL_ID_CTRL, _NLMSG_ERROR = 16, 16, 2
_CTRL_CMD_GETFAMILY, _CTRL_ATTR_FAMILY_ID, _CTRL_ATTR_FAMILY_NAME = 3, 1, 2
_OVS_DP_CMD_GET, _OVS_DP_ATTR_STATS, _OVS_DATAPATH_VERSION = 3, 3, 2
# genlmsghdr: command, version, reserved
_GENL = struct.Struct("=BBH")


def family() -> int | None:
    """The number of the family `ovs_datapath` in this kernel; None where it has no module openvswitch.

    The question itself makes the kernel load the module.
    """
    name = b"ovs_datapath\0"
    attribute = struct.pack("=HH", 4 + len(name), _CTRL_ATTR_FAMILY_NAME) + name + bytes(-len(name) % 4)
    body = _GENL.pack(_CTRL_CMD_GETFAMILY, 1, 0) + attribute
    with _open() as link:
        link.send(struct.pack("=IHHII", 16 + len(body), _GENL_ID_CTRL, REQUEST | ACK, 0, 0) + body)
        for kind, _, payload in messages(link.recv(4096)):
            if kind != _NLMSG_ERROR:
                found = dict(attributes(payload[_GENL.size :]))[_CTRL_ATTR_FAMILY_ID]
                return int(struct.unpack("=H", found)[0])
    return None


def lost_frames() -> int:
    """Frames that the datapaths of this namespace had to ask ovs-vswitchd about and could not, since they were made."""
    kind = family()
    if kind is None:
        return 0
    # struct ovs_header: the datapath's interface index; a dump gives all.
    body = _GENL.pack(_OVS_DP_CMD_GET, _OVS_DATAPATH_VERSION, 0) + struct.pack("=i", 0)
    lost = 0
    with _open() as link:
        for data in dump(link, kind, body):
            for _, _, payload in messages(data):
                # struct ovs_dp_stats: n_hit, n_missed, n_lost, n_flows
                stats = dict(attributes(payload[_GENL.size + 4 :]))[_OVS_DP_ATTR_STATS]
                lost += struct.unpack_from("=QQQ", stats)[2]
    return lost


def _open() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC)
