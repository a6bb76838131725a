"""NCCL's log: an all-reduce over the rings or trees that it names, channel by channel."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

import traffic
from tests.unit.broken_files import refusals
from tests.unit.traffic_fakes import replayed
from traffic import Schedule, TrafficError
from traffic.check import verify
from traffic.formats.nccl_log import read_nccl_rings, read_nccl_trees
from traffic.formats.source import Source

PREFIX = "node1:4242:4250 [0] NCCL INFO "
RINGS = f"""NCCL version 2.27.3+cuda12.8
{PREFIX}comm 0x55 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0
{PREFIX}Channel 00/02 :    0   1   2   3
{PREFIX}Channel 01/02 :    0   3   1   2
{PREFIX}Channel 00/0 : 0[0] -> 1[1] via P2P/IPC
{PREFIX}Connected all rings
"""
# A chain 3 -> 2 -> 1 -> 0 (up), and 1 above 0 and 2, 2 above 3.
TREES = f"""{PREFIX}Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1
{PREFIX}Trees [0] 2/-1/-1->1->0 [1] 0/2/-1->1->-1
{PREFIX}Trees [0] 3/-1/-1->2->1 [1] 3/-1/-1->2->1
{PREFIX}Trees [0] -1/-1/-1->3->2 [1] -1/-1/-1->3->2
"""


def log(text: str) -> Source:
    return Source("nccl.log", text.encode())


def test_each_channel_goes_round_its_own_ring() -> None:
    s = read_nccl_rings(log(RINGS))
    verify(s)
    assert (s.collective, s.algorithm, s.n_ranks) == ("all_reduce", "nccl.log", 4)
    assert s.connections == [(0, 1, 0), (0, 3, 1), (1, 2, 0), (1, 2, 1), (2, 0, 1), (2, 3, 0), (3, 0, 0), (3, 1, 1)]
    # 2 x 3/4 of the buffer, as our own ring.
    assert s.sent_per_rank(8000).tolist() == [12_000] * 4
    assert s.sent_per_rank(8000).tolist() == traffic.schedule("all_reduce", "ring", 4).sent_per_rank(8000).tolist()
    assert replayed(s, 1003)[1] == 0


def test_each_channel_goes_up_and_down_its_own_tree() -> None:
    s = read_nccl_trees(log(TREES))
    verify(s)
    pairs = [{(src, dst) for src, dst, channel in s.connections if channel == c} for c in (0, 1)]
    assert pairs[0] == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}
    assert pairs[1] == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}
    # Half of the buffer to each neighbour in each tree, 2 (n - 1) of them in all.
    neighbours = np.array([1 + 1, 2 + 2, 2 + 2, 1 + 1])
    assert s.sent_per_rank(8000).tolist() == (neighbours * 4000).tolist()
    assert replayed(s, 1003)[1] == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "nccl.log: is empty"),
        ("hello", "nccl.log: no rings: there is no line NCCL INFO Channel 00/01 : 0 1 ...; set NCCL_DEBUG=INFO"),
        (PREFIX + "Channel 00/02 : 0 1", "nccl.log:1: of 2 channels only [0] are there: the log is not whole"),
        (PREFIX + "Channel 00/01 : 0 2", "nccl.log:1: the ring of channel 0 is not over all ranks, each once: [0, 2]"),
        (
            PREFIX + "Channel 00/01 : 0 1 2 3 no",
            "nccl.log:1: the line is cut: the log is not whole, or several programs wrote into it",
        ),
        (
            f"{PREFIX}Channel 00/01 : 0 1 2\n{PREFIX}Channel 00/01 : 0 2 1",
            "nccl.log:2: channel 0 is another communicator's: use the log of one",
        ),
        (PREFIX + "Channel 00/999 : 0 1", "nccl.log:1: channel '999' must be a whole number from 0 to 64"),
    ],
)
def test_rings_that_cannot_be_read_are_refused(text: str, says: str) -> None:
    with pytest.raises(TrafficError) as refusal:
        read_nccl_rings(log(text))
    assert str(refusal.value) == says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (RINGS, "nccl.log: no trees: there is no line NCCL INFO Trees [0] ...; set NCCL_DEBUG=INFO"),
        (
            TREES.replace("1/-1/-1->0->-1", "1/-1->0"),
            "nccl.log:1: a tree is written [CHANNEL] CHILD/CHILD/CHILD->RANK->PARENT, -1 for none",
        ),
        (TREES.rpartition(PREFIX)[0], "nccl.log:3: rank 2 has the children [3] in channel 0, and others say []"),
        (
            TREES.replace("2/-1/-1->1->0", "-1/-1/-1->1->0"),
            "nccl.log:2: rank 1 has the children [] in channel 0, and others say [2]",
        ),
        (
            TREES + f"{PREFIX}Trees [0] -1/-1/-1->3->1",
            "nccl.log:5: rank 3 is another communicator's in channel 0: use the log of one",
        ),
        (
            f"{PREFIX}Trees [0] 1/-1/-1->0->1\n{PREFIX}Trees [0] 0/-1/-1->1->0\n",
            "nccl.log: channel 0: the parents [1, 0] are no tree: one rank has the parent -1, and all others are below it",
        ),
    ],
)
def test_trees_that_cannot_be_read_are_refused(text: str, says: str) -> None:
    with pytest.raises(TrafficError) as refusal:
        read_nccl_trees(log(text))
    assert str(refusal.value) == says


def _read(read: Callable[[Source], Schedule], data: bytes) -> Schedule:
    return read(Source("nccl.log", data))


def test_broken_logs_are_refused_in_one_line() -> None:
    for read, good in ((read_nccl_rings, RINGS), (read_nccl_trees, TREES)):
        texts = refusals(partial(_read, read), good.encode())
        assert len(texts) > 50
        assert all(text.startswith("nccl.log:") and "\n" not in text for text in texts)
