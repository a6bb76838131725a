"""Is a schedule right? Its collective's contract, checked by following who contributed to which chunk. No byte moves.

Byte counts do not see a wrong order, a chunk added twice or one sent before it came; contributions do. What a rank holds
of a chunk is an int with bit r set if rank r contributed. CONTRACTS says what a collective starts from and must end with.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topologies import unknown
from traffic.errors import TrafficError
from traffic.pattern_check import RULES, check_pattern
from traffic.races import Order, check_races, order
from traffic.schedule import Schedule

Contributions = int


@dataclass(frozen=True)
class Contract:
    """before, after: (rank r, part p of the buffer that the chunk is in, n ranks) -> what r holds of the chunk; None where
    any content will do. in_parts: whether p matters; the buffer is then n equal parts."""

    before: Callable[[int, int, int], Contributions]
    after: Callable[[int, int, int], Contributions | None]
    in_parts: bool


def _all(n: int) -> Contributions:
    return (1 << n) - 1


# To add a collective: a line here.
CONTRACTS: dict[str, Contract] = {
    "all_reduce": Contract(lambda r, p, n: 1 << r, lambda r, p, n: _all(n), in_parts=False),
    "reduce_scatter": Contract(lambda r, p, n: 1 << r, lambda r, p, n: _all(n) if r == p else None, in_parts=True),
    "all_gather": Contract(lambda r, p, n: 1 << r if r == p else 0, lambda r, p, n: 1 << p, in_parts=True),
}


def verify(schedule: Schedule) -> None:
    """Raises TrafficError, naming send, ranks and chunk, unless the schedule keeps its collective's contract however the
    network delays its messages.

    It refuses: columns, ranks and chunks out of range, sends to oneself, cycles, waiting for what the sender does not
    receive; reading, adding and overwriting in no order; sending what is not there, adding a contribution twice; a wrong
    end. Patterns have rules instead of a contract (pattern_check.py). A ring of 64 ranks takes 0.01 s, one of 512 (523 264
    sends) 1.3 s and 0.2 GB: the time grows with the sends where first dependencies lead from each access to a chunk to the
    next, else with sends x connections.
    """
    if schedule.collective in RULES:
        _check_columns(schedule)
        check_pattern(schedule)
        return
    contract = CONTRACTS.get(schedule.collective)
    if contract is None:
        raise TrafficError(unknown("collective", schedule.collective, (*CONTRACTS, *RULES)))
    _check_columns(schedule)
    if contract.in_parts and schedule.n_chunks % schedule.n_ranks:
        raise TrafficError(
            f"{schedule.n_chunks} chunks do not divide into {schedule.n_ranks} ranks' parts: {schedule.collective} needs that"
        )
    in_order = order(schedule)
    check_races(schedule, in_order)
    _check_end(schedule, contract, _execute(schedule, contract, in_order))


def _check_columns(s: Schedule) -> None:
    """Everything that can be said about a send by itself."""
    m, lengths = len(s), [len(c) for c in (s.src, s.dst, s.channel, s.first_chunk, s.n_chunks_sent, s.reduce)]
    deps_fit = len(s.dep_start) == m + 1 and s.dep_start[0] == 0 and s.dep_start[-1] == len(s.deps)
    if set(lengths) != {m} or not deps_fit or (np.diff(s.dep_start) < 0).any():
        raise TrafficError(
            f"the schedule's columns do not fit together: {lengths}, {len(s.dep_start)} and {len(s.deps)}"
        )
    if s.n_ranks < 1 or s.n_chunks < 0:
        raise TrafficError(f"{s.n_ranks} ranks and {s.n_chunks} chunks: a schedule has at least one rank")
    _refuse_first(s, _outside(s.src, s.n_ranks) | _outside(s.dst, s.n_ranks), f"ranks are 0 to {s.n_ranks - 1}")
    _refuse_first(s, s.src == s.dst, "a rank does not send to itself")
    _refuse_first(s, s.channel < 0, "channels count from 0")
    bad_run = (s.first_chunk < 0) | (s.n_chunks_sent < 1) | (s.first_chunk + s.n_chunks_sent > s.n_chunks)
    _refuse_first(s, bad_run, f"it must carry one or more of the chunks 0 to {s.n_chunks - 1}")
    _check_waits(s)


def _check_waits(s: Schedule) -> None:
    waiting = np.repeat(np.arange(len(s)), np.diff(s.dep_start))
    outside = np.flatnonzero(_outside(s.deps, len(s)))
    if len(outside):
        raise TrafficError(
            f"send {s.name_of(waiting[outside[0]])} waits for send {s.deps[outside[0]]}: sends are 0 to {len(s) - 1}"
        )
    elsewhere = np.flatnonzero(s.dst[s.deps] != s.src[waiting])
    if len(elsewhere):
        send, dep = waiting[elsewhere[0]], s.deps[elsewhere[0]]
        raise TrafficError(
            f"send {s.name_of(send)} waits for send {s.name_of(dep)}, which rank {s.src[send]} does not receive"
        )


def _outside(numbers: NDArray[np.int32], end: int) -> NDArray[np.bool_]:
    return (numbers < 0) | (numbers >= end)


def _refuse_first(schedule: Schedule, bad: NDArray[np.bool_], rule: str) -> None:
    if bad.any():
        raise TrafficError(f"send {schedule.name_of(int(np.argmax(bad)))} is impossible: {rule}")


def _part(schedule: Schedule, chunk: int) -> int:
    return chunk * schedule.n_ranks // schedule.n_chunks


def _execute(schedule: Schedule, contract: Contract, order: Order) -> list[Contributions]:
    """What each rank holds of each chunk in the end, at [rank * n_chunks + chunk]. Without races any order will do."""
    n, k = schedule.n_ranks, schedule.n_chunks
    parts = [_part(schedule, chunk) for chunk in range(k)]
    held = [contract.before(rank, part, n) for rank in range(n) for part in parts]
    columns = (schedule.src, schedule.dst, schedule.first_chunk, schedule.n_chunks_sent, schedule.reduce)
    rows = zip(*(c[order.by_level].tolist() for c in columns), strict=True)
    for send, (src, dst, first, n_sent, reduce) in zip(order.by_level.tolist(), rows, strict=True):
        for chunk in range(first, first + n_sent):
            sent, there = held[src * k + chunk], held[dst * k + chunk]
            if not sent:
                raise TrafficError(f"send {schedule.name_of(send)}: rank {src} holds nothing of chunk {chunk} then")
            if reduce and sent & there:
                raise TrafficError(
                    f"send {schedule.name_of(send)} adds to chunk {chunk} at rank {dst} what is in it already: "
                    f"the contributions of {_ranks(sent & there)}"
                )
            held[dst * k + chunk] = sent | there if reduce else sent
    return held


def _check_end(schedule: Schedule, contract: Contract, held: list[Contributions]) -> None:
    n, k = schedule.n_ranks, schedule.n_chunks
    for place, got in enumerate(held):
        rank, chunk = divmod(place, k)
        wanted = contract.after(rank, _part(schedule, chunk), n)
        if wanted is None or wanted == got:
            continue
        wrong = [f"lacks the contributions of {_ranks(wanted & ~got)}"] if wanted & ~got else []
        wrong += [f"has the contributions of {_ranks(got & ~wanted)} too many"] if got & ~wanted else []
        raise TrafficError(
            f"in the end rank {rank} {' and '.join(wrong)} in chunk {chunk}; {_last_writer(schedule, rank, chunk)}"
        )


def _last_writer(s: Schedule, rank: int, chunk: int) -> str:
    covers = (s.first_chunk <= chunk) & (chunk < s.first_chunk + s.n_chunks_sent)
    writers = np.flatnonzero((s.dst == rank) & covers)
    return f"the last send into it is {s.name_of(int(writers[-1]))}" if len(writers) else "no send goes into it"


def _ranks(contributions: Contributions) -> str:
    """'rank 3' or 'ranks 0, 2, 3, 5 and 11 more'."""
    ranks = [r for r in range(contributions.bit_length()) if contributions >> r & 1]
    more = f" and {len(ranks) - 4} more" if len(ranks) > 4 else ""
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks[:4])) + more
