"""Is a schedule right? Its collective's contract, checked by following whose values go into which chunk. No byte moves.

Byte counts do not see a wrong order, a chunk added twice or one sent before it came; contributions do.
"""

import math

import numpy as np
from numpy.typing import NDArray

from topologies import unknown
from traffic.contracts import CONTRACTS, terms
from traffic.errors import TrafficError
from traffic.execution import execute
from traffic.pattern_check import FLOWS, check_flows
from traffic.races import check_races, order
from traffic.ranges import ranges
from traffic.schedule import Schedule


def verify(schedule: Schedule) -> None:
    """Raises TrafficError, naming send, ranks and chunk, unless the schedule keeps its collectives' contracts however the
    network delays its messages.

    It refuses: columns, ranks and chunks out of range, chunks that are not as large at both ends, cycles, waiting for what
    the sender does not receive; reading, adding and overwriting in no order; sending what is not there, adding a contribution
    twice; a wrong end. Patterns and messages have rules instead of a contract (pattern_check.py). A ring of 64 ranks takes
    0.02 s, one of 512 (523 264 sends) 1 s and 0.2 GB, one of 1024 (2 095 104) 4 s and 0.75 GB: the time grows with
    the sends where first dependencies lead from each access to a chunk to the next, else with sends x connections.
    """
    if schedule.collective in FLOWS:
        _check_columns(schedule)
        check_flows(schedule)
        return
    if not schedule.composed_of and schedule.collective not in CONTRACTS:
        raise TrafficError(unknown("collective", schedule.collective, (*CONTRACTS, *FLOWS)))
    _check_columns(schedule)
    all_terms = list(terms(schedule))
    in_order = order(schedule)
    check_races(schedule, in_order)
    execute(schedule, all_terms, in_order)


def _check_columns(s: Schedule) -> None:
    """Everything that can be said about a send by itself."""
    columns = (s.src, s.dst, s.channel, s.first_chunk, s.dst_chunk, s.n_chunks_sent, s.reduce, s.calc_ns)
    m, lengths = len(s), [len(c) for c in columns]
    deps_fit = len(s.dep_start) == m + 1 and s.dep_start[0] == 0 and s.dep_start[-1] == len(s.deps)
    if set(lengths) != {m} or not deps_fit or (np.diff(s.dep_start) < 0).any():
        raise TrafficError(
            f"the schedule's columns do not fit together: {lengths}, {len(s.dep_start)} and {len(s.deps)}"
        )
    if s.n_ranks < 1 or s.n_chunks < 0:
        raise TrafficError(f"{s.n_ranks} ranks and {s.n_chunks} chunks: a schedule has at least one rank")
    _check_parts(s)
    _refuse_first(s, _outside(s.src, s.n_ranks) | _outside(s.dst, s.n_ranks), f"ranks are 0 to {s.n_ranks - 1}")
    _refuse_first(s, s.channel < 0, "channels count from 0")
    _refuse_first(s, s.calc_ns < 0, "computing takes 0 ns or more")
    _refuse_first(s, (s.calc_ns > 0) & ~s.is_local, "only a local operation computes")
    bad_run = s.n_chunks_sent < np.where(s.is_local, 0, 1)
    for first in (s.first_chunk, s.dst_chunk):
        bad_run |= (first < 0) | ((first + s.n_chunks_sent > s.n_chunks) & (s.n_chunks_sent > 0))
    _refuse_first(s, bad_run, f"it must carry one or more of the chunks 0 to {s.n_chunks - 1}")
    overlaps = s.is_local & (np.abs(s.first_chunk - s.dst_chunk) < s.n_chunks_sent)
    _refuse_first(s, overlaps, "a rank copies or adds chunks into others, not into themselves")
    _check_sizes(s)
    _check_waits(s)


def _check_parts(s: Schedule) -> None:
    end = 0
    for part in sorted(s.parts, key=lambda part: part.first_chunk):
        ranks_fit = len(set(part.ranks)) == len(part.ranks) and all(0 <= r < s.n_ranks for r in part.ranks)
        if not ranks_fit or not 0 <= part.root < len(part.ranks):
            raise TrafficError(
                f"{part.collective} of ranks {tuple(part.ranks)} with root {part.root}: it needs some of the ranks 0 to "
                f"{s.n_ranks - 1}, each once, one of them as root"
            )
        if part.first_chunk < end or part.n_chunks < 0 or part.first_chunk + part.n_chunks > s.n_chunks:
            raise TrafficError(
                f"{part.collective} has chunks {part.first_chunk} to {part.first_chunk + part.n_chunks - 1}: "
                f"a collective needs its own of the chunks 0 to {s.n_chunks - 1}"
            )
        end = part.first_chunk + part.n_chunks


def _check_sizes(s: Schedule) -> None:
    """Chunks are as large where they land as where they come from."""
    if s.chunk_elements is None:
        if s.n_blocks < 1 or s.n_blocks * math.prod(s.cuts or (s.n_chunks // s.n_blocks,)) != s.n_chunks:
            raise TrafficError(f"{s.n_blocks} blocks cut into {s.cuts} are not {s.n_chunks} chunks")
        moved = (s.first_chunk - s.dst_chunk) % max(1, s.n_chunks // s.n_blocks) != 0
        _refuse_first(s, moved & (s.n_chunks_sent > 0), "chunks land at the same place of a block as they come from")
        return
    sizes = np.asarray(s.chunk_elements)
    if sizes.shape not in ((s.n_chunks,), (s.n_ranks, s.n_chunks)) or (sizes < 0).any():
        raise TrafficError(
            f"chunk sizes {sizes.shape} do not fit {s.n_ranks} ranks and {s.n_chunks} chunks, or are below 0"
        )
    sizes = np.broadcast_to(sizes, (s.n_ranks, s.n_chunks))
    send = np.repeat(np.arange(len(s)), s.n_chunks_sent)
    there = sizes[s.src[send], ranges(s.first_chunk, s.n_chunks_sent)]
    here = sizes[s.dst[send], ranges(s.dst_chunk, s.n_chunks_sent)]
    unequal = np.zeros(len(s), dtype=np.bool_)
    unequal[send[there != here]] = True
    _refuse_first(s, unequal, "chunks are as large where they land as where they come from")


def _check_waits(s: Schedule) -> None:
    waiting = s.waiting
    outside = np.flatnonzero(_outside(s.deps, len(s)))
    if len(outside):
        raise TrafficError(
            f"send {s.name_of(waiting[outside[0]])} waits for send {s.deps[outside[0]]}: sends are 0 to {len(s) - 1}"
        )
    elsewhere = np.flatnonzero(s.waits_to_leave & (s.src[s.deps] != s.src[waiting]))
    if len(elsewhere):
        send, dep = waiting[elsewhere[0]], s.deps[elsewhere[0]]
        raise TrafficError(
            f"send {s.name_of(send)} waits for send {s.name_of(dep)}, which rank {s.src[send]} neither receives nor sends"
        )


def _outside(numbers: NDArray[np.int32], end: int) -> NDArray[np.bool_]:
    return (numbers < 0) | (numbers >= end)


def _refuse_first(schedule: Schedule, bad: NDArray[np.bool_], rule: str) -> None:
    if bad.any():
        raise TrafficError(f"send {schedule.name_of(int(np.argmax(bad)))} is impossible: {rule}")
