"""What a training step sends and computes, against the volumes of the papers, and the order in which it does."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from traffic.conventions import bus_factor
from traffic.errors import TrafficError
from traffic.workloads.gradients import Bucket, buckets
from traffic.workloads.models import MODELS, gpt, parse_model, training_flops
from traffic.workloads.pipeline import ORDERS, bubble_fraction, interleaved
from traffic.workloads.plan import CALC, Plan
from traffic.workloads.split import Split
from traffic.workloads.step import training_step
from traffic.workloads.timing import Device, calc_seconds, play
from traffic.workloads.training import Training

SMALL = parse_model("llama2-7b:layers=4,sequence=2048")
# With a vocabulary of one word, all stages of a pipeline take the same time but for 0.002 %.
EVEN = parse_model("llama2-7b:layers=8,sequence=2048,vocabulary=1")
MIXTURE = parse_model("mixtral-8x7b:layers=2,sequence=2048")


def counts(plan: Plan, axis: str) -> Counter[tuple[str, int]]:
    return Counter((phase.operation, phase.n_bytes) for phase in plan.messages(axis))


def sent_per_rank(plan: Plan, axis: str) -> float:
    """Bytes that a bandwidth-optimal algorithm has each rank of an axis send, times n / (n - 1)."""
    return sum(
        p.n_bytes * bus_factor(p.operation, n) * n / (n - 1)
        for p in plan.messages(axis)
        for n in [p.groups.shape[1]]
        if n > 1
    )


def test_tensor_parallel_reduces_four_times_a_layer() -> None:
    """2 forward, 2 backward, of b s h 2 bytes: 1 x 2048 x 4096 x 2 = 16,777,216, as AICB lists for a 7B model with tp 2. The
    embedding is reduced once forward, the gradient of the head's input once backward."""
    plan = training_step(SMALL, Split(tp=2), Training())
    assert counts(plan, "tp") == {("all_reduce", 16_777_216): 4 * 4 + 2}


def test_sequence_parallel_cuts_each_reduction_in_two() -> None:
    """Korthikanti et al. 2022: forward an all-gather and a reduce-scatter where an all-reduce was; backward the saved
    input is gathered once more. The head gathers forward, gathers again and scatters backward."""
    plan = training_step(SMALL, Split(tp=2), Training(sequence_parallel=True))
    assert counts(plan, "tp") == {
        ("all_gather", 16_777_216): 4 * (2 + 4) + 1 + 2,
        ("reduce_scatter", 16_777_216): 4 * (2 + 2) + 1 + 1,
    }


def test_recomputation_sends_the_forward_pass_twice() -> None:
    plan = training_step(SMALL, Split(tp=2), Training(recompute=True))
    assert counts(plan, "tp") == {("all_reduce", 16_777_216): 4 * 6 + 2}


def test_experts_exchange_tokens_twice_each_way() -> None:
    """GShard: a dispatch and a combine a layer, forward and backward, of b s k h 2 bytes."""
    plan = training_step(MIXTURE, Split(dp=4, ep=4), Training())
    assert counts(plan, "ep") == {("all_to_all", 2048 * 2 * 4096 * 2): 2 * 4}


