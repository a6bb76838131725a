"""What a fabric is, in the numbers by which fabrics are compared. Pure: needs no root and no emulation."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topologies import TOPOLOGIES
from topologies.bill import bill
from topologies.fabric import HOST, Fabric
from topologies.prices import DEFAULT_PRICES, Prices
from topologies.shaping import OCS_ROLE
from topologies.tiers import (
    hb_domains,
    network_switches,
    packet_links,
    rows,
    scale_out_links,
    scale_up_switches,
    tiers,
)
from topologies.topology import ClosedForm, Topology
from topologies.units import format_rate

Floats = NDArray[np.float64]


def describe(
    fabric: Fabric, topology: Topology | None = None, prices: Prices = DEFAULT_PRICES, optics: str = "dsp"
) -> dict[str, Any]:
    """Plain data: the keys of `describe --json`, with the whole fabric under 'graph'.

    bisection_gbps comes from the topology's closed form, oversubscription and the rest from the graph; diameter and
    mean_path count links between switches. All of them are of the packet network: circuits are paths only once they are
    set. Switches, their ports, transceivers, cost and power are the network's; what is inside the servers is counted
    apart: scale-up switches, HB domains and the accelerators of the largest. So are helpers, by role: no other figure but
    `links` knows them. A figure that does not exist is None.
    """
    network = scale_out_links(fabric)
    inside = scale_up_switches(fabric)
    domains = hb_domains(fabric)
    distances = Distances(fabric)
    bisection_gbps = _bisection_gbps(fabric, _closed_form(fabric, topology))
    parts = bill(fabric, optics)
    return {
        "fabric": fabric.name,
        "parameters": dict(fabric.parameters),
        "hosts": len(fabric.accelerators),
        "helpers": dict(Counter(helper.role for helper in fabric.helpers)),
        "switches": len(fabric.switches) - len(inside),
        "links": dict(Counter(link.kind for link in fabric.links)),
        "ports": dict(Counter(fabric.node(p.node).role for link in network for p in link.ports)),
        "scale_up_switches": len(inside),
        "hb_domains": len(domains),
        "hb_domain_size": max(map(len, domains), default=None),
        "diameter": distances.diameter,
        "mean_path": distances.mean_path,
        "bisection_gbps": bisection_gbps,
        "oversubscription": _oversubscription(fabric, bisection_gbps),
        "path_diversity": distances.path_diversity,
        "cables": parts.by_cable,
        "cable_ends": parts.cable_ends,
        "transceivers": parts.transceivers,
        "cost": round(parts.cost_usd(prices)),
        "power_w": round(parts.power_w(prices)),
        "failures_per_year": round(parts.failures_per_year(prices), 2),
        "prices": prices.source,
        "graph": fabric.to_dict(),
    }


def host_rate_mbps(fabric: Fabric) -> float:
    """An accelerator's scale-out NIC."""
    return median(fabric.link_of(fabric.scale_out_port(h.name).intf).rate_mbps for h in fabric.accelerators)


def _closed_form(fabric: Fabric, topology: Topology | None) -> ClosedForm | None:
    cls = TOPOLOGIES.get(fabric.name)
    # A user's own may be derived from one of ours, name and all.
    if topology is None and cls and fabric.parameters.keys() == {f.name for f in fields(cls)}:
        topology = cls(**fabric.parameters)
    return topology.closed_form() if topology is not None else None


def _bisection_gbps(fabric: Fabric, closed: ClosedForm | None) -> float | None:
    links = closed.bisection_links if closed is not None else None
    return links * host_rate_mbps(fabric) / 1e3 if links is not None and fabric.accelerators else None


def _oversubscription(fabric: Fabric, bisection_gbps: float | None) -> float | None:
    """What hosts can send over what the network carries, at the narrowest height: the product of down / up capacity over
    the tiers of packet switches. A fabric without tiers, where not every switch of one leads up: half of the hosts over
    the bisection."""
    tier = tiers(fabric)
    narrowest, so_far = 0.0, 1.0
    for names in rows(fabric)[1:]:
        capacities = [_capacity(fabric, tier, name) for name in names if not _is_ocs(fabric, name)]
        if not capacities or not all(up for _, up in capacities):
            break
        ratios = [down / up for down, up in capacities]
        so_far *= max(ratios)
        narrowest = max(narrowest, so_far)
    if narrowest:
        return narrowest
    if not bisection_gbps:
        return None
    return len(fabric.accelerators) // 2 * host_rate_mbps(fabric) / 1e3 / bisection_gbps


