"""A fabric as networkx sees it, and cuts of it, for checking closed formulas."""

from itertools import combinations

import networkx as nx

from topologies import Fabric
from topologies.builder import DEFAULT_RATE_MBPS
from topologies.tiers import scale_out_links


def router_graph(fabric: Fabric) -> nx.Graph:
    """The switches, each edge with its number of cables."""
    graph = nx.Graph()
    graph.add_nodes_from(s.name for s in fabric.switches)
    for link in fabric.links:
        a, b = (p.node for p in link.ports)
        if a in graph and b in graph:
            graph.add_edge(a, b, cables=graph.get_edge_data(a, b, {"cables": 0})["cables"] + 1)
    return graph


def max_flow(fabric: Fabric, sources: list[str], sinks: list[str]) -> float:
    """Mbit/s of the network between two sets of hosts that send as fast as their own links let them."""
    graph = nx.DiGraph()
    for link in scale_out_links(fabric):
        for a, b in ((link.a.node, link.b.node), (link.b.node, link.a.node)):
            before = graph.edges[a, b]["capacity"] if graph.has_edge(a, b) else 0.0
            graph.add_edge(a, b, capacity=before + link.rate_mbps)
    graph.add_edges_from(("from", s) for s in sources)
    graph.add_edges_from((s, "to") for s in sinks)
    return float(nx.maximum_flow_value(graph, "from", "to"))


def max_flow_links(fabric: Fabric, sources: list[str]) -> float:
    """The same in cables of the default rate, between the sources and all other hosts."""
    sinks = [host.name for host in fabric.hosts if host.name not in sources]
    return max_flow(fabric, sources, sinks) / DEFAULT_RATE_MBPS


def worst_even_split(fabric: Fabric) -> int:
    """Fewest cables that part half of the hosts from the rest, by trying every set of switches. Every switch has hosts,
    all of them as many; where a set holds too few or too many, the difference is cut at the hosts themselves."""
    graph = router_graph(fabric)
    names, per_switch = list(graph), len(fabric.hosts) // len(graph)
    half = len(fabric.hosts) // 2
    return min(
        int(nx.cut_size(graph, chosen, weight="cables")) + abs(len(chosen) * per_switch - half)
        for n in range(1, len(names) // 2 + 1)
        for chosen in combinations(names, n)
    )
