"""Addresses of emulated hosts: from 198.18.0.0/15, RFC 2544's benchmark range, so that they never meet a real network.

Hierarchical, because switches match on prefixes: the hosts of one leaf share one prefix.
"""

from ipaddress import IPv4Network

from topologies.errors import TopologyError

FABRIC_NETWORK = IPv4Network("198.18.0.0/15")
# The last address is the virtual gateway's (198.19.255.254); the blocks below never reach it.
_CAPACITY = 2**16 + 2**15


def leaf_prefixes(leaves: int, hosts_per_leaf: int) -> tuple[IPv4Network, ...]:
    """One prefix per leaf, all of one size: the smallest power of two that holds the hosts and an unused first address."""
    length = 32 - max(hosts_per_leaf, 1).bit_length()
    size = 2 ** (32 - length)
    if leaves * size > _CAPACITY:
        raise TopologyError(
            f"{leaves} leaves x {hosts_per_leaf} hosts need {leaves * size} addresses, "
            f"{FABRIC_NETWORK} gives {_CAPACITY}: use fewer hosts"
        )
    base = int(FABRIC_NETWORK.network_address)
    return tuple(IPv4Network((base + i * size, length)) for i in range(leaves))


def host_ip(prefix: IPv4Network, i: int) -> str:
    """The i-th host (from 0) of a leaf; the prefix's own first address stays free."""
    return str(prefix[i + 1])


def host_mac(host_index: int, interface: int = 0) -> str:
    """A locally administered MAC, unique for the host's place in the fabric and its interface."""
    return "02:{:02x}:{:02x}:{:02x}:{:02x}:01".format(interface, *host_index.to_bytes(3, "big"))
