"""A schedule carried out symbolically: whose values are in which chunk of which rank, level by level. No byte moves.

What a place (a chunk at a rank) holds: the input chunk that its values come from, and a bit for each member of that chunk's
collective whose values are in it. Schedules without races only: then a level's reads see what earlier levels left, and no
order among its writes matters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from traffic.contracts import ALL, ANYTHING, Terms
from traffic.errors import TrafficError
from traffic.races import Order
from traffic.ranges import ranges
from traffic.schedule import Part, Schedule

Longs = NDArray[np.int64]
Words = NDArray[np.uint64]
_WORD_BITS = 64
_NOTHING = -1


def execute(schedule: Schedule, all_terms: Sequence[Terms], order: Order) -> None:
    """Raises TrafficError for sending what is not there, adding a contribution twice or to another chunk's, and a wrong end."""
    _Execution(schedule, all_terms).run(order)


@dataclass(frozen=True)
class _Steps:
    """One entry per chunk of a send, in the order of levels: the send, the number of the place that it is read from and of
    the place that it is written to."""

    send: Longs
    source: NDArray[np.int32]
    target: NDArray[np.int32]


class _Execution:
    def __init__(self, schedule: Schedule, all_terms: Sequence[Terms]) -> None:
        self._s, self._terms = schedule, all_terms
        self._number = self._numbers()
        n_places, n_bits = int(self._number.max(initial=-1)) + 1, max(t.shape.n for t in all_terms)
        self._members: Words = np.zeros((n_places, -(-n_bits // _WORD_BITS)), dtype=np.uint64)
        self._origin = np.full(n_places, _NOTHING, dtype=np.int32)
        # Which entry goes first where several of a level add to one place.
        self._turn = np.zeros(n_places, dtype=np.int64)
        for t in all_terms:
            for member, rank in enumerate(t.part.ranks):
                chunks = t.part.first_chunk + np.flatnonzero(t.before(member))
                at = self._number[rank * schedule.n_chunks + chunks]
                self._members[at, member // _WORD_BITS] = _bit(member)
                self._origin[at] = chunks

    def _numbers(self) -> NDArray[np.int32]:
        """(n_ranks x n_chunks,) consecutive numbers for the places that matter: in a composition, few of all."""
        s, k = self._s, self._s.n_chunks
        matters = np.zeros(s.n_ranks * k, dtype=np.bool_)
        for t in self._terms:
            for rank in t.part.ranks:
                matters[rank * k + t.part.first_chunk :][: t.part.n_chunks] = True
        for ranks, first in ((s.src, s.first_chunk), (s.dst, s.dst_chunk)):
            matters[_places(s, ranks, first, np.arange(len(s)))] = True
        return np.cumsum(matters, dtype=np.int32) - np.int32(1)

    def run(self, order: Order) -> None:
        s = self._s
        send = np.repeat(order.by_level, s.n_chunks_sent[order.by_level])
        steps = _Steps(
            send,
            self._number[_places(s, s.src, s.first_chunk, order.by_level)],
            self._number[_places(s, s.dst, s.dst_chunk, order.by_level)],
        )
        ends = np.concatenate(([0], np.cumsum(s.n_chunks_sent[order.by_level])))[order.start]
        adds = s.reduce[send]
        for a, b in pairwise(ends.tolist()):
            if a < b:
                self._level(_Steps(send[a:b], steps.source[a:b], steps.target[a:b]), adds[a:b])
        for t in self._terms:
            for member in range(t.shape.n):
                self._check_end(t, member)

    def _level(self, steps: _Steps, adds: NDArray[np.bool_]) -> None:
        members, origin = self._members[steps.source], self._origin[steps.source]
        if (origin == _NOTHING).any():
            self._refuse_empty(steps, int(np.argmax(origin == _NOTHING)))
        if not adds.all():
            copied = steps.target[~adds]
            self._members[copied], self._origin[copied] = members[~adds], origin[~adds]
        left = np.flatnonzero(adds)
        while len(left):
            # Of several into one place the first: the last assignment stays.
            self._turn[steps.target[left][::-1]] = left[::-1]
            goes = self._turn[steps.target[left]] == left
            self._add(steps, left[goes], members[left[goes]], origin[left[goes]])
            left = left[~goes]

    def _add(self, steps: _Steps, entry: Longs, members: Words, origin: NDArray[np.int32]) -> None:
        target = steps.target[entry]
        there, was = self._members[target], self._origin[target]
        other = (was != _NOTHING) & (was != origin)
        if other.any():
            i = int(np.argmax(other))
            name, rank, chunk = self._target_of(steps, int(entry[i]))
            raise TrafficError(
                f"send {name} adds chunk {origin[i]} to chunk {chunk} at rank {rank}, which holds chunk {was[i]}"
            )
        if (members & there).any():
            i = int(np.argmax((members & there).any(axis=1)))
            name, rank, chunk = self._target_of(steps, int(entry[i]))
            raise TrafficError(
                f"send {name} adds to chunk {chunk} at rank {rank} what is in it already: "
                f"the contributions of {self._ranks(members[i] & there[i], int(origin[i]))}"
            )
        self._members[target], self._origin[target] = there | members, origin

    # -- the end ------------------------------------------------------------------------------------------------------

    def _check_end(self, t: Terms, member: int) -> None:
        rank, first = t.part.ranks[member], t.part.first_chunk
        wanted, chunk = t.after(member)
        asked = np.flatnonzero(wanted != ANYTHING)
        at = self._number[rank * self._s.n_chunks + first : rank * self._s.n_chunks + first + t.shape.k][asked]
        wanted, origin = wanted[asked], first + chunk[asked]
        masks = np.zeros((len(asked), self._members.shape[1]), dtype=np.uint64)
        masks[wanted == ALL] = _all(t.shape.n, self._members.shape[1])
        one = np.flatnonzero(wanted != ALL)
        masks[one, wanted[one] // _WORD_BITS] = np.left_shift(
            np.uint64(1), (wanted[one] % _WORD_BITS).astype(np.uint64)
        )
        bad = (self._origin[at] != origin) | (self._members[at] != masks).any(axis=1)
        if bad.any():
            i = int(np.argmax(bad))
            self._refuse_end(rank, first + int(asked[i]), int(at[i]), int(origin[i]), masks[i])

    def _refuse_end(self, rank: int, chunk: int, at: int, origin: int, mask: Words) -> None:
        got, held = self._members[at], int(self._origin[at])
        if held not in (_NOTHING, origin):
            wrong = [f"holds chunk {held} of {self._ranks(got, held)} where chunk {origin} belongs,"]
        else:
            lacks, extra = mask & ~got, got & ~mask
            wrong = [f"lacks the contributions of {self._ranks(lacks, origin)}"] if lacks.any() else []
            wrong += [f"has the contributions of {self._ranks(extra, origin)} too many"] if extra.any() else []
        raise TrafficError(
            f"in the end rank {rank} {' and '.join(wrong)} in chunk {chunk}; {_last_writer(self._s, rank, chunk)}"
        )

    # -- words --------------------------------------------------------------------------------------------------------

    def _refuse_empty(self, steps: _Steps, i: int) -> None:
        send = int(steps.send[i])
        chunk = int(self._s.first_chunk[send]) + _step_of(steps, i)
        raise TrafficError(
            f"send {self._s.name_of(send)}: rank {self._s.src[send]} holds nothing of chunk {chunk} then"
        )

    def _target_of(self, steps: _Steps, i: int) -> tuple[str, int, int]:
        """The name of an entry's send, and the rank and the chunk that it goes into."""
        send = int(steps.send[i])
        return self._s.name_of(send), int(self._s.dst[send]), int(self._s.dst_chunk[send]) + _step_of(steps, i)

    def _ranks(self, members: Words, origin: int) -> str:
        """'rank 3' or 'ranks 0, 2, 3, 5 and 11 more': members of the collective that the input chunk belongs to."""
        ranks = [_part_of(self._terms, origin).ranks[m] for m in _members_in(members)]
        more = f" and {len(ranks) - 4} more" if len(ranks) > 4 else ""
        return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks[:4])) + more


def _places(s: Schedule, rank: NDArray[np.int32], first: NDArray[np.int32], sends: Longs) -> Longs:
    """The places of the sends' chunks, send by send."""
    return ranges(rank[sends].astype(np.int64) * s.n_chunks + first[sends], s.n_chunks_sent[sends])


def _step_of(steps: _Steps, i: int) -> int:
    """Which of its send's chunks an entry is."""
    return i - int(np.argmax(steps.send == steps.send[i]))


def _bit(member: int) -> np.uint64:
    return np.uint64(1 << member % _WORD_BITS)


def _all(n: int, n_words: int) -> Words:
    bits = np.arange(n_words * _WORD_BITS) < n
    return np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64)


def _members_in(words: Words) -> list[int]:
    members: list[int] = np.flatnonzero(np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")).tolist()
    return members


def _part_of(all_terms: Sequence[Terms], chunk: int) -> Part:
    return next(t.part for t in all_terms if 0 <= chunk - t.part.first_chunk < t.part.n_chunks)


def _last_writer(s: Schedule, rank: int, chunk: int) -> str:
    covers = (s.dst_chunk <= chunk) & (chunk < s.dst_chunk + s.n_chunks_sent)
    writers = np.flatnonzero((s.dst == rank) & covers)
    return f"the last send into it is {s.name_of(int(writers[-1]))}" if len(writers) else "no send goes into it"
