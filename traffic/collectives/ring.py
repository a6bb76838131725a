"""The ring algorithms: every rank sends to its right neighbour only, one chunk of S/n a step.

Reduce-scatter, step t = 0..n-2: rank r sends chunk (r - t) mod n to r + 1, which adds it; from t = 1 on, that is the chunk
it received in the step before. Afterwards rank r holds the sum of chunk (r + 1) mod n. All-gather passes finished chunks on
in the same way, and as rank r starts it with chunk r + 1, all-reduce is one formula for both halves.
Bandwidth-optimal: 2(n-1)/n S sent per rank (Patarasuk and Yuan, 2009).
"""

import numpy as np

from traffic.schedule import Schedule


def ring_all_reduce(n_ranks: int) -> Schedule:
    """2(n-1) steps, 2n(n-1) sends; the first half reduces."""
    return _pass_around("all_reduce", n_ranks, first_chunk=0, steps=2 * (n_ranks - 1), reducing=n_ranks - 1)


def ring_reduce_scatter(n_ranks: int) -> Schedule:
    """n-1 steps; shifted by one against the all-reduce's first half, so that rank r ends with the sum of chunk r."""
    return _pass_around("reduce_scatter", n_ranks, first_chunk=-1, steps=n_ranks - 1, reducing=n_ranks - 1)


def ring_all_gather(n_ranks: int) -> Schedule:
    """n-1 steps; rank r starts with chunk r."""
    return _pass_around("all_gather", n_ranks, first_chunk=0, steps=n_ranks - 1, reducing=0)


def _pass_around(collective: str, n: int, *, first_chunk: int, steps: int, reducing: int) -> Schedule:
    """Send number t n + r: in step t rank r sends chunk (r + first_chunk - t) mod n; the first `reducing` steps reduce.

    Whole columns at once: 512 ranks have half a million sends.
    """
    m = steps * n
    step, rank = np.divmod(np.arange(m, dtype=np.int32), np.int32(n))
    # What a rank sends in a step is what its left neighbour sent in the step before.
    received = (step - 1) * n + (rank - 1) % n
    waits = step > 0
    return Schedule(
        collective,
        "ring",
        n,
        n,
        src=rank,
        dst=(rank + 1) % n,
        channel=np.zeros(m, dtype=np.int32),
        first_chunk=(rank + first_chunk - step) % n,
        n_chunks_sent=np.ones(m, dtype=np.int32),
        reduce=step < reducing,
        dep_start=np.concatenate(([0], np.cumsum(waits, dtype=np.int64))),
        deps=received[waits],
    )
