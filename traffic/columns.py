"""Builds a schedule by columns: many sends in one call, for schedules of a million of them."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from traffic.errors import TrafficError
from traffic.schedule import Schedule

Numbers = NDArray[np.int64]
# In `after`: waits for nothing.
NONE = -1


class ColumnBuilder:
    """Collects blocks of sends; `sends` and `joins` return the numbers of a block's, for others to depend on. The keywords
    are Schedule's."""

    def __init__(
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
        chunk_elements: Numbers | None = None,
    ) -> None:
        self._identity = (collective, algorithm, n_ranks, n_chunks)
        self._members = (n_members, root)
        self._buffer = (n_data_chunks, n_blocks, chunk_elements)
        self.n_chunks = n_chunks
        self._length = 0
        # src, dst, channel, first_chunk, n_chunks_sent, reduce, dst_chunk.
        self._columns = [[np.zeros(0, dtype=np.int32)] for _ in range(7)]
        self._deps = [np.zeros(0, dtype=np.int32)]
        self._n_deps = [np.zeros(1, dtype=np.int64)]

    def sends(
        self,
        src: ArrayLike,
        dst: ArrayLike,
        chunk: ArrayLike,
        *,
        reduce: bool,
        dst_chunk: ArrayLike | None = None,
        after: ArrayLike | None = None,
        n_chunks: ArrayLike = 1,
        channel: ArrayLike = 0,
    ) -> Numbers:
        """Sends of the common shape that the arguments broadcast to, in C order; returns their numbers in that shape.

        src == dst: local copies or additions. after: that shape and one axis more, the numbers of earlier sends, NONE for
        none.
        """
        lands = chunk if dst_chunk is None else dst_chunk
        columns = np.broadcast_arrays(src, dst, channel, chunk, n_chunks, reduce, lands)
        shape, m = columns[0].shape, columns[0].size
        waits = np.full((*shape, 0), NONE) if after is None else np.asarray(after)
        waits = np.broadcast_to(waits, (*shape, waits.shape[-1])).reshape(m, waits.shape[-1])
        if waits.max(initial=NONE) >= self._length:
            raise TrafficError(f"a send waits for send {waits.max()}: a send can wait for earlier ones only")
        for column, values in zip(self._columns, columns, strict=True):
            column.append(values.reshape(-1).astype(np.int32))
        self._deps.append(waits[waits != NONE].astype(np.int32))
        self._n_deps.append((waits != NONE).sum(axis=1))
        first, self._length = self._length, self._length + m
        return np.arange(first, self._length).reshape(shape)

    def joins(self, ranks: ArrayLike, after: ArrayLike) -> Numbers:
        """At each rank one operation to wait for in place of many; after: as in `sends`."""
        return self.sends(ranks, ranks, 0, reduce=False, n_chunks=0, after=after)

    def build(self) -> Schedule:
        src, dst, channel, first, length, reduce, lands = (np.concatenate(c) for c in self._columns)
        n_members, root = self._members
        n_data_chunks, n_blocks, chunk_elements = self._buffer
        return Schedule(
            *self._identity,
            src=src,
            dst=dst,
            channel=channel,
            first_chunk=first,
            n_chunks_sent=length,
            reduce=reduce.astype(np.bool_),
            dep_start=np.cumsum(np.concatenate(self._n_deps), dtype=np.int64),
            deps=np.concatenate(self._deps),
            dst_chunk=lands,
            n_members=n_members,
            root=root,
            n_data_chunks=n_data_chunks,
            n_blocks=n_blocks,
            chunk_elements=chunk_elements,
        )
