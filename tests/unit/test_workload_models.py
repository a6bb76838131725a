"""Model presets against published totals, and splits against Megatron's own example."""

import pytest

from topologies.errors import Refused
from traffic.errors import TrafficError
from traffic.workloads.models import (
    MODELS,
    Model,
    embedding_parameters,
    gpt,
    head_parameters,
    layer_parameters,
    parse_model,
    training_flops,
    training_time_s,
)
from traffic.workloads.split import AXES, Split, check_ranks, check_split

# As their authors' releases count them; GPT-3's is the 174,600 million of Brown et al. 2020, table D.1.
PUBLISHED = {
    "llama2-7b": 6_738_415_616,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-405b": 405_853_388_800,
    "mixtral-8x7b": 46_702_792_704,
}


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_a_preset_has_its_published_parameters(name: str, parameters: int) -> None:
    assert MODELS[name].parameters == parameters


def test_gpt3_has_its_published_millions() -> None:
    assert round(MODELS["gpt3-175b"].parameters, -8) == 174_600_000_000


def test_mixtral_uses_its_published_active_parameters() -> None:
    assert round(MODELS["mixtral-8x7b"].active_parameters, -8) == 12_900_000_000
    assert MODELS["llama2-7b"].active_parameters == PUBLISHED["llama2-7b"]


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "billions"),
    [
        (24, 2304, 24, 1.7),
        (30, 3072, 32, 3.6),
        (36, 4096, 32, 7.5),
        (40, 6144, 48, 18.4),
        (48, 8192, 64, 39.1),
        (60, 10240, 80, 76.1),
        (80, 12288, 96, 145.6),
        (96, 16384, 128, 310.1),
        (105, 20480, 128, 529.6),
        (128, 25600, 160, 1008.0),
    ],
)
def test_gpts_of_megatrons_table_1(layers: int, hidden: int, heads: int, billions: float) -> None:
    assert round(gpt(layers, hidden, heads).parameters / 1e9, 1) == billions


def test_gpt_parameters_follow_the_papers_formula() -> None:
    """Narayanan et al. 2021, equation 2; it leaves out the last layer norm, 2h."""
    m = MODELS["megatron-18b"]
    h, l = m.hidden, m.layers  # noqa: E741
    formula = 12 * l * h**2 + 13 * l * h + (m.vocabulary + m.sequence) * h
    assert m.parameters == formula + 2 * h


@pytest.mark.parametrize("name", MODELS)
def test_parameters_of_all_ranks_are_the_models_and_what_each_keeps_whole(name: str) -> None:
    """Two tensor parallel ranks hold the model once, and norms, router, output biases and positions twice."""
    m = MODELS[name]
    norms = (2 if m.biased else 1) * m.hidden
    output_biases = (1 + max(1, m.experts)) * m.hidden if m.biased else 0
    whole = 2 * norms + output_biases + m.hidden * m.experts
    assert 2 * sum(layer_parameters(m, tp=2)) == sum(layer_parameters(m)) + whole
    # An odd vocabulary has one row of padding.
    positions = m.sequence * m.hidden if m.biased else 0
    padding = m.vocabulary % 2 * m.hidden
    assert 2 * embedding_parameters(m, 2) == embedding_parameters(m) + positions + padding
    assert 2 * head_parameters(m, 2, apart=True) == head_parameters(m, apart=True) + norms + padding


def test_expert_parallel_ranks_share_the_experts_alone() -> None:
    m = MODELS["mixtral-8x7b"]
    dense, experts = layer_parameters(m)
    assert experts == 8 * 3 * 4096 * 14336
    assert layer_parameters(m, ep=4) == (dense, experts // 4)


@pytest.mark.parametrize("recompute", [False, True])
def test_training_flops_follow_the_papers_formula(recompute: bool) -> None:
    """Narayanan et al. 2021, equation 3, with recomputation: 96 B s l h^2 (1 + s/6h + V/16lh); without, each layer costs 3
    forward passes instead of 4: 72 B s l h^2 (1 + s/6h + V/12lh)."""
    m = MODELS["gpt3-175b"]
    s, h, l, v = m.sequence, m.hidden, m.layers, m.vocabulary  # noqa: E741
    per_layer, head = (96, 16) if recompute else (72, 12)
    formula = per_layer * 1536 * s * l * h**2 * (1 + s / (6 * h) + v / (head * l * h))
    assert training_flops(m, 1536 * s, recompute=recompute) == pytest.approx(formula, rel=1e-12)


def test_a_token_of_a_mixture_costs_its_active_weights() -> None:
    """2 per weight forward, 6 in all, and 12 l s h for attention; an embedding is looked up, norms are not counted."""
    m = MODELS["mixtral-8x7b"]
    norms = (2 * 32 + 1) * 4096
    weights = m.active_parameters - 32000 * 4096 - norms
    assert training_flops(m, 1) == 6 * weights + 12 * 32 * 4096 * 4096


@pytest.mark.parametrize(
    ("parameters", "tokens", "rate", "devices", "days"),
    [(175e9, 300e9, 140e12, 1024, 34), (1.008e12, 450e9, 163e12, 3072, 84)],
)
def test_training_time_is_the_papers(parameters: float, tokens: float, rate: float, devices: int, days: int) -> None:
    """Narayanan et al. 2021, section 5.1: GPT-3 in 34 days, one trillion parameters in 84."""
    seconds = training_time_s(tokens, parameters, rate, devices, per_weight=8)
    assert round(seconds / 86400) == days


def test_a_models_sizes_can_be_changed_by_name() -> None:
    assert parse_model("llama2-7b") is not None
    assert parse_model("llama2-7b:layers=4,sequence=2048") == Model(4, 4096, 11008, 32, 32, 32000, 2048)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("llama9", "unknown model 'llama9': choose from gpt3-175b"),
        ("llama2-7b:depth=4", "unknown parameter 'depth'"),
        ("llama2-7b:layers=0", "layers=0: use 1 or more"),
        ("llama2-7b:heads=5", "4096 hidden, 5 heads, 32 kv_heads"),
        ("llama2-7b:gated=no", "gated belongs to the kind of model"),
        ("mixtral-8x7b:top_k=9", "top_k=9 of 8 experts"),
        ("llama2-7b:experts=8", "top_k=0 of 8 experts"),
    ],
)
def test_an_impossible_model_is_refused(text: str, says: str) -> None:
    with pytest.raises(Refused, match=says.replace("(", r"\(")):
        parse_model(text)


