"""MSCCL XML (github.com/microsoft/msccl-tools, msccl/language/ir.py), as NCCL and RCCL read it, to a schedule.

The k-th send of a pair of GPUs on a channel is received by the k-th receiving step there. A thread block does its steps in order,
after those that `depid` and `deps` name. The place where a step receives, adds or sends on is `dst`: msccl-tools writes the
other GPU's place as `src` of steps that receive.

A received message goes straight to its place if nothing there could still be in use when it comes, else to a place of its own
first (as MSCCL's own connections have buffers of theirs); what is then done with it is an operation of the rank alone. An
output apart from the input is copied over it in the end, because a collective's buffer is one here.

If every message stays at the same place of a block of nchunksperloop chunks (alltoall: of a part), any size divides as in our own
algorithms; else chunks are equal and what is left over of a size is not sent.
"""

from collections import defaultdict, deque
from collections.abc import Mapping

from traffic.errors import TrafficError
from traffic.formats.msccl_buffers import Buffers
from traffic.formats.msccl_file import At, Place, Program, Step, ThreadBlock, read_program
from traffic.formats.progress import Progress, arrived, both, done, left, numbers
from traffic.formats.source import Source
from traffic.races import check_races, order
from traffic.schedule import Connection, Schedule, ScheduleBuilder


def read_msccl(source: Source) -> Schedule:
    """Raises TrafficError naming the line."""
    program = read_program(source)
    pairs = _matched(source, program)
    schedule = _Lowering(source, program, pairs, staged=False).run()
    try:
        check_races(schedule, order(schedule))
    except TrafficError:
        return _Lowering(source, program, pairs, staged=True).run()
    return schedule


def _matched(source: Source, program: Program) -> Mapping[Connection, list[tuple[At, At]]]:
    """By connection, its sending and its receiving steps, pair by pair."""
    ends: dict[bool, dict[Connection, list[At]]] = {True: {}, False: {}}
    for number, block in enumerate(program.blocks):
        for is_send, peer in ((True, block.send), (False, block.recv)):
            steps = [s for s, step in enumerate(block.steps) if (step.sends if is_send else step.receives)]
            connection = (block.gpu, peer, block.channel) if is_send else (peer, block.gpu, block.channel)
            if not steps:
                continue
            if connection in ends[is_send]:
                verb = "send to" if is_send else "receive from"
                raise source.refusal(
                    block.line,
                    f"two tb of gpu {block.gpu} {verb} gpu {peer} on channel {block.channel}: use one, or two channels",
                )
            ends[is_send][connection] = [(number, s) for s in steps]
    pairs = {}
    for connection in ends[True] | ends[False]:
        sends, receives = (ends[is_send].get(connection, []) for is_send in (True, False))
        if len(sends) != len(receives):
            more = sends if len(sends) > len(receives) else receives
            line = program.step(more[min(len(sends), len(receives))]).line
            src, dst, channel = connection
            raise source.refusal(
                line,
                f"gpu {src} sends {len(sends)} times to gpu {dst} on channel {channel}, which receives {len(receives)} times",
            )
        pairs[connection] = list(zip(sends, receives, strict=True))
        for send, receive in pairs[connection]:
            a, b = program.step(send), program.step(receive)
            if a.n_chunks != b.n_chunks:
                raise source.refusal(b.line, f"receives {b.n_chunks} chunks, and line {a.line} sends {a.n_chunks}")
    return pairs


