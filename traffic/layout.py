"""Who takes part in a collective and how they stand in the fabric: what an algorithm is told. Data only."""

from dataclasses import dataclass

from traffic.errors import TrafficError

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """n_ranks: the collective's members; domains: the HB domains, each its ranks in order, empty where the fabric has none;
    root: of the rooted collectives; matrix: of all_to_all_v, bytes from each rank (row) to each (column); parents: of in-network,
    the tree of its reducers (`collectives.in_network`), () = one; n_servers: of parameter-server.

    Raises TrafficError for domains that are not a partition of the ranks, a root or a matrix that does not fit.
    """

    n_ranks: int
    domains: tuple[Ranks, ...] = ()
    root: int = 0
    matrix: tuple[Ranks, ...] | None = None
    parents: Ranks = ()
    n_servers: int = 1

    def __post_init__(self) -> None:
        n = self.n_ranks
        if n < 1:
            raise TrafficError(f"{n} ranks: a collective needs at least one")
        if not 0 <= self.root < n:
            raise TrafficError(f"root {self.root} is not among the ranks 0 to {n - 1}")
        if self.domains and sorted(rank for domain in self.domains for rank in domain) != list(range(n)):
            raise TrafficError(f"HB domains must hold each of the ranks 0 to {n - 1} once: they are {self.domains}")
        if self.matrix is not None and {len(row) for row in (self.matrix, *self.matrix)} != {n}:
            rows = sorted({len(row) for row in self.matrix})
            raise TrafficError(f"a matrix of {len(self.matrix)} rows of {rows} numbers: {n} ranks need {n} of {n}")
        if self.matrix is not None and min(map(min, self.matrix)) < 0:
            raise TrafficError("the matrix has negative bytes: use 0 or more")

    @property
    def rails(self) -> tuple[Ranks, ...]:
        """Rail i: the ranks that stand at place i of their HB domain, domain by domain."""
        longest = max(map(len, self.domains), default=0)
        return tuple(tuple(domain[i] for domain in self.domains if i < len(domain)) for i in range(longest))