def _capacity(fabric: Fabric, tier: dict[str, int], switch: str) -> tuple[float, float]:
    """(towards the hosts, away from them), Mbit/s."""
    down = up = 0.0
    for _, far, link in fabric.neighbours(switch):
        if link.kind == "circuit":
            continue
        step = tier.get(far.node, tier[switch]) - tier[switch]
        down += link.rate_mbps if step < 0 else 0.0
        up += link.rate_mbps if step > 0 else 0.0
    return down, up


class Distances:
    """Shortest paths between the switches that hosts are plugged into, one link farther from all of them in each step. The
    figures are of accelerators; helpers are plugged in for `links_between` only."""

    def __init__(self, fabric: Fabric) -> None:
        self._hosts: Floats = np.zeros(0)
        self._between: Floats = np.zeros((0, 0))
        self._distance: Floats = np.zeros((0, 0))
        self._paths: Floats = np.zeros((0, 0))
        self._edge_of: dict[str, int] = {}
        if fabric.hosts:
            self._measure(fabric)

    def links_between(self, hosts: Sequence[str], a: NDArray[np.int32], b: NDArray[np.int32]) -> Floats:
        """Links between the switches of hosts[a[i]] and hosts[b[i]], for every i; inf where there is no way."""
        edge = np.array([self._edge_of[h] for h in hosts])
        found: Floats = self._between[edge[a], edge[b]]
        return found

    def _measure(self, fabric: Fabric) -> None:
        place = {switch.name: i for i, switch in enumerate(network_switches(fabric))}
        cables = np.zeros((len(place), len(place)))
        for link in packet_links(fabric):
            if link.a.node in place and link.b.node in place:
                cables[place[link.a.node], place[link.b.node]] += 1
                cables[place[link.b.node], place[link.a.node]] += 1
        switch_of = {h.name: place[fabric.switch_of(h.name)] for h in fabric.hosts}
        edge = np.array(sorted(set(switch_of.values())))
        self._edge_of = {
            name: int(i) for name, i in zip(switch_of, np.searchsorted(edge, list(switch_of.values())), strict=True)
        }
        distance, paths = _all_shortest(cables, edge)
        self._between, count = distance[:, edge], Counter(switch_of[h.name] for h in fabric.accelerators)
        used = np.array([i in count for i in edge.tolist()])
        self._hosts = np.array([count[i] for i in edge[used].tolist()], dtype=float)
        self._distance, self._paths = self._between[used][:, used], paths[:, edge][used][:, used]

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
    """(distance, number of shortest paths) from each source to each node, (sources, nodes); distance inf = unreachable.

    cables: (nodes, nodes), symmetric. Each step adds up the paths at a node's few neighbours: a product with the whole
    matrix would take minutes for a torus of 4096 routers.
    """
    near = [np.flatnonzero(row) for row in cables]
    distance: Floats = np.full((len(cables), len(sources)), np.inf)
    paths: Floats = np.zeros_like(distance)
    here = np.arange(len(sources))
    distance[sources, here] = 0
    paths[sources, here] = 1
    frontier, d = paths.copy(), 0
    while frontier.any():
        d += 1
        reached = np.array([row[at] @ frontier[at] for row, at in zip(cables, near, strict=True)])
        reached[np.isfinite(distance)] = 0
        distance[reached > 0] = d
        paths += reached
        frontier = reached
    return distance.T, paths.T


def _is_ocs(fabric: Fabric, node: str) -> bool:
    return fabric.node(node).role == OCS_ROLE


# -- for the terminal -----------------------------------------------------------------------------------------------


