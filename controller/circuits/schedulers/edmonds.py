"""The circuits that carry the most demand, both ways each: maximum-weight matching in a general graph (Edmonds, "Paths, trees,
and flowers", 1965; Galil 1986, by networkx)."""

from collections.abc import Iterable

import networkx as nx

from controller.circuits.slices import DemandMatrix, Matching, Parameters, Slice


def edmonds(demand: DemandMatrix, parameters: Parameters) -> tuple[Slice, ...]:
    return (Slice((both_ways(demand),), parameters.slice_us),)


def both_ways(weights: DemandMatrix) -> Matching:
    """The pairs with the largest sum of their weights in both directions; only those that have any."""
    n = len(weights)
    sums = (weights + weights.T).tolist()
    graph = nx.Graph()
    graph.add_weighted_edges_from((i, j, sums[i][j]) for i in range(n) for j in range(i) if sums[i][j])
    pairs: Iterable[tuple[int, int]] = nx.max_weight_matching(graph)
    peers: list[int | None] = [None] * n
    for i, j in pairs:
        peers[i], peers[j] = j, i
    return tuple(peers)
