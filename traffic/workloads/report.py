"""Figures of one step from its times, played or measured. A rank's step is divided into calculation, communication that no
calculation hides, and waiting (the pipeline's bubble, slower ranks)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traffic.errors import TrafficError
from traffic.workloads.plan import CALC, Plan
from traffic.workloads.timing import Device, Times


@dataclass(frozen=True)
class StepReport:
    """Seconds are means over ranks; iteration_s = calc_s + exposed_s + idle_s.

    communication_s: with something being sent or received, hidden or not. bubble: idle share of the step; without messages
    and with equal stages the pipeline's (p - 1) / (m + p - 1). overlap: share of communication that calculation hides; NaN
    where nothing is sent. parallel_efficiency: what the plan's arithmetic would take, spread evenly over all ranks at the
    device's sustained rate, over the step.
    """

    iteration_s: float
    calc_s: float
    communication_s: float
    exposed_s: float
    idle_s: float
    bubble: float
    overlap: float
    parallel_efficiency: float


def step_report(plan: Plan, times: Times, device: Device) -> StepReport:
    """Raises TrafficError for a step that takes no time."""
    iteration_s = times.iteration_s
    if iteration_s <= 0:
        raise TrafficError("a step without calculations and messages has no figures: use a larger model, or more ranks")
    is_calc = np.array([phase.operation == CALC for phase in plan.phases])[times.phase]
    everything = np.ones_like(is_calc)
    calc_s, sending_s, busy_s = (_covered_s(times, chosen) / plan.n_ranks for chosen in (is_calc, ~is_calc, everything))
    exposed_s = busy_s - calc_s
    return StepReport(
        iteration_s=iteration_s,
        calc_s=calc_s,
        communication_s=sending_s,
        exposed_s=exposed_s,
        idle_s=iteration_s - busy_s,
        bubble=1 - busy_s / iteration_s,
        overlap=1 - exposed_s / sending_s if sending_s > 0 else float("nan"),
        parallel_efficiency=device.seconds(plan.flops / plan.n_ranks) / iteration_s,
    )


def mfu(model_flops: float, iteration_s: float, devices: int, device: Device) -> float:
    """Model FLOPs utilisation (PaLM, arXiv:2204.02311, appendix B): model_flops of a step, without recomputed ones
    (models.training_flops), over what the devices could do at their peak rate."""
    return model_flops / (iteration_s * devices * device.flops_s)


def _covered_s(times: Times, chosen: NDArray[np.bool_]) -> float:
    """Length of the union of each rank's chosen intervals, summed over ranks."""
    if not chosen.any():
        return 0.0
    # One axis for all ranks, each behind the one before: no rank's intervals touch another's.
    behind = times.rank[chosen] * (2 * times.iteration_s) - times.start_s.min()
    start, end = times.start_s[chosen] + behind, times.end_s[chosen] + behind
    order = np.argsort(start)
    start, end = start[order], end[order]
    reached = np.concatenate(([start[0]], np.maximum.accumulate(end)[:-1]))
    return float(np.maximum(end - np.maximum(start, reached), 0.0).sum())
