"""A plan as one schedule, which the check proves and the replay runs; and a run's operations back as the plan's times.

Kinds of messages that may be under way at one time between the same two ranks have channels of their own, as they have
communicators of their own in NCCL: each axis and collective. Everything of one kind is sent in the plan's order.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traffic.compose import Composer
from traffic.contracts import buffer_ratio
from traffic.conventions import buffer_elements
from traffic.errors import TrafficError
from traffic.schedule import Schedule, ScheduleBuilder
from traffic.workloads.plan import CALC, Phase, Plan
from traffic.workloads.timing import Floats, Times

# The schedule of a collective among these ranks, which are its ranks 0, 1, ...
Algorithm = Callable[[str, tuple[int, ...]], Schedule]


@dataclass(frozen=True)
class PlannedSchedule:
    """phase: (m,) of the plan that each of the schedule's operations belongs to."""

    schedule: Schedule
    phase: NDArray[np.int32]


def planned_schedule(plan: Plan, calc_s: Sequence[Floats], algorithm: Algorithm, name: str = "step") -> PlannedSchedule:
    """calc_s: as of timing.calc_seconds. Raises TrafficError for a collective that its algorithm does not do."""
    composer = Composer("workload", name, plan.n_ranks)
    schedules = _Schedules(algorithm)
    first_channels = _first_channels(plan, schedules)
    # Per phase and rank, the operation after which the rank's part is done.
    done: list[Mapping[int, int]] = []
    n_operations = []
    for number, phase in enumerate(plan.phases):
        before = len(composer)
        ended: dict[int, int] = {}
        for column, group in enumerate(phase.groups.tolist()):
            begins = {rank: _begin(composer, rank, phase, done) for rank in group}
            after = {rank: begin for rank, begin in begins.items() if begin is not None}
            if phase.operation == CALC:
                (rank,) = group
                calc_ns = round(calc_s[number][column] * 1e9)
                ended[rank] = composer.calc(rank, calc_ns, list(after.values()))
            else:
                made = schedules.of(phase, tuple(group))
                ended |= composer.place(made, _count(phase, made), group, after, first_channels[_kind(phase)])
        done.append(ended)
        n_operations.append(len(composer) - before)
    return PlannedSchedule(composer.build(), np.repeat(np.arange(len(plan), dtype=np.int32), n_operations))


def measured_times(planned: PlannedSchedule, started_ns: NDArray[np.int64], finished_ns: NDArray[np.int64]) -> Times:
    """(m,) of a run, in the hardware's time. A rank is busy with its part of a phase from the first of its operations there
    to the last; sending and receiving count alike."""
    s = planned.schedule
    ranks = np.concatenate((s.src, s.dst))
    phases = np.concatenate((planned.phase, planned.phase)).astype(np.int64)
    rows, row = np.unique(phases * s.n_ranks + ranks, return_inverse=True)
    start = np.full(len(rows), np.iinfo(np.int64).max)
    end = np.zeros(len(rows), dtype=np.int64)
    np.minimum.at(start, row, np.tile(started_ns, 2))
    np.maximum.at(end, row, np.tile(finished_ns, 2))
    numbers, of_rank = np.divmod(rows, s.n_ranks)
    return Times(numbers, of_rank.astype(np.int32), start / 1e9, end / 1e9)


class _Schedules:
    """Each group's, made once."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        self._made: dict[tuple[str, tuple[int, ...]], Schedule] = {}

    def of(self, phase: Phase, group: tuple[int, ...]) -> Schedule:
        key = (phase.operation, group)
        if key not in self._made:
            made = _one_way() if phase.operation == "sendrecv" else self._algorithm(*key)
            if made.n_ranks != len(group):
                raise TrafficError(
                    f"{made.algorithm} of {phase.operation} needs {made.n_ranks - len(group)} helpers beside its "
                    f"{len(group)} ranks, and a training step has none: choose another algorithm"
                )
            self._made[key] = made
        return self._made[key]


def _one_way() -> Schedule:
    """From the first of two ranks to the second; nccl-tests' sendrecv would go both ways."""
    builder = ScheduleBuilder("broadcast", "direct", 2, 1)
    builder.send(0, 1, 0, reduce=False)
    return builder.build()


def _kind(phase: Phase) -> tuple[str, str]:
    return phase.axis, phase.operation


def _first_channels(plan: Plan, schedules: _Schedules) -> dict[tuple[str, str], int]:
    """By kind of message, behind all channels of the kinds before it."""
    n_channels: dict[tuple[str, str], int] = {}
    for phase in plan.messages():
        for group in phase.groups.tolist():
            used = int(schedules.of(phase, tuple(group)).channel.max(initial=0)) + 1
            n_channels[_kind(phase)] = max(used, n_channels.get(_kind(phase), 0))
    firsts = np.cumsum([0, *n_channels.values()]).tolist()
    return dict(zip(n_channels, firsts, strict=False))


def _count(phase: Phase, schedule: Schedule) -> int:
    """Elements of the whole buffer: an all-to-all has its output apart, some algorithms room for what is under way."""
    elements = buffer_elements(phase.operation, phase.n_bytes, phase.groups.shape[1])
    return math.ceil(elements * buffer_ratio(schedule))


def _begin(composer: Composer, rank: int, phase: Phase, done: Sequence[Mapping[int, int]]) -> int | None:
    """What the rank waits for, as one operation."""
    waits = dict.fromkeys(done[earlier][rank] for earlier in phase.after if rank in done[earlier])
    return composer.join(rank, list(waits)) if waits else None
