"""Addresses of emulated hosts: from 198.18.0.0/15, RFC 2544's benchmark range, so that they never meet a real network.

Hierarchical, because switches match on prefixes: the hosts of one leaf share one prefix.
"""

from ipaddress import IPv4Network

from topologies.errors import TopologyError
from topologies.fabric import Fabric

FABRIC_NETWORK = IPv4Network("198.18.0.0/15")
# The last address is the virtual gateway's (198.19.255.254); the blocks below never reach it.
_CAPACITY = 2**16 + 2**15


def leaf_prefixes(leaves: int, hosts_per_leaf: int) -> tuple[IPv4Network, ...]:
    """One prefix per leaf, all of one size: the smallest power of two that holds the hosts and an unused first address."""
    return tuple(leaf for (leaf,) in grouped_prefixes(leaves, 1, hosts_per_leaf))


def grouped_prefixes(groups: int, leaves_per_group: int, hosts_per_leaf: int) -> tuple[tuple[IPv4Network, ...], ...]:
    """By group, one prefix per leaf as in `leaf_prefixes`. The leaves of a group lie in one block, a power of two of
    their prefixes, so that one prefix matches the group."""
    size = 2 ** max(hosts_per_leaf, 1).bit_length()
    block = size * 2 ** (leaves_per_group - 1).bit_length()
    if groups * block > _CAPACITY:
        what = f"{groups} groups x {leaves_per_group} switches" if leaves_per_group > 1 else f"{groups} leaves"
        raise TopologyError(
            f"{what} x {hosts_per_leaf} hosts need {groups * block} addresses, "
            f"{FABRIC_NETWORK} gives {_CAPACITY}: use fewer hosts"
        )
    base, length = int(FABRIC_NETWORK.network_address), 33 - size.bit_length()
    return tuple(
        tuple(IPv4Network((base + i * block + r * size, length)) for r in range(leaves_per_group))
        for i in range(groups)
    )


def group_prefixes(fabric: Fabric) -> dict[int, str]:
    """group -> the smallest prefix that covers those of its switches."""
    spans: dict[int, IPv4Network] = {}
    for switch in fabric.switches:
        if switch.group is not None and switch.prefix:
            prefix = IPv4Network(switch.prefix)
            spans[switch.group] = _covering(spans.get(switch.group, prefix), prefix)
    return {group: str(span) for group, span in spans.items()}


def _covering(a: IPv4Network, b: IPv4Network) -> IPv4Network:
    """The smallest network that holds both."""
    while not b.subnet_of(a):
        a = a.supernet()
    return a


def host_ip(prefix: IPv4Network, i: int) -> str:
    """The i-th host (from 0) of a leaf; the prefix's own first address stays free."""
    return str(prefix[i + 1])


def host_mac(host_index: int, interface: int = 0) -> str:
    """A locally administered MAC, unique for the host's place in the fabric and its interface."""
    return "02:{:02x}:{:02x}:{:02x}:{:02x}:01".format(interface, *host_index.to_bytes(3, "big"))
