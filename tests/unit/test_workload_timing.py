"""Plans played with given costs, the figures of a step, several jobs, and a parameter server."""

import math

import numpy as np
import pytest

from traffic.errors import TrafficError
from traffic.workloads.models import parse_model, training_flops
from traffic.workloads.parameter_server import ServerJob, observed_staleness, server_plan
from traffic.workloads.plan import CALC, Phase, Plan, PlanBuilder, side_by_side
from traffic.workloads.report import mfu, step_report
from traffic.workloads.split import Split
from traffic.workloads.step import training_step
from traffic.workloads.timing import Device, Rates, Slowness, Times, calc_seconds, play, stragglers
from traffic.workloads.training import Training

MODEL = parse_model("llama2-7b:layers=8,sequence=2048,vocabulary=1")
# One operation takes one second.
UNIT = Device(1.0)


def all_ranks(*ranks: int) -> np.typing.NDArray[np.int32]:
    return np.array(ranks, dtype=np.int32)


def two_ranks_that_reduce(overlapping: float) -> Plan:
    """Each computes 3 s, then reduces while it computes `overlapping` s more."""
    builder = PlanBuilder(2)
    each = all_ranks(0, 1)[:, None]
    first = builder.add(Phase("first", CALC, "", each, flops=3.0))
    builder.add(Phase("reduce", "all_reduce", "dp", each.T, n_bytes=100, after=(first,)))
    builder.add(Phase("second", CALC, "", each, flops=overlapping, after=(first,)))
    return builder.build()


@pytest.mark.parametrize(
    ("message_s", "iteration_s", "exposed_s", "overlap"),
    [(0.0, 5.0, 0.0, math.nan), (1.0, 5.0, 0.0, 1.0), (4.0, 7.0, 2.0, 0.5)],
)
def test_a_step_is_calculation_exposed_communication_and_waiting(
    message_s: float, iteration_s: float, exposed_s: float, overlap: float
) -> None:
    """3 s, then 2 s beside a message of 0, 1 and 4 s."""
    plan = two_ranks_that_reduce(2.0)
    report = step_report(plan, play(plan, calc_seconds(plan, UNIT), lambda phase: message_s), UNIT)
    assert report.iteration_s == iteration_s
    assert (report.calc_s, report.communication_s) == pytest.approx((5.0, message_s))
    assert (report.exposed_s, report.idle_s, report.bubble) == pytest.approx((exposed_s, 0.0, 0.0))
    assert report.overlap == pytest.approx(overlap, nan_ok=True)
    assert report.parallel_efficiency == pytest.approx(5 / iteration_s)


def test_who_waits_for_a_slower_rank_is_idle() -> None:
    """Rank 1 takes twice 3 s, then 1 s to reduce: rank 0 waits for 3 s of 7."""
    plan = two_ranks_that_reduce(0.0)
    slow = Slowness(np.array([1.0, 2.0]), np.zeros(2))
    report = step_report(plan, play(plan, calc_seconds(plan, UNIT, slow), lambda phase: 1.0), UNIT)
    assert (report.iteration_s, report.calc_s, report.exposed_s) == pytest.approx((7.0, 4.5, 1.0))
    assert report.idle_s == pytest.approx(1.5)
    assert report.parallel_efficiency == pytest.approx(3 / 7)


def test_measured_times_need_not_begin_at_zero() -> None:
    plan = two_ranks_that_reduce(2.0)
    played = play(plan, calc_seconds(plan, UNIT), lambda phase: 4.0)
    shifted = Times(played.phase, played.rank, played.start_s + 1e3, played.end_s + 1e3)
    assert vars(step_report(plan, shifted, UNIT)) == pytest.approx(vars(step_report(plan, played, UNIT)))


def test_overlapping_messages_are_counted_once() -> None:
    """Of one rank 0 to 4, 1 to 2 and 3 to 6 s: 6 s in all."""
    each = all_ranks(0)[:, None]
    plan = Plan(1, tuple(Phase(str(i), "all_reduce", "dp", each, n_bytes=1) for i in range(3)))
    times = Times(np.arange(3), np.zeros(3, np.int32), np.array([0.0, 1.0, 3.0]), np.array([4.0, 2.0, 6.0]))
    assert step_report(plan, times, UNIT).exposed_s == pytest.approx(6.0)


