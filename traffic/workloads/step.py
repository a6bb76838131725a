"""One training step of a model on a split, as a plan.

Per stage there is a main sequence of calculations and of the messages they wait for, a sequence of gradient messages, and
with ZeRO-3 one of parameter messages; they run beside each other where `overlap` allows. Arithmetic is that of the matrix
products; the optimiser takes no time.
"""

from collections.abc import Sequence

import numpy as np

from traffic.workloads.gradients import Piece, bucket_size, buckets, stage_pieces
from traffic.workloads.messages import LayerSteps, Message, Steps
from traffic.workloads.models import Model
from traffic.workloads.pipeline import ORDERS, Pass, interleaved
from traffic.workloads.plan import CALC, Phase, Plan, PlanBuilder
from traffic.workloads.split import Groups, Split
from traffic.workloads.training import Training, check_training


def training_step(model: Model, split: Split, training: Training) -> Plan:
    """The plan; raises TrafficError for a split or a step that cannot be."""
    check_training(model, split, training)
    builder = PlanBuilder(split.n_ranks)
    stages = [_Stage(builder, model, split, training, number) for number in range(split.pp)]
    # What arrives at a stage, by pass.
    arrived: dict[tuple[int, Pass], int] = {}
    for number, one_pass in interleaved(training.order, split.pp, training.microbatches):
        forward, microbatch = one_pass
        received = arrived.get((number, one_pass))
        stages[number].run(forward, microbatch, () if received is None else (received,))
        neighbour = number + 1 if forward else number - 1
        if 0 <= neighbour < split.pp:
            arrived[neighbour, one_pass] = stages[number].send(stages[neighbour].ranks, forward, microbatch)
    for stage in stages:
        stage.reduce_unsent()
    if model.tied and split.pp > 1:
        _reduce_tied_embedding(builder, model, split, training, stages)
    if training.zero in (1, 2):
        for stage in stages:
            stage.gather_parameters()
    return builder.build()


