"""What an MSCCL XML file says, as data with line numbers: GPUs, thread blocks, steps. What the steps mean: msccl.py."""

from collections.abc import Iterator
from dataclasses import dataclass

from traffic.formats.source import MAX_OPERATIONS, MAX_RANKS, Source, shown
from traffic.formats.xml_tree import Element, parse_xml

# MSCCL's names; ours are contracts.CONTRACTS.
COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
# type: receives, adds, sends, is local.
TYPES = {
    "s": (False, False, True, False),
    "r": (True, False, False, False),
    "rcs": (True, False, True, False),
    "rrc": (True, True, False, False),
    "rrcs": (True, True, True, False),
    "rrs": (True, True, True, False),
    "cpy": (False, False, False, True),
    "re": (False, True, False, True),
    "nop": (False, False, False, False),
}
MAX_CHANNELS = 64


@dataclass(frozen=True)
class Place:
    """buffer: i, o or s; offset: its chunk there."""

    buffer: str
    offset: int


@dataclass(frozen=True)
class Step:
    """src and dst: where there is no such place, its offset is -1; after: (tb, step) of the same GPU."""

    line: int
    type: str
    src: Place
    dst: Place
    n_chunks: int
    after: tuple[int, int] | None

    @property
    def receives(self) -> bool:
        return TYPES[self.type][0]

    @property
    def adds(self) -> bool:
        return TYPES[self.type][1]

    @property
    def sends(self) -> bool:
        return TYPES[self.type][2]

    @property
    def is_local(self) -> bool:
        return TYPES[self.type][3]


@dataclass(frozen=True)
class ThreadBlock:
    """send, recv: the GPUs that it sends to and receives from, -1 for none."""

    line: int
    gpu: int
    id: int
    send: int
    recv: int
    channel: int
    steps: tuple[Step, ...]


# A step's place in the file: the thread block's number among all and its own.
At = tuple[int, int]


@dataclass(frozen=True)
class Program:
    """n_chunks: nchunksperloop, of the larger of input and output; n_scratch: (gpus,) chunks; blocks: of all GPUs."""

    collective: str
    n_gpus: int
    n_chunks: int
    in_place: bool
    n_scratch: tuple[int, ...]
    blocks: tuple[ThreadBlock, ...]

    def step(self, at: At) -> Step:
        return self.blocks[at[0]].steps[at[1]]


def read_program(source: Source) -> Program:
    """Raises TrafficError naming the line."""
    root = parse_xml(source)
    if root.tag != "algo":
        raise source.refusal(root.line, f"<{root.tag}> is no MSCCL algorithm: its root is <algo>")
    read = _Reader(source)
    coll = read.text(root, "coll")
    if coll not in COLLECTIVES:
        raise source.refusal(root.line, f"coll {shown(coll)} is not one that is known: use {', '.join(COLLECTIVES)}")
    if root.attributes.get("redop", "sum") not in ("sum", "nop"):
        raise source.refusal(root.line, f"redop {shown(root.attributes['redop'])}: reductions are sums here")
    n_gpus = read.whole(root, "ngpus", 1, MAX_RANKS)
    gpus = {read.whole(gpu, "id", 0, n_gpus - 1): gpu for gpu in read.children(root, "gpu")}
    if len(gpus) != n_gpus or len(gpus) != len(root.children):
        raise source.refusal(root.line, f"ngpus is {n_gpus}, and there are {len(root.children)} <gpu>: one for each id")
    n_chunks = read.whole(root, "nchunksperloop", 1, MAX_OPERATIONS)
    if coll != "allreduce" and n_chunks % n_gpus:
        raise source.refusal(root.line, f"nchunksperloop {n_chunks} is not {n_gpus} equal parts: {coll} needs that")
    in_place = read.whole(root, "inplace", 0, 1, default=0) == 1
    if in_place and coll == "alltoall":
        raise source.refusal(root.line, "inplace alltoall: an all-to-all has its output apart here: use inplace 0")
    return Program(
        COLLECTIVES[coll],
        n_gpus,
        n_chunks,
        in_place,
        tuple(read.whole(gpus[i], "s_chunks", 0, MAX_OPERATIONS, default=0) for i in range(n_gpus)),
        tuple(block for i in range(n_gpus) for block in read.blocks(gpus[i], i, n_gpus)),
    )


@dataclass(frozen=True)
class _Reader:
    source: Source

    def text(self, element: Element, name: str) -> str:
        if name not in element.attributes:
            raise self.source.refusal(element.line, f"<{element.tag}> has no {name}")
        return element.attributes[name]

    def whole(self, element: Element, name: str, least: int, most: int, default: int | None = None) -> int:
        if default is not None and name not in element.attributes:
            return default
        return self.source.whole(element.line, name, self.text(element, name), least, most)

    def children(self, element: Element, tag: str) -> Iterator[Element]:
        for child in element.children:
            if child.tag != tag:
                raise self.source.refusal(child.line, f"<{child.tag}> in <{element.tag}>: only <{tag}> is known there")
            yield child

    def blocks(self, gpu: Element, number: int, n_gpus: int) -> Iterator[ThreadBlock]:
        ids = set()
        for tb in self.children(gpu, "tb"):
            id_ = self.whole(tb, "id", 0, MAX_OPERATIONS)
            if id_ in ids:
                raise self.source.refusal(tb.line, f"tb {id_} is there twice in gpu {number}")
            ids.add(id_)
            send, recv = (self.whole(tb, name, -1, n_gpus - 1) for name in ("send", "recv"))
            if number in (send, recv):
                raise self.source.refusal(tb.line, f"tb {id_} of gpu {number} is joined to its own gpu: use cpy or re")
            steps = tuple(self.step(child, s) for s, child in enumerate(self.children(tb, "step")))
            for step in steps:
                for does, peer, name in ((step.sends, send, "send"), (step.receives, recv, "recv")):
                    if does and peer < 0:
                        raise self.source.refusal(step.line, f"type {step.type} needs a peer, and its tb has {name} -1")
            yield ThreadBlock(tb.line, number, id_, send, recv, self.whole(tb, "chan", 0, MAX_CHANNELS - 1, 0), steps)

    def step(self, step: Element, number: int) -> Step:
        if self.whole(step, "s", 0, MAX_OPERATIONS) != number:
            raise self.source.refusal(step.line, f"step {step.attributes['s']} stands where step {number} is due")
        type_ = self.text(step, "type")
        if type_ not in TYPES:
            raise self.source.refusal(
                step.line, f"type {shown(type_)} is not one that is known: use {', '.join(TYPES)}"
            )
        moves = type_ != "nop"
        depid, deps = (self.whole(step, name, -1, MAX_OPERATIONS, -1) for name in ("depid", "deps"))
        return Step(
            step.line,
            type_,
            self._place(step, "src", needed=type_ in ("s", "cpy", "re")),
            self._place(step, "dst", needed=moves and type_ != "s"),
            self.whole(step, "cnt", 1, MAX_OPERATIONS) if moves else 0,
            (depid, deps) if depid >= 0 and deps >= 0 else None,
        )

    def _place(self, step: Element, end: str, *, needed: bool) -> Place:
        if not needed:
            return Place("", -1)
        buffer = self.text(step, f"{end}buf")
        if buffer not in ("i", "o", "s"):
            raise self.source.refusal(step.line, f"{end}buf {shown(buffer)} is none of i, o and s")
        return Place(buffer, self.whole(step, f"{end}off", 0, MAX_OPERATIONS))