def describe_text(description: Mapping[str, Any]) -> str:
    """What `describe` gave, to read: figures, then the tiers."""
    d, fabric = description, Fabric.from_dict(description)
    parameters = ", ".join(f"{k}={v}" for k, v in d["parameters"].items())
    roles = ", ".join(f"{n} {role}" for role, n in Counter(s.role for s in network_switches(fabric)).items())
    lines = [
        ("hosts", str(d["hosts"])),
        *_helper_lines(d),
        ("switches", f"{d['switches']} ({roles})"),
        ("links", ", ".join(f"{n} {kind}" for kind, n in d["links"].items())),
        ("switch ports", ", ".join(f"{n} {role}" for role, n in d["ports"].items() if role != HOST)),
        *_hb_lines(d, fabric),
        *_circuit_lines(fabric),
        ("diameter", _unless_none(d["diameter"], f"{{}} links between switches, mean {_or_none(d['mean_path'])}")),
        ("bisection", f"{_gbps(d['bisection_gbps'])}, oversubscription {_unless_none(d['oversubscription'], '{}:1')}"),
        ("path diversity", _unless_none(d["path_diversity"], "{} equal-cost paths between the farthest hosts")),
        (
            "cables",
            f"{', '.join(f'{n} {medium}' for medium, n in d['cables'].items())}; {d['transceivers']} transceivers",
        ),
        ("cost", f"about ${d['cost']:,} and {d['power_w'] / 1e3:,.1f} kW; prices: {d['prices']}"),
        ("failures", f"about {d['failures_per_year']:.3g} parts a year"),
    ]
    figures = "\n".join(f"  {name:<15} {value}" for name, value in lines)
    return f"{d['fabric']}: {parameters}\n\n{figures}\n\n{tier_text(fabric)}\n"


def _helper_lines(d: Mapping[str, Any]) -> list[tuple[str, str]]:
    counts = ", ".join(f"{n} {role}{'s' * (n > 1)}" for role, n in d["helpers"].items())
    return [("helpers", f"{counts}, beside the network: among the links, in no other figure")] if counts else []


def _hb_lines(d: Mapping[str, Any], fabric: Fabric) -> list[tuple[str, str]]:
    if not d["hb_domains"]:
        return []
    rate = format_rate(max(link.rate_mbps for link in fabric.links if link.kind == "scale-up"))
    what = f"{d['hb_domains']} of {d['hb_domain_size']} accelerators, {d['scale_up_switches']} scale-up switches"
    return [("HB domains", f"{what}, {d['links']['scale-up']} links of {rate}/s, not in the figures below")]


def _circuit_lines(fabric: Fabric) -> list[tuple[str, str]]:
    """How many circuits the optical switches can hold, each of two of one switch's ports."""
    most = sum(len(fabric.links_at(s.name)) // 2 for s in fabric.switches if _is_ocs(fabric, s.name))
    return [("circuits", f"up to {most}, set at run time; without them:")] if most else []


def _or_none(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _unless_none(value: float | None, text: str) -> str:
    return "-" if value is None else text.format(_or_none(value))


def _gbps(value: float | None) -> str:
    return "-" if value is None else f"{format_rate(value * 1e3)}/s"


def tier_text(fabric: Fabric, width: int = 76) -> str:
    """The tiers from the top, with the cables between and within them."""
    tier = tiers(fabric)
    between = Counter(tuple(sorted((tier[link.a.node], tier[link.b.node]))) for link in scale_out_links(fabric))
    levels = [(fabric.node(names[0]).role if names else "", names) for names in rows(fabric)]
    margin = max(len(role) for role, _ in levels)
    lines: list[str] = []
    for level, (role, names) in reversed(list(enumerate(levels))):
        lines.append(f"  {role:<{margin}} {_names(names, width, brackets=level > 0)}")
        if between[level, level]:
            lines.append(f"  {'':<{margin}} {between[level, level]} cables among them")
        if level:
            lines.append(f"  {'':<{margin}}   |  {between[level - 1, level]} cables")
    return "\n".join(lines)


def _names(names: list[str], width: int, brackets: bool) -> str:
    """All of them where they fit, else the first, the last and how many."""
    shown = [f"[{name}]" for name in names] if brackets else names
    line = " ".join(shown)
    return line if len(line) <= width else f"{shown[0]} {shown[1]} .. {shown[-1]}   ({len(shown)})"
