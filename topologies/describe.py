"""What a fabric is, in the numbers by which fabrics are compared. Pure: needs no root and no emulation.

Prices and powers are round figures of the order of list prices, good for comparing fabrics, not for buying one: hand in
another `UnitPrices` to use your own.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topologies import TOPOLOGIES
from topologies.fabric import Fabric, Link
from topologies.shaping import OCS_ROLE
from topologies.tiers import rows, scale_out_links, tiers
from topologies.topology import ClosedForm, Topology
from topologies.units import format_rate

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class UnitPrices:
    """US dollars and watts for 400 Gbit/s; both are taken in proportion to the rate. An optical switch's ports carry any
    rate, hold no transceiver and use under one watt (136-port 3D-MEMS: 108 W)."""

    switch_port: float = 400.0
    transceiver: float = 500.0
    nic: float = 1200.0
    cable: float = 50.0
    ocs_port: float = 500.0
    switch_port_w: float = 20.0
    transceiver_w: float = 9.0
    nic_w: float = 25.0
    ocs_port_w: float = 0.8
    reference_gbps: float = 400.0


DEFAULT_PRICES = UnitPrices()


def describe(fabric: Fabric, topology: Topology | None = None, prices: UnitPrices = DEFAULT_PRICES) -> dict[str, Any]:
    """Plain data: the keys of `describe --json`, with the whole fabric under 'graph'.

    bisection_gbps comes from the topology's closed form, oversubscription and the rest from the graph; diameter and
    mean_path count links between switches. A figure that does not exist is None.
    """
    network = scale_out_links(fabric)
    distances = Distances(fabric)
    bisection_gbps = _bisection_gbps(fabric, _closed_form(fabric, topology))
    return {
        "fabric": fabric.name,
        "parameters": dict(fabric.parameters),
        "hosts": len(fabric.hosts),
        "switches": len(fabric.switches),
        "links": dict(Counter(link.kind for link in fabric.links)),
        "ports": dict(Counter(fabric.node(p.node).role for link in fabric.links for p in link.ports)),
        "diameter": distances.diameter,
        "mean_path": distances.mean_path,
        "bisection_gbps": bisection_gbps,
        "oversubscription": _oversubscription(fabric, bisection_gbps),
        "path_diversity": distances.path_diversity,
        "transceivers": sum(_transceivers(fabric, link) for link in network),
        "cost": round(sum(_cost(fabric, link, prices) for link in network)),
        "power_w": round(sum(_power_w(fabric, link, prices) for link in network)),
        "graph": fabric.to_dict(),
    }


def host_rate_mbps(fabric: Fabric) -> float:
    """An accelerator's scale-out NIC."""
    return median(fabric.link_of(fabric.scale_out_port(h.name).intf).rate_mbps for h in fabric.hosts)


def _closed_form(fabric: Fabric, topology: Topology | None) -> ClosedForm | None:
    if topology is None and fabric.name in TOPOLOGIES:
        topology = TOPOLOGIES[fabric.name](**fabric.parameters)
    return topology.closed_form() if topology is not None else None


def _bisection_gbps(fabric: Fabric, closed: ClosedForm | None) -> float | None:
    if closed is None or closed.bisection_links is None or not fabric.hosts:
        return None
    return closed.bisection_links * host_rate_mbps(fabric) / 1e3


def _oversubscription(fabric: Fabric, bisection_gbps: float | None) -> float | None:
    """What hosts can send over what the network carries, at the narrowest height: the product of down / up capacity over
    the tiers. A fabric without tiers: half of the hosts over the bisection."""
    tier = tiers(fabric)
    narrowest, so_far = 0.0, 1.0
    for names in rows(fabric)[1:]:
        ratios = [down / up for down, up in (_capacity(fabric, tier, name) for name in names) if up]
        if not ratios:
            break
        so_far *= max(ratios)
        narrowest = max(narrowest, so_far)
    if narrowest:
        return narrowest
    if not bisection_gbps:
        return None
    return len(fabric.hosts) // 2 * host_rate_mbps(fabric) / 1e3 / bisection_gbps


