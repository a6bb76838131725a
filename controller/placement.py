"""Which path each announced flow takes, so that the most loaded link is loaded least.

Finding the best is NP-hard (unsplittable flow). The largest flow goes first, to the path whose fullest link stays
emptiest; then flows of the fullest link move away one by one, not back at once (tabu search; Glover, "Tabu Search, Part I",
ORSA Journal on Computing 1989), until that has not helped for a while. `down` is a set of `Link.index`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import count

from controller.demand import Demand
from controller.flow import Flow
from controller.paths import Path, Paths
from controller.routing import adjacency, switch_of_address
from topologies.errors import Refused
from topologies.fabric import Fabric

# Candidates of a flow: all shortest paths up to so many, and where they are few, longer ones.
_MAX_SHORTEST = 64
_ENOUGH = 8
# The search ends after so many moves in vain, and a flow does not return to a path for so many.
_PATIENCE = 200
_TABU_MOVES = 10
# Loads are sums of shares; differences below this are rounding.
_EPSILON = 1e-9


def place(fabric: Fabric, demands: Iterable[Demand]) -> dict[Flow, Path]:
    """flow -> its path, () within one switch; a flow whose ends no path joins is left out."""
    board, candidates = _Board(fabric), Candidates(fabric)
    ways = {demand: candidates.of(demand.flow) for demand in demands}
    _greedy(board, ways)
    _search(board, ways)
    return {demand.flow: path for demand, path in board.path.items()}


def repaired(
    fabric: Fabric, down: frozenset[int], demands: Iterable[Demand], paths: Mapping[Flow, Path]
) -> dict[Flow, Path]:
    """Flows whose path has died go, the largest first, where there is most room; the others stay where they are."""
    dead = {(port.node, port.number) for link in fabric.links if link.index in down for port in link.ports}
    board, candidates = _Board(fabric), Candidates(fabric, down)
    homeless = {}
    for demand in demands:
        path = paths.get(demand.flow)
        if path is not None and dead.isdisjoint(path):
            board.put(demand, path)
        elif path is not None:
            homeless[demand] = candidates.of(demand.flow)
    _greedy(board, homeless)
    return {demand.flow: path for demand, path in board.path.items()}


def peak_load(fabric: Fabric, demands: Iterable[Demand], paths: Mapping[Flow, Path]) -> float:
    """The largest share of a link's rate that the placed flows ask for, between switches."""
    board = _Board(fabric)
    for demand in demands:
        if demand.flow in paths:
            board.put(demand, paths[demand.flow])
    return board.peak()


class Candidates:
    """The paths that a flow may take."""

    def __init__(self, fabric: Fabric, down: frozenset[int] = frozenset()) -> None:
        self._paths = Paths(adjacency(fabric, down))
        self._switch = switch_of_address(fabric)
        self._known: dict[tuple[str, str], list[Path]] = {}

    def check(self, flow: Flow) -> None:
        """Refuses a flow of a host that the fabric does not have."""
        for ip in (flow.src_ip, flow.dst_ip):
            if ip not in self._switch:
                raise Refused(f"flow {flow}: no host of the fabric has the address {ip}")

    def of(self, flow: Flow) -> list[Path]:
        self.check(flow)
        ends = self._switch[flow.src_ip], self._switch[flow.dst_ip]
        if ends[0] == ends[1]:
            return [()]
        if ends not in self._known:
            shortest = self._paths.equal_cost(*ends, _MAX_SHORTEST)
            self._known[ends] = shortest if len(shortest) >= _ENOUGH else self._paths.shortest(*ends, _ENOUGH)
        return self._known[ends]


_Ways = Mapping[Demand, list[Path]]


class _Board:
    """Demands on paths, and the load on every hop that results, as a share of its link's rate."""

    def __init__(self, fabric: Fabric) -> None:
        self._rate_mbps = {(p.node, p.number): link.rate_mbps for link in fabric.links for p in link.ports}
        self.path: dict[Demand, Path] = {}
        self.load: dict[tuple[str, int], float] = defaultdict(float)
        self.on: dict[tuple[str, int], dict[Demand, None]] = defaultdict(dict)

    def put(self, demand: Demand, path: Path) -> None:
        self.path[demand] = path
        for hop in path:
            self.load[hop] += demand.rate_mbps / self._rate_mbps[hop]
            self.on[hop][demand] = None

    def take(self, demand: Demand) -> None:
        for hop in self.path.pop(demand):
            self.load[hop] -= demand.rate_mbps / self._rate_mbps[hop]
            del self.on[hop][demand]

    def peak(self) -> float:
        return max(self.load.values(), default=0.0)

    def fullness(self, demand: Demand, path: Path) -> tuple[float, float]:
        """(load of the fullest hop, of all hops together) of the path, were the demand on it: less is better."""
        own = set(self.path.get(demand, ()))
        loads = [self.load[hop] + (0.0 if hop in own else demand.rate_mbps / self._rate_mbps[hop]) for hop in path]
        # Sums of shares differ by rounding.
        return round(max(loads, default=0.0), 9), round(sum(loads), 9)


def _greedy(board: _Board, ways: _Ways) -> None:
    for demand in sorted(ways, key=lambda d: (-d.rate_mbps, str(d.flow))):
        if paths := ways[demand]:
            board.put(demand, min(paths, key=lambda path: board.fullness(demand, path)))


def _search(board: _Board, ways: _Ways) -> None:
    """Leaves the board with the best that it came by."""
    best, best_peak, in_vain = dict(board.path), board.peak(), 0
    tabu: dict[tuple[Demand, Path], int] = {}
    for move in count():
        if in_vain == _PATIENCE or not (chosen := _best_move(board, ways, tabu, move)):
            break
        demand, path = chosen
        tabu[demand, board.path[demand]] = move + _TABU_MOVES
        board.take(demand)
        board.put(demand, path)
        in_vain += 1
        if board.peak() < best_peak - _EPSILON:
            best, best_peak, in_vain = dict(board.path), board.peak(), 0
    for demand, path in best.items():
        if board.path[demand] != path:
            board.take(demand)
            board.put(demand, path)


def _best_move(
    board: _Board, ways: _Ways, tabu: Mapping[tuple[Demand, Path], int], move: int
) -> tuple[Demand, Path] | None:
    """Of the flows on the fullest hop, the one that finds most room elsewhere, and where."""
    fullest = max(board.load, key=board.load.__getitem__, default=None)
    if fullest is None:
        return None
    moves = (
        (board.fullness(demand, path), demand, path)
        for demand in board.on[fullest]
        for path in ways[demand]
        if fullest not in path and tabu.get((demand, path), 0) <= move
    )
    found = min(moves, key=lambda candidate: candidate[0], default=None)
    return found[1:] if found else None
