"""How far each node is from the hosts: what 'up' means in a fabric, read from the graph and never from a name."""

from topologies.fabric import Fabric, Link


def scale_out_links(fabric: Fabric) -> tuple[Link, ...]:
    """The links of the network itself: an HB domain's scale-up links are inside the servers."""
    return tuple(link for link in fabric.links if link.kind != "scale-up")


def packet_links(fabric: Fabric) -> tuple[Link, ...]:
    """Those of the network that carry packets whenever they are up: a circuit leads nowhere until it is set."""
    return tuple(link for link in scale_out_links(fabric) if link.kind != "circuit")


def tiers(fabric: Fabric) -> dict[str, int]:
    """node -> links to the nearest host: hosts 0, their switches 1, the next 2. A node that no scale-out link joins to a
    host is left out."""
    tier = {host.name: 0 for host in fabric.hosts}
    frontier = list(tier)
    while frontier:
        reached: dict[str, int] = {}
        for node in frontier:
            for _, far, link in fabric.neighbours(node):
                if link.kind != "scale-up" and far.node not in tier:
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
