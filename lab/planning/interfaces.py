"""The ranks' interfaces, and which of them carries what.

Inside an HB domain ranks speak over their scale-up interfaces, else over their NICs (`traffic.transport.address_pair`). With n
ranks, interface r is rank r's NIC and n + r its scale-up interface.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topologies.fabric import Fabric, Port
from topologies.tiers import scale_up_distances
from traffic.placement import hb_domains

Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Interfaces:
    """scale_out, scale_up: (ranks,) ports; domains: as `traffic.placement.hb_domains` gives them; domain: (ranks,) its
    number, -1 where the fabric has none; mbps: (2 x ranks,) their links' rates, nan where there is no interface;
    scale_up_switches: (ranks,) names, '' for none."""

    scale_out: tuple[Port, ...]
    scale_up: tuple[Port | None, ...]
    domains: tuple[tuple[int, ...], ...]
    domain: Ints
    mbps: Floats
    scale_up_switches: tuple[str, ...]

    def inside(self, src: Ints, dst: Ints) -> NDArray[np.bool_]:
        """Whether both ends are in one HB domain. src, dst: (sends,) ranks."""
        found: NDArray[np.bool_] = (self.domain[src] >= 0) & (self.domain[src] == self.domain[dst])
        return found

    def of_sends(self, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
        """(sends,) each: the interfaces that they leave and arrive by."""
        over_scale_up = np.where(self.inside(src, dst), len(self.domain), 0)
        return src + over_scale_up, dst + over_scale_up

    def busy_s(self, src: Ints, dst: Ints, n_bytes: Floats) -> Floats:
        """(interfaces,) how long each is busy at its rate, in its busier direction."""
        ends = self.of_sends(src, dst)
        out, into = (np.bincount(end, n_bytes, len(self.mbps)) for end in ends)
        moved = np.maximum(out, into)
        return np.divide(moved * 8e-6, self.mbps, out=np.zeros(len(moved)), where=moved > 0)


def interfaces(fabric: Fabric, hosts: Sequence[str]) -> Interfaces:
    """hosts: rank -> host name."""
    scale_out = tuple(fabric.scale_out_port(host) for host in hosts)
    scale_up = tuple(fabric.scale_up_port(host) for host in hosts)
    domains = hb_domains(fabric, hosts)
    domain = np.full(len(hosts), -1)
    for number, ranks in enumerate(domains):
        domain[list(ranks)] = number
    rates = [fabric.link_of(port.intf).rate_mbps if port else np.nan for port in (*scale_out, *scale_up)]
    switches = tuple(fabric.peer(port).node if port else "" for port in scale_up)
    return Interfaces(scale_out, scale_up, domains, domain, np.array(rates), switches)


def scale_up_hops(fabric: Fabric, at: Interfaces, src: Ints, dst: Ints) -> Floats:
    """(sends,) switches that each crosses inside its HB domain."""
    names = sorted(set(at.scale_up_switches))
    place = {name: i for i, name in enumerate(names)}
    switch = np.array([place[name] for name in at.scale_up_switches])
    pairs, pair = np.unique(switch[src] * len(names) + switch[dst], return_inverse=True)
    hops = []
    for a, b in (divmod(int(p), len(names)) for p in pairs):
        hops.append(1 + (0 if a == b else scale_up_distances(fabric, names[a])[names[b]]))
    return np.array(hops, dtype=float)[pair]
