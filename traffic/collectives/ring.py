"""The ring algorithms: every rank sends to its right neighbour only, one chunk of S/n a step.

Reduce-scatter, step t = 0..n-2: rank r sends chunk (r - t) mod n to r + 1, which adds it; from t = 1 on, that is the chunk
it received in the step before. Afterwards rank r holds the sum of chunk (r + 1) mod n. All-gather passes finished chunks on
in the same way; all-reduce is one after the other. Bandwidth-optimal: 2(n-1)/n S sent per rank (Patarasuk and Yuan, 2009).
"""

from traffic.schedule import Schedule, ScheduleBuilder


def ring_all_reduce(n_ranks: int) -> Schedule:
    """2(n-1) steps, 2n(n-1) sends."""
    schedule = ScheduleBuilder("all_reduce", "ring", n_ranks, n_ranks)
    last = _pass_around(schedule, n_ranks, first_chunk=0, reduce=True, before=None)
    _pass_around(schedule, n_ranks, first_chunk=1, reduce=False, before=last)
    return schedule.build()


def ring_reduce_scatter(n_ranks: int) -> Schedule:
    """n-1 steps; shifted by one against the all-reduce's first half, so that rank r ends with the sum of chunk r."""
    schedule = ScheduleBuilder("reduce_scatter", "ring", n_ranks, n_ranks)
    _pass_around(schedule, n_ranks, first_chunk=-1, reduce=True, before=None)
    return schedule.build()


def ring_all_gather(n_ranks: int) -> Schedule:
    """n-1 steps; rank r starts with chunk r."""
    schedule = ScheduleBuilder("all_gather", "ring", n_ranks, n_ranks)
    _pass_around(schedule, n_ranks, first_chunk=0, reduce=False, before=None)
    return schedule.build()


def _pass_around(
    schedule: ScheduleBuilder, n: int, *, first_chunk: int, reduce: bool, before: list[int] | None
) -> list[int] | None:
    """n-1 steps round the ring; in step t rank r sends chunk (r + first_chunk - t) mod n. Returns the last step's sends."""
    for t in range(n - 1):
        step = []
        for r in range(n):
            after = () if before is None else (before[(r - 1) % n],)
            step.append(schedule.send(r, (r + 1) % n, (r + first_chunk - t) % n, reduce=reduce, after=after))
        before = step
    return before
