"""Training steps as an experiment's traffic: what the settings say, the schedule on the ranks there are, a run's figures."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.errors import LabError
from lab.planning.experiment import Experiment
from lab.planning.interfaces import Interfaces
from topologies.topology import parse_parameters
from topologies.units import format_duration
from traffic.conventions import bus_factor
from traffic.workloads.models import Model, parse_model, training_flops
from traffic.workloads.plan import Phase, Plan, side_by_side
from traffic.workloads.planned import Algorithm, PlannedSchedule, measured_times, planned_schedule
from traffic.workloads.report import StepReport, mfu, step_report
from traffic.workloads.split import Split, check_ranks
from traffic.workloads.step import training_step
from traffic.workloads.timing import Device, Floats, Times, calc_seconds, play, stragglers
from traffic.workloads.training import Training

Longs = NDArray[np.int64]
# Of a step, of one kind: each is some 100 us and 1 kB while the schedule is made.
MAX_OPERATIONS = 500_000
# No run comes to its end; its nanoseconds still fit 64 bits when they are dilated.
_MAX_STEP_S = 1e6
# As of -e.
_MAX_BYTES = 2**50
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True)
class Stragglers:
    """ranks: how many are slower, drawn at random; by a factor, and by a delay once a step."""

    ranks: int = 0
    factor: float = 1.0
    delay_us: float = 0.0


@dataclass(frozen=True)
class Workload:
    """`jobs` jobs of one kind, each on the ranks behind the job before. step: of one job; steps: of all; calc_s: as of
    timing.calc_seconds, in the hardware's time; model_flops: of one job's step, without what is recomputed."""

    name: str
    step: Plan
    jobs: int
    steps: Plan
    device: Device
    calc_s: Sequence[Floats]
    planned: PlannedSchedule
    model_flops: float

    @cached_property
    def computing_s(self) -> float:
        """A step on a network that takes no time: calculations, and what waits for them."""
        return play(self.steps, self.calc_s, lambda phase: 0.0).iteration_s

    def played_s(self, at: Interfaces) -> float:
        """A step on the ranks' interfaces at their full rates, were each message alone."""
        return play(self.steps, self.calc_s, lambda phase: _message_s(phase, at)).iteration_s

    def reports(self, started_ns: Longs, finished_ns: Longs) -> list[StepReport]:
        """Each job's figures. started_ns, finished_ns: (operations,) in the hardware's time."""
        times = measured_times(self.planned, started_ns, finished_ns)
        return [step_report(self.step, self._of_job(times, job), self.device) for job in range(self.jobs)]

    def mfu(self, iteration_s: float) -> float:
        return mfu(self.model_flops, iteration_s, self.step.n_ranks, self.device)

    def _of_job(self, times: Times, job: int) -> Times:
        mine = times.rank // self.step.n_ranks == job
        first_phase, first_rank = job * len(self.step), job * self.step.n_ranks
        return Times(
            times.phase[mine] - first_phase, times.rank[mine] - first_rank, times.start_s[mine], times.end_s[mine]
        )


def workload(e: Experiment, n_ranks: int, algorithm: Algorithm) -> Workload:
    """Of an experiment that has one. algorithm: the schedule of a collective among some of the ranks.

    Raises, as topologies.Refused, for what cannot be: unknown names, a split that the model or the ranks do not allow.
    """
    assert e.workload is not None
    model, training = parse_model(e.workload), _training(e.training)
    device = Device(e.device_flops_s, e.efficiency)
    split = _split(e, n_ranks)
    _require_countable(model, split, training, e.jobs)
    step = training_step(model, split, training)
    each = split.n_ranks
    steps = side_by_side([(step, range(job * each, (job + 1) * each)) for job in range(e.jobs)], n_ranks)
    slow = Stragglers(**parse_parameters(Stragglers, e.stragglers, "stragglers"))
    slowness = stragglers(n_ranks, slow.ranks, factor=slow.factor, delay_s=slow.delay_us * 1e-6, seed=e.seed)
    calc_s = calc_seconds(steps, device, slowness)
    computing_s = play(steps, calc_s, lambda phase: 0.0).iteration_s
    if not computing_s <= _MAX_STEP_S:
        raise LabError(
            f"a step of {computing_s:g} s of computing is more than {_MAX_STEP_S:g} s: use a smaller model, fewer or smaller "
            "microbatches or delays of stragglers, or a higher --device-flops or --efficiency"
        )
    if next(steps.messages(), None) is None:
        raise LabError(f"workload {e.workload!r} on one rank each sends nothing: use a --split over several ranks")
    planned = planned_schedule(steps, calc_s, algorithm, _name(e, split))
    return Workload(
        e.workload, step, e.jobs, steps, device, calc_s, planned, training_flops(model, _tokens(model, split, training))
    )