def test_tensor_parallel_experts_gather_their_tokens() -> None:
    """Each of two tensor parallel ranks dispatches half of the tokens; the experts' reductions carry all copies."""
    plan = training_step(MIXTURE, Split(tp=2, dp=2, ep=2), Training(sequence_parallel=True))
    routed = 2048 * 2 * 4096 * 2
    assert counts(plan, "ep") == {("all_to_all", routed // 2): 2 * 4}
    assert counts(plan, "tp")["all_gather", routed] == counts(plan, "tp")["reduce_scatter", routed] == 2 * 2


def test_context_parallel_gathers_keys_and_values() -> None:
    """2 b s h_kv 2 bytes, forward and again backward; their gradients are scattered. Llama-2 70B has 8 of 64 heads."""
    model = parse_model("llama2-70b:layers=2")
    plan = training_step(model, Split(cp=2), Training())
    keys = 2 * 4096 * 1024 * 2
    assert counts(plan, "cp") == {("all_gather", keys): 2 * 2, ("reduce_scatter", keys): 2}


@pytest.mark.parametrize(("zero", "volume"), [(0, 2), (1, 2), (2, 2), (3, 3)])
@pytest.mark.parametrize("overlap", [False, True])
def test_zero_volumes_are_the_papers(zero: int, volume: int, overlap: bool) -> None:
    """Rajbhandari et al. 2020, section 7: 2 psi with stages 0 to 2, 3 psi with stage 3."""
    plan = training_step(SMALL, Split(dp=4), Training(zero=zero, gradient_bytes=2, overlap=overlap))
    assert sent_per_rank(plan, "dp_cp") == pytest.approx(volume * 2 * SMALL.parameters, rel=1e-12)


@pytest.mark.parametrize(("zero", "volume"), [(0, 2), (1, 2), (2, 4 + 1), (3, 4 * 3)])
@pytest.mark.parametrize("overlap", [False, True])
def test_sharded_gradients_are_reduced_with_every_microbatch(zero: int, volume: int, overlap: bool) -> None:
    """What is not sharded can be summed over 4 microbatches before it is sent."""
    training = Training(zero=zero, microbatches=4, gradient_bytes=2, overlap=overlap)
    plan = training_step(SMALL, Split(dp=4), training)
    assert sent_per_rank(plan, "dp_cp") == pytest.approx(volume * 2 * SMALL.parameters, rel=1e-12)


def test_experts_are_reduced_over_those_that_hold_the_same() -> None:
    plan = training_step(MIXTURE, Split(dp=4, ep=2), Training())
    experts = 2 * 8 * 3 * 4096 * 14336
    assert sum(p.n_bytes for p in plan.messages("expert_dp")) == 4 * experts // 2
    assert sum(p.n_bytes for p in plan.messages("dp_cp")) == 4 * (MIXTURE.parameters - experts)
    assert {p.groups.shape for p in plan.messages("expert_dp")} == {(2, 2)}


def test_gradients_of_a_pipeline_are_those_of_each_stage() -> None:
    plan = training_step(SMALL, Split(dp=2, pp=2), Training(microbatches=2))
    by_stage = Counter[int]()
    for phase in plan.messages("dp_cp"):
        by_stage[int(phase.groups[0, 0]) // 2] += phase.n_bytes
    layer = 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096
    assert by_stage == {0: 4 * (2 * layer + 32000 * 4096), 1: 4 * (2 * layer + 32000 * 4096 + 4096)}


def test_a_tied_embedding_is_reduced_between_the_ends_of_the_pipeline() -> None:
    model = gpt(4, 1024, 16)
    plan = training_step(model, Split(tp=2, pp=2), Training())
    (phase,) = plan.messages("embedding")
    assert (phase.operation, phase.n_bytes) == ("all_reduce", 51200 // 2 * 1024 * 4)
    assert phase.groups.tolist() == [[0, 2], [1, 3]]
    assert not list(training_step(model, Split(tp=2), Training()).messages("embedding"))
    assert not list(training_step(SMALL, Split(pp=2), Training()).messages("embedding"))


@pytest.mark.parametrize(("sequence_parallel", "n_bytes"), [(False, 16_777_216), (True, 8_388_608)])
def test_stages_hand_on_activations_and_gradients(sequence_parallel: bool, n_bytes: int) -> None:
    training = Training(microbatches=3, sequence_parallel=sequence_parallel)
    plan = training_step(SMALL, Split(tp=2, pp=4), training)
    assert counts(plan, "pp") == {("sendrecv", n_bytes): 2 * 3 * 3}
    pairs = {tuple(pair) for phase in plan.messages("pp") for pair in phase.groups.tolist()}
    assert {abs(a - b) for a, b in pairs} == {2}
    assert len(pairs) == 2 * 2 * 3


@pytest.mark.parametrize(
    ("split", "training"),
    [
        (Split(), Training()),
        (Split(tp=2, cp=2, dp=2, pp=2), Training(microbatches=4, microbatch_size=2)),
        (Split(dp=4), Training(zero=3, microbatches=2)),
        (Split(tp=4, pp=2), Training(sequence_parallel=True, recompute=True, order="gpipe", microbatches=3)),
    ],
)
def test_all_ranks_together_compute_what_the_model_costs(split: Split, training: Training) -> None:
    tokens = SMALL.sequence * training.microbatch_size * training.microbatches * split.dp
    plan = training_step(SMALL, split, training)
    assert plan.flops == pytest.approx(training_flops(SMALL, tokens, recompute=training.recompute), rel=1e-12)


def test_experts_together_compute_what_the_model_costs() -> None:
    plan = training_step(MIXTURE, Split(tp=2, dp=4, ep=4), Training(sequence_parallel=True))
    assert plan.flops == pytest.approx(training_flops(MIXTURE, 4 * 2048), rel=1e-12)


@pytest.mark.parametrize("split", [Split(tp=2), Split(dp=2), Split(pp=2), Split(tp=2, cp=2, dp=2, pp=2)])
@pytest.mark.parametrize("zero", [0, 1])
def test_a_phase_waits_for_earlier_ones_of_its_ranks(split: Split, zero: int) -> None:
    """A wait that none of its ranks shares would be no wait at all."""
    plan = training_step(SMALL, split, Training(microbatches=2, zero=zero))
    for number, phase in enumerate(plan.phases):
        for earlier in phase.after:
            assert earlier < number
            assert set(phase.groups.ravel().tolist()) & set(plan.phases[earlier].groups.ravel().tolist())


def test_a_rank_computes_one_thing_at_a_time() -> None:
    plan = training_step(SMALL, Split(tp=2, dp=2, pp=2), Training(microbatches=4))
    times = play(plan, calc_seconds(plan, Device(1e12)), lambda phase: 0.01)
    for rank in range(8):
        mine = [
            (start, end)
            for number, r, start, end in zip(times.phase, times.rank, times.start_s, times.end_s, strict=True)
            if r == rank and plan.phases[number].operation == CALC
        ]
        mine.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(mine))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 3), (2, 1), (4, 4), (4, 16), (8, 3)])
