"""What data parallel ranks hold of the model, piece by piece, and the buckets in which gradients are sent.

The pieces of a stage, in the order in which the backward pass finishes them: the head (last stage), the layers from the
last to the first, the embedding (first stage).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from traffic.workloads.models import Model, embedding_parameters, head_parameters, layer_parameters
from traffic.workloads.split import Split
from traffic.workloads.training import Training


@dataclass(frozen=True)
class Piece:
    """Parameters on one rank: `dense` are the same on all data (and context) parallel ranks, `expert` on expert_dp ones."""

    dense: int
    expert: int = 0


def stage_pieces(model: Model, split: Split, stage: int) -> list[Piece]:
    """[head, layers from last to first, embedding]; a head or an embedding that is elsewhere is empty."""
    first, last = stage == 0, stage == split.pp - 1
    head = head_parameters(model, split.tp, apart=not model.tied or not first) if last else 0
    layer = Piece(*layer_parameters(model, split.tp, split.ep))
    embedding = embedding_parameters(model, split.tp) if first else 0
    return [Piece(head), *[layer] * (model.layers // split.pp), Piece(embedding)]


@dataclass(frozen=True)
class Bucket:
    """A message's parameters, all of whose gradients are there once `last_piece` is done."""

    parameters: int
    last_piece: int


def buckets(parameters: Sequence[int], size: int | None) -> list[Bucket]:
    """Cut the pieces, laid end to end, every `size` parameters, None = nowhere; the last bucket may be smaller."""
    found = []
    total = sum(parameters)
    size = size or max(1, total)
    end, piece = parameters[0], 0
    for start in range(0, total, size):
        stop = min(start + size, total)
        while end < stop:
            piece += 1
            end += parameters[piece]
        found.append(Bucket(stop - start, piece))
    return found


def bucket_size(split: Split, training: Training) -> int | None:
    """Parameters in a bucket, None = all: as asked, or Megatron-Core's default (distributed_data_parallel.py), which cuts
    only what overlaps."""
    if training.bucket_parameters or not training.overlap:
        return training.bucket_parameters
    return max(40_000_000, 1_000_000 * split.dp * split.cp)