@pytest.mark.parametrize("order", ["1f1b", "gpipe"])
def test_the_reported_bubble_is_the_formulas(order: str) -> None:
    plan = training_step(MODEL, Split(pp=4), Training(microbatches=8, order=order))
    device = Device(2e12, 0.5)
    report = step_report(plan, play(plan, calc_seconds(plan, device), lambda phase: 0.0), device)
    assert report.bubble == pytest.approx(3 / 11, abs=2e-4)
    assert report.parallel_efficiency == pytest.approx(8 / 11, abs=2e-4)
    # Of the peak rate, of which the device reaches half.
    flops = training_flops(MODEL, 8 * 2048)
    assert mfu(flops, report.iteration_s, 4, device) == pytest.approx(report.parallel_efficiency / 2)


def test_nothing_has_no_figures() -> None:
    with pytest.raises(TrafficError, match="has no figures"):
        step_report(Plan(1, ()), play(Plan(1, ()), [], lambda phase: 0.0), UNIT)


@pytest.mark.parametrize(
    ("operation", "n", "seconds"),
    [
        # 1 GB at 1 GB/s over 4 ranks; 10 ms a step of a ring.
        ("all_reduce", 4, 1.5 + 0.06),
        ("reduce_scatter", 4, 0.75 + 0.03),
        ("all_gather", 4, 0.75 + 0.03),
        ("all_to_all", 4, 0.75 + 0.03),
        ("sendrecv", 2, 1.0 + 0.01),
    ],
)
def test_ideal_collectives_take_what_their_bus_factor_says(operation: str, n: int, seconds: float) -> None:
    phase = Phase("", operation, "dp", all_ranks(*range(n))[None, :], n_bytes=10**9)
    assert Rates(1e9, latency_s=0.01).seconds(phase) == pytest.approx(seconds)


def test_groups_within_a_domain_go_at_its_rate() -> None:
    """Tensor parallel 4 in domains of 4 at 4 GB/s; in domains of 2 it leaves them, at 1 GB/s, as data parallel always does."""
    plan = training_step(MODEL, Split(tp=4, dp=2), Training())
    tp, dp = next(plan.messages("tp")), next(plan.messages("dp_cp"))
    for domain, rate in ((4, 4e9), (2, 1e9), (1, 1e9)):
        rates = Rates(1e9, 4e9, domain)
        assert rates.seconds(tp) == pytest.approx(1.5 * tp.n_bytes / rate)
        assert rates.seconds(dp) == pytest.approx(dp.n_bytes / 1e9)


@pytest.mark.parametrize("rates", [(0.0, 1.0, 1), (1.0, 0.0, 8), (1.0, 1.0, 0)])
def test_impossible_rates_are_refused(rates: tuple[float, float, int]) -> None:
    with pytest.raises(TrafficError, match="rates must be above 0"):
        Rates(*rates)


def step_s(slowness: Slowness | None, split: Split) -> float:
    plan = training_step(MODEL, split, Training(microbatches=2))
    return play(plan, calc_seconds(plan, Device(1e12), slowness), lambda phase: 0.0).iteration_s


@pytest.mark.parametrize("split", [Split(tp=4), Split(dp=4), Split(tp=2, dp=2)])
def test_one_slow_rank_slows_every_rank_that_it_reduces_with(split: Split) -> None:
    """By its factor, and by its delay once."""
    alone = step_s(None, split)
    assert step_s(stragglers(4, 1, factor=2.0), split) == pytest.approx(2 * alone)
    assert step_s(stragglers(4, 1, delay_s=0.25), split) == pytest.approx(alone + 0.25)


def test_stragglers_are_drawn_by_seed() -> None:
    def slow(seed: int) -> list[int]:
        drawn = stragglers(64, 5, factor=3.0, delay_s=0.1, seed=seed)
        assert set(drawn.factor) == {1.0, 3.0}
        ranks: list[int] = np.flatnonzero(drawn.factor > 1).tolist()
        assert np.flatnonzero(drawn.delay_s).tolist() == ranks
        return ranks

    assert len(slow(1)) == 5
    assert slow(1) == slow(1)
    assert len({tuple(slow(seed)) for seed in range(10)}) > 1


@pytest.mark.parametrize(
    ("n_slow", "factor", "says"), [(5, 2.0, "5 stragglers of 4 ranks: use 0 to 4"), (1, 0.5, "a factor of 0.5")]
)
def test_impossible_stragglers_are_refused(n_slow: int, factor: float, says: str) -> None:
    with pytest.raises(TrafficError, match=says):
        stragglers(4, n_slow, factor=factor)


@pytest.mark.parametrize(("flops_s", "efficiency"), [(0.0, 0.5), (1e12, 0.0), (1e12, 1.5)])
def test_an_impossible_device_is_refused(flops_s: float, efficiency: float) -> None:
    with pytest.raises(TrafficError, match="use a rate above 0 and an efficiency above 0 and up to 1"):
        Device(flops_s, efficiency)