def lists(split: Split, axis: str) -> list[list[int]]:
    groups: list[list[int]] = split.groups(axis).tolist()
    return groups


def test_groups_are_those_of_megatrons_example() -> None:
    """parallel_state.initialize_model_parallel: 16 GPUs, 2 to split tensors, 4 to split the pipeline."""
    split = Split(tp=2, dp=2, pp=4)
    assert lists(split, "dp") == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]
    assert lists(split, "tp") == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15]]
    assert lists(split, "pp") == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
    assert lists(split, "dp_cp") == lists(split, "dp") == lists(split, "expert_dp")


def test_context_groups_are_those_of_megatrons_example() -> None:
    """The same docstring: 8 GPUs, tensor parallel 4, context parallel 2."""
    split = Split(tp=4, cp=2)
    assert lists(split, "cp") == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert lists(split, "dp_cp") == lists(split, "cp")


def test_expert_groups_lie_across_data_parallel_ranks() -> None:
    """Order tp-ep-dp-pp for experts: rank = t + 2 (e + 2 (d + 2 stage))."""
    split = Split(tp=2, dp=4, pp=2, ep=2)
    assert lists(split, "ep") == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]
    assert lists(split, "expert_dp") == [[0, 4], [1, 5], [2, 6], [3, 7], [8, 12], [9, 13], [10, 14], [11, 15]]


@pytest.mark.parametrize("axis", AXES)
def test_each_rank_is_in_one_group_of_a_kind(axis: str) -> None:
    split = Split(tp=2, cp=3, dp=4, pp=2, ep=6)
    assert sorted(split.groups(axis).ravel().tolist()) == list(range(48))
    if axis != "pp":
        in_stage = [split.stage_groups(axis, stage).ravel().tolist() for stage in range(2)]
        assert [sorted(ranks) for ranks in in_stage] == [split.stage_ranks(s).tolist() for s in range(2)]
        assert in_stage[1][0] == 24


@pytest.mark.parametrize(
    ("model", "sizes", "says"),
    [
        ("llama2-7b", {"pp": 5}, "pp=5 does not divide the model's 32 layers: choose pp from 1, 2, 4, 8, 16, 32"),
        ("gpt3-175b", {"tp": 5}, "tp=5 does not divide the model's 96 heads"),
        ("llama2-70b", {"tp": 16}, "tp=16 does not divide the model's 8 kv_heads"),
        ("llama2-7b", {"dp": 2, "ep": 2}, "ep=2 for a model without experts"),
        ("mixtral-8x7b", {"dp": 3, "ep": 3}, "ep=3 does not divide the model's 8 experts"),
        ("llama2-7b:sequence=4097", {"cp": 2}, "cp=2 needs a sequence that 2 x 2 divides, not 4097"),
    ],
)
def test_a_split_through_what_cannot_be_cut_is_refused(model: str, sizes: dict[str, int], says: str) -> None:
    with pytest.raises(TrafficError, match=says):
        check_split(parse_model(model), Split(**sizes))


def test_experts_are_spread_over_ranks_that_there_are() -> None:
    with pytest.raises(TrafficError, match="ep=4 does not divide the 6 ranks of dp=6 x cp=1"):
        Split(dp=6, ep=4)
    with pytest.raises(TrafficError, match="dp=0: a split needs 1 or more"):
        Split(dp=0)


def test_a_split_uses_every_rank() -> None:
    check_ranks(Split(tp=2, dp=4), 8)
    with pytest.raises(TrafficError, match="tp=2 x cp=1 x dp=4 x pp=1 is 8 ranks, not 16"):
        check_ranks(Split(tp=2, dp=4), 16)
