"""A plan as a schedule: correct, of the plan's bytes and order, and its operations' times read back as the plan's."""

import numpy as np
import pytest
from numpy.typing import NDArray

import traffic
from tests.unit.traffic_fakes import replayed
from traffic import Schedule
from traffic.check import verify
from traffic.schedule import ScheduleBuilder
from traffic.workloads.models import parse_model
from traffic.workloads.parameter_server import ServerJob, server_plan
from traffic.workloads.plan import CALC, Plan, side_by_side
from traffic.workloads.planned import PlannedSchedule, measured_times, planned_schedule
from traffic.workloads.report import step_report
from traffic.workloads.split import Split
from traffic.workloads.step import training_step
from traffic.workloads.timing import Device, Slowness, calc_seconds, play, stragglers
from traffic.workloads.training import Training

MIXTURE = parse_model("mixtral-8x7b:layers=2,sequence=2048")
MODEL = parse_model("llama2-7b:layers=2,sequence=2048")
DEVICE = Device(1e14)
STEPS = {
    "1f1b": (Split(tp=2, dp=2, pp=2), Training(microbatches=4)),
    "gpipe": (Split(dp=2, pp=2), Training(microbatches=4, order="gpipe", zero=1)),
    "sequence": (Split(tp=4, cp=2), Training(sequence_parallel=True, recompute=True)),
    "zero-2": (Split(dp=4), Training(zero=2, microbatches=2, overlap=False)),
    "zero-3": (Split(dp=4), Training(zero=3, microbatches=2)),
    "experts": (Split(tp=2, dp=4, ep=4), Training(sequence_parallel=True, zero=1)),
}
every_step = pytest.mark.parametrize("name", STEPS)


def ring(collective: str, ranks: tuple[int, ...]) -> Schedule:
    if collective == "all_to_all":
        return exchange(len(ranks))
    return traffic.schedule(collective, "ring", len(ranks))


def exchange(n: int) -> Schedule:
    """An all-to-all, everything at once: rank r's input part d goes to part r of d's output, which begins at chunk n."""
    builder = ScheduleBuilder("all_to_all", "direct", n, 2 * n, n_blocks=2 * n)
    for src in range(n):
        for dst in range(n):
            builder.send(src, dst, dst, dst_chunk=n + src, reduce=False)
    return builder.build()


def planned(plan: Plan, slowness: Slowness | None = None, device: Device = DEVICE) -> PlannedSchedule:
    return planned_schedule(plan, calc_seconds(plan, device, slowness), ring)


def wrong(plan: Plan) -> int:
    """Elements that come out wrong when real bytes move; nobody waits for calculations."""
    _, n_wrong = replayed(planned(plan, device=Device(1e22)).schedule, 20_000)
    return n_wrong


def step(name: str) -> Plan:
    return training_step(MIXTURE if name == "experts" else MODEL, *STEPS[name])


