"""What an algorithm sends, phase by phase, without its sends: for so many ranks that these would be too many to write down.

A phase is messages of one size that all ranks send at one time, to the same ranks each time it is repeated. Its pairs and what
they carry in all are those of the schedule (tests compare them).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topologies.errors import unknown
from traffic.collectives.domains import equal_domains
from traffic.errors import TrafficError
from traffic.layout import Layout

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Phase:
    """src, dst: (messages,) ranks; share: of nccl-tests' size in each message; repeats: one after the other."""

    src: Ints
    dst: Ints
    share: float
    repeats: int


@dataclass(frozen=True)
class AllPairs:
    """From every rank to every other a message with 1/n of the size; turns: one after the other at each rank, or 1: all at
    once."""

    turns: int


Outline = tuple[Phase, ...] | AllPairs


def outline(collective: str, algorithm: str | None, layout: Layout) -> Outline:
    """algorithm: None = the collective's default. Raises TrafficError for one that has no outline, naming those that do."""
    known = {name: make for (of, name), make in _OUTLINES.items() if of == collective}
    name = next(iter(known), "") if algorithm is None else algorithm
    if name not in known:
        all_known = [" by ".join(pair) for pair in _OUTLINES]
        raise TrafficError(unknown(f"outline for {layout.n_ranks} ranks", f"{collective} by {name}", all_known))
    return known[name](layout)


def _ring(rounds: int) -> Callable[[Layout], Outline]:
    def phases(layout: Layout) -> Outline:
        n = layout.n_ranks
        return _around(np.arange(n)[None], 1 / n, rounds * (n - 1))

    return phases


def _around(rings: Ints, share: float, repeats: int) -> tuple[Phase, ...]:
    """rings: (rings, n) ranks, each sending to the next of its ring."""
    if not repeats:
        return ()
    return (Phase(rings.ravel(), np.roll(rings, -1, axis=1).ravel(), share, repeats),)


def _hierarchical(layout: Layout) -> Outline:
    domains = equal_domains(layout, "hierarchical")
    m, g = domains.shape
    inside = _around(domains, 1 / g, g - 1)
    return (*inside, *_around(domains.T, 1 / (m * g), 2 * (m - 1)), *inside)


def _halving_doubling(layout: Layout) -> Outline:
    n = layout.n_ranks
    if n & (n - 1):
        raise TrafficError(
            f"halving-doubling has an outline for powers of two, not for {n} ranks: use --ranks {1 << n.bit_length() - 1}"
        )
    ranks, distances = np.arange(n), [1 << i for i in range(n.bit_length() - 1)]
    return tuple(Phase(ranks, ranks ^ d, d / n, 1) for d in (*reversed(distances), *distances))


_OUTLINES: dict[tuple[str, str], Callable[[Layout], Outline]] = {
    ("all_reduce", "ring"): _ring(2),
    ("all_reduce", "halving-doubling"): _halving_doubling,
    ("all_reduce", "hierarchical"): _hierarchical,
    ("reduce_scatter", "ring"): _ring(1),
    ("all_gather", "ring"): _ring(1),
    ("all_to_all", "pairwise"): lambda layout: AllPairs(layout.n_ranks - 1),
    ("all_to_all", "direct"): lambda layout: AllPairs(1),
}