def _capacity(fabric: Fabric, tier: dict[str, int], switch: str) -> tuple[float, float]:
    """(towards the hosts, away from them), Mbit/s."""
    down = up = 0.0
    for _, far, link in fabric.neighbours(switch):
        step = tier.get(far.node, tier[switch]) - tier[switch]
        down += link.rate_mbps if step < 0 else 0.0
        up += link.rate_mbps if step > 0 else 0.0
    return down, up


class Distances:
    """Shortest paths between the switches that hosts are plugged into, by one matrix product per link of distance."""

    def __init__(self, fabric: Fabric) -> None:
        self._hosts: Floats = np.zeros(0)
        self._distance: Floats = np.zeros((0, 0))
        self._paths: Floats = np.zeros((0, 0))
        self._edge_of: dict[str, int] = {}
        if fabric.hosts:
            self._measure(fabric)

    def links_between(self, hosts: Sequence[str], a: NDArray[np.int32], b: NDArray[np.int32]) -> Floats:
        """Links between the switches of hosts[a[i]] and hosts[b[i]], for every i; inf where there is no way."""
        edge = np.array([self._edge_of[h] for h in hosts])
        found: Floats = self._distance[edge[a], edge[b]]
        return found

    def _measure(self, fabric: Fabric) -> None:
        place = {switch.name: i for i, switch in enumerate(fabric.switches)}
        cables = np.zeros((len(place), len(place)))
        for link in scale_out_links(fabric):
            if link.a.node in place and link.b.node in place:
                cables[place[link.a.node], place[link.b.node]] += 1
                cables[place[link.b.node], place[link.a.node]] += 1
        switch_of = {h.name: place[fabric.switch_of(h.name)] for h in fabric.hosts}
        count = Counter(switch_of.values())
        edge = np.array(sorted(count))
        self._edge_of = {
            name: int(i) for name, i in zip(switch_of, np.searchsorted(edge, list(switch_of.values())), strict=True)
        }
        self._hosts = np.array([count[i] for i in edge], dtype=float)
        distance, paths = _all_shortest(cables, edge)
        self._distance, self._paths = distance[:, edge], paths[:, edge]

    @property
    def connected(self) -> bool:
        return bool(np.isfinite(self._distance).all())

    @property
    def diameter(self) -> int | None:
        """Links between switches on the longest shortest path. None without hosts, or where some cannot be reached."""
        return int(self._distance.max()) if self._distance.size and self.connected else None

    @property
    def mean_path(self) -> float | None:
        """Mean over ordered pairs of hosts, those on one switch with 0 links between them."""
        n = self._hosts.sum()
        if n < 2 or not self.connected:
            return None
        return float(self._hosts @ self._distance @ self._hosts / (n * (n - 1)))

    @property
    def path_diversity(self) -> int | None:
        """Equal-cost paths between the farthest hosts, the fewest of all such pairs."""
        if self.diameter is None:
            return None
        return int(self._paths[self._distance == self.diameter].min())


