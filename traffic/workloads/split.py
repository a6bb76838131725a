"""How a model is split over ranks: which ranks form a tensor, context, data, pipeline or expert parallel group.

Megatron-Core's map with its default order 'tp-cp-ep-dp-pp' (megatron/core/parallel_state.py): the tensor parallel rank
varies fastest, the pipeline stage slowest. Experts have a map of their own over the same ranks, 'tp-ep-dp-pp': within a
stage, expert parallel groups take neighbouring tensor parallel groups, whatever these do for the dense layers.

    rank = t + tp (c + cp (d + dp stage))        dense layers
    rank = t + tp (e + ep (d' + dp' stage))      experts, dp' = cp dp / ep
"""

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from traffic.errors import TrafficError
from traffic.workloads.models import Model

# (groups, ranks in each): one group per row, ordered as the collective's ranks 0, 1, ...
Groups = NDArray[np.int32]

# What the names of groups stand for, as axes of the two maps.
_DENSE = ("pp", "dp", "cp", "tp")
_EXPERT = ("pp", "expert_dp", "ep", "tp")
AXES = {
    "tp": (_DENSE, ("tp",)),
    "cp": (_DENSE, ("cp",)),
    "dp": (_DENSE, ("dp",)),
    # Context parallel ranks hold the same weights: gradients are reduced over both.
    "dp_cp": (_DENSE, ("dp", "cp")),
    "pp": (_DENSE, ("pp",)),
    "ep": (_EXPERT, ("ep",)),
    "expert_dp": (_EXPERT, ("expert_dp",)),
}


@dataclass(frozen=True)
class Split:
    """Sizes: tensor, context, data, pipeline and expert parallel. Raises TrafficError for one that cannot be."""

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise TrafficError(f"{field.name}={getattr(self, field.name)}: a split needs 1 or more of each kind")
        if self.dp * self.cp % self.ep:
            raise TrafficError(
                f"ep={self.ep} does not divide the {self.dp * self.cp} ranks of dp={self.dp} x cp={self.cp}: "
                "expert parallel groups are taken from those"
            )

    @property
    def n_ranks(self) -> int:
        return self.tp * self.cp * self.dp * self.pp

    @property
    def expert_dp(self) -> int:
        """How many ranks hold the same experts."""
        return self.dp * self.cp // self.ep

    def groups(self, axis: str) -> Groups:
        """All groups of a kind in AXES, in the order of their first ranks."""
        names, along = AXES[axis]
        sizes = [getattr(self, name) for name in names]
        ranks = np.arange(self.n_ranks, dtype=np.int32).reshape(sizes)
        moved = [names.index(name) for name in along]
        return np.moveaxis(ranks, moved, range(-len(moved), 0)).reshape(-1, math.prod(sizes[i] for i in moved))

    def stage_groups(self, axis: str, stage: int) -> Groups:
        """Those within one pipeline stage, which has neighbouring ranks."""
        groups = self.groups(axis)
        within: Groups = groups[groups[:, 0] // (self.n_ranks // self.pp) == stage]
        return within

    def stage_ranks(self, stage: int) -> NDArray[np.int32]:
        size = self.n_ranks // self.pp
        return np.arange(stage * size, (stage + 1) * size, dtype=np.int32)


def check_ranks(split: Split, n_ranks: int) -> None:
    """Refuse a split that does not use the ranks there are."""
    if split.n_ranks != n_ranks:
        product = " x ".join(f"{name}={getattr(split, name)}" for name in ("tp", "cp", "dp", "pp"))
        raise TrafficError(
            f"{product} is {split.n_ranks} ranks, not {n_ranks}: the product must be the number of ranks"
        )


def check_split(model: Model, split: Split) -> None:
    """Refuse a split that cuts through what cannot be cut."""
    rules = (
        ("pp", "layers", model.layers),
        ("tp", "heads", model.heads),
        ("tp", "kv_heads", model.kv_heads),
        ("tp", "ffn", model.ffn),
    )
    for axis, what, whole in rules:
        _divides(split, axis, what, whole)
    # A causal mask gives each rank one piece from either end, so that all have the same work.
    if split.cp > 1 and model.sequence % (2 * split.cp):
        raise TrafficError(
            f"cp={split.cp} needs a sequence that 2 x {split.cp} divides, not {model.sequence}: "
            "each rank takes two pieces of it"
        )
    if split.ep > 1 and not model.experts:
        raise TrafficError(f"ep={split.ep} for a model without experts: use ep=1, or a model with experts")
    if model.experts:
        _divides(split, "ep", "experts", model.experts)


def _divides(split: Split, axis: str, what: str, whole: int) -> None:
    size = getattr(split, axis)
    if whole % size:
        allowed = [n for n in range(1, whole + 1) if whole % n == 0]
        raise TrafficError(
            f"{axis}={size} does not divide the model's {whole} {what}: choose {axis} from {', '.join(map(str, allowed))}"
        )
