"""Models by their published parameters: how many weights they have and how much arithmetic a token costs.

A decoder of equal layers, as GPT-3, Llama and Mixtral are: attention (with fewer key and value heads than query heads if
`kv_heads` says so) and a feed-forward part, which is one matrix pair (`gated`: three matrices, SwiGLU) or `experts` of them
with `top_k` used by each token. `biased` is GPT's kind: biases, layer norms with a shift, learned positions, and an output
matrix that is the embedding (`tied`). To add a model: a line in MODELS, with where its parameters were published.
"""

from dataclasses import dataclass, fields

from topologies import unknown
from topologies.topology import parse_parameters
from traffic.errors import TrafficError


@dataclass(frozen=True)
class Model:
    """layers, hidden, ffn (width of the feed-forward part, of each expert), heads, kv_heads, vocabulary, sequence (tokens)."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocabulary: int
    sequence: int
    gated: bool = True
    biased: bool = False
    tied: bool = False
    experts: int = 0
    top_k: int = 0

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "ffn", "heads", "kv_heads", "vocabulary", "sequence"):
            if getattr(self, name) < 1:
                raise TrafficError(f"a model with {name}={getattr(self, name)}: use 1 or more")
        if self.hidden % self.heads or self.heads % self.kv_heads:
            raise TrafficError(
                f"{self.hidden} hidden, {self.heads} heads, {self.kv_heads} kv_heads: each must divide the one before"
            )
        if not 0 <= self.top_k <= self.experts or bool(self.top_k) != bool(self.experts):
            raise TrafficError(
                f"top_k={self.top_k} of {self.experts} experts: use 1 to the number of experts, or 0 of 0"
            )

    @property
    def kv_hidden(self) -> int:
        """Width of the keys, and of the values."""
        return self.hidden // self.heads * self.kv_heads

    @property
    def attention_weights(self) -> int:
        """Queries, keys, values and the output projection of one layer, without biases."""
        return 2 * self.hidden * (self.hidden + self.kv_hidden)

    @property
    def mlp_weights(self) -> int:
        """One feed-forward part, or one expert, without biases."""
        return (3 if self.gated else 2) * self.hidden * self.ffn

    @property
    def parameters(self) -> int:
        """All of them. For GPT's kind 12 l h^2 (1 + 13/12h + (V + s)/12lh) + 2h: Narayanan et al. 2021 (arXiv:2104.04473),
        equation 2, and the last layer norm that it leaves out."""
        dense, expert = layer_parameters(self)
        return self.layers * (dense + expert) + embedding_parameters(self) + head_parameters(self, apart=not self.tied)

    @property
    def active_parameters(self) -> int:
        """Those that one token meets: of the experts only its top_k."""
        idle = self.layers * (self.experts - self.top_k) * (self.mlp_weights + self._mlp_biases)
        return self.parameters - idle

    @property
    def _mlp_biases(self) -> int:
        return self.ffn + self.hidden if self.biased else 0


def layer_parameters(model: Model, tp: int = 1, ep: int = 1) -> tuple[int, int]:
    """One layer's (dense, expert) parameters on one of tp x ep ranks; Megatron keeps norms, router and the biases of the
    two output projections whole on each tensor parallel rank. tp must divide the heads and ffn, ep the experts."""
    h = model.hidden
    norms = 2 * (2 if model.biased else 1) * h
    dense = model.attention_weights // tp + norms
    mlp = model.mlp_weights // tp
    if model.biased:
        dense += (h + 2 * model.kv_hidden) // tp + h
        mlp += model.ffn // tp + h
    if not model.experts:
        return dense + mlp, 0
    return dense + h * model.experts, model.experts // ep * mlp


def embedding_parameters(model: Model, tp: int = 1) -> int:
    """Of the first stage: the rows of the vocabulary split over tp ranks (the last ones' padding is counted), learned
    positions whole. Megatron pads the vocabulary further, to a multiple of 128 tp."""
    positions = model.sequence * model.hidden if model.biased else 0
    return -(-model.vocabulary // tp) * model.hidden + positions


def head_parameters(model: Model, tp: int = 1, *, apart: bool) -> int:
    """Of the last stage: the last norm, and the output matrix where it is `apart` from the embedding in memory."""
    norm = (2 if model.biased else 1) * model.hidden
    return norm + (-(-model.vocabulary // tp) * model.hidden if apart else 0)


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of one token's forward pass; the backward pass takes twice as many, one for the inputs'
    and one for the weights' gradients."""

    attention: int
    mlp: int
    head: int


def forward_flops(model: Model) -> Flops:
    """Per token; attention and mlp are of one layer. 2 per weight, and 4 s h for the scores and what they weigh: as
    Narayanan et al. 2021, appendix, and PaLM (arXiv:2204.02311, appendix B) count, without the causal mask's saving."""
    router = 2 * model.hidden * model.experts
    return Flops(
        attention=2 * model.attention_weights + 4 * model.sequence * model.hidden,
        mlp=2 * model.mlp_weights * max(1, model.top_k) + router,
        head=2 * model.vocabulary * model.hidden,
    )


def training_flops(model: Model, tokens: float, *, recompute: bool = False) -> float:
    """Of training on `tokens`: close to 6 x parameters x tokens while the sequence is short against 6 h. recompute: each
    layer's forward pass runs once more in the backward pass, and it is close to 8."""
    flops = forward_flops(model)
    layers = model.layers * (flops.attention + flops.mlp)
    return tokens * ((4 if recompute else 3) * layers + 3 * flops.head)


def training_time_s(
    tokens: float,
    parameters: float,
    device_flops_s: float,
    devices: int,
    efficiency: float = 1.0,
    *,
    per_weight: int = 6,
) -> float:
    """data x parameters / (device rate x devices x parallel efficiency), with per_weight operations per weight and token:
    6, or 8 with recomputation, as in Narayanan et al. 2021, equation 4 (there the device rate is the one achieved)."""
    return per_weight * tokens * parameters / (device_flops_s * devices * efficiency)


def gpt(layers: int, hidden: int, heads: int, vocabulary: int = 51200, sequence: int = 2048) -> Model:
    """GPT's kind; the defaults are those of Narayanan et al. 2021, table 1."""
    return Model(layers, hidden, 4 * hidden, heads, heads, vocabulary, sequence, gated=False, biased=True, tied=True)


MODELS: dict[str, Model] = {
    # Brown et al. 2020 (arXiv:2005.14165), table 2.1; the vocabulary is GPT-2's.
    "gpt3-175b": gpt(96, 12288, 96, vocabulary=50257),
    # Narayanan et al. 2021 (arXiv:2104.04473), table 1.
    "megatron-18b": gpt(40, 6144, 48),
    "megatron-1t": gpt(128, 25600, 160),
    # Touvron et al. 2023 (arXiv:2307.09288), table 1; ffn and vocabulary from the released configurations.
    "llama2-7b": Model(32, 4096, 11008, 32, 32, 32000, 4096),
    "llama2-70b": Model(80, 8192, 28672, 64, 8, 32000, 4096),
    # Llama Team 2024 (arXiv:2407.21783), table 3; the sequence is that of its pre-training.
    "llama3-8b": Model(32, 4096, 14336, 32, 8, 128256, 8192),
    "llama3-405b": Model(126, 16384, 53248, 128, 8, 128256, 8192),
    # Jiang et al. 2024 (arXiv:2401.04088), table 1: its context is 32768; batches of 4096 keep an iteration comparable.
    "mixtral-8x7b": Model(32, 4096, 14336, 32, 8, 32000, 4096, experts=8, top_k=2),
}


def parse_model(text: str) -> Model:
    """'llama2-7b', or with parameters of one's own: 'llama2-7b:layers=4,sequence=2048'. Refuses with the known names."""
    name, _, changes = text.partition(":")
    if name not in MODELS:
        raise TrafficError(unknown("model", name, MODELS))
    values = {field.name: getattr(MODELS[name], field.name) for field in fields(Model)}
    parsed = parse_parameters(Model, changes, f"model {text!r}")
    if kind := [key for key in parsed if isinstance(values[key], bool)]:
        raise TrafficError(f"model {text!r}: {kind[0]} belongs to the kind of model: change sizes only")
    return Model(**{**values, **parsed})