def test_jobs_side_by_side_keep_their_own_time() -> None:
    jobs = [training_step(MODEL, Split(dp=2), Training()), training_step(MODEL, Split(tp=2), Training(microbatches=3))]
    both = side_by_side([(jobs[0], [5, 1]), (jobs[1], [0, 4])], 6)
    times = play(both, calc_seconds(both, Device(1e12)), lambda phase: 0.001)
    for job, ranks in zip(jobs, ([5, 1], [0, 4]), strict=True):
        alone = play(job, calc_seconds(job, Device(1e12)), lambda phase: 0.001)
        assert times.end_s[np.isin(times.rank, ranks)].max() == pytest.approx(alone.iteration_s)
    assert both.phases[0].groups.tolist() == [[5], [1]]
    assert both.phases[-1].name.startswith("job 1: ")
    assert both.flops == pytest.approx(jobs[0].flops + jobs[1].flops)


@pytest.mark.parametrize(
    ("ranks", "says"),
    [
        (([0, 1], [1, 2]), "job 1 on rank 1: that rank is taken"),
        (([0, 1], [2, 4]), "job 1 on rank 4: the ranks are 0 to 3"),
        (([0, 1], [2]), "job 1 has 2 ranks and 1 places"),
    ],
)
def test_jobs_share_no_rank(ranks: tuple[list[int], list[int]], says: str) -> None:
    plan = two_ranks_that_reduce(1.0)
    with pytest.raises(TrafficError, match=says):
        side_by_side([(plan, places) for places in ranks], 4)


# Workers of a second an iteration, the last one four times slower; messages take no time.
WORKERS, ITERATIONS, SLOW = 3, 8, 4.0


def served(staleness: int, message_s: float = 0.0) -> tuple[ServerJob, Plan, Times]:
    job = ServerJob(WORKERS, parameters=1000, flops=1.0, iterations=ITERATIONS, staleness=staleness)
    plan = server_plan(job)
    slowness = Slowness(np.array([1.0, 1.0, 1.0, SLOW]), np.zeros(4))
    return job, plan, play(plan, calc_seconds(plan, UNIT, slowness), lambda phase: message_s)


def computing_until(times: Times, plan: Plan, rank: int) -> float:
    calcs = np.array([phase.operation == CALC for phase in plan.phases])[times.phase]
    return float(times.end_s[calcs & (times.rank == rank)].max())


@pytest.mark.parametrize("staleness", [0, 1, 2, 7, 8])
def test_a_worker_runs_ahead_of_the_slowest_by_the_bound(staleness: int) -> None:
    """A fast worker begins its iteration c + 1 when the slow one has ended its c - staleness, at 4 (c - staleness + 1) s."""
    _, plan, times = served(staleness)
    last = ITERATIONS - 2
    fast = max(float(ITERATIONS), SLOW * (last - staleness + 1) + 1)
    assert computing_until(times, plan, 1) == pytest.approx(fast)
    assert computing_until(times, plan, 3) == pytest.approx(SLOW * ITERATIONS)


@pytest.mark.parametrize("staleness", [0, 1, 2, 5])
def test_the_bound_of_staleness_holds_and_is_reached(staleness: int) -> None:
    job, plan, times = served(staleness, message_s=0.01)
    assert observed_staleness(job, plan, times) == staleness


def test_without_a_bound_nobody_waits() -> None:
    """After its 8 iterations a fast worker lacks all of the slow one's but those of 4 and 8 s."""
    job, plan, times = served(ITERATIONS, message_s=1e-6)
    assert computing_until(times, plan, 1) == pytest.approx(ITERATIONS, abs=1e-3)
    assert observed_staleness(job, plan, times) == ITERATIONS - 2


def test_servers_share_the_parameters() -> None:
    job = ServerJob(workers=3, parameters=1001, flops=1.0, servers=2, iterations=2)
    plan = server_plan(job)
    assert {phase.n_bytes for phase in plan.messages()} == {501 * 4}
    pushes = sorted(tuple(pair) for phase in plan.messages("push") for pair in phase.groups.tolist())
    assert pushes == sorted([(2 + w, s) for w in range(3) for s in range(2)] * 2)
    pulls = sorted(tuple(pair) for phase in plan.messages("pull") for pair in phase.groups.tolist())
    assert pulls == sorted((s, w) for w, s in pushes)


@pytest.mark.parametrize(
    ("settings", "says"), [({"workers": 0}, "workers=0 is too small"), ({"staleness": -1}, "staleness=-1: use 0")]
)
def test_impossible_servers_are_refused(settings: dict[str, int], says: str) -> None:
    with pytest.raises(TrafficError, match=says):
        ServerJob(**{"workers": 2, "parameters": 10, "flops": 1.0, **settings})  # type: ignore[arg-type]
