"""A schedule as MSCCL XML: one thread block for each end of a connection, one for a GPU's local operations.

Data chunks are the buffer i, of an all-gather o (both in place), of an all-to-all i and o; what is beyond is scratch. A wait for
more than one step stands as `nop` steps before, as msccl-tools writes it.
"""

import xml.etree.ElementTree as ET
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from traffic.errors import TrafficError
from traffic.formats.msccl_file import COLLECTIVES
from traffic.races import order
from traffic.schedule import Schedule

_NAMES = {ours: theirs for theirs, ours in COLLECTIVES.items()}


@dataclass
class _Step:
    """waits: for (tb, step); the last stands in the step itself."""

    attributes: dict[str, str]
    waits: list[tuple[int, int]]
    is_waited_for: bool = False


@dataclass
class _Block:
    send: int
    recv: int
    channel: int
    steps: list[_Step] = field(default_factory=list)


def to_msccl(s: Schedule) -> str:
    """Raises TrafficError for what the format has no word for: other collectives, helpers, time spent computing."""
    _require_expressible(s)
    gpus: list[dict[object, _Block]] = [{} for _ in range(s.n_ranks)]
    at_src: dict[int, tuple[int, int]] = {}
    at_dst: dict[int, tuple[int, int]] = {}
    for i in _in_order(s).tolist():
        src, dst, channel = int(s.src[i]), int(s.dst[i]), int(s.channel[i])
        places = _place(s, int(s.first_chunk[i]), "src") | _place(s, int(s.dst_chunk[i]), "dst")
        moves = places | {"cnt": str(int(s.n_chunks_sent[i]))}
        waits = [at_dst[d] if s.dst[d] == src else at_src[d] for d in s.deps_of(i).tolist()]
        if src == dst:
            type_ = "re" if s.reduce[i] else "cpy"
            attributes = {"type": type_, **moves} if s.n_chunks_sent[i] else _nop()
            at_dst[i] = _add(gpus[src], "local", _Block(-1, -1, 0), attributes, waits)
            continue
        at_src[i] = _add(gpus[src], ("to", dst, channel), _Block(dst, -1, channel), {"type": "s", **moves}, waits)
        type_ = "rrc" if s.reduce[i] else "r"
        at_dst[i] = _add(gpus[dst], ("from", src, channel), _Block(-1, src, channel), {"type": type_, **moves}, [])
    return _xml(s, gpus)


def _require_expressible(s: Schedule) -> None:
    if s.collective not in _NAMES or s.composed_of:
        raise TrafficError(f"MSCCL XML has no {s.collective}: it has {', '.join(_NAMES)}")
    if s.n_members != s.n_ranks:
        raise TrafficError(
            f"MSCCL XML has no helpers, and {s.algorithm} has {s.n_ranks - s.n_members}: use another algorithm"
        )
    if s.calc_ns.any():
        raise TrafficError("MSCCL XML has no computing, and this schedule has: export it as GOAL")
    if s.chunk_elements is not None:
        raise TrafficError(
            "MSCCL XML has equal chunks only, and this schedule's have sizes of their own: export it as GOAL"
        )


def _in_order(s: Schedule) -> NDArray[np.int64]:
    """As they stand where that is possible, so that each connection keeps its order."""
    if (s.deps < s.waiting).all():
        return np.arange(len(s))
    return order(s).by_level


def _place(s: Schedule, chunk: int, end: str) -> dict[str, str]:
    data = s.n_data_chunks or s.n_chunks
    region = data // 2 if s.collective == "all_to_all" else data
    buffers = "o" if s.collective == "all_gather" else "io"
    buffer, offset = ("s", chunk - data) if chunk >= data else (buffers[chunk // region], chunk % region)
    return {f"{end}buf": buffer, f"{end}off": str(offset)}


def _nop() -> dict[str, str]:
    return {"type": "nop", "srcbuf": "i", "srcoff": "-1", "dstbuf": "o", "dstoff": "-1", "cnt": "0"}


def _add(
    gpu: dict[object, _Block], key: object, new: _Block, attributes: dict[str, str], waits: list[tuple[int, int]]
) -> tuple[int, int]:
    """A step at the end of its thread block; where it is. Waits within the block go without saying."""
    block = gpu.setdefault(key, new)
    number = list(gpu).index(key)
    for tb, step in waits:
        list(gpu.values())[tb].steps[step].is_waited_for = True
    other = [wait for wait in waits if wait[0] != number]
    block.steps += [_Step(_nop(), [wait]) for wait in other[:-1]]
    block.steps.append(_Step(attributes, other[-1:]))
    return number, len(block.steps) - 1


def _xml(s: Schedule, gpus: list[dict[object, _Block]]) -> str:
    data = s.n_data_chunks or s.n_chunks
    is_exchange = s.collective == "all_to_all"
    k = data // 2 if is_exchange else data
    n_channels = int(s.channel.max(initial=0)) + 1
    algo = ET.Element(
        "algo",
        name=s.algorithm,
        proto="Simple",
        nchannels=str(n_channels),
        nchunksperloop=str(k),
        ngpus=str(s.n_ranks),
        coll=_NAMES[s.collective],
        inplace="0" if is_exchange else "1",
    )
    for number, blocks in enumerate(gpus):
        inputs = k // s.n_ranks if s.collective == "all_gather" else k
        outputs = k // s.n_ranks if s.collective == "reduce_scatter" else k
        sizes = {"i_chunks": str(inputs), "o_chunks": str(outputs), "s_chunks": str(s.n_chunks - data)}
        gpu = ET.SubElement(algo, "gpu", {"id": str(number), **sizes})
        for id_, b in enumerate(blocks.values()):
            ends = {"send": str(b.send), "recv": str(b.recv), "chan": str(b.channel)}
            tb = ET.SubElement(gpu, "tb", {"id": str(id_), **ends})
            for n, step in enumerate(b.steps):
                ((depid, deps),) = step.waits or [(-1, -1)]
                waits = {"depid": str(depid), "deps": str(deps), "hasdep": str(int(step.is_waited_for))}
                ET.SubElement(tb, "step", {"s": str(n), **step.attributes, **waits})
    ET.indent(algo)
    return ET.tostring(algo, encoding="unicode") + "\n"