def _reduce_tied_embedding(
    builder: PlanBuilder, model: Model, split: Split, training: Training, stages: Sequence["_Stage"]
) -> None:
    """The first and the last stage each have the embedding, and add their gradients of it (Narayanan et al. 2021 keep it
    so; Megatron-LM's embedding group)."""
    ends = (stages[0], stages[-1])
    n_bytes = -(-model.vocabulary // split.tp) * model.hidden * training.gradient_bytes
    pairs = np.stack([stage.ranks for stage in ends], axis=1)
    after = tuple(number for stage in ends for number in stage.finished)
    number = builder.add(Phase("embedding gradients", "all_reduce", "embedding", pairs, n_bytes=n_bytes, after=after))
    for stage in ends:
        stage.finished = (number,)


class _Stage:
    def __init__(self, builder: PlanBuilder, model: Model, split: Split, training: Training, number: int) -> None:
        self.ranks = split.stage_ranks(number)
        self._builder = builder
        self._training = training
        self._steps = LayerSteps(model, split, training)
        self._name = f"stage {number}"
        self._groups = {axis: split.stage_groups(axis, number) for axis in ("tp", "cp", "ep", "dp_cp", "expert_dp")}
        self._pieces = stage_pieces(model, split, number)
        size = bucket_size(split, training)
        held = {"dp_cp": [p.dense for p in self._pieces], "expert_dp": [p.expert for p in self._pieces]}
        self._buckets = {axis: buckets(held[axis], size) for axis in held if self._is_shared(axis)}
        self._is_first, self._is_last = number == 0, number == split.pp - 1
        _, last = ORDERS[training.order](number, split.pp, training.microbatches)[-1]
        # A stage's last pass is backward. Only from ZeRO-2 on are gradients not summed over microbatches first.
        self._reduced_passes = range(training.microbatches) if training.zero > 1 else (last,)
        # The ends of the sequences: phases that the next one waits for.
        self._main: tuple[int, ...] = ()
        self._gradients: tuple[int, ...] = ()
        self._parameters: tuple[int, ...] = ()
        self._before_piece: tuple[int, ...] = ()
        self._unsent: list[tuple[str, int]] = []
        self._flops = 0.0

    @property
    def finished(self) -> tuple[int, ...]:
        return (*self._main, *self._gradients)

    @finished.setter
    def finished(self, phases: tuple[int, ...]) -> None:
        self._main = self._gradients = phases

    def run(self, forward: bool, microbatch: int, received: tuple[int, ...]) -> None:
        """One pass of one microbatch, once its input has been received."""
        self.reduce_unsent()
        self._main += received
        name = f"{self._name} {'forward' if forward else 'backward'} {microbatch}"
        order = range(len(self._pieces))
        for piece in reversed(order) if forward else order:
            if self._training.zero == 3:
                self._gather_piece(piece, name)
            for step in self._steps_of(piece, forward):
                if isinstance(step, Message):
                    self._send_all(step, name)
                else:
                    self._flops += step.flops
            if not forward and microbatch in self._reduced_passes:
                self._reduce_piece(piece, name)
        self._calc(name)

    def send(self, to: Groups, forward: bool, microbatch: int) -> int:
        """Activations to the next stage, or their gradients to the one before; the sender goes on meanwhile."""
        name = f"{self._name} sends {'activations' if forward else 'gradients'} {microbatch}"
        pairs = np.stack([self.ranks, to], axis=1)
        n_bytes = self._steps.sizes.boundary
        return self._builder.add(Phase(name, "sendrecv", "pp", pairs, n_bytes=n_bytes, after=self._main))

    def reduce_unsent(self) -> None:
        """Without overlap: gradients once the backward pass is done and handed on; nothing goes on meanwhile."""
        unsent, self._unsent = self._unsent, []
        for axis, parameters in unsent:
            self._reduce(axis, parameters, f"{self._name} gradients")
            self._main += self._gradients

    def gather_parameters(self) -> None:
        """ZeRO-1 and 2: each rank has updated its share of the parameters, and all need all of them."""
        for axis, cuts in self._buckets.items():
            for bucket in cuts:
                n_bytes = bucket.parameters * self._training.element_bytes
                self._gradients = self._collective(
                    f"{self._name} parameters", "all_gather", axis, n_bytes, self.finished
                )

    def _steps_of(self, piece: int, forward: bool) -> Steps:
        steps = self._steps
        if piece == 0:
            head = steps.head_forward() if forward else steps.head_backward()
            return head if self._is_last else iter(())
        if piece == len(self._pieces) - 1:
            embedding = steps.embedding_forward() if forward else steps.embedding_backward()
            return embedding if self._is_first else iter(())
        return steps.forward() if forward else steps.backward()

    def _calc(self, name: str) -> None:
        """What has been computed since the last message, as one phase."""
        if self._flops:
            phase = Phase(name, CALC, "", self.ranks[:, None], flops=self._flops, after=self._main)
            self._main = (self._builder.add(phase),)
            self._flops = 0.0

    def _send_all(self, message: Message, name: str) -> None:
        if self._is_shared(message.axis):
            self._calc(name)
            self._main = self._collective(name, message.collective, message.axis, message.n_bytes, self._main)

    def _is_shared(self, axis: str) -> bool:
        """A group of one has nothing to send."""
        return self._groups[axis].shape[1] > 1

    def _collective(
        self, name: str, collective: str, axis: str, n_bytes: int, after: tuple[int, ...]
    ) -> tuple[int, ...]:
        phase = Phase(name, collective, axis, self._groups[axis], n_bytes=n_bytes, after=after)
        return (self._builder.add(phase),)

    def _reduce_piece(self, piece: int, name: str) -> None:
        for axis, cuts in self._buckets.items():
            for bucket in cuts:
                if bucket.last_piece != piece:
                    continue
                if self._training.overlap:
                    self._calc(name)
                    self._reduce(axis, bucket.parameters, name)
                else:
                    self._unsent.append((axis, bucket.parameters))

    def _reduce(self, axis: str, parameters: int, name: str) -> None:
        collective = "reduce_scatter" if self._training.zero else "all_reduce"
        n_bytes = parameters * self._training.gradient_bytes
        self._gradients = self._collective(name, collective, axis, n_bytes, (*self._main, *self._gradients))

    def _gather_piece(self, number: int, name: str) -> None:
        """ZeRO-3: the piece's parameters, asked for when the piece before begins (overlap), or when it has ended."""
        self._calc(name)
        piece: Piece = self._pieces[number]
        start = self._before_piece if self._training.overlap else self._main
        gathered = (*start, *self._parameters)
        for axis, parameters in (("dp_cp", piece.dense), ("expert_dp", piece.expert)):
            if parameters and self._is_shared(axis):
                n_bytes = parameters * self._training.element_bytes
                gathered = self._collective(name, "all_gather", axis, n_bytes, gathered)
        self._parameters = gathered
        self._before_piece = self._main
        self._main += gathered
