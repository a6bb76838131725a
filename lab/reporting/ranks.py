"""What each rank did with its time in one iteration. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.rows import SPAN_KINDS, RankSpans

Floats = NDArray[np.float64]
_COMPUTE, _SEND, _RECEIVE, _WAIT = range(len(SPAN_KINDS))
# Below this share of the median rank's time above it, a rank is one of many.
_STANDS_OUT = 0.1


@dataclass(frozen=True)
class RankTimes:
    """(ranks,) hardware seconds. compute, send: how long each took, side by side where they overlap; own: computing or sending;
    receive_only: receiving and neither of these; wait: none of the three; end: its last operation was done."""

    compute_s: Floats
    send_s: Floats
    own_s: Floats
    receive_only_s: Floats
    wait_s: Floats
    end_s: Floats

    @property
    def whole_s(self) -> float:
        return float(self.end_s.max(initial=0.0))


def rank_times(spans: RankSpans, n_ranks: int) -> RankTimes:
    def total(*kinds: int) -> Floats:
        chosen = np.isin(spans.kind, kinds)
        return covered_by_rank(spans.rank[chosen], spans.begin_s[chosen], spans.end_s[chosen], n_ranks)

    end_s = np.zeros(n_ranks)
    np.maximum.at(end_s, spans.rank, spans.end_s)
    own_s, busy_s = total(_COMPUTE, _SEND), total(_COMPUTE, _SEND, _RECEIVE)
    return RankTimes(total(_COMPUTE), total(_SEND), own_s, busy_s - own_s, total(_WAIT), end_s)


def covered_by_rank(rank: NDArray[np.int64], begin_s: Floats, end_s: Floats, n_ranks: int) -> Floats:
    """(n_ranks,) how long at least one of a rank's intervals lasts. All are (intervals,)."""
    found = np.zeros(n_ranks)
    if not len(rank):
        return found
    order = np.lexsort((begin_s, rank))
    rank, begin_s, end_s = rank[order], begin_s[order], end_s[order]
    shift = rank * (2 * float(end_s.max()))
    reach = np.maximum.accumulate(end_s + shift)
    # What an interval adds is what lies beyond those before it.
    before = np.append(-np.inf, reach[:-1])
    added = np.maximum(reach - np.maximum(begin_s + shift, before), 0)
    np.add.at(found, rank, added)
    return found


@dataclass(frozen=True)
class StandsOut:
    """A rank that does something for longer than the median rank: `what` it does, for how long, and the median."""

    rank: int
    what: str
    seconds: float
    median_s: float


def stands_out(times: RankTimes) -> StandsOut | None:
    """The rank that computes longest, if it is a tenth of the iteration above the median; else likewise the one that computes
    or sends longest. In a collective with a root that may be the root's part; the schedule knows, this does not."""
    either = "computes or sends" if times.compute_s.any() else "sends"
    for what, seconds in (("computes", times.compute_s), (either, times.own_s)):
        rank, median_s = int(seconds.argmax()), float(np.median(seconds))
        if seconds[rank] - median_s > _STANDS_OUT * times.whole_s:
            return StandsOut(rank, what, float(seconds[rank]), median_s)
    return None
