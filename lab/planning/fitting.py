"""`--scale auto` for a plan: what its flows make of the links that they share, and how many iterations there is time for."""

import math
from dataclasses import replace

from lab.planning.forecast import forecast_of
from lab.planning.plan import Plan
from lab.planning.scale import (
    MIN_FRAMES_PER_STEP,
    TYPICAL_BUDGET,
    Budget,
    Load,
    Scale,
    choose_scale,
    frames_per_step,
    longest_traffic_s,
    time_limit_for,
)


def fitted(planned: Plan, budget: Budget) -> tuple[Plan, Scale]:
    """The scale, and the plan with as many of its iterations as there is time for.

    Fewer than asked for, and none to warm up, only where messages would else have too few frames at any scale that ends in
    time: a time of one is a result, one of four that is about frames is none.
    """
    e, limit_s = planned.experiment, planned.experiment.time_limit_s
    load = slowed(planned, choose_scale(planned.load, budget, limit_s))
    scale = choose_scale(load, budget, limit_s)
    for iterations in range(e.iterations, 0, -1):
        if _has_frames(load, scale):
            break
        shorter = replace(planned, experiment=replace(e, iterations=iterations, warmup_iterations=0))
        of_those = replace(load, traffic_s=load.traffic_s * shorter.timed / planned.timed)
        fewer = choose_scale(of_those, budget, limit_s)
        if _has_frames(of_those, fewer):
            return shorter, fewer
    return planned, scale


def typically(planned: Plan) -> tuple[Plan, Scale]:
    """At the scale that was asked for, or what fits a typical machine."""
    asked = planned.experiment.scale
    return (planned, asked) if asked else fitted(planned, TYPICAL_BUDGET)


def slowed(planned: Plan, scale: Scale) -> Load:
    """The plan's load with the time for which its fullest link is busy, if that is longer than its interfaces are. scale: some
    that its fabric can be built at."""
    expected = forecast_of(planned, scale)
    if expected.unknown:
        return planned.load
    busy_s = expected.busiest_link_s(planned.sizes(scale)[-1], scale) * planned.timed
    return replace(planned.load, traffic_s=max(planned.load.traffic_s, busy_s))


def shortened(asked: Plan, chosen: Plan, scale: Scale) -> str:
    """Says that fewer iterations run than were asked for, and what lets all of them; '' where all do."""
    a, c = asked.experiment, chosen.experiment
    if a.iterations == c.iterations:
        return ""
    traffic_s = slowed(asked, scale).traffic_s * scale.time_dilation
    needed_s = math.ceil(time_limit_for(traffic_s))
    return (
        f"{c.iterations} of {a.iterations} iterations, and none of {a.warmup_iterations} to warm up: for messages of "
        f"{MIN_FRAMES_PER_STEP} frames all would take {traffic_s / 60:.0f} min, auto goes up to "
        f"{longest_traffic_s(a.time_limit_s) / 60:.0f}; --time-limit {needed_s}s has them all"
    )


def _has_frames(load: Load, scale: Scale) -> bool:
    return frames_per_step(load.step_bytes, load.mss, scale) >= MIN_FRAMES_PER_STEP
