"""Several sites, each a fabric of its own, joined by long-haul links (data-centre interconnect, DCI).

One border router per site is joined to every packet switch of the site's top tier, and each pair of sites by long-haul
links between their border routers. Where the switches of the top tier are joined with each other (dragonfly, torus), a
border on all of them would be the shortest way inside the site: there it is joined to the first and to those beside it
that are joined with one another, one group of a dragonfly.

Names of site 2 begin with s2; its addresses follow those of site 1.
"""

from dataclasses import asdict, dataclass
from itertools import combinations

from topologies.addressing import shifted, stride
from topologies.builder import DEFAULT_RATE_MBPS, FabricBuilder
from topologies.errors import TopologyError
from topologies.fabric import Fabric
from topologies.shaping import OCS_ROLE
from topologies.tiers import packet_links, tiers
from topologies.topology import ClosedForm, Topology, nested, require_at_least

BORDER_ROLE = "border"


@dataclass(frozen=True)
class MultiDc:
    """sites: data centres, all alike; site: the topology of each, written spine-leaf(spines=2;leaves=2) where it has
    parameters; links_per_pair: long-haul links between any two sites, each of rate_mbps and of delay_us one way (1 ms is
    200 km of fibre)."""

    sites: int = 2
    site: str = "spine-leaf"
    links_per_pair: int = 2
    rate_mbps: float = 400_000.0
    delay_us: float = 1000.0

    def __post_init__(self) -> None:
        require_at_least(self, sites=2, links_per_pair=1)
        if not self.rate_mbps > 0:
            raise TopologyError(f"rate_mbps={self.rate_mbps:g} is too small: a rate must be positive")
        if not self.delay_us >= 0:
            raise TopologyError(f"delay_us={self.delay_us:g} is too small: use delay_us >= 0")
        if isinstance(self._site, MultiDc):
            raise TopologyError(f"site={self.site!r}: a site cannot itself be multi-dc, use more sites")

    @property
    def _site(self) -> Topology:
        from topologies import topology  # the registry holds this class

        return topology(nested(self.site))

    def build(self) -> Fabric:
        fabric = FabricBuilder("multi-dc", asdict(self))
        site = self._site.build()
        borders = [_add_site(fabric, site, n, self.sites) for n in range(self.sites)]
        for one, other in combinations(borders, 2):
            for _ in range(self.links_per_pair):
                fabric.link(one, other, "global", rate_mbps=self.rate_mbps, delay_us=self.delay_us)
        return fabric.build()

    def closed_form(self) -> ClosedForm:
        """From the site's own form and its top tier. Paths between sites have no formula, nor has their length where the
        top tier is joined with itself."""
        form, fabric = self._site.closed_form(), self._site.build()
        top, uplinks = top_tier(fabric), len(border_switches(fabric))
        pairs = self.sites * (self.sites - 1) // 2
        return ClosedForm(
            hosts=self.sites * form.hosts,
            switches=self.sites * (form.switches + 1),
            links=self.sites * (form.links + uplinks) + pairs * self.links_per_pair,
            diameter=2 * tiers(fabric)[top[0]] + 1 if uplinks == len(top) else None,
            bisection_links=self._bisection_links(form, uplinks, _host_rate_mbps(fabric)),
            path_diversity=None,
            scale_up_switches=self.sites * form.scale_up_switches,
            scale_up_links=self.sites * form.scale_up_links,
        )

    def _bisection_links(self, site: ClosedForm, uplinks: int, host_rate_mbps: float) -> float | None:
        """Half of the sites against the other half: the long-haul links, or the borders' uplinks to them. No formula for
        an odd number, nor where a cut through the sites is cheaper."""
        half = self.sites // 2
        links = min(half**2 * self.links_per_pair * self.rate_mbps, half * uplinks * DEFAULT_RATE_MBPS) / host_rate_mbps
        if self.sites % 2 or site.bisection_links is None or links > self.sites * site.bisection_links:
            return None
        return links


def top_tier(fabric: Fabric) -> list[str]:
    """The packet switches farthest from the hosts."""
    tier = {name: t for name, t in tiers(fabric).items() if t and fabric.node(name).role != OCS_ROLE}
    highest = max(tier.values())
    return [name for name in tier if tier[name] == highest]


def border_switches(fabric: Fabric) -> list[str]:
    """The switches of a site that its border router is joined to."""
    top = top_tier(fabric)
    beside: dict[str, set[str]] = {name: set() for name in top}
    for link in packet_links(fabric):
        if link.a.node in beside and link.b.node in beside:
            beside[link.a.node].add(link.b.node)
            beside[link.b.node].add(link.a.node)
    if not any(beside.values()):
        return top
    joined: list[str] = []
    for name in top:
        if beside[name].issuperset(joined):
            joined.append(name)
    return joined


def _add_site(fabric: FabricBuilder, site: Fabric, number: int, sites: int) -> str:
    """A copy of the site, and its border router, whose name is returned."""
    shift = number * _apart(site, sites)
    groups = 1 + max((node.group for node in site.nodes if node.group is not None), default=0)
    name = {node.name: f"s{number + 1}{node.name}" for node in site.nodes}
    for node in site.nodes:
        group = None if node.group is None else number * groups + node.group
        if node.is_host:
            ips = [shifted(port.ip, shift) for port in site.ports_of(node.name) if port.ip]
            fabric.host(name[node.name], *ips, group=group)
        else:
            prefix = shifted(node.prefix, shift) if node.prefix else None
            fabric.switch(name[node.name], node.role, prefix=prefix, group=group)
    for link in site.links:
        ends = name[link.a.node], name[link.b.node]
        fabric.link(*ends, link.kind, rate_mbps=link.rate_mbps, delay_us=link.delay_us)
    border = fabric.switch(f"s{number + 1}border", BORDER_ROLE)
    for switch in border_switches(site):
        fabric.link(border, name[switch], "scale-out")
    return border


def _apart(site: Fabric, sites: int) -> int:
    """Addresses from one site's to the next; scale-up interfaces have a range of their own, and the wider one decides."""
    held: dict[bool, list[str]] = {}
    for host in site.hosts:
        for port, far, link in site.neighbours(host.name):
            if port.ip:
                held.setdefault(link.kind == "scale-up", []).append(site.node(far.node).prefix or port.ip)
    return max(stride(networks, sites) for networks in held.values())


def _host_rate_mbps(site: Fabric) -> float:
    return site.link_of(site.scale_out_port(site.accelerators[0].name).intf).rate_mbps