def _all_shortest(cables: Floats, sources: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """(distance, number of shortest paths) from each source to each node, (sources, nodes); distance inf = unreachable."""
    distance: Floats = np.full((len(sources), len(cables)), np.inf)
    paths: Floats = np.zeros_like(distance)
    here = np.arange(len(sources))
    distance[here, sources] = 0
    paths[here, sources] = 1
    frontier, d = paths.copy(), 0
    while frontier.any():
        d += 1
        reached = frontier @ cables
        reached[np.isfinite(distance)] = 0
        distance[reached > 0] = d
        paths += reached
        frontier = reached
    return distance, paths


def _is_ocs(fabric: Fabric, node: str) -> bool:
    return fabric.node(node).role == OCS_ROLE


def _transceivers(fabric: Fabric, link: Link) -> int:
    """One at each end, but an optical switch passes the light on."""
    return sum(not _is_ocs(fabric, port.node) for port in link.ports)


def _cost(fabric: Fabric, link: Link, prices: UnitPrices) -> float:
    share = link.rate_mbps / 1e3 / prices.reference_gbps
    ends = sum(
        _by_role(fabric, p.node, prices.nic * share, prices.switch_port * share, prices.ocs_port) for p in link.ports
    )
    return ends + _transceivers(fabric, link) * prices.transceiver * share + prices.cable


def _power_w(fabric: Fabric, link: Link, prices: UnitPrices) -> float:
    share = link.rate_mbps / 1e3 / prices.reference_gbps
    ends = (
        _by_role(fabric, p.node, prices.nic_w * share, prices.switch_port_w * share, prices.ocs_port_w)
        for p in link.ports
    )
    return sum(ends) + _transceivers(fabric, link) * prices.transceiver_w * share


def _by_role(fabric: Fabric, node: str, host: float, switch: float, ocs: float) -> float:
    if fabric.node(node).is_host:
        return host
    return ocs if _is_ocs(fabric, node) else switch


# -- for the terminal -----------------------------------------------------------------------------------------------


def describe_text(description: Mapping[str, Any]) -> str:
    """What `describe` gave, to read: figures, then the tiers."""
    d, fabric = description, Fabric.from_dict(description)
    parameters = ", ".join(f"{k}={v}" for k, v in d["parameters"].items())
    roles = ", ".join(f"{n} {role}" for role, n in Counter(s.role for s in fabric.switches).items())
    lines = [
        ("hosts", str(d["hosts"])),
        ("switches", f"{d['switches']} ({roles})"),
        ("links", ", ".join(f"{n} {kind}" for kind, n in d["links"].items())),
        ("switch ports", ", ".join(f"{n} {role}" for role, n in d["ports"].items() if role != "host")),
        ("diameter", f"{_or_none(d['diameter'])} links between switches, mean {_or_none(d['mean_path'])}"),
        ("bisection", f"{_gbps(d['bisection_gbps'])}, oversubscription {_or_none(d['oversubscription'])}:1"),
        ("path diversity", f"{_or_none(d['path_diversity'])} equal-cost paths between the farthest hosts"),
        ("transceivers", str(d["transceivers"])),
        ("cost", f"about ${d['cost']:,}, {d['power_w'] / 1e3:,.1f} kW (round unit prices, see topologies/describe.py)"),
    ]
    figures = "\n".join(f"  {name:<15} {value}" for name, value in lines)
    return f"{d['fabric']}: {parameters}\n\n{figures}\n\n{tier_text(fabric)}\n"


def _or_none(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _gbps(value: float | None) -> str:
    return "-" if value is None else f"{format_rate(value * 1e3)}/s"


def tier_text(fabric: Fabric, width: int = 76) -> str:
    """The tiers from the top, with the cables between and within them."""
    tier = tiers(fabric)
    between = Counter(tuple(sorted((tier[link.a.node], tier[link.b.node]))) for link in scale_out_links(fabric))
    lines: list[str] = []
    for level, names in reversed(list(enumerate(rows(fabric)))):
        role = fabric.node(names[0]).role if names else ""
        lines.append(f"  {role:<8} {_names(names, width, brackets=level > 0)}")
        if between[level, level]:
            lines.append(f"  {'':<8} {between[level, level]} cables among them")
        if level:
            lines.append(f"  {'':<8}   |  {between[level - 1, level]} cables")
    return "\n".join(lines)


def _names(names: list[str], width: int, brackets: bool) -> str:
    """All of them where they fit, else the first, the last and how many."""
    shown = [f"[{name}]" for name in names] if brackets else names
    line = " ".join(shown)
    return line if len(line) <= width else f"{shown[0]} {shown[1]} .. {shown[-1]}   ({len(shown)})"
