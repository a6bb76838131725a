"""Addresses of emulated hosts: from 198.18.0.0/15, RFC 2544's benchmark range, so that they never meet a real network.

Hierarchical, because switches match on prefixes: the hosts of one leaf share one prefix.
"""

from collections.abc import Iterable, Iterator
from functools import reduce
from ipaddress import IPv4Address, IPv4Network
from itertools import islice

from topologies.errors import TopologyError
from topologies.fabric import Fabric

FABRIC_NETWORK = IPv4Network("198.18.0.0/15")
# The last address is the virtual gateway's (198.19.255.254); the blocks below never reach it.
_CAPACITY = 2**16 + 2**15
# Scale-up interfaces have the blocks behind, but for the last one, which is the gateway's.
_SCALE_UP_NETWORK = IPv4Network("198.19.128.0/17")


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


def scale_up_prefixes(domains: int, accelerators: int) -> tuple[IPv4Network, ...]:
    """One prefix per HB domain for the scale-up interfaces of its accelerators, sized as in `leaf_prefixes`."""
    length = 32 - max(accelerators, 1).bit_length()
    most = 2 ** (length - _SCALE_UP_NETWORK.prefixlen) - 1
    if domains > most:
        raise TopologyError(
            f"{domains} HB domains of {accelerators} accelerators are more than the {max(most, 0)} that "
            f"{_SCALE_UP_NETWORK} has addresses for: use fewer servers"
        )
    return tuple(islice(_SCALE_UP_NETWORK.subnets(new_prefix=length), domains))


def stride(prefixes: Iterable[str], copies: int) -> int:
    """Addresses from one copy of a fabric to the next: the size of the smallest network that covers its prefixes."""
    cover = reduce(_covering, map(IPv4Network, prefixes))
    first = int(cover.network_address) - int(FABRIC_NETWORK.network_address)
    size = cover.num_addresses
    if first < _CAPACITY < first + copies * size:
        raise TopologyError(
            f"{copies} sites of {size} addresses each need {copies * size}, {FABRIC_NETWORK} gives {_CAPACITY}: "
            f"use fewer hosts"
        )
    return size


def shifted(address: str, n: int) -> str:
    """An address or a prefix, n addresses further on."""
    network = IPv4Network(address)
    moved = IPv4Network((int(network.network_address) + n, network.prefixlen))
    return str(moved) if "/" in address else str(moved.network_address)


def host_ip(prefix: IPv4Network, i: int) -> str:
    """The i-th host (from 0) of a leaf; the prefix's own first address stays free."""
    return str(prefix[i + 1])


def spare_addresses(prefixes: Iterable[str]) -> Iterator[str]:
    """Of the hosts' range, those in none of the prefixes, from the end: prefixes are given from the beginning."""
    spans = [(int(p.network_address), int(p.broadcast_address)) for p in map(IPv4Network, prefixes)]
    first = int(FABRIC_NETWORK.network_address)
    address = first + _CAPACITY - 1
    while address > first:
        start = next((start for start, end in spans if start <= address <= end), None)
        if start is None:
            yield str(IPv4Address(address))
        address = (address if start is None else start) - 1


def host_mac(host_index: int, interface: int = 0) -> str:
    """A locally administered MAC, unique for the host's place in the fabric and its interface."""
    return "02:{:02x}:{:02x}:{:02x}:{:02x}:01".format(interface, *host_index.to_bytes(3, "big"))
