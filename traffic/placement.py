"""Which host each rank runs on."""

import random
from collections.abc import Callable, Sequence

from topologies import Fabric, unknown
from topologies.tiers import hb_domain_ports
from traffic.errors import TrafficError


def contiguous(fabric: Fabric, seed: int) -> list[str]:
    """In the fabric's order: neighbours in rank are neighbours below a leaf, or in a server."""
    return [h.name for h in fabric.accelerators]


def strided(fabric: Fabric, seed: int) -> list[str]:
    """Round robin over the switches that have hosts: neighbours in rank are never below one leaf (if there are two)."""
    below: dict[str, list[str]] = {}
    for host in fabric.accelerators:
        below.setdefault(fabric.switch_of(host.name), []).append(host.name)
    rounds = max((len(hosts) for hosts in below.values()), default=0)
    return [hosts[i] for i in range(rounds) for hosts in below.values() if i < len(hosts)]


def shuffled(fabric: Fabric, seed: int) -> list[str]:
    """At random, the same for the same seed."""
    hosts = [h.name for h in fabric.accelerators]
    random.Random(seed).shuffle(hosts)
    return hosts


PLACEMENTS: dict[str, Callable[[Fabric, int], list[str]]] = {
    "contiguous": contiguous,
    "strided": strided,
    "random": shuffled,
}


def place(fabric: Fabric, n_ranks: int, placement: str, seed: int = 0) -> list[str]:
    """rank -> host name. Raises TrafficError for an unknown placement or more ranks than hosts."""
    if placement not in PLACEMENTS:
        raise TrafficError(unknown("placement", placement, PLACEMENTS))
    most = len(fabric.accelerators)
    if n_ranks > most:
        raise TrafficError(f"{n_ranks} ranks do not fit on {most} hosts: use at most {most}")
    return PLACEMENTS[placement](fabric, seed)[:n_ranks]


def hb_domains(fabric: Fabric, hosts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The ranks of each HB domain, however they are placed, in the fabric's order of their hosts: on rails the i-th of every
    whole domain is on rail i. hosts: rank -> host name. A rank without a scale-up interface is one by itself; () where no rank
    has one."""
    rank_of = {host: rank for rank, host in enumerate(hosts)}
    inside = (tuple(rank_of[p.node] for p in ports if p.node in rank_of) for ports in hb_domain_ports(fabric))
    domains = [domain for domain in inside if domain]
    outside = set(range(len(hosts))).difference(*domains)
    return (*domains, *((rank,) for rank in sorted(outside))) if domains else ()