def test_the_bubble_is_the_formulas(order: str, stages: int, microbatches: int) -> None:
    """Stages of equal time and messages of none: a step takes (m + p - 1) / m of its calculations."""
    plan = training_step(EVEN, Split(pp=stages), Training(microbatches=microbatches, order=order))
    calc = calc_seconds(plan, Device(1e12))
    step_s = play(plan, calc, lambda phase: 0.0).iteration_s
    mean_calc_s = sum(float(s.sum()) for s in calc) / stages
    bubble = (stages - 1) / (microbatches + stages - 1)
    assert 1 - mean_calc_s / step_s == pytest.approx(bubble, abs=2e-4)
    assert bubble_fraction(stages, microbatches) == bubble


@pytest.mark.parametrize(("order", "held"), [("gpipe", [6, 6, 6, 6]), ("1f1b", [4, 3, 2, 1])])
def test_a_stage_holds_the_activations_that_its_order_needs(order: str, held: list[int]) -> None:
    """1F1B at most p - stage microbatches, GPipe all of them: Narayanan et al. 2021, section 2.2.1."""
    for stage in range(4):
        now, most = 0, 0
        for forward, _ in ORDERS[order](stage, 4, 6):
            now += 1 if forward else -1
            most = max(most, now)
        assert (most, now) == (held[stage], 0)


@pytest.mark.parametrize("order", ORDERS)
def test_stages_take_turns_in_an_order_that_can_be_kept(order: str) -> None:
    done = list(interleaved(order, 4, 6))
    assert sorted(done) == sorted((s, (f, m)) for s in range(4) for f in (True, False) for m in range(6))
    place = {one: i for i, one in enumerate(done)}
    assert all(place[s, (True, m)] < place[s + 1, (True, m)] for s in range(3) for m in range(6))
    assert all(place[s + 1, (False, m)] < place[s, (False, m)] for s in range(3) for m in range(6))


def test_buckets_cut_pieces_laid_end_to_end() -> None:
    """7 + 10 + 10 parameters: cuts after 12 (in the second piece), 24 and 27 (in the third)."""
    assert buckets([7, 10, 10], 12) == [Bucket(12, 1), Bucket(12, 2), Bucket(3, 2)]
    assert buckets([7, 10, 10], None) == [Bucket(27, 2)]
    assert buckets([5, 5], 5) == [Bucket(5, 0), Bucket(5, 1)]
    assert buckets([0, 0], 5) == []


def bucket_count(training: Training, dp: int = 2) -> int:
    return len(list(training_step(SMALL, Split(dp=dp), training).messages("dp_cp")))


