"""The log of NCCL_DEBUG=INFO: the rings and trees that NCCL chose, as an all-reduce over them.

    ... NCCL INFO Channel 00/02 :    0   1   2   3          the ring of channel 0 of 2, said by rank 0
    ... NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] ...          channel by channel, children -> rank -> parent, said by each rank

Each channel has its share of the buffer and connections of its own. NCCL sets up both, and takes one or the other by its own
estimate; which one is said by the format's name: nccl-ring, nccl-tree.
"""

import re
from collections.abc import Iterator

import numpy as np

from traffic.collectives.defaults import PIPELINE_CHUNKS
from traffic.columns import ColumnBuilder
from traffic.errors import TrafficError
from traffic.formats.source import MAX_RANKS, Source
from traffic.rings import pass_around
from traffic.schedule import Schedule
from traffic.trees import ROOT, all_reduce_along

_MAX_CHANNELS = 64
_RING = re.compile(r"NCCL INFO Channel (\d+)/(\d+)\s*:((?:\s+\d+)+)\s*$")
_TREES = re.compile(r"NCCL INFO Trees((?:\s+\[\d+\]\s+\S+)+)\s*$")
_TREE = re.compile(r"\[(\d+)\]\s+(-?\d+)/(-?\d+)/(-?\d+)->(-?\d+)->(-?\d+)")
# How such lines begin; a channel's way between two ranks, `Channel 00/0 : 0[0] -> 1[1]`, does not.
_RING_BEGINS = re.compile(r"NCCL INFO Channel \d+/\d+\s*:\s+\d+\s")
_TREES_BEGIN = re.compile(r"NCCL INFO Trees\b")


def read_nccl_rings(source: Source) -> Schedule:
    """Raises TrafficError naming the line."""
    rings: dict[int, list[int]] = {}
    n_channels, last = 0, 0
    for line, found in _matches(source, _RING_BEGINS, _RING):
        channel, n_channels, last = _channel(source, line, found[1]), _channel(source, line, found[2]), line
        ring = [source.whole(line, "rank", rank, 0, MAX_RANKS - 1) for rank in found[3].split()]
        if sorted(ring) != list(range(len(ring))) or len(ring) < 2:
            raise source.refusal(line, f"the ring of channel {channel} is not over all ranks, each once: {ring}")
        if rings.setdefault(channel, ring) != ring or len(ring) != len(next(iter(rings.values()))):
            raise source.refusal(line, f"channel {channel} is another communicator's: use the log of one")
    if not rings:
        raise TrafficError(
            f"{source.name}: no rings: there is no line NCCL INFO Channel 00/01 : 0 1 ...; set NCCL_DEBUG=INFO"
        )
    if sorted(rings) != list(range(n_channels)):
        raise source.refusal(last, f"of {n_channels} channels only {sorted(rings)} are there: the log is not whole")
    n_ranks = len(rings[0])
    columns = ColumnBuilder("all_reduce", source.name, n_ranks, n_channels * n_ranks)
    for channel, ring in rings.items():
        pass_around(
            columns,
            np.array([ring]),
            steps=2 * (n_ranks - 1),
            reducing=n_ranks - 1,
            blocks=channel * n_ranks + np.arange(n_ranks)[None],
            channel=channel,
        )
    return columns.build()


def read_nccl_trees(source: Source) -> Schedule:
    """Raises TrafficError naming the line."""
    # By channel and rank: the line, the parent and the children.
    trees: dict[int, dict[int, tuple[int, int, list[int]]]] = {}
    for line, found in _matches(source, _TREES_BEGIN, _TREES):
        said = _TREE.findall(found[1])
        if len(said) != found[1].count("["):
            raise source.refusal(line, "a tree is written [CHANNEL] CHILD/CHILD/CHILD->RANK->PARENT, -1 for none")
        for text, *below, rank_text, up in said:
            channel, rank = _channel(source, line, text), source.whole(line, "rank", rank_text, 0, MAX_RANKS - 1)
            parent = source.whole(line, "parent", up, -1, MAX_RANKS - 1)
            children = [source.whole(line, "child", child, -1, MAX_RANKS - 1) for child in below]
            tree = trees.setdefault(channel, {})
            if tree.get(rank, (line, parent, children))[1:] != (parent, children):
                raise source.refusal(
                    line, f"rank {rank} is another communicator's in channel {channel}: use the log of one"
                )
            tree[rank] = (line, parent, children)
    if not trees:
        raise TrafficError(f"{source.name}: no trees: there is no line NCCL INFO Trees [0] ...; set NCCL_DEBUG=INFO")
    n_ranks = max(len(tree) for tree in trees.values())
    if sorted(trees) != list(range(len(trees))) or n_ranks < 2:
        raise TrafficError(f"{source.name}: channels {sorted(trees)} of {n_ranks} ranks: the log is not whole")
    columns = ColumnBuilder("all_reduce", source.name, n_ranks, len(trees) * PIPELINE_CHUNKS)
    for channel, tree in sorted(trees.items()):
        _check_tree(source, channel, tree, n_ranks)
        parents = np.array([tree[rank][1] if tree[rank][1] >= 0 else ROOT for rank in range(n_ranks)])
        chunks = channel * PIPELINE_CHUNKS + np.arange(PIPELINE_CHUNKS)
        try:
            all_reduce_along(columns, parents, chunks, channel=channel)
        except TrafficError as error:
            raise TrafficError(f"{source.name}: channel {channel}: {error}") from None
    return columns.build()


def _matches(source: Source, begins: re.Pattern[str], whole: re.Pattern[str]) -> Iterator[tuple[int, re.Match[str]]]:
    """Lines that are `whole`; those that only begin so are refused, all others say something else."""
    for line, text in source.lines("\0"):
        if found := whole.search(text):
            yield line, found
        elif begins.search(text):
            raise source.refusal(line, "the line is cut: the log is not whole, or several programs wrote into it")


def _channel(source: Source, line: int, text: str) -> int:
    return source.whole(line, "channel", text, 0, _MAX_CHANNELS)


def _check_tree(source: Source, channel: int, tree: dict[int, tuple[int, int, list[int]]], n_ranks: int) -> None:
    """All ranks speak, and say the same of each other."""
    silent = sorted(set(range(n_ranks)) - tree.keys())
    if silent:
        raise TrafficError(
            f"{source.name}: channel {channel} has no Trees line of rank {silent[0]}: use the log of all ranks"
        )
    for rank, (line, _, children) in tree.items():
        below = sorted(child for child in children if child >= 0)
        really = sorted(other for other, (_, parent, _) in tree.items() if parent == rank)
        if below != really:
            raise source.refusal(
                line, f"rank {rank} has the children {below} in channel {channel}, and others say {really}"
            )
