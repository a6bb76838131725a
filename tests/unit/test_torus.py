"""The torus against networkx's own grid with wrap-around, its distances and cuts tried one by one."""

from collections import Counter
from math import prod

import networkx as nx
import pytest

from tests.unit.fabric_graphs import router_graph, worst_even_split
from topologies import TopologyError, topology
from topologies.conformance import check_topology
from topologies.torus import Torus

DIMS = ["4x4", "4x4x4", "5x3", "2x2x2", "2x4x3", "8", "2"]


@pytest.mark.parametrize("dims", DIMS)
def test_routers_are_joined_as_in_networkx_periodic_grid(dims: str) -> None:
    """networkx merges the two ways round a dimension of 2 as well."""
    sizes = [int(n) for n in dims.split("x")]
    graph = router_graph(Torus(dims).build())
    want = nx.grid_graph(sizes, periodic=True)
    assert {frozenset((_at(a), _at(b))) for a, b in graph.edges} == {
        frozenset((_reversed(a), _reversed(b))) for a, b in want.edges
    }


def _at(name: str) -> tuple[int, ...]:
    """'x1y3' -> (0, 2)"""
    text = name.replace("x", " ").replace("y", " ").replace("z", " ")
    return tuple(int(n) - 1 for n in text.split())


def _reversed(node: int | tuple[int, ...]) -> tuple[int, ...]:
    """networkx counts the last dimension first."""
    return (node,) if isinstance(node, int) else node[::-1]


@pytest.mark.parametrize("dims", DIMS)
def test_no_cable_has_a_twin(dims: str) -> None:
    assert {cables for _, _, cables in router_graph(Torus(dims).build()).edges(data="cables")} == {1}


def test_a_4x4x4_has_six_cables_a_router() -> None:
    fabric = Torus("4x4x4", hosts_per_router=2).build()
    assert (len(fabric.hosts), len(fabric.switches)) == (128, 64)
    assert Counter(len(fabric.links_at(s.name)) for s in fabric.switches) == {6 + 2: 64}
    assert len(fabric.links) == 128 + 3 * 64


@pytest.mark.parametrize("dims", DIMS)
def test_diameter_and_paths_equal_networkx(dims: str) -> None:
    graph, form = router_graph(Torus(dims).build()), Torus(dims).closed_form()
    length = dict(nx.all_pairs_shortest_path_length(graph))
    farthest = max(length[a][b] for a in graph for b in graph)
    pairs = [(a, b) for a in graph for b in graph if length[a][b] == farthest]
    assert form.diameter == farthest
    assert form.path_diversity == min(len(list(nx.all_shortest_paths(graph, a, b))) for a, b in pairs[:8])


@pytest.mark.parametrize(
    ("dims", "hosts_per_router"), [("4x3", 2), ("2x2x3", 1), ("6x2", 3), ("3x4", 1), ("8", 1), ("2x2x2", 4)]
)
def test_bisection_is_the_worst_split_of_all(dims: str, hosts_per_router: int) -> None:
    t = Torus(dims, hosts_per_router)
    links = t.closed_form().bisection_links
    if max(t.sizes) % 2:
        assert links is None
    else:
        assert links == worst_even_split(t.build())


@pytest.mark.parametrize("dims", [*DIMS, "8x8x4"])
def test_sizes_conform(dims: str) -> None:
    assert check_topology(topology(f"torus:dims={dims}")) == []
    assert len(Torus(dims).build().switches) == prod(Torus(dims).sizes)


@pytest.mark.parametrize("dims", ["4x1", "0", "4xx4", "axb", "", "-4x4", "2x2x2x2", "4X4"])
def test_nonsense_is_refused_in_one_line(dims: str) -> None:
    with pytest.raises(TopologyError) as refused:
        topology(f"torus:dims={dims}")
    assert str(refused.value) == f"dims={dims!r}: write one to three sizes of 2 or more, as 4x4 or 4x4x4"
