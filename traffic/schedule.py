"""A schedule: who sends which chunks to whom, and what must have arrived before. Data only.

Columns of numpy arrays, so that a million sends fit in tens of megabytes. A send carries a run of consecutive chunks and
is either reduced into what the receiver holds or replaces it. It may start when the sends it depends on have been
received (and reduced) by its sender. Sends of one connection (source, destination, channel) arrive in the order in which
they stand; the channels of one pair of ranks know nothing of each other.

A schedule knows chunks, not bytes: `chunk_bounds` cuts a buffer of any number of elements into them, so one schedule
serves every size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traffic.errors import TrafficError

Ints = NDArray[np.int32]
# Source rank, destination rank, channel.
Connection = tuple[int, int, int]


@dataclass(frozen=True)
class Schedule:
    """n_ranks ranks, a buffer of n_chunks chunks at each; m sends.

    src, dst, channel, first_chunk, n_chunks_sent: (m,) int32; reduce: (m,) bool; dep_start: (m + 1,) int64 and deps: the
    sends that send i waits for are deps[dep_start[i]:dep_start[i + 1]].
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
    dep_start: NDArray[np.int64]
    deps: Ints

    def __len__(self) -> int:
        return len(self.src)

    def deps_of(self, send: int) -> Ints:
        return self.deps[self.dep_start[send] : self.dep_start[send + 1]]

    def name_of(self, send: int) -> str:
        """'12 (3 -> 4, chunk 2)': how messages name a send."""
        first, n = int(self.first_chunk[send]), int(self.n_chunks_sent[send])
        chunks = f"chunk {first}" if n == 1 else f"chunks {first} to {first + n - 1}"
        ends = connection_name((int(self.src[send]), int(self.dst[send]), int(self.channel[send])))
        return f"{send} ({ends}, {chunks})"

    @property
    def connections(self) -> list[Connection]:
        """Those in use, sorted."""
        _, first = np.unique(self._connection_codes(), return_index=True)
        return list(zip(*(c[first].tolist() for c in (self.src, self.dst, self.channel)), strict=True))

    @property
    def connection(self) -> NDArray[np.int64]:
        """(m,) the place of each send's connection in `connections`."""
        numbers: NDArray[np.int64] = np.unique(self._connection_codes(), return_inverse=True)[1]
        return numbers

    def _connection_codes(self) -> NDArray[np.int64]:
        """(m,) numbers that sort as (source, destination, channel) do."""
        n_channels = int(self.channel.max(initial=0)) + 1
        return (self.src.astype(np.int64) * self.n_ranks + self.dst) * n_channels + self.channel

    def elements(self, count: int) -> NDArray[np.int64]:
        """(m,) elements that each send carries when the buffer has `count`."""
        bounds = chunk_bounds(count, self.n_chunks)
        sent: NDArray[np.int64] = bounds[self.first_chunk + self.n_chunks_sent] - bounds[self.first_chunk]
        return sent

    def sent_per_rank(self, count: int) -> NDArray[np.int64]:
        """(n_ranks,) elements that each rank puts on the wire."""
        return np.bincount(self.src, self.elements(count), self.n_ranks).astype(np.int64)

    def received_per_rank(self, count: int) -> NDArray[np.int64]:
        """(n_ranks,) elements that each rank takes off the wire."""
        return np.bincount(self.dst, self.elements(count), self.n_ranks).astype(np.int64)


def connection_name(connection: Connection) -> str:
    """'3 -> 4', or '3 -> 4 channel 1': a pair's first channel is its only one more often than not."""
    src, dst, channel = connection
    return f"{src} -> {dst}" + (f" channel {channel}" if channel else "")


def chunk_bounds(count: int, n_chunks: int) -> NDArray[np.int64]:
    """(n_chunks + 1,) element offsets: the first `count mod n_chunks` chunks get one element more."""
    if n_chunks == 0:
        return np.zeros(1, dtype=np.int64)
    size, extra = divmod(count, n_chunks)
    sizes = np.full(n_chunks, size, dtype=np.int64)
    sizes[:extra] += 1
    return np.concatenate(([0], np.cumsum(sizes)))


class ScheduleBuilder:
    """Collects sends one by one; `send` returns the send's number, for others to depend on."""

    def __init__(self, collective: str, algorithm: str, n_ranks: int, n_chunks: int) -> None:
        self._identity = (collective, algorithm, n_ranks, n_chunks)
        self._sends: list[tuple[int, int, int, int, int, bool]] = []
        self._deps: list[int] = []
        self._dep_start = [0]

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
    ) -> int:
        number = len(self._sends)
        if any(not 0 <= a < number for a in after):
            raise TrafficError(f"send {number} waits for {list(after)}: a send can wait for earlier ones only")
        self._sends.append((src, dst, channel, chunk, n_chunks, reduce))
        self._deps.extend(after)
        self._dep_start.append(len(self._deps))
        return number

    def build(self) -> Schedule:
        columns = list(zip(*self._sends, strict=True)) or [()] * 6
        src, dst, channel, first, length = (np.array(c, dtype=np.int32) for c in columns[:5])
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
        )
