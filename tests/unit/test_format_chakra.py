"""Chakra traces: groups, bytes and order by hand, the quirks of real ones, and the bytes of our own generators."""

import gzip

import numpy as np
import pytest

import traffic
from tests.unit.broken_files import refusals
from tests.unit.chakra_traces import COLLECTIVE, COMP, RECV, SEND, collective, node, trace
from tests.unit.traffic_fakes import Ticks, replayed
from traffic import Schedule, TrafficError
from traffic.check import verify
from traffic.contracts import buffer_ratio
from traffic.formats.chakra import read_chakra
from traffic.formats.source import Source

ACCELERATOR = ("is_cpu_op", False)


def read(*traces: bytes) -> Schedule:
    return read_chakra([Source(f"job.{rank}.et", data) for rank, data in enumerate(traces)])


def sent(s: Schedule) -> list[int]:
    """Bytes of each rank."""
    return [4 * int(n) for n in s.sent_per_rank(s.natural_count or 0)]


@pytest.mark.parametrize(
    ("comm_type", "name", "size"),
    [
        (0, "all_reduce", 1 << 20),
        (2, "all_gather", 1 << 17),
        (7, "reduce_scatter", 1 << 20),
        (6, "all_to_all", 1 << 20),
    ],
)
def test_a_collective_sends_what_our_own_generator_sends(comm_type: int, name: str, size: int) -> None:
    """8 ranks, 1 MiB; an all-gather's comm_size is each rank's own eighth."""
    s = read(*[trace(collective(0, comm_type, size))] * 8)
    verify(s)
    assert (s.collective, s.algorithm, [part.collective for part in s.parts]) == ("trace", "job.et", [name])
    ours = traffic.schedule(name, None, 8)
    count = (1 << 18) * 2 if name == "all_to_all" else 1 << 18
    assert sent(s) == (ours.sent_per_rank(count) * 4).tolist()
    # 2 (n - 1) / n of a MiB, or (n - 1) / n.
    assert sent(s) == [(1835008 if name == "all_reduce" else 917504)] * 8


def test_what_a_real_trace_says_twice_is_sent_once() -> None:
    """The CPU launched it, without a size; the accelerator ran it, in a node that stands before its parent; a barrier ends it."""
    one = trace(
        node(4, COMP, ACCELERATOR, us=20, deps=[7]),
        collective(5, 0, 4000, deps=[9], data=[4]),
        node(7, COMP, ("is_cpu_op", True), us=1_000_000),
        node(9, COLLECTIVE, ("is_cpu_op", True), ("comm_type", 0), deps=[7]),
        node(11, COLLECTIVE, ACCELERATOR, ("comm_type", 9), deps=[5]),
    )
    s = read(one, gzip.compress(one))
    verify(s)
    assert [part.collective for part in s.parts] == ["all_reduce", "all_reduce"]
    # Two ranks send the whole buffer each, 4000 bytes and one element; the CPU's second takes no time.
    assert sent(s) == [4004, 4004]
    assert s.calc_ns[s.calc_ns > 0].tolist() == [20_000, 20_000]
    assert replayed(s, s.natural_count or 0, clock=Ticks(1000))[1] == 0


def test_groups_are_the_ranks_that_name_them() -> None:
    def rank(*groups: str) -> bytes:
        return trace(*(collective(i, 0, 400, ("pg_name", name)) for i, name in enumerate(groups)))

    s = read(rank("tp0", "dp"), rank("tp0"), rank("dp", "tp1"), rank("tp1"))
    verify(s)
    assert {tuple(part.ranks) for part in s.parts} == {(0, 1), (0, 2), (2, 3)}
    assert sent(s) == [800, 400, 800, 400]


def test_messages_and_what_waits_for_them() -> None:
    """0 computes and sends 40 bytes to 1, which computes when they are there and answers with 80; then 0 computes."""
    s = read(
        trace(
            node(1, COMP, ACCELERATOR, us=1),
            node(2, SEND, ACCELERATOR, ("comm_dst", 1), ("comm_size", 40), ("comm_tag", 3), deps=[1]),
            node(3, RECV, ACCELERATOR, ("comm_src", 1), ("comm_size", 80)),
            node(4, COMP, ACCELERATOR, us=2, deps=[3]),
        ),
        trace(
            node(1, RECV, ACCELERATOR, ("comm_src", 0), ("comm_size", 40), ("comm_tag", 3)),
            node(2, COMP, ACCELERATOR, us=5, data=[1]),
            node(3, SEND, ACCELERATOR, ("comm_dst", 0), ("comm_size", 80), deps=[2]),
        ),
    )
    verify(s)
    natural = s.natural_count or 0
    rows = list(zip(s.src.tolist(), s.dst.tolist(), s.elements(natural).tolist(), s.calc_ns.tolist(), strict=True))
    assert rows == [(0, 0, 0, 1000), (0, 1, 10, 0), (1, 1, 0, 5000), (1, 0, 20, 0), (0, 0, 0, 2000)]
    assert [s.deps_of(i).tolist() for i in range(5)] == [[], [0], [1], [2], [3]]
    # The most in one direction is 80 bytes.
    assert natural / buffer_ratio(s) == 20
    assert replayed(s, natural, clock=Ticks(1000))[1] == 0


