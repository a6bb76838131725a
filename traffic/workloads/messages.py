"""What one layer sends and computes in its forward and backward pass, in order. Sizes are nccl-tests' `size`.

Tensor parallel (Shoeybi et al. 2019, arXiv:1909.08053, section 3): an all-reduce of the activations, b s h elements, behind
attention and behind the feed-forward part, and two more in the backward pass. With sequence parallelism (Korthikanti et
al. 2022, arXiv:2205.05198, section 4.2.2) each is an all-gather and a reduce-scatter; the backward pass gathers its saved
input again, because only a share is kept. Experts (GShard, arXiv:2006.16668): an all-to-all of every token's top_k copies
there and one back, the same in the backward pass; tokens are spread evenly over experts. Context parallel: keys and values
are gathered (as Llama 3's, arXiv:2407.21783, section 3.3.2), again in the backward pass, and their gradients scattered.

Left out, each less than a thousandth of the rest: the loss's reductions, the gradients of norms under sequence parallelism,
the gradient norm.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from traffic.workloads.models import Model, forward_flops
from traffic.workloads.split import Split
from traffic.workloads.training import Training


@dataclass(frozen=True)
class Message:
    """A collective of all groups of an axis in the stage."""

    collective: str
    axis: str
    n_bytes: int


@dataclass(frozen=True)
class Work:
    """Operations of one rank."""

    flops: float


Steps = Iterator[Message | Work]


@dataclass(frozen=True)
class Sizes:
    """Bytes of one microbatch. activations: of a tensor parallel group; boundary: what one rank hands to the next stage;
    keys: keys and values of the whole sequence, one tensor parallel rank's heads; routed: all copies of the group's tokens."""

    activations: int
    boundary: int
    keys: int
    routed: int


def sizes(model: Model, split: Split, training: Training) -> Sizes:
    tokens = training.microbatch_size * model.sequence // split.cp
    activations = tokens * model.hidden * training.element_bytes
    return Sizes(
        activations=activations,
        boundary=activations // split.tp if training.sequence_parallel else activations,
        keys=2 * training.microbatch_size * model.sequence * model.kv_hidden // split.tp * training.element_bytes,
        routed=activations * model.top_k,
    )


class LayerSteps:
    """The steps of a stage's parts; `forward` and `backward` name the layer's."""

    def __init__(self, model: Model, split: Split, training: Training) -> None:
        self.sizes = sizes(model, split, training)
        self._experts = model.experts > 0
        self._tp = split.tp
        self._sequence_parallel = training.sequence_parallel
        self._recompute = training.recompute
        flops = forward_flops(model)
        share = training.microbatch_size * model.sequence / split.cp / split.tp
        self._attention, self._mlp, self._head = flops.attention * share, flops.mlp * share, flops.head * share

    def forward(self) -> Steps:
        yield from self._block([Message("all_gather", "cp", self.sizes.keys), Work(self._attention)])
        if self._experts:
            yield from self._experts_there_and_back(self._mlp)
        else:
            yield from self._block([Work(self._mlp)])

    def backward(self) -> Steps:
        if self._recompute:
            yield from self.forward()
        if self._experts:
            yield from self._experts_there_and_back(2 * self._mlp)
        else:
            yield from self._block_backward([Work(2 * self._mlp)])
        keys = self.sizes.keys
        attention: list[Message | Work] = [
            Message("all_gather", "cp", keys),
            Work(2 * self._attention),
            Message("reduce_scatter", "cp", keys),
        ]
        yield from self._block_backward(attention)

    def embedding_forward(self) -> Steps:
        """Each tensor parallel rank looks up its rows of the vocabulary; the sum has them all."""
        yield self._reduced("all_reduce" if not self._sequence_parallel else "reduce_scatter")

    def embedding_backward(self) -> Steps:
        if self._sequence_parallel:
            yield self._reduced("all_gather")

    def head_forward(self) -> Steps:
        if self._sequence_parallel:
            yield self._reduced("all_gather")
        yield Work(self._head)

    def head_backward(self) -> Steps:
        if self._sequence_parallel:
            yield self._reduced("all_gather")
        yield Work(2 * self._head)
        yield self._reduced("reduce_scatter" if self._sequence_parallel else "all_reduce")

    def _block(self, inner: list[Message | Work]) -> Steps:
        if self._sequence_parallel:
            yield self._reduced("all_gather")
        yield from inner
        yield self._reduced("reduce_scatter" if self._sequence_parallel else "all_reduce")

    def _block_backward(self, inner: list[Message | Work]) -> Steps:
        if self._sequence_parallel:
            # The output's gradient; _block gathers the saved input.
            yield self._reduced("all_gather")
        yield from self._block(inner)

    def _experts_there_and_back(self, flops: float) -> Steps:
        """Within an expert, tensor parallel ranks each have a share of the tokens and need them all."""
        each = Message("all_to_all", "ep", self.sizes.routed // self._tp)
        yield each
        yield Message("all_gather", "tp", self.sizes.routed)
        yield Work(flops)
        yield Message("reduce_scatter", "tp", self.sizes.routed)
        yield each

    def _reduced(self, collective: str) -> Message:
        return Message(collective, "tp", self.sizes.activations)