def operation_times(schedule: Schedule, send_ns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When each operation starts and finishes if a send takes send_ns and leaves after those before it on its connection."""
    start, end = np.zeros(len(schedule), np.int64), np.zeros(len(schedule), np.int64)
    left = np.zeros(len(schedule.connections), np.int64)
    for i, (calc_ns, connection) in enumerate(zip(schedule.calc_ns, schedule.connection, strict=True)):
        start[i] = end[schedule.deps_of(i)].max(initial=0)
        if connection >= 0:
            start[i] = left[connection] = max(start[i], left[connection])
        end[i] = start[i] + (calc_ns if connection < 0 else send_ns)
    return start, end


@every_step
def test_a_training_step_is_a_correct_schedule(name: str) -> None:
    verify(planned(step(name)).schedule)


@every_step
def test_real_values_come_out_right(name: str) -> None:
    assert wrong(step(name)) == 0


@every_step
def test_each_rank_sends_the_plans_bytes(name: str) -> None:
    """A ring sends 2 (n-1)/n of an all-reduce's size, (n-1)/n of a divided one's, to within 16 bytes a part."""
    plan = step(name)
    s = planned(plan).schedule
    expected = np.zeros(plan.n_ranks)
    slack = 0
    for phase in plan.messages():
        n = phase.groups.shape[1]
        share = {"all_reduce": 2 * (n - 1) / n, "sendrecv": 1.0}.get(phase.operation, (n - 1) / n)
        senders = phase.groups[:, 0] if phase.operation == "sendrecv" else phase.groups.ravel()
        expected[senders] += share * phase.n_bytes
        slack += 16 * n
    assert s.natural_count is not None
    assert 4 * s.sent_per_rank(s.natural_count) == pytest.approx(expected, abs=slack)


@every_step
@pytest.mark.parametrize("slow", [0, 1])
def test_operations_wait_as_the_plan_says(name: str, slow: int) -> None:
    """If sending takes no time, the operations one by one end when the plan, played as a whole, says."""
    plan = step(name)
    slowness = stragglers(plan.n_ranks, slow, factor=1.5, delay_s=0.01)
    whole = planned(plan, slowness)
    played = play(plan, calc_seconds(plan, DEVICE, slowness), lambda phase: 0.0)
    start, end = operation_times(whole.schedule, 0)
    assert end.max() / 1e9 == pytest.approx(played.iteration_s, rel=1e-6)
    report = step_report(plan, measured_times(whole, start, end), DEVICE)
    assert report.calc_s == pytest.approx(step_report(plan, played, DEVICE).calc_s, rel=1e-6)


@pytest.mark.parametrize("order", ["1f1b", "gpipe"])
def test_a_measured_pipeline_has_the_played_figures(order: str) -> None:
    """Every message takes 5 ms, in the operations as in the plan."""
    plan = training_step(parse_model("llama2-7b:layers=4"), Split(pp=4), Training(microbatches=6, order=order))
    whole = planned(plan)
    times = measured_times(whole, *operation_times(whole.schedule, 5_000_000))
    played = play(plan, calc_seconds(plan, DEVICE), lambda phase: 0.005)
    measured, expected = (vars(step_report(plan, t, DEVICE)) for t in (times, played))
    assert measured == pytest.approx(expected, rel=1e-5)
    assert expected["exposed_s"] > 0


def test_megatrons_map_keeps_each_kind_of_message_where_it_belongs() -> None:
    """Servers of 4, tensor parallel 4: its messages stay in the server, all others on their rail."""
    plan = training_step(MODEL, Split(tp=4, dp=2, pp=2), Training(microbatches=2))
    whole = planned(plan)
    s = whole.schedule
    axis = np.array([phase.axis for phase in plan.phases])[whole.phase]
    same_server, same_rail = s.src // 4 == s.dst // 4, s.src % 4 == s.dst % 4
    assert same_server[axis == "tp"].all()
    for outside in ("dp_cp", "pp"):
        sent = (axis == outside) & (s.n_chunks_sent > 0)
        assert sent.any()
        assert (same_rail & ~same_server)[sent].all()


def test_messages_that_may_meet_have_channels_of_their_own() -> None:
    """With ZeRO-3 parameters are gathered while gradients are scattered, between the same ranks."""
    plan = training_step(MODEL, Split(dp=4), Training(zero=3))
    whole = planned(plan)
    operation = np.array([phase.operation for phase in plan.phases])[whole.phase]
    sent = ~whole.schedule.is_local
    gathering, scattering = (
        set(whole.schedule.channel[sent & (operation == name)].tolist()) for name in ("all_gather", "reduce_scatter")
    )
    assert gathering
    assert scattering
    assert not gathering & scattering


def test_operations_belong_to_their_phases() -> None:
    plan = training_step(MODEL, Split(tp=2, dp=2), Training())
    whole = planned(plan)
    assert len(whole.phase) == len(whole.schedule)
    assert (np.diff(whole.phase) >= 0).all()
    for number, phase in enumerate(plan.phases):
        mine = whole.phase == number
        assert set(whole.schedule.src[mine].tolist()) <= set(phase.groups.ravel().tolist())
        if phase.operation == CALC:
            assert whole.schedule.calc_ns[mine].tolist() == pytest.approx(
                [phase.flops / 1e5] * len(phase.groups), abs=1
            )


def test_a_parameter_server_and_a_job_beside_it_are_a_correct_schedule() -> None:
    server = server_plan(ServerJob(workers=3, parameters=1000, flops=1e9, servers=2, iterations=3, staleness=1))
    job = training_step(MODEL, Split(dp=2), Training())
    both = side_by_side([(server, [0, 2, 4, 5, 6]), (job, [3, 1])], 7)
    verify(planned(both).schedule)
    assert wrong(both) == 0


def with_a_helper(collective: str, ranks: tuple[int, ...]) -> Schedule:
    return ScheduleBuilder(collective, "by-switch", len(ranks) + 1, 1, n_members=len(ranks)).build()


def test_an_algorithm_that_cannot_be_is_refused() -> None:
    plan = training_step(MODEL, Split(dp=2), Training())
    with pytest.raises(traffic.TrafficError, match="by-switch of all_reduce needs 1 helpers beside its 2 ranks"):
        planned_schedule(plan, calc_seconds(plan, DEVICE), with_a_helper)
    with pytest.raises(traffic.TrafficError, match="unknown algorithm of all_reduce"):
        planned_schedule(plan, calc_seconds(plan, DEVICE), lambda c, ranks: traffic.schedule(c, "no such", len(ranks)))
