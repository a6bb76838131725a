"""How a step is trained: microbatches and their order, what is sharded (ZeRO), what overlaps, in which precision."""

from dataclasses import dataclass

from topologies import unknown
from traffic.errors import TrafficError
from traffic.workloads.models import Model
from traffic.workloads.pipeline import ORDERS
from traffic.workloads.split import Split, check_split


@dataclass(frozen=True)
class Training:
    """microbatches: per replica and step, of microbatch_size sequences each. order: of a pipeline's work, a key of ORDERS.

    zero: 0 gradients are all-reduced; 1 the optimiser's state is sharded, 2 gradients too, 3 parameters too (Rajbhandari et
    al. 2020, arXiv:1910.02054). overlap: gradients are sent while the backward pass goes on, and with ZeRO-3 parameters one
    layer ahead. sequence_parallel, recompute: Korthikanti et al. 2022 (arXiv:2205.05198); recomputed are whole layers.
    bucket_parameters: of one gradient message; None = Megatron-Core's max(40 million, 1 million x data parallel ranks), or
    all at once without overlap.
    gradient_bytes: of one gradient on the wire; 4, as Megatron-LM and Llama 3 reduce them, where weights have element_bytes.
    """

    microbatches: int = 1
    microbatch_size: int = 1
    order: str = "1f1b"
    zero: int = 0
    sequence_parallel: bool = False
    recompute: bool = False
    overlap: bool = True
    bucket_parameters: int | None = None
    element_bytes: int = 2
    gradient_bytes: int = 4

    def __post_init__(self) -> None:
        for name in ("microbatches", "microbatch_size", "bucket_parameters", "element_bytes", "gradient_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise TrafficError(f"{name}={value} is too small: use 1 or more")
        if self.zero not in range(4):
            raise TrafficError(f"zero={self.zero}: the stages are 0 (nothing sharded), 1, 2 and 3")
        if self.order not in ORDERS:
            raise TrafficError(unknown("pipeline order", self.order, ORDERS))


def check_training(model: Model, split: Split, training: Training) -> None:
    """Refuse a step that cannot be, of a split that can."""
    check_split(model, split)
    if training.zero > 1 and split.pp > 1:
        raise TrafficError(
            f"zero={training.zero} with pp={split.pp}: gradients that a pipeline sums over microbatches cannot be sharded "
            "in between; use zero=1, or pp=1"
        )
    if split.tp > 1 and model.experts and not training.sequence_parallel:
        raise TrafficError(
            f"experts with tp={split.tp} would send every token {split.tp} times: use sequence_parallel, or tp=1"
        )
    if training.sequence_parallel and model.sequence % (split.tp * split.cp):
        raise TrafficError(
            f"sequence_parallel with tp={split.tp} and cp={split.cp} does not divide the sequence of {model.sequence}: "
            "choose a sequence that their product divides"
        )
