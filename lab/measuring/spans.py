"""What each rank did during one iteration, from the times that the replay keeps of every send. Pure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.rows import SPAN_KINDS, RankSpans
from traffic.replay import IterationResult
from traffic.schedule import Schedule

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]
Intervals = tuple[NDArray[np.int64], Floats, Floats]

_COMPUTE, _SEND, _RECEIVE, _WAIT = range(len(SPAN_KINDS))
# A picture has about a thousand columns: of this part of an iteration a gap cannot be seen.
_RESOLUTION = 1 / 2000
_MOST_SPANS = 50_000


def representative(results: Sequence[IterationResult]) -> int:
    """The iteration whose duration is the (upper) median."""
    return sorted(range(len(results)), key=lambda i: results[i].duration_ns)[len(results) // 2]


def rank_spans(
    schedule: Schedule, result: IterationResult, *, size_bytes: int, iteration: int, time_dilation: float
) -> RankSpans:
    """At most `_MOST_SPANS`: where there would be more, longer gaps are left out."""
    to_s = 1e-9 / time_dilation
    start_s, end_s = result.started * to_s, result.finished * to_s
    whole_s = max(result.duration_ns * to_s, 1e-12)
    local = schedule.is_local
    of_kind = [
        (schedule.src, local & (schedule.calc_ns > 0)),
        (schedule.src, ~local),
        (schedule.dst, ~local),
    ]
    raw = [(rank[chosen], start_s[chosen], end_s[chosen]) for rank, chosen in of_kind]
    resolution_s = whole_s * _RESOLUTION
    while True:
        unions = [_union(*intervals, gap_s=resolution_s, whole_s=whole_s) for intervals in raw]
        waits = _gaps(unions, result.rank_finished * to_s, resolution_s, whole_s)
        parts = [*unions, waits]
        if sum(len(rank) for rank, _, _ in parts) <= _MOST_SPANS or resolution_s > whole_s:
            break
        resolution_s *= 2
    kind = np.repeat(np.arange(len(parts)), [len(rank) for rank, _, _ in parts])
    rank, begin_s, until_s = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((begin_s, kind, rank))
    return RankSpans(size_bytes, iteration, resolution_s, rank[order], kind[order], begin_s[order], until_s[order])


def _union(rank: Ints, start_s: Floats, end_s: Floats, *, gap_s: float, whole_s: float) -> Intervals:
    """Rank by rank the times that one interval at least covers; gaps up to gap_s count as covered."""
    if not len(rank):
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
    # Each rank on a stretch of its own, so that one pass serves all.
    order = np.lexsort((start_s, rank))
    shift = rank[order] * (2 * whole_s)
    begin, reach = start_s[order] + shift, np.maximum.accumulate(end_s[order] + shift)
    first = np.flatnonzero(np.append(True, begin[1:] > reach[:-1] + gap_s))
    last = np.append(first[1:], len(order)) - 1
    of = rank[order][first].astype(np.int64)
    return of, start_s[order][first], reach[last] - of * (2 * whole_s)


def _gaps(unions: Sequence[Intervals], finished_s: Floats, resolution_s: float, whole_s: float) -> Intervals:
    """Where a rank does nothing of these until it is done. finished_s: (ranks,)."""
    ranks = np.arange(len(finished_s))
    edges = [*unions, (ranks, np.zeros(len(ranks)), np.zeros(len(ranks))), (ranks, finished_s, finished_s)]
    rank, begin_s, end_s = _union(
        *(np.concatenate(column) for column in zip(*edges, strict=True)), gap_s=resolution_s, whole_s=whole_s
    )
    same = rank[1:] == rank[:-1]
    return rank[1:][same], end_s[:-1][same], begin_s[1:][same]
