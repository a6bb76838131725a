"""Several collectives in one schedule, such as a training step's: over groups of ranks, with computing in between.

    step = Composer("training_step", "data-parallel", n_ranks=4)
    backward = {rank: step.calc(rank, 2_000_000) for rank in range(4)}
    summed = step.place(schedule("all_reduce", "ring", 4), 1 << 20, range(4), after=backward)
    for rank, done in summed.items():
        step.calc(rank, 100_000, after=[done])
    whole = step.build()

Each collective has chunks of its own, at its ranks only, and keeps its contract.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from traffic.chunks import Longs
from traffic.errors import TrafficError
from traffic.schedule import Ints, Part, Schedule

# Columns that a composition changes by adding something, or not at all.
_KEPT = ("n_chunks_sent", "reduce", "calc_ns")


@dataclass(frozen=True)
class _Placed:
    """A collective's operations, or some local ones, in the composition's numbers. sizes: (ranks, chunks) elements."""

    columns: Mapping[str, NDArray[np.generic]]
    n_deps: Longs
    deps: Longs
    ranks: tuple[int, ...] = ()
    sizes: Longs | None = None


class Composer:
    """Operations are numbered from 0 as they are added; `after` names earlier ones, of the same rank."""

    def __init__(self, collective: str, algorithm: str, n_ranks: int) -> None:
        self._identity = (collective, algorithm, n_ranks)
        self._placed: list[_Placed] = []
        self._parts: list[Part] = []
        self._n_sends, self._n_chunks = 0, 0

    def __len__(self) -> int:
        """Operations so far."""
        return self._n_sends

    def calc(self, rank: int, calc_ns: int, after: Sequence[int] = ()) -> int:
        """The rank computes; 0 ns: one operation to wait for in place of many."""
        columns = {"src": [rank], "dst": [rank], "channel": [0], "first_chunk": [0], "dst_chunk": [0]}
        columns |= {"n_chunks_sent": [0], "reduce": [False], "calc_ns": [calc_ns]}
        made = {name: np.array(values) for name, values in columns.items()}
        return self._add(_Placed(made, np.array([len(after)]), np.array(after, dtype=np.int64)))

    def join(self, rank: int, after: Sequence[int]) -> int:
        """The one operation after which all of `after` are done: itself, if it is one."""
        return after[0] if len(after) == 1 else self.calc(rank, 0, after)

    def place(
        self,
        schedule: Schedule,
        count: int,
        ranks: Sequence[int],
        after: Mapping[int, int] | None = None,
        channel: int = 0,
    ) -> dict[int, int]:
        """Add a collective. Its rank i is ranks[i], its buffers have `count` elements, its channels begin at `channel`:
        collectives that run at one time want channels of their own. A rank begins once after[rank], where there is one, is
        done. Returns, by rank, the operation after which it has sent and received all.

        Raises TrafficError for ranks that do not fit.
        """
        if len(set(ranks)) != schedule.n_ranks or len(ranks) != schedule.n_ranks:
            raise TrafficError(
                f"{schedule.collective} of {schedule.n_ranks} ranks cannot be placed on ranks {list(ranks)}"
            )
        there = np.array(ranks, dtype=np.int64)
        begins = np.full(schedule.n_ranks, -1, dtype=np.int64)
        for i, rank in enumerate(ranks):
            begins[i] = (after or {}).get(rank, -1)
        n_deps, deps = _with_beginnings(schedule, begins, self._n_sends)
        columns = {name: getattr(schedule, name) for name in _KEPT}
        columns |= {"src": there[schedule.src], "dst": there[schedule.dst], "channel": schedule.channel + channel}
        columns |= {name: getattr(schedule, name) + self._n_chunks for name in ("first_chunk", "dst_chunk")}
        self._parts += [
            replace(p, ranks=tuple(int(there[r]) for r in p.ranks), first_chunk=p.first_chunk + self._n_chunks)
            for p in schedule.parts
        ]
        sizes = np.broadcast_to(np.diff(schedule.bounds(count), axis=1), (schedule.n_ranks, schedule.n_chunks))
        first = self._add(_Placed(columns, n_deps, deps, tuple(ranks), sizes))
        ends = _endings(schedule)
        done = {}
        for i, rank in enumerate(ranks):
            last = [first + end for end in ends[i]] or ([int(begins[i])] if begins[i] >= 0 else [])
            done[rank] = self.join(rank, last)
        return done

    def build(self) -> Schedule:
        collective, algorithm, n_ranks = self._identity
        sizes = np.zeros((n_ranks, self._n_chunks), dtype=np.int64)
        at = 0
        for placed in self._placed:
            if placed.sizes is not None:
                sizes[np.array(placed.ranks), at : at + placed.sizes.shape[1]] = placed.sizes
                at += placed.sizes.shape[1]
        return Schedule(
            collective,
            algorithm,
            n_ranks,
            self._n_chunks,
            src=self._column("src"),
            dst=self._column("dst"),
            channel=self._column("channel"),
            first_chunk=self._column("first_chunk"),
            n_chunks_sent=self._column("n_chunks_sent"),
            reduce=self._gathered("reduce").astype(np.bool_),
            dep_start=np.concatenate(
                ([0], np.cumsum(np.concatenate([[], *(p.n_deps for p in self._placed)]), dtype=np.int64))
            ),
            deps=np.concatenate([[], *(p.deps for p in self._placed)]).astype(np.int32),
            dst_chunk=self._column("dst_chunk"),
            calc_ns=self._gathered("calc_ns").astype(np.int64),
            chunk_elements=sizes,
            composed_of=tuple(self._parts),
        )

    def _add(self, placed: _Placed) -> int:
        """The number of the first operation."""
        first = self._n_sends
        if len(placed.deps) and not 0 <= placed.deps.min() <= placed.deps.max() < first + len(placed.n_deps):
            raise TrafficError(f"operation {first} waits for {placed.deps.max()}: it can wait for earlier ones only")
        self._placed.append(placed)
        self._n_sends += len(placed.n_deps)
        self._n_chunks += 0 if placed.sizes is None else placed.sizes.shape[1]
        return first

    def _column(self, name: str) -> Ints:
        return self._gathered(name).astype(np.int32)

    def _gathered(self, name: str) -> NDArray[np.generic]:
        return np.concatenate([[], *(placed.columns[name] for placed in self._placed)])


def _with_beginnings(schedule: Schedule, begins: Longs, first: int) -> tuple[Longs, Longs]:
    """(m,) how many sends each waits for, and which: its own, counted from `first`, after begins[its rank] where that is not
    -1. Only what nothing else holds back gets it: the first send of a connection, and local operations."""
    opens = schedule.is_local.copy()
    connection = schedule.connection
    sends = np.flatnonzero(~opens)
    opens[sends[np.unique(connection[sends], return_index=True)[1]]] = True
    extra = opens & (begins[schedule.src] >= 0)
    own = np.diff(schedule.dep_start)
    waiting = np.concatenate((np.flatnonzero(extra), schedule.waiting))
    deps = np.concatenate((begins[schedule.src[extra]], schedule.deps.astype(np.int64) + first))
    return own + extra, deps[np.argsort(waiting, kind="stable")]


def _endings(schedule: Schedule) -> list[list[int]]:
    """By rank, what ends its part in it: the last send of each connection that begins or ends there, and the local operations
    that no other waits for."""
    connection = schedule.connection
    last = np.full(len(schedule.connections), -1)
    sends = np.flatnonzero(connection >= 0)
    last[connection[sends]] = sends
    waited_for = np.zeros(len(schedule), dtype=np.bool_)
    waited_for[schedule.deps[schedule.is_local[schedule.waiting]]] = True
    local = np.flatnonzero(schedule.is_local & ~waited_for)
    ends: list[list[int]] = [[] for _ in range(schedule.n_ranks)]
    for send in last.tolist():
        ends[schedule.src[send]].append(send)
    for send in np.concatenate((last, local)).tolist():
        ends[schedule.dst[send]].append(send)
    return ends
