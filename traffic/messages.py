"""Messages that make no collective known here, such as a trace's: who sends how much to whom, and after what.

Each message has a chunk of its own at both of its ends, which no other message touches, so what arrives can be told apart
and nothing is overwritten, whatever the network does. Chunks are as large as the messages: (n_ranks, n_chunks).
"""

from collections.abc import Sequence

import numpy as np

from traffic.conventions import ELEMENT_BYTES
from traffic.errors import TrafficError
from traffic.pattern import own_chunks
from traffic.pattern_check import MESSAGES
from traffic.schedule import Schedule, ScheduleBuilder

# A rank's messages, all of which are looked at for each; and chunks of all ranks together, whose sizes are kept.
MAX_PER_RANK = 1 << 16
MAX_CHUNKS = 1 << 24


class MessageBuilder:
    """Collects messages one by one; `send` and `calc` return their number, for others to depend on."""

    def __init__(self, algorithm: str, n_ranks: int) -> None:
        self._algorithm, self._n_ranks = algorithm, n_ranks
        # src, dst, bytes, channel, after; of computing src == dst, and nanoseconds.
        self._operations: list[tuple[int, int, int, int, Sequence[int]]] = []

    def send(self, src: int, dst: int, n_bytes: int, *, after: Sequence[int] = (), channel: int = 0) -> int:
        """A message to another rank; its bytes are rounded up to whole elements."""
        self._operations.append((src, dst, n_bytes, channel, after))
        return len(self._operations) - 1

    def calc(self, rank: int, calc_ns: int, *, after: Sequence[int] = ()) -> int:
        """The rank computes; 0 ns: one operation to wait for in place of many."""
        self._operations.append((rank, rank, calc_ns, 0, after))
        return len(self._operations) - 1

    def build(self) -> Schedule:
        """Raises TrafficError for waits for later operations, and for more messages at a rank than there is room for."""
        flows = [(src, dst) for src, dst, *_ in self._operations if src != dst]
        self._require_room(flows)
        chunks = own_chunks(flows, self._n_ranks)
        sizes = np.zeros((self._n_ranks, max(chunks, default=-1) + 1), dtype=np.int64)
        builder = ScheduleBuilder(MESSAGES, self._algorithm, self._n_ranks, sizes.shape[1], chunk_elements=sizes)
        chunk_of_flow = iter(chunks)
        for src, dst, amount, channel, after in self._operations:
            if src == dst:
                builder.calc(src, amount, after=after)
                continue
            chunk = next(chunk_of_flow)
            sizes[[src, dst], chunk] = -(-amount // ELEMENT_BYTES)
            builder.send(src, dst, chunk, reduce=False, after=after, channel=channel)
        return builder.build()

    def _require_room(self, flows: Sequence[tuple[int, int]]) -> None:
        """There are fewer chunks than twice the messages of the busiest rank."""
        per_rank = np.bincount(np.array(flows, dtype=np.int64).reshape(-1), minlength=1)
        most = min(MAX_PER_RANK, MAX_CHUNKS // (2 * self._n_ranks))
        if per_rank.max() > most:
            raise TrafficError(
                f"{self._algorithm}: rank {per_rank.argmax()} sends and receives {per_rank.max()} messages: with "
                f"{self._n_ranks} ranks use {most} or fewer at each"
            )
