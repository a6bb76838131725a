"""Traffic patterns as schedules: flows that start at once and wait for nothing, each on a connection of its own.

A rank's flows share nccl-tests' `size` equally. A flow has one chunk of the buffer, the same at both of its ends, which no
other flow of either end touches: so nothing is overwritten before it is sent, and what arrives can be told apart.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from traffic.schedule import Schedule, ScheduleBuilder

ALGORITHM = "direct"


@dataclass(frozen=True)
class Demand:
    """What a pattern is asked for. flows_per_host: of each rank that sends; group_size, group_shift: ranks in a group, and
    how many groups on it sends (group_shift only); seed: of what is random."""

    flows_per_host: int = 1
    group_size: int | None = None
    group_shift: int = 1
    seed: int = 1


# The source and destination rank of every flow.
Flows = list[tuple[int, int]]
Pattern = Callable[[int, Demand], Flows]


def each(pairs: Iterable[tuple[int, int]], times: int) -> Flows:
    """Every pair of ranks `times` times in a row."""
    return [pair for pair in pairs for _ in range(times)]


def pattern_schedule(name: str, n_ranks: int, flows: Flows) -> Schedule:
    """One send per flow; the flows of one pair of ranks differ in their channel."""
    chunks = own_chunks(flows, n_ranks)
    builder = ScheduleBuilder(name, ALGORITHM, n_ranks, max(chunks) + 1)
    channels: Counter[tuple[int, int]] = Counter()
    for (src, dst), chunk in zip(flows, chunks, strict=True):
        builder.send(src, dst, chunk, reduce=False, channel=channels[src, dst])
        channels[src, dst] += 1
    return builder.build()


def own_chunks(flows: Sequence[tuple[int, int]], n_ranks: int) -> list[int]:
    """A chunk for each flow: the first that no earlier flow of its two ranks has.

    A greedy colouring of a graph's edges: fewer chunks than twice the flows of the busiest rank.
    """
    # Bit c: chunk c is taken.
    taken = [0] * n_ranks
    chunks = []
    for src, dst in flows:
        at_either = taken[src] | taken[dst]
        lowest_free = ~at_either & (at_either + 1)
        taken[src] |= lowest_free
        taken[dst] |= lowest_free
        chunks.append(lowest_free.bit_length() - 1)
    return chunks
