"""The parts of a fabric, read from the graph and never from a name: the network and its tiers, and the HB domains."""

from topologies.fabric import Fabric, Link, Node, Port


def scale_out_links(fabric: Fabric) -> tuple[Link, ...]:
    """The links of the network itself: an HB domain's scale-up links are inside the servers, and helpers belong to an
    algorithm."""
    beside = {helper.name for helper in fabric.helpers}
    return tuple(x for x in fabric.links if x.kind != "scale-up" and beside.isdisjoint((x.a.node, x.b.node)))


def network_switches(fabric: Fabric) -> tuple[Node, ...]:
    """Those of the network itself."""
    inside = set(scale_up_switches(fabric))
    return tuple(switch for switch in fabric.switches if switch not in inside)


def scale_up_switches(fabric: Fabric) -> tuple[Node, ...]:
    """Those inside the servers, which have scale-up links only."""
    return tuple(s for s in fabric.switches if {link.kind for link in fabric.links_at(s.name)} == {"scale-up"})


def hb_domains(fabric: Fabric) -> list[list[str]]:
    """The hosts of each HB domain: those that scale-up links join."""
    domains: list[list[str]] = []
    seen: set[str] = set()
    for host in fabric.hosts:
        if host.name not in seen and any(link.kind == "scale-up" for link in fabric.links_at(host.name)):
            joined = _joined_by_scale_up(fabric, host.name)
            seen.update(joined)
            domains.append([name for name in joined if fabric.node(name).is_host])
    return domains


def hb_domain_ports(fabric: Fabric) -> list[list[Port]]:
    """The scale-up interfaces that reach each other, one of a host (`Fabric.scale_up_port`), domain by domain, each in the
    fabric's order. Hosts forward nothing: a domain ends at them."""
    domain_of: dict[str, str] = {}
    domains: dict[str, list[Port]] = {}
    for host in fabric.hosts:
        if port := fabric.scale_up_port(host.name):
            switch = fabric.peer(port).node
            if switch not in domain_of:
                domain_of |= dict.fromkeys(scale_up_distances(fabric, switch), switch)
            domains.setdefault(domain_of[switch], []).append(port)
    return list(domains.values())


def scale_up_distances(fabric: Fabric, switch: str) -> dict[str, int]:
    """Links from a scale-up switch to every switch that scale-up links alone join to it, itself first with 0."""
    distances = {switch: 0}
    frontier = [switch]
    for at in frontier:
        for _, far, link in fabric.neighbours(at):
            if link.kind == "scale-up" and far.node not in distances and not fabric.node(far.node).is_host:
                distances[far.node] = distances[at] + 1
                frontier.append(far.node)
    return distances


def _joined_by_scale_up(fabric: Fabric, node: str) -> list[str]:
    """The nodes of its HB domain, itself first."""
    joined = [node]
    seen = {node}
    for at in joined:
        near = dict.fromkeys(far.node for _, far, link in fabric.neighbours(at) if link.kind == "scale-up")
        joined += [name for name in near if name not in seen]
        seen.update(near)
    return joined


def packet_links(fabric: Fabric) -> tuple[Link, ...]:
    """Those of the network that carry packets whenever they are up: a circuit leads nowhere until it is set."""
    return tuple(link for link in scale_out_links(fabric) if link.kind != "circuit")


def tiers(fabric: Fabric) -> dict[str, int]:
    """node -> links to the nearest accelerator: accelerators 0, their switches 1, the next 2. A node that no scale-out link
    joins to one is left out, and so are helpers."""
    tier = {host.name: 0 for host in fabric.accelerators}
    frontier = list(tier)
    while frontier:
        reached: dict[str, int] = {}
        for node in frontier:
            for _, far, link in fabric.neighbours(node):
                if link.kind != "scale-up" and far.node not in tier and not fabric.node(far.node).is_helper:
                    reached[far.node] = tier[node] + 1
        tier |= reached
        frontier = list(reached)
    return tier


def rows(fabric: Fabric) -> list[list[str]]:
    """The nodes by tier, hosts first, each tier in the fabric's order."""
    tier = tiers(fabric)
    by_tier: list[list[str]] = [[] for _ in range(max(tier.values(), default=0) + 1)]
    for node in fabric.nodes:
        if node.name in tier:
            by_tier[tier[node.name]].append(node.name)
    return by_tier