def test_collectives_are_met_in_the_order_of_their_ids_whatever_else_ranks_do() -> None:
    s = read(
        trace(collective(1, 0, 400), collective(2, 2, 400, deps=[1])),
        trace(collective(20, 2, 400), collective(10, 0, 400)),
    )
    verify(s)
    assert [part.collective for part in s.parts] == ["all_reduce", "all_gather"]
    np.testing.assert_array_equal(sent(s), [800, 800])


ONE = trace(collective(1, 0, 400))


@pytest.mark.parametrize(
    ("traces", "says"),
    [
        ((ONE,), "job.0.et: traces of 1 ranks: use 2 to 1024, NAME.0.et, NAME.1.et, ..."),
        ((ONE, b""), "job.1.et: is empty"),
        ((ONE, b"hello world"), "job.1.et: is no Chakra trace: a message is cut off"),
        ((ONE, ONE[:-3]), "job.1.et: is no Chakra trace: a message is cut off"),
        ((ONE, gzip.compress(ONE)[:-5]), "job.1.et: is no Chakra trace: the compressed data are cut off"),
        (
            (ONE, trace(node(1, COMP))),
            "job.1.et: has 0 collectives of all ranks, and others have 1: each rank takes part in all",
        ),
        (
            (ONE, trace(collective(1, 0, 404))),
            "job.1.et: node 1 is another collective than node 1 of rank 0: both are number 0 of all ranks",
        ),
        ((ONE, trace(collective(1, 1, 400))), "job.1.et: node 1 has comm_type 1: 0, 2, 5, 6, 7, 9 are read"),
        (
            (ONE, trace(node(1, COLLECTIVE, ACCELERATOR, ("comm_type", 0)))),
            "job.1.et: node 1 has comm_size None: a collective has 0 to 1099511627776 bytes",
        ),
        ((ONE, trace(node(1, 8))), "job.1.et: node 1 has type 8: 1 to 7 are read"),
        ((ONE, trace(collective(1, 0, 400, deps=[2]))), "job.1.et: node 1 waits for node 2, which is not there"),
        ((ONE, trace(collective(1, 0, 400), node(1, COMP))), "job.1.et: 2 nodes have 1 ids: each has its own"),
        (
            (ONE, trace(collective(1, 0, 400, deps=[2]), node(2, COMP, deps=[1]))),
            "job.0.et: node 1 never begins: what it waits for waits for it",
        ),
        (
            (trace(node(1, SEND, ("comm_dst", 1), ("comm_size", 4))), trace(node(1, COMP))),
            "job.0.et: sends 1 times to rank 1 with tag 0, and job.1.et receives 0 times",
        ),
        (
            (trace(node(1, SEND, ("comm_dst", 5), ("comm_size", 4))), trace(node(1, COMP))),
            "job.0.et: node 1 is joined to rank 5: the others are among 0 to 1",
        ),
        (
            (trace(node(1, COMP, ("num_ops", 10**12))), trace(node(1, COMP))),
            "job.0.et: node 1 has no duration_micros: how long operations and bytes take is not computed here",
        ),
        (
            (trace(node(1, COMP, us=1)), trace(node(1, COMP))),
            "job.0.et: nothing is sent: no node with is_cpu_op false does",
        ),
    ],
)
def test_bad_traces_are_refused_with_the_file_and_the_node(traces: tuple[bytes, ...], says: str) -> None:
    with pytest.raises(TrafficError) as refusal:
        read(*traces)
    assert str(refusal.value) == says


def test_a_bomb_is_not_unpacked() -> None:
    with pytest.raises(TrafficError, match="more than 67108864 bytes when unpacked: use a shorter trace"):
        read(ONE, gzip.compress(bytes(80 << 20), 1))


def test_broken_traces_are_refused_in_one_line() -> None:
    good = trace(*(collective(i, 0, 400, deps=[i - 1] if i else []) for i in range(5)))
    texts = refusals(lambda bad: read(good, bad), good)
    assert len(texts) > 100
    assert all(text.startswith("job.") and "\n" not in text for text in texts)
