"""Where the buffers of an MSCCL program are in ours."""

import numpy as np

from traffic.errors import TrafficError
from traffic.formats.msccl_file import Place, Program, Step
from traffic.formats.source import MAX_CHUNKS, Source


class Buffers:
    """Where the file's buffers are in ours: the collective's chunks, the output apart if there is one, scratch, and from
    `_first_staging` on what has come and is not yet in its place. unit: chunks move within blocks of so many."""

    def __init__(self, source: Source, program: Program) -> None:
        self._source, self._p = source, program
        k, n = program.n_chunks, program.n_gpus
        self.part = k // n
        self.n_data = 2 * k if program.collective == "all_to_all" else k
        self.has_own_output = not program.in_place and program.collective != "all_to_all"
        unit = self.part if program.collective == "all_to_all" else k
        self._first_scratch = self.n_data + (k if self.has_own_output else 0)
        self._first_staging = self._first_scratch + -(-max(program.n_scratch) // unit) * unit
        self._require_room(self._first_staging)
        # Of staging: by gpu and place of a block, how many blocks are in use there.
        self._in_use = np.zeros((program.n_gpus, unit), dtype=np.int64)
        self._block = self.unit = unit
        for block in program.blocks:
            for step in block.steps:
                if step.is_local:
                    self.fit(*(self.chunk(block.gpu, step, place) for place in (step.src, step.dst)))

    def chunk(self, gpu: int, step: Step, place: Place) -> int:
        """Refuses a place outside its buffer."""
        k, collective = self._p.n_chunks, self._p.collective
        own = gpu * self.part
        gathers, scatters = collective == "all_gather", collective == "reduce_scatter"
        sizes = {"i": self.part if gathers else k, "o": self.part if scatters else k, "s": self._p.n_scratch[gpu]}
        if place.offset + step.n_chunks > sizes[place.buffer]:
            raise self._source.refusal(
                step.line,
                f"{place.buffer}[{place.offset}] and {step.n_chunks - 1} more: gpu {gpu} has {sizes[place.buffer]} chunks there",
            )
        if place.buffer == "i":
            return place.offset + (own if gathers else 0)
        if place.buffer == "o":
            apart = self.n_data - k if collective == "all_to_all" else k if self.has_own_output else 0
            return apart + place.offset + (own if scatters else 0)
        return self._first_scratch + place.offset

    def fit(self, src_chunk: int, dst_chunk: int) -> None:
        """Where something comes from and goes to: if the places differ, chunks are all equal."""
        if (src_chunk - dst_chunk) % self.unit:
            self.unit = 1

    def staging(self, gpu: int, chunk: int, n_chunks: int) -> int:
        """Chunks of their own for a message to `chunk`, at the same place of a block."""
        places = chunk % self._block + np.arange(n_chunks)
        block = int((self._in_use[gpu, places % self._block] - places // self._block).max(initial=0))
        self._in_use[gpu, places % self._block] = block + places // self._block + 1
        self._require_room(self.n_chunks)
        return self._first_staging + block * self._block + chunk % self._block

    @property
    def n_chunks(self) -> int:
        return self._first_staging + int(self._in_use.max()) * self._block

    def _require_room(self, n_chunks: int) -> None:
        if n_chunks * self._p.n_gpus > MAX_CHUNKS:
            raise TrafficError(
                f"{self._source.name}: {n_chunks} chunks at each of {self._p.n_gpus} gpus are too many: use {MAX_CHUNKS} or "
                f"fewer in all"
            )
