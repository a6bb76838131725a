"""Alpha-beta closed forms of collectives: what they take where every message has its links to itself.

T = steps x alpha + share x S / B, with alpha the latency of a message, S nccl-tests' size and B the rate of a rank's interface
in each direction. After Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005;
the trees after Sanders, Speck and Träff, 2009.

Times of one message over several links, and of messages that queue on a ring, are those of ASTRA-sim's analytical network
models, whose published constants the tests reproduce: any unit of time, the same for all arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass

from traffic.collectives.defaults import PIPELINE_CHUNKS


@dataclass(frozen=True)
class ClosedForm:
    """steps: messages one after the other, each an alpha; share: what a rank's interface carries of S meanwhile."""

    steps: int
    share: float

    def seconds(self, alpha_s: float, size_bytes: float, rate_mbps: float) -> float:
        return self.steps * alpha_s + self.share * size_bytes * 8e-6 / rate_mbps

    def __str__(self) -> str:
        return f"{self.steps} alpha + {self.share:.4g} S/B"


def closed_form(collective: str, algorithm: str, n_ranks: int) -> ClosedForm | None:
    """None where there is none here: unequal links (hierarchical), helpers, pipelined trees."""
    form = _FORMS.get((collective, algorithm))
    return form(n_ranks) if form and n_ranks > 1 else None


def _around(rounds: int) -> Callable[[int], ClosedForm]:
    """So many times round the ring, or to all others: n - 1 steps of S/n."""
    return lambda n: ClosedForm(rounds * (n - 1), rounds * (n - 1) / n)


def _halving(n: int) -> ClosedForm:
    """Of n = 2^k + r ranks r hand S over before, and get it back."""
    members = 1 << _floor_log2(n)
    folded = 2 if members < n else 0
    return ClosedForm(2 * _floor_log2(n) + folded, 2 * (members - 1) / members + folded)


def _recursive_doubling(n: int) -> ClosedForm | None:
    """Of 2^k ranks: others fold in beside what is under way."""
    return None if n & (n - 1) else ClosedForm(_floor_log2(n), _floor_log2(n))


def _chain(n: int) -> ClosedForm:
    """A pipeline along all ranks."""
    steps = n - 2 + PIPELINE_CHUNKS
    return ClosedForm(steps, steps / PIPELINE_CHUNKS)


def _binomial(n: int) -> ClosedForm:
    return ClosedForm(_ceil_log2(n), _ceil_log2(n))


def _to_all(n: int) -> ClosedForm:
    return ClosedForm(1, (n - 1) / n)


_FORMS: dict[tuple[str, str], Callable[[int], ClosedForm | None]] = {
    ("all_reduce", "ring"): _around(2),
    ("all_reduce", "halving-doubling"): _halving,
    ("all_reduce", "doubling-halving"): _halving,
    ("all_reduce", "recursive-doubling"): _recursive_doubling,
    ("reduce_scatter", "ring"): _around(1),
    ("reduce_scatter", "direct"): _to_all,
    ("all_gather", "ring"): _around(1),
    ("all_gather", "direct"): _to_all,
    ("all_to_all", "pairwise"): _around(1),
    ("all_to_all", "direct"): _to_all,
    ("broadcast", "ring"): _chain,
    ("broadcast", "binomial"): _binomial,
    ("reduce", "ring"): _chain,
    ("sendrecv", "direct"): lambda _: ClosedForm(1, 1.0),
}


def store_and_forward(hops: int, alpha: float, serialisation: float) -> float:
    """One message that every hop receives whole before it passes it on."""
    return hops * (alpha + serialisation)


def cut_through(hops: int, alpha: float, serialisation: float) -> float:
    """One message whose first byte goes on as it comes."""
    return hops * alpha + serialisation


def direct_on_ring(n_ranks: int, alpha: float, serialisation: float) -> float:
    """From each rank a message to every other at one time, each the shorter way round a ring of links that store, forward and
    serve in the order of arrival; serialisation >= alpha.

    Of the messages to distances 1 .. h, h = n // 2, every link carries d of distance d: h (h + 1) / 2. A link is never idle but
    once, for alpha, when the last but one has left it and the last is still to come; it arrives an alpha after it has left.
    """
    half = n_ranks // 2
    return half * (half + 1) // 2 * serialisation + min(half, 2) * alpha


def _floor_log2(n: int) -> int:
    return n.bit_length() - 1


def _ceil_log2(n: int) -> int:
    return (n - 1).bit_length()