def test_buckets_are_megatrons_unless_given() -> None:
    """max(40 million, 1 million x ranks) parameters; everything at once where nothing overlaps."""
    assert bucket_count(Training()) == -(-SMALL.parameters // 40_000_000)
    assert bucket_count(Training(), dp=50) == -(-SMALL.parameters // 50_000_000)
    assert bucket_count(Training(bucket_parameters=10**8)) == -(-SMALL.parameters // 10**8)
    assert bucket_count(Training(overlap=False)) == 1


@pytest.mark.parametrize("zero", [0, 1])
def test_overlap_hides_all_but_the_last_gradients(zero: int) -> None:
    """Buckets of one layer's size: head and first layer fill one and reach into the next, so two of L + 1 are ready only
    at the very end. A message takes a tenth of a layer's backward pass; ZeRO-1 then gathers L + 1 times."""
    layer = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
    device = Device(1e12)
    training = Training(bucket_parameters=layer, zero=zero)
    flops = training_flops(EVEN, EVEN.sequence)
    message_s = device.seconds(flops) / 8 / 15
    gathers = 9 * zero
    for overlap, exposed in ((True, 2), (False, 9)):
        plan = training_step(EVEN, Split(dp=2), replace(training, overlap=overlap))
        times = play(plan, calc_seconds(plan, device), lambda phase: message_s)
        expected = device.seconds(flops) + (exposed + gathers) * message_s
        assert times.iteration_s == pytest.approx(expected, rel=1e-9)


def test_without_overlap_everything_waits_for_each_microbatchs_gradients() -> None:
    """ZeRO-2 over three microbatches: three scatters and the gather of the parameters, all exposed."""
    device = Device(1e12)
    plan = training_step(EVEN, Split(dp=2), Training(zero=2, microbatches=3, overlap=False))
    times = play(plan, calc_seconds(plan, device), lambda phase: 0.5)
    calc_s = device.seconds(training_flops(EVEN, 3 * EVEN.sequence))
    assert times.iteration_s == pytest.approx(calc_s + 4 * 0.5)
    last_calc = max(n for n, phase in enumerate(plan.phases) if phase.operation == CALC)
    assert times.end_s[times.phase == last_calc].max() == pytest.approx(calc_s + 2 * 0.5)


def test_sharded_parameters_are_gathered_one_layer_ahead() -> None:
    """Ten pieces gathered forward, ten backward, and one scatter at the end. Behind a layer's work a gather is hidden; the
    embedding and the head have none to speak of, so theirs and those of the layers after them are not: 2 + 2 + the scatter.
    """
    device = Device(1e12)
    flops = training_flops(EVEN, EVEN.sequence)
    message_s = device.seconds(flops) / 8 / 30
    for overlap, exposed in ((True, 5), (False, 21)):
        plan = training_step(EVEN, Split(dp=2), Training(zero=3, overlap=overlap, bucket_parameters=EVEN.parameters))
        times = play(plan, calc_seconds(plan, device), lambda phase: message_s)
        assert (times.iteration_s - device.seconds(flops)) / message_s == pytest.approx(exposed, abs=0.01)


@pytest.mark.parametrize(
    ("split", "training", "says"),
    [
        (Split(pp=2), Training(zero=2), "zero=2 with pp=2: .*; use zero=1, or pp=1"),
        (Split(tp=2), Training(), "experts with tp=2 would send every token 2 times: use sequence_parallel, or tp=1"),
        (Split(pp=3), Training(), "pp=3 does not divide the model's 2 layers"),
    ],
)
def test_an_impossible_step_is_refused(split: Split, training: Training, says: str) -> None:
    with pytest.raises(TrafficError, match=says):
        training_step(MIXTURE, split, training)


def test_a_sequence_is_shared_by_tensor_and_context_ranks() -> None:
    with pytest.raises(TrafficError, match="does not divide the sequence of 2044"):
        training_step(parse_model("llama2-7b:sequence=2044"), Split(tp=8), Training(sequence_parallel=True))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"zero": 4}, "zero=4: the stages are 0"),
        ({"order": "interleaved"}, "unknown pipeline order 'interleaved': choose from 1f1b, gpipe"),
        ({"microbatches": 0}, "microbatches=0 is too small"),
        ({"bucket_parameters": 0}, "bucket_parameters=0 is too small"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(TrafficError, match=says):
        Training(**settings)  # type: ignore[arg-type]


def test_gpt3_on_1024_ranks_is_planned_in_full() -> None:
    plan = training_step(MODELS["gpt3-175b"], Split(tp=8, dp=16, pp=8), Training(microbatches=16))
    # b s h 2 bytes; 4 a layer and microbatch, 1 for the embedding, 1 for the head.
    assert counts(plan, "tp") == {("all_reduce", 2048 * 12288 * 2): 16 * (4 * 96 + 2)}
