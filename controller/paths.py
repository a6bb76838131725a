"""The k shortest loopless paths between two switches, by hops (Yen, "Finding the K shortest loopless paths in a network",
Management Science 1971), each deviation looked for only behind the one that its path came from (Lawler 1972)."""

from collections.abc import Collection, Iterator, Mapping
from heapq import heappop, heappush
from itertools import count, islice

from controller.routing import Adjacency, distances

# (switch, the number of the port it is left by) of every switch on the way but the last
Path = tuple[tuple[str, int], ...]


class Paths:
    """Paths over one state of the graph. Parallel cables are different paths."""

    def __init__(self, graph: Adjacency) -> None:
        self._graph = graph
        self._hops: dict[str, Mapping[str, int]] = {}

    def equal_cost(self, source: str, target: str, at_most: int) -> list[Path]:
        """The paths that no other is shorter than, but no more than `at_most` of them."""
        return list(islice(self._descents(source, target, self._hops_to(target)), at_most))

    def _descents(self, switch: str, target: str, hops: Mapping[str, int]) -> Iterator[Path]:
        if switch == target:
            yield ()
        for port, peer in self._graph[switch]:
            if switch in hops and hops[peer] == hops[switch] - 1:
                yield from (((switch, port), *rest) for rest in self._descents(peer, target, hops))

    def _hops_to(self, target: str) -> Mapping[str, int]:
        if target not in self._hops:
            self._hops[target] = distances(self._graph, target)
        return self._hops[target]

    def shortest(self, source: str, target: str, k: int, turn: int = 0) -> list[Path]:
        """The k shortest, or all if there are fewer, shortest first. `turn`: the place, in every switch's list of ports,
        of the one that is preferred among equals, so that different pairs prefer different ports."""
        search = _Search(self._graph, self._hops_to(target), target, turn)
        number = count()
        first = search.way(source, frozenset(), frozenset())
        candidates = [(len(first), next(number), 0, first)] if first else []
        found: list[Path] = []
        while candidates and len(found) < k:
            _, _, deviation, path = heappop(candidates)
            found.append(path)
            for i in range(deviation, len(path)):
                root = path[:i]
                used = {other[i][1] for other in found if other[:i] == root}
                if rest := search.way(path[i][0], {switch for switch, _ in root}, used):
                    heappush(candidates, (i + len(rest), next(number), i, root + rest))
        return found


class _Search:
    """A* toward one target; the distance in the whole graph is the bound."""

    def __init__(self, graph: Adjacency, hops: Mapping[str, int], target: str, turn: int) -> None:
        self._graph = graph
        self._hops = hops
        self._target = target
        self._turn = turn
        self._turned: dict[str, list[tuple[int, str]]] = {}

    def way(self, start: str, closed: Collection[str], used: Collection[int]) -> Path:
        """A shortest path that avoids the closed switches, and the used ports of its first; () if there is none."""
        if start not in self._hops:
            return ()
        done, number = set(closed), count()
        queue: list[tuple[int, int, int, str, Path]] = [(self._hops[start], 0, next(number), start, ())]
        while queue:
            _, negative_length, _, switch, path = heappop(queue)
            if switch == self._target:
                return path
            if switch in done:
                continue
            done.add(switch)
            length = 1 - negative_length
            for port, peer in self._edges(switch):
                if peer not in done and (path or port not in used):
                    bound = length + self._hops[peer]
                    heappush(queue, (bound, -length, next(number), peer, (*path, (switch, port))))
        return ()

    def _edges(self, switch: str) -> list[tuple[int, str]]:
        if switch not in self._turned:
            edges = self._graph[switch]
            first = self._turn % len(edges)
            self._turned[switch] = edges[first:] + edges[:first]
        return self._turned[switch]
