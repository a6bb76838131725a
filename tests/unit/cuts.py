"""Max-flow over a fabric's network, computed with networkx: what a stated bisection is checked against."""

import networkx as nx

from topologies.fabric import Fabric
from topologies.tiers import scale_out_links


def max_flow_links(fabric: Fabric, sources: list[str]) -> float:
    """Cables' worth of flow between the sources and all other hosts."""
    graph = nx.DiGraph()
    for link in scale_out_links(fabric):
        for a, b in ((link.a.node, link.b.node), (link.b.node, link.a.node)):
            before = graph.edges[a, b]["capacity"] if graph.has_edge(a, b) else 0
            graph.add_edge(a, b, capacity=before + 1)
    for host in fabric.hosts:
        graph.add_edge(*(("from", host.name) if host.name in sources else (host.name, "to")))
    return float(nx.maximum_flow_value(graph, "from", "to"))
