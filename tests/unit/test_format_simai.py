"""SimAI's workload text: groups, bytes and order of a pass by hand; what it asks that is not done is named."""

import numpy as np
import pytest

from tests.unit.broken_files import refusals
from tests.unit.traffic_fakes import Ticks, replayed
from traffic import Schedule, TrafficError
from traffic.check import verify
from traffic.contracts import buffer_ratio
from traffic.formats.simai import read_simai
from traffic.formats.source import Source

HEAD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 4 checkpoints: 0"
TWO_LAYERS = f"""{HEAD} checkpoint_initiates: 0
2
embedding -1 100 ALLREDUCE 400  0 NONE 0  0 NONE 0  7
attention -1 200 NONE 0  30 ALLREDUCE 400  40 REDUCESCATTER 1600  0
"""


def read(text: str | bytes) -> Schedule:
    return read_simai(Source("mine.txt", text if isinstance(text, bytes) else text.encode()))


def test_groups_and_bytes() -> None:
    """4 ranks: tensor parallel (0, 1) and (2, 3), data parallel (0, 2) and (1, 3)."""
    s = read(TWO_LAYERS)
    verify(s)
    assert (s.collective, s.algorithm, s.n_ranks) == ("trace", "mine.txt", 4)
    assert [(part.collective, tuple(part.ranks)) for part in s.parts] == [
        ("all_reduce", (0, 1)),
        ("all_reduce", (2, 3)),
        ("all_reduce", (0, 1)),
        ("all_reduce", (2, 3)),
        ("reduce_scatter", (0, 2)),
        ("reduce_scatter", (1, 3)),
    ]
    natural = s.natural_count or 0
    # An all-reduce of two sends its whole buffer, 100 elements; the reduce-scatter half of 400.
    assert s.sent_per_rank(natural).tolist() == [100 + 100 + 200] * 4
    assert natural / buffer_ratio(s) == 400
    assert replayed(s, natural, clock=Ticks(1000))[1] == 0


def test_what_is_computed_and_in_which_order() -> None:
    s = read(TWO_LAYERS)
    mine = np.flatnonzero(s.is_local & (s.src == 3) & (s.calc_ns > 0))
    # Forward both; backward the last layer's input and weight gradient; the first layer's update at the end.
    assert s.calc_ns[mine].tolist() == [100, 200, 30, 40, 7]
    # The second layer computes when the first layer's collective is over at this rank, its last message come and gone.
    before = {(int(s.src[d]), int(s.dst[d])) for d in _all_before(s, int(mine[1]))}
    assert {(2, 3), (3, 2), (3, 3)} <= before
    # The weight gradient's collective holds up nothing: the update of the first layer waits for calculations alone.
    reduce_scatter = {(1, 3), (3, 1)}
    assert not reduce_scatter & {(int(s.src[d]), int(s.dst[d])) for d in _all_before(s, int(mine[4]))}


def _all_before(s: Schedule, operation: int) -> set[int]:
    found: set[int] = set()
    ask = [operation]
    while ask:
        for d in s.deps_of(ask.pop()).tolist():
            if d not in found:
                found.add(d)
                ask.append(d)
    return found


def test_experts_have_groups_of_their_own() -> None:
    text = TWO_LAYERS.replace("ep: 1", "ep: 2").replace("ALLREDUCE 400  40", "ALLTOALL_EP 400  40")
    parts = [(part.collective, tuple(part.ranks)) for part in read(text).parts]
    assert parts[2:4] == [("all_to_all", (0, 2)), ("all_to_all", (1, 3))]


LAYER = "a -1 1 ALLREDUCE 400 1 NONE 0 1 NONE 0 1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "mine.txt: is empty"),
        (
            "DLRM\n1\n",
            "mine.txt:1: 'DLRM' is not a policy that is read: use HYBRID_TRANSFORMER_FWD_IN_BCKWD or HYBRID_TRANSFORMER",
        ),
        ("HYBRID_TRANSFORMER ep: 1", "mine.txt:1: there is no model_parallel_NPU_group: N in the first line"),
        (
            HEAD.replace("pp: 1", "pp: 2", 1),
            "mine.txt:1: pp 2: the format does not say what stages send each other: use a file of pp 1",
        ),
        (
            HEAD.replace("checkpoints: 0", "checkpoints: 1"),
            "mine.txt:1: checkpoints 1: computing forward again is not read: use 0",
        ),
        (HEAD.replace("ep: 1", "ep: 3"), "mine.txt:1: all_gpus 4 do not divide by model_parallel_NPU_group 2 x ep 3"),
        (f"{HEAD}\n2\n{LAYER}", "mine.txt:2: 2 layers are announced, and 1 follow: the file is not whole"),
        (f"{HEAD}\n1\n{LAYER} 5", "mine.txt:3: a layer has 12 columns, and this one 13"),
        (
            f"{HEAD}\n1\n{LAYER.replace('ALLREDUCE', 'BARRIER')}",
            (
                "mine.txt:3: collective 'BARRIER' is not read: use NONE, ALLREDUCE, ALLGATHER, REDUCESCATTER, ALLTOALL, "
                "BROADCAST, also with _EP or _DP_EP"
            ),
        ),
        (
            f"{HEAD}\n1\n{LAYER.replace('400', '4e2')}",
            "mine.txt:3: bytes '4e2' must be a whole number from 0 to 1099511627776",
        ),
        (
            f"{HEAD}\n1\n{LAYER.replace('ALLREDUCE', 'NONE')}",
            "mine.txt: nothing is sent: no layer has a collective of two ranks or more",
        ),
    ],
)
def test_a_bad_file_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(TrafficError) as refusal:
        read(text)
    assert str(refusal.value) == says


def test_broken_files_are_refused_in_one_line() -> None:
    texts = refusals(read, TWO_LAYERS.encode())
    assert len(texts) > 50
    assert all(text.startswith("mine.txt:") and "\n" not in text for text in texts)