class _Lowering:
    """Carries the thread blocks out, each as far as it gets, and writes down what is sent and done."""

    def __init__(
        self,
        source: Source,
        program: Program,
        pairs: Mapping[Connection, list[tuple[At, At]]],
        *,
        staged: bool,
    ) -> None:
        self._source, self._p, self._all_staged = source, program, staged
        self._buffers = Buffers(source, program)
        self._receiver = dict(pair for of in pairs.values() for pair in of)
        self._sender = {receive: send for send, receive in self._receiver.items()}
        self._block_of = {(b.gpu, b.id): number for number, b in enumerate(program.blocks)}
        # By receiving step, where its message lands at last, and of some where before.
        self._lands = {at: self._chunk(at, program.step(at).dst) for at in self._sender}
        self._staging = {
            at: self._buffers.staging(program.blocks[at[0]].gpu, chunk, program.step(at).n_chunks)
            for at, chunk in self._lands.items()
            if self._is_staged(program.step(at))
        }
        for send, receive in self._receiver.items():
            self._buffers.fit(self._comes_from(send), self._lands[receive])
        self._builder = self._new_builder()
        # By step: what must be over once it is; and of sending steps, the message's number.
        self._over: dict[At, Progress] = {}
        self._message: dict[At, int] = {}

    def run(self) -> Schedule:
        waiting: dict[tuple[str, At], list[int]] = defaultdict(list)
        next_step = [0] * len(self._p.blocks)
        ready = deque(range(len(self._p.blocks)))
        while ready:
            number = ready.popleft()
            for s in range(next_step[number], len(self._p.blocks[number].steps)):
                at = (number, s)
                if (missing := self._missing(at)) is not None:
                    waiting[missing].append(number)
                    break
                self._do(at)
                next_step[number] = s + 1
                ready.extend(waiting.pop(("over", at), []))
                ready.extend(waiting.pop(("sent", at), []))
        stuck = [(n, s) for n, s in enumerate(next_step) if s < len(self._p.blocks[n].steps)]
        if stuck:
            step = self._p.step(stuck[0])
            raise self._source.refusal(step.line, f"{step.type} can never begin: what it waits for waits for it")
        if self._buffers.has_own_output:
            self._copy_output()
        return self._builder.build()

    def _missing(self, at: At) -> tuple[str, At] | None:
        """What a step waits for that has not been done yet."""
        step = self._p.step(at)
        after = self._after(at)
        if after is not None and after not in self._over:
            return "over", after
        if step.receives and self._sender[at] not in self._message:
            return "sent", self._sender[at]
        return None

    def _after(self, at: At) -> At | None:
        block, step = self._p.blocks[at[0]], self._p.step(at)
        if step.after is None:
            return None
        number = self._block_of.get((block.gpu, step.after[0]))
        if number is None or step.after[1] >= len(self._p.blocks[number].steps):
            raise self._source.refusal(
                step.line, f"waits for step {step.after[1]} of tb {step.after[0]}: gpu {block.gpu} has none"
            )
        return number, step.after[1]

    def _do(self, at: At) -> None:
        block, step = self._p.blocks[at[0]], self._p.step(at)
        over = self._over.get((at[0], at[1] - 1), {})
        after = self._after(at)
        if after is not None:
            over = both(over, self._over[after])
        if step.is_local:
            over = self._local(block.gpu, step, self._chunk(at, step.src), self._chunk(at, step.dst), over)
        if step.receives:
            over = both(over, arrived((block.recv, block.gpu, block.channel), self._message[self._sender[at]]))
            if self._is_staged(step):
                over = self._unstage(at, over)
        if step.sends:
            over = self._send(at, block, over)
        self._over[at] = over

    def _send(self, at: At, block: ThreadBlock, over: Progress) -> Progress:
        connection = (block.gpu, block.send, block.channel)
        receive = self._receiver[at]
        other = self._p.step(receive)
        number = self._builder.send(
            block.gpu,
            block.send,
            self._comes_from(at),
            dst_chunk=self._staging.get(receive, self._lands[receive]),
            n_chunks=other.n_chunks,
            reduce=other.adds and not self._is_staged(other),
            after=numbers(over, connection),
            channel=block.channel,
        )
        self._message[at] = number
        return left(connection, number)

    def _unstage(self, at: At, over: Progress) -> Progress:
        """What is done with a message that did not go straight to its place: of rrs, this place is added to the message."""
        gpu, step = self._p.blocks[at[0]].gpu, self._p.step(at)
        here, place = self._staging[at], self._lands[at]
        ends = (place, here) if step.type == "rrs" else (here, place)
        return self._local(gpu, step, *ends, over)

    def _local(self, gpu: int, step: Step, chunk: int, into: int, over: Progress) -> Progress:
        number = self._builder.send(
            gpu, gpu, chunk, dst_chunk=into, n_chunks=step.n_chunks, reduce=step.adds, after=numbers(over)
        )
        return done(number)

    def _copy_output(self) -> None:
        """Over the input, once a rank's thread blocks are through."""
        k, part = self._p.n_chunks, self._buffers.part
        ends: dict[int, Progress] = {}
        for number, block in enumerate(self._p.blocks):
            last = self._over.get((number, len(block.steps) - 1), {})
            ends[block.gpu] = both(ends.get(block.gpu, {}), last)
        for gpu in range(self._p.n_gpus):
            first, n = (gpu * part, part) if self._p.collective == "reduce_scatter" else (0, k)
            self._builder.send(
                gpu, gpu, k + first, dst_chunk=first, n_chunks=n, reduce=False, after=numbers(ends.get(gpu, {}))
            )

    # -- places -------------------------------------------------------------------------------------------------------

    def _is_staged(self, step: Step) -> bool:
        return step.receives and (self._all_staged or step.type == "rrs")

    def _chunk(self, at: At, place: Place) -> int:
        return self._buffers.chunk(self._p.blocks[at[0]].gpu, self._p.step(at), place)

    def _comes_from(self, send: At) -> int:
        step = self._p.step(send)
        if step.type == "rrs":
            return self._staging[send]
        return self._chunk(send, step.src if step.type == "s" else step.dst)

    def _new_builder(self) -> ScheduleBuilder:
        buffers, name = self._buffers, self._source.name
        n_chunks = buffers.n_chunks
        return ScheduleBuilder(
            self._p.collective,
            name,
            self._p.n_gpus,
            n_chunks,
            n_data_chunks=buffers.n_data,
            n_blocks=n_chunks // buffers.unit,
        )
