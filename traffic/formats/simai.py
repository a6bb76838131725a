"""SimAI's and AICB's workload text, ASTRA-sim's first format: layers with what they compute and exchange, as one training pass.

    HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 4 checkpoints: 0
    1
    layer -1 556000 ALLREDUCE 4096  1 NONE 0  1 ALLREDUCE 8192  1

A layer's columns: name, -1, then three times computing (ns), collective and its bytes (nccl-tests' size): forward, input
gradient, weight gradient; then the update (ns). As in SimAI's Workload.cc all layers go forward, then from the last to the first
each does its input gradient and its weight gradient; collectives hold up what comes after, but for those of weight gradients,
after which only the layer's update waits. Forward and input gradient are among tensor parallel ranks, weight gradients among
data parallel ones; a collective's ending _EP or _DP_EP names the groups of experts instead. Collectives run by our default
algorithms.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

import traffic
from traffic.errors import TrafficError
from traffic.formats.source import MAX_CALC_NS, MAX_CHUNKS, MAX_MESSAGE_BYTES, MAX_OPERATIONS, MAX_RANKS, Source, shown
from traffic.schedule import Schedule
from traffic.workloads.plan import CALC, Phase, PlanBuilder
from traffic.workloads.planned import planned_schedule
from traffic.workloads.split import Groups, Split
from traffic.workloads.timing import Floats

TRACE = "trace"
_POLICIES = ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_TRANSFORMER")
_COLLECTIVES = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCESCATTER": "reduce_scatter",
    "ALLTOALL": "all_to_all",
    "BROADCAST": "broadcast",
}
_AXES = {"EP": "ep", "DP_EP": "expert_dp"}
_COLUMNS = 12


@dataclass(frozen=True)
class _Work:
    """collective: '' for none."""

    calc_ns: int
    collective: str
    axis: str
    n_bytes: int


@dataclass(frozen=True)
class _Layer:
    name: str
    forward: _Work
    input_gradient: _Work
    weight_gradient: _Work
    update_ns: int


def read_simai(source: Source) -> Schedule:
    """Raises TrafficError naming the line."""
    lines = source.lines("#")
    groups, n_ranks = _groups(source, *next(lines, (1, "")))
    line, count = next(lines, (1, ""))
    n_layers = source.whole(line, "number of layers", count, 1, MAX_OPERATIONS)
    layers = [_layer(source, line, text) for line, text in lines]
    if len(layers) != n_layers:
        raise source.refusal(line, f"{n_layers} layers are announced, and {len(layers)} follow: the file is not whole")
    made = _Pass(groups, n_ranks)
    for layer in layers:
        made.blocking(f"{layer.name} forward", layer.forward)
    for layer in reversed(layers):
        made.blocking(f"{layer.name} input gradient", layer.input_gradient)
        made.weight_gradient(layer)
    if made.n_sends > MAX_OPERATIONS or made.n_chunks * n_ranks > MAX_CHUNKS:
        raise TrafficError(f"{source.name}: up to {made.n_sends} messages are too many: use fewer layers or ranks")
    if not made.n_sends:
        raise TrafficError(f"{source.name}: nothing is sent: no layer has a collective of two ranks or more")
    planned = planned_schedule(made.plan.build(), made.calc_s, _default)
    return replace(planned.schedule, collective=TRACE, algorithm=source.name)


def _default(collective: str, group: tuple[int, ...]) -> Schedule:
    return traffic.schedule(collective, None, len(group))


# -- reading ----------------------------------------------------------------------------------------------------------


def _groups(source: Source, line: int, text: str) -> tuple[Mapping[str, Groups], int]:
    """Of the first line: axis -> groups of ranks, and how many ranks there are."""
    policy, *words = text.split() or [""]
    if policy not in _POLICIES:
        raise source.refusal(line, f"{shown(policy)} is not a policy that is read: use {' or '.join(_POLICIES)}")
    said = {name.removesuffix(":"): value for name, value in zip(words[::2], words[1::2], strict=False)}
    sizes = {}
    for name in ("model_parallel_NPU_group", "ep", "pp", "all_gpus"):
        if name not in said and name in ("model_parallel_NPU_group", "all_gpus"):
            raise source.refusal(line, f"there is no {name}: N in the first line")
        sizes[name] = source.whole(line, name, said.get(name, "1"), 1, MAX_RANKS)
    tp, ep, pp, n_ranks = sizes.values()
    if pp > 1:
        raise source.refusal(line, f"pp {pp}: the format does not say what stages send each other: use a file of pp 1")
    for name in ("checkpoints", "checkpoint_initiates"):
        if source.whole(line, name, said.get(name, "0"), 0, MAX_OPERATIONS):
            raise source.refusal(line, f"{name} {said[name]}: computing forward again is not read: use 0")
    if n_ranks % (tp * ep):
        raise source.refusal(line, f"all_gpus {n_ranks} do not divide by model_parallel_NPU_group {tp} x ep {ep}")
    split = Split(tp=tp, dp=n_ranks // tp, ep=ep)
    return {axis: split.groups(axis) for axis in ("tp", "dp", "ep", "expert_dp")}, n_ranks


def _layer(source: Source, line: int, text: str) -> _Layer:
    columns = text.split()
    if len(columns) != _COLUMNS:
        raise source.refusal(line, f"a layer has {_COLUMNS} columns, and this one {len(columns)}")

    def work(first: int, axis: str) -> _Work:
        calc, name, n_bytes = columns[first : first + 3]
        collective, _, group = name.partition("_")
        if (name != "NONE" and collective not in _COLLECTIVES) or (group and group not in _AXES):
            known = ", ".join(["NONE", *_COLLECTIVES])
            raise source.refusal(line, f"collective {shown(name)} is not read: use {known}, also with _EP or _DP_EP")
        return _Work(
            source.whole(line, "computing", calc, 0, MAX_CALC_NS),
            _COLLECTIVES.get(collective, ""),
            _AXES.get(group, axis),
            source.whole(line, "bytes", n_bytes, 0, MAX_MESSAGE_BYTES),
        )

    update_ns = source.whole(line, "update", columns[-1], 0, MAX_CALC_NS)
    return _Layer(columns[0], work(2, "tp"), work(5, "tp"), work(8, "dp"), update_ns)


# -- the pass ---------------------------------------------------------------------------------------------------------


class _Pass:
    """Phases of a plan; `last` is the one that the next waits for."""

    def __init__(self, groups: Mapping[str, Groups], n_ranks: int) -> None:
        self.plan = PlanBuilder(n_ranks)
        self.calc_s: list[Floats] = []
        self.n_sends = self.n_chunks = 0
        self._groups, self._n_ranks = groups, n_ranks
        self._last: tuple[int, ...] = ()

    def blocking(self, name: str, work: _Work) -> None:
        self._last = self._calc(name, work.calc_ns, self._last)
        self._last = self._exchange(name, work, self._last)

    def weight_gradient(self, layer: _Layer) -> None:
        name, work = f"{layer.name} weight gradient", layer.weight_gradient
        self._last = self._calc(name, work.calc_ns, self._last)
        self._calc(f"{layer.name} update", layer.update_ns, self._exchange(name, work, self._last))

    def _calc(self, name: str, calc_ns: int, after: tuple[int, ...]) -> tuple[int, ...]:
        if not calc_ns:
            return after
        everybody: Groups = np.arange(self._n_ranks, dtype=np.int32)[:, None]
        self.calc_s.append(np.full(self._n_ranks, calc_ns / 1e9))
        return (self.plan.add(Phase(name, CALC, "", everybody, after=after)),)

    def _exchange(self, name: str, work: _Work, after: tuple[int, ...]) -> tuple[int, ...]:
        groups = self._groups[work.axis]
        n_groups, n = groups.shape
        if not work.collective or n < 2 or not work.n_bytes:
            return after
        self.n_sends += n_groups * 2 * n * (n - 1)
        self.n_chunks += n_groups * 2 * n
        self.calc_s.append(np.zeros(0))
        return (self.plan.add(Phase(name, work.collective, work.axis, groups, work.n_bytes, after=after)),)
