"""A schedule: who sends which chunks to whom, and what must have arrived before. Data only.

Columns of numpy arrays, so that a million sends fit in tens of megabytes. A send carries a run of consecutive chunks and
is either reduced into what the receiver holds or replaces it. It may start when the sends it depends on have been
received (and reduced) by its sender, or, where they are the sender's own, have left it. Sends of one connection (source,
destination, channel) arrive in the order in which they stand; the channels of one pair of ranks know nothing of each
other.

A send from a rank to itself is a local operation: time spent computing, or chunks copied or added to others, or both. It
"arrives" when it is done. It belongs to no connection, and local operations are in no order but that of their dependencies.

A schedule knows chunks, not bytes: `bounds` cuts buffers of any number of elements into them, so one schedule serves every
size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traffic.chunks import bounds_of, equal_chunks, scaled
from traffic.errors import TrafficError

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
# Source rank, destination rank, channel.
Connection = tuple[int, int, int]


@dataclass(frozen=True)
class Part:
    """A collective in a schedule. ranks: its members, of which `root` is one's place; its buffer is n_chunks chunks from
    first_chunk on."""

    collective: str
    ranks: Sequence[int]
    root: int
    first_chunk: int
    n_chunks: int


@dataclass(frozen=True)
class Schedule:
    """n_ranks ranks, a buffer of n_chunks chunks at each; m sends.

    src, dst, channel, first_chunk, n_chunks_sent: (m,) int32; reduce: (m,) bool; dep_start: (m + 1,) int64 and deps: the
    sends that send i waits for are deps[dep_start[i]:dep_start[i + 1]].
    dst_chunk: (m,) int32, the first chunk that it lands in, by default the one it comes from. calc_ns: (m,) int64, what a
    local operation computes before it is done, in the hardware's time; 0 for sends.

    n_members: ranks 0 .. n_members - 1 take part in the collective; others help, with a buffer of their own. root: of the
    rooted collectives. n_data_chunks: the collective's buffer; chunks from there on are for what is under way. 0 = all.

    The buffer is n_blocks equal blocks, each cut as `cuts` says (chunks.equal_chunks): by default into equal chunks. Chunks
    may go between blocks, from a place to the same place. chunk_elements: instead, each chunk's natural size, (n_chunks,) or
    (n_ranks, n_chunks) int64; a rank's buffer is at most `natural_count` elements then, and is scaled to others.

    composed_of: the collectives of a schedule that has several; n_members, root and n_data_chunks say nothing then.
    """

    collective: str
    algorithm: str
    n_ranks: int
    n_chunks: int
    src: Ints
    dst: Ints
    channel: Ints
    first_chunk: Ints
    n_chunks_sent: Ints
    reduce: NDArray[np.bool_]
    dep_start: Longs
    deps: Ints
    dst_chunk: Ints = None  # type: ignore[assignment]  # given or first_chunk, from the first moment on
    calc_ns: Longs = None  # type: ignore[assignment]  # given or zeros
    n_members: int = 0
    root: int = 0
    n_data_chunks: int = 0
    n_blocks: int = 1
    cuts: tuple[int, ...] = ()
    chunk_elements: Longs | None = None
    composed_of: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        defaults = {
            "dst_chunk": self.first_chunk if self.dst_chunk is None else self.dst_chunk,
            # Zeros that take no memory.
            "calc_ns": np.broadcast_to(np.int64(0), len(self.src)) if self.calc_ns is None else self.calc_ns,
            "n_members": self.n_members or self.n_ranks,
        }
        for name, value in defaults.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.src)

    def deps_of(self, send: int) -> Ints:
        return self.deps[self.dep_start[send] : self.dep_start[send + 1]]

    @property
    def parts(self) -> tuple[Part, ...]:
        """The collectives that it carries out."""
        whole = Part(self.collective, range(self.n_members), self.root, 0, self.n_data_chunks or self.n_chunks)
        return self.composed_of or (whole,)

    # -- names --------------------------------------------------------------------------------------------------------

    def name_of(self, send: int) -> str:
        """'12 (3 -> 4, chunk 2)' or '12 (rank 3, 500 ns)': how messages name a send."""
        return f"{send} ({', '.join((self.ends_of(send), *self._load_of(send)))})"

    def ends_of(self, send: int) -> str:
        src, dst = int(self.src[send]), int(self.dst[send])
        return f"rank {src}" if src == dst else connection_name((src, dst, int(self.channel[send])))

    def _load_of(self, send: int) -> list[str]:
        first, to, n = (int(c[send]) for c in (self.first_chunk, self.dst_chunk, self.n_chunks_sent))
        is_local = self.src[send] == self.dst[send]
        load = [f"{self.calc_ns[send]} ns"] if self.calc_ns[send] or (is_local and not n) else []
        if n or not is_local:
            load.append(_run(first, n) + ("" if to == first else f" into {_run(to, n)}"))
        return load

    # -- connections --------------------------------------------------------------------------------------------------

    @property
    def is_local(self) -> NDArray[np.bool_]:
        """(m,) whether each is an operation of one rank alone."""
        local: NDArray[np.bool_] = self.src == self.dst
        return local

    @property
    def waiting(self) -> Longs:
        """(len(deps),) the send that waits, for each entry of `deps`."""
        return np.repeat(np.arange(len(self)), np.diff(self.dep_start))

    @property
    def waits_to_leave(self) -> NDArray[np.bool_]:
        """(len(deps),) whether what is waited for is a send of the rank's own: it must have left, not arrived."""
        own: NDArray[np.bool_] = self.dst[self.deps] != self.src[self.waiting]
        return own

    @property
    def connections(self) -> list[Connection]:
        """Those in use, sorted."""
        used = np.flatnonzero(~self.is_local)
        first = used[np.unique(self._connection_codes()[used], return_index=True)[1]]
        return list(zip(*(c[first].tolist() for c in (self.src, self.dst, self.channel)), strict=True))

    @property
    def connection(self) -> Longs:
        """(m,) the place of each send's connection in `connections`; -1 for local operations."""
        numbers, is_send = np.full(len(self), -1), ~self.is_local
        numbers[is_send] = np.unique(self._connection_codes()[is_send], return_inverse=True)[1]
        return numbers

    def _connection_codes(self) -> Longs:
        """(m,) numbers that sort as (source, destination, channel) do."""
        n_channels = int(self.channel.max(initial=0)) + 1
        return (self.src.astype(np.int64) * self.n_ranks + self.dst) * n_channels + self.channel

    # -- elements -----------------------------------------------------------------------------------------------------

    @property
    def natural_count(self) -> int | None:
        """Elements of the largest rank's buffer as chunk_elements has it; None for equal chunks."""
        return None if self.chunk_elements is None else int(np.sum(self.chunk_elements, axis=-1).max(initial=0))

    def bounds(self, count: int) -> Longs:
        """(1 or n_ranks, n_chunks + 1) where each chunk begins in a buffer of `count` elements, one row if all ranks' are
        alike. The last is where the last chunk ends."""
        if self.chunk_elements is None:
            cuts = self.cuts or (self.n_chunks // self.n_blocks,)
            return bounds_of(equal_chunks(count, self.n_blocks, cuts))[None]
        return bounds_of(scaled(np.atleast_2d(self.chunk_elements), count))

    def places(self, count: int) -> tuple[Longs, Longs, Longs]:
        """(m,) each: the element that a send's chunks begin at, that they begin at where they land, and how many there are."""
        bounds = self.bounds(count)
        at_src, at_dst = (self.src, self.dst) if len(bounds) > 1 else (0, 0)
        first = bounds[at_src, self.first_chunk]
        lands = first if self.dst_chunk is self.first_chunk and len(bounds) == 1 else bounds[at_dst, self.dst_chunk]
        return first, lands, bounds[at_src, self.first_chunk + self.n_chunks_sent] - first

    def elements(self, count: int) -> Longs:
        """(m,) elements that each send puts on the wire when the buffer has `count`; none for local operations."""
        return np.where(self.is_local, 0, self.places(count)[2])

    def sent_per_rank(self, count: int) -> Longs:
        """(n_ranks,) elements that each rank puts on the wire."""
        return np.bincount(self.src, self.elements(count), self.n_ranks).astype(np.int64)

    def received_per_rank(self, count: int) -> Longs:
        """(n_ranks,) elements that each rank takes off the wire."""
        return np.bincount(self.dst, self.elements(count), self.n_ranks).astype(np.int64)


def connection_name(connection: Connection) -> str:
    """'3 -> 4', or '3 -> 4 channel 1': a pair's first channel is its only one more often than not."""
    src, dst, channel = connection
    return f"{src} -> {dst}" + (f" channel {channel}" if channel else "")


def _run(first: int, n: int) -> str:
    return f"chunk {first}" if n == 1 else f"chunks {first} to {first + n - 1}"


class ScheduleBuilder:
    """Collects sends one by one; `send` and `calc` return their number, for others to depend on. The keywords are
    Schedule's: n_members, root, n_data_chunks, n_blocks, cuts, chunk_elements."""

    def __init__(  # noqa: PLR0913 (what a Schedule says of its buffer, by name)
        self,
        collective: str,
        algorithm: str,
        n_ranks: int,
        n_chunks: int,
        *,
        n_members: int = 0,
        root: int = 0,
        n_data_chunks: int = 0,
        n_blocks: int = 1,
        cuts: tuple[int, ...] = (),
        chunk_elements: Longs | None = None,
    ) -> None:
        self._identity = (collective, algorithm, n_ranks, n_chunks)
        self._buffer = (n_members, root, n_data_chunks, n_blocks, cuts, chunk_elements)
        self._sends: list[tuple[int, int, int, int, int, bool, int, int]] = []
        self._deps: list[int] = []
        self._dep_start = [0]

    def __len__(self) -> int:
        return len(self._sends)

    def send(
        self,
        src: int,
        dst: int,
        chunk: int,
        *,
        reduce: bool,
        after: Sequence[int] = (),
        n_chunks: int = 1,
        channel: int = 0,
        dst_chunk: int | None = None,
        calc_ns: int = 0,
    ) -> int:
        """src == dst: a local copy or addition, after calc_ns of computing."""
        number = len(self._sends)
        if any(not 0 <= a < number for a in after):
            raise TrafficError(f"send {number} waits for {list(after)}: a send can wait for earlier ones only")
        lands = chunk if dst_chunk is None else dst_chunk
        self._sends.append((src, dst, channel, chunk, n_chunks, reduce, lands, calc_ns))
        self._deps.extend(after)
        self._dep_start.append(len(self._deps))
        return number

    def calc(self, rank: int, calc_ns: int, *, after: Sequence[int] = ()) -> int:
        """The rank computes for calc_ns of the hardware's time; 0: one operation to wait for in place of many."""
        return self.send(rank, rank, 0, reduce=False, after=after, n_chunks=0, calc_ns=calc_ns)

    def build(self) -> Schedule:
        columns = list(zip(*self._sends, strict=True)) or [()] * 8
        src, dst, channel, first, length, lands = (np.array(columns[c], dtype=np.int32) for c in (0, 1, 2, 3, 4, 6))
        n_members, root, n_data_chunks, n_blocks, cuts, chunk_elements = self._buffer
        return Schedule(
            *self._identity,
            src=src,
            dst=dst,
            channel=channel,
            first_chunk=first,
            n_chunks_sent=length,
            reduce=np.array(columns[5], dtype=np.bool_),
            dep_start=np.array(self._dep_start, dtype=np.int64),
            deps=np.array(self._deps, dtype=np.int32),
            dst_chunk=lands,
            calc_ns=np.array(columns[7], dtype=np.int64),
            n_members=n_members,
            root=root,
            n_data_chunks=n_data_chunks,
            n_blocks=n_blocks,
            cuts=cuts,
            chunk_elements=chunk_elements,
        )