def _require_countable(model: Model, split: Split, training: Training, jobs: int) -> None:
    """Before a phase is made of each pass and message."""
    ranks, per_stage = split.n_ranks * jobs, split.n_ranks // split.pp * jobs
    passes = 2 * model.layers * training.microbatches * per_stage
    if passes > MAX_OPERATIONS:
        raise LabError(
            f"{model.layers} layers x {training.microbatches} microbatches on {ranks} ranks are {passes} passes through a "
            f"layer, more than the {MAX_OPERATIONS} of a step: use fewer layers, microbatches or ranks"
        )
    buckets = model.parameters // (training.bucket_parameters or model.parameters) * per_stage // split.tp
    if buckets > MAX_OPERATIONS:
        raise LabError(
            f"bucket_parameters={training.bucket_parameters} makes {buckets} messages of gradients, more than the "
            f"{MAX_OPERATIONS} of a step: use larger ones"
        )
    activations = model.sequence * training.microbatch_size * model.hidden * training.element_bytes
    largest = max(model.parameters * training.gradient_bytes, activations)
    if largest > _MAX_BYTES:
        raise LabError(
            f"gradients or activations of {largest} bytes are more than any collective sends (1024TiB): use a smaller model "
            "or microbatch_size"
        )


def mean_report(reports: Sequence[StepReport]) -> StepReport:
    """Figure by figure."""
    return StepReport(**{f.name: fmean(getattr(report, f.name) for report in reports) for f in fields(StepReport)})


def step_columns(jobs: Sequence[StepReport], of: Workload | None) -> dict[str, Any]:
    """The columns of a row that a step has, means over its jobs; none without jobs."""
    if not jobs or of is None:
        return {}
    mean = mean_report(jobs)
    names = ("calc_s", "communication_s", "exposed_s", "bubble", "parallel_efficiency")
    return {name: getattr(mean, name) for name in names} | {"mfu": fmean(of.mfu(job.iteration_s) for job in jobs)}


def step_lines(jobs: Sequence[StepReport]) -> list[str]:
    """Each job's figures in words, without its time's units cut off."""
    return [(f"job {number}: " if len(jobs) > 1 else "") + _in_words(report) for number, report in enumerate(jobs)]


def _in_words(r: StepReport) -> str:
    iteration, calc, all_, exposed, idle = (
        format_duration(s) for s in (r.iteration_s, r.calc_s, r.communication_s, r.exposed_s, r.idle_s)
    )
    return (
        f"iteration {iteration}: computing {calc}, communication {all_} of which exposed {exposed}, idle {idle} "
        f"(bubble {max(r.bubble, 0.0):.1%}); parallel efficiency {r.parallel_efficiency:.3f}"
    )


def _training(text: str) -> Training:
    values = parse_parameters(Training, text, "training")
    for field in fields(Training):
        if isinstance(field.default, bool) and field.name in values:
            if values[field.name] not in _FLAGS:
                raise LabError(f"training: {field.name}={values[field.name]!r} must be true or false")
            values[field.name] = _FLAGS[values[field.name]]
    return Training(**values)


def _split(e: Experiment, n_ranks: int) -> Split:
    """As asked for; unasked, data parallel alone."""
    if n_ranks % e.jobs:
        raise LabError(f"--jobs {e.jobs} do not divide {n_ranks} ranks: every job needs as many as the others")
    each = n_ranks // e.jobs
    if e.split is None:
        return Split(dp=each)
    split = Split(**parse_parameters(Split, e.split, f"split {e.split!r}"))
    check_ranks(split, each)
    return split


def _name(e: Experiment, split: Split) -> str:
    """'tp=4,dp=2,pp=2', behind the algorithm that was asked for: what the table calls the algorithm."""
    sizes = {f.name: getattr(split, f.name) for f in fields(Split)}
    text = ",".join(f"{name}={size}" for name, size in sizes.items() if size > 1)
    return " ".join(filter(None, (e.algorithm, text, f"x {e.jobs}" if e.jobs > 1 else "")))


def _tokens(model: Model, split: Split, training: Training) -> int:
    """Of one job's step."""
    return split.dp * training.microbatches * training.microbatch_size * model.sequence


def _message_s(phase: Phase, at: Interfaces) -> float:
    """The bus factor's bytes, which ring algorithms reach, at the slowest rank's rate."""
    n = phase.groups.shape[1]
    domains = at.domain[phase.groups]
    inside = bool((domains[:, 0] >= 0).all() and (domains == domains[:, :1]).all())
    rates_mbps = at.mbps[phase.groups + (len(at.domain) if inside else 0)]
    return bus_factor(phase.operation, n) * phase.n_bytes * 8e-6 / float(rates_mbps.min())
