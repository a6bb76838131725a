"""GOAL: our own schedules survive the way there and back, hand-made files do what they say, bad ones are named."""

import numpy as np
import pytest

import traffic
from tests.unit.broken_files import refusals
from tests.unit.traffic_fakes import Ticks, replayed
from traffic import Schedule, TrafficError
from traffic.check import verify
from traffic.formats.goal import read_goal
from traffic.formats.goal_export import to_goal
from traffic.formats.source import Source


def read(text: str | bytes) -> Schedule:
    return read_goal(Source("mine.goal", text if isinstance(text, bytes) else text.encode()))


def sends_by_rank(s: Schedule, count: int) -> list[list[tuple[int, int]]]:
    """Of each rank, in order: to whom, and how many elements."""
    rows = list(zip(s.src.tolist(), s.dst.tolist(), s.elements(count).tolist(), strict=True))
    return [[(dst, n) for src, dst, n in rows if src == rank and dst != rank] for rank in range(s.n_ranks)]


# -- there and back -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [
        ("all_reduce", "ring"),
        ("all_reduce", "halving-doubling"),
        ("all_reduce", "recursive-doubling"),
        ("all_reduce", "parameter-server"),
        ("all_to_all", "pairwise"),
        ("broadcast", "binomial"),
    ],
)
@pytest.mark.parametrize("n_ranks", [2, 5, 8])
def test_ours_survive_a_round_trip(collective: str, algorithm: str, n_ranks: int) -> None:
    ours = traffic.schedule(collective, algorithm, n_ranks)
    count = 1003
    back = read(to_goal(ours, count))
    verify(back)
    natural = back.natural_count or 0
    assert sends_by_rank(back, natural) == sends_by_rank(ours, count)
    np.testing.assert_array_equal(back.received_per_rank(natural), ours.received_per_rank(count))
    assert replayed(back, natural)[1] == 0


def test_a_ring_waits_for_what_it_waited_for() -> None:
    """From the second step on each send waits for what came from the left; the four of the first step for nothing."""
    ring = traffic.schedule("all_reduce", "ring", 4)
    back = read(to_goal(ring, 4))
    for s in range(len(back)):
        came = [(int(back.src[d]), int(back.dst[d])) for d in back.deps_of(s).tolist()]
        rank = int(back.src[s])
        assert came in ([((rank - 1) % 4, rank)], [])
    assert np.count_nonzero(np.diff(back.dep_start) == 0) == 4


def test_export_by_hand() -> None:
    ours = traffic.schedule("sendrecv", None, 2)
    text = to_goal(ours, ours.n_chunks)
    assert text == (
        "num_ranks 2\n\n"
        "rank 0 {\nl0: send 4b to 1 tag 0\nr1: recv 4b from 1 tag 0\n}\n\n"
        "rank 1 {\nr0: recv 4b from 0 tag 0\nl1: send 4b to 0 tag 0\n}\n"
    )


# -- hand-made files ----------------------------------------------------------------------------------------------------


def test_dependencies_and_bytes_of_a_file_by_hand() -> None:
    """0 computes and sends 10 bytes (3 elements) to 1, which computes and passes 400 bytes on to 2."""
    s = read(
        """// a chain
num_ranks 3
rank 0 {
  a: calc 100 cpu 0
  b: send 10b to 1 tag 7
  b requires a
}
rank 1 {
  a: recv 10b from 0 tag 7
  c: calc 2000
  b: send 400b to 2 tag 1 cpu 0 nic 0
  c requires a
  b requires c
}
rank 2 { a: recv 400b from 1 tag 1 }
"""
    )
    verify(s)
    assert s.src.tolist() == [0, 0, 1, 1] and s.dst.tolist() == [0, 1, 1, 2]
    assert s.calc_ns.tolist() == [100, 0, 2000, 0]
    assert [s.deps_of(i).tolist() for i in range(4)] == [[], [0], [1], [2]]
    assert s.elements(s.natural_count or 0).tolist() == [0, 3, 0, 100]
    assert replayed(s, s.natural_count or 0, clock=Ticks(1000))[1] == 0


def test_irequires_waits_for_a_beginning() -> None:
    """b begins with the receive, which may wait for the calculation but not for its message."""
    s = read(
        """num_ranks 2
rank 0 {
c: calc 5
r: recv 4b from 1
b: send 8b to 1
r requires c
b irequires r
}
rank 1 {
x: recv 8b from 0
y: send 4b to 0
y requires x
}
"""
    )
    verify(s)
    assert s.src.tolist() == [0, 0, 1] and s.dst.tolist() == [0, 1, 0]
    assert [s.deps_of(i).tolist() for i in range(3)] == [[], [0], [1]]


def test_tags_tell_messages_apart_and_an_order_is_found_that_fits() -> None:
    """The first send of rank 0 waits for the answer to its second."""
    s = read(
        """num_ranks 2
rank 0 {
late: send 4b to 1 tag 1
early: send 8b to 1 tag 2
answer: recv 12b from 1 tag 0
late requires answer
}
rank 1 {
r1: recv 4b from 0 tag 1
r2: recv 8b from 0 tag 2
s: send 12b to 0 tag 0
s requires r2
}
"""
    )
    verify(s)
    assert s.elements(s.natural_count or 0).tolist() == [2, 3, 1]
    assert [s.deps_of(i).tolist() for i in range(3)] == [[], [0], [1]]


def test_calculations_of_one_cpu_take_turns() -> None:
    s = read("num_ranks 2\nrank 0 {\ncalc 10\ncalc 20 cpu 1\ncalc 30\ns: send 4b to 1\n}\nrank 1 {\nrecv 4b from 0\n}")
    assert s.calc_ns.tolist() == [10, 20, 30, 0]
    assert [s.deps_of(i).tolist() for i in range(4)] == [[], [], [0], []]


def test_waiting_for_very_many_is_one_operation() -> None:
    names = [f"c{i}" for i in range(40)]
    calcs = [f"{name}: calc 1 cpu {i}" for i, name in enumerate(names)]
    waits = [f"s requires {name}" for name in names]
    s = read(
        "\n".join(
            ["num_ranks 2", "rank 0 {", *calcs, "s: send 4b to 1", *waits, "}", "rank 1 {", "recv 4b from 0", "}"]
        )
    )
    verify(s)
    assert len(s) == 42 and s.deps_of(40).tolist() == list(range(40)) and s.deps_of(41).tolist() == [40]


# -- what is refused ------------------------------------------------------------------------------------------------------


def pair(rank_0: str, rank_1: str = "recv 4b from 0") -> str:
    return f"num_ranks 2\nrank 0 {{\n{rank_0}\n}}\nrank 1 {{\n{rank_1}\n}}\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "mine.goal: is empty"),
        ("rank 0 {", "mine.goal:1: 'rank 0 {' is no beginning of a GOAL file: the first line is num_ranks N"),
        ("num_ranks 4096", "mine.goal:1: num_ranks '4096' must be a whole number from 1 to 1024"),
        ("num_ranks 2\nsend 4b to 1", "mine.goal:2: 'send 4b to 1' stands outside of a rank: write rank R { ... }"),
        ("num_ranks 2\nrank 0 {\n", "mine.goal:2: rank 0 is not closed: the file ends without its }"),
        ("num_ranks 2\nrank 0 {\n}\nrank 0 {\n}", "mine.goal:4: rank 0 is there twice"),
        ("num_ranks 2\nrank 2 {\n}", "mine.goal:2: rank '2' must be a whole number from 0 to 1"),
        ("num_ranks 2", "mine.goal: nothing is sent: write a send and its recv"),
        (
            pair("send 4b to 1\n\nsend 4b to 1"),
            "mine.goal:5: rank 0 sends 2 times to rank 1 with tag 0, which receives 1 times",
        ),
        (pair("send 4b to 1 tag 1"), "mine.goal:3: rank 0 sends 1 times to rank 1 with tag 1, which receives 0 times"),
        (pair("send 8b to 1"), "mine.goal:6: receives 4 bytes, and line 3 sends 8"),
        (pair("send 4b to 0"), "mine.goal:3: send from rank 0 to itself: messages go to others"),
        (pair("send 4b to any"), "mine.goal:3: the other rank of send 'any' must be a whole number from 0 to 1"),
        (pair("send 4b to 1 nic 1"), "mine.goal:3: nic 1: a rank has one NIC here, use nic 0"),
        (
            pair("send 4b to 1 prio 1"),
            "mine.goal:3: prio 1 is not read: send may have tag, cpu and nic, calc cpu alone",
        ),
        (pair("a: calc 1\na: calc 2"), "mine.goal:4: label a is there twice in rank 0"),
        (pair("a: calc 1\na requires b"), "mine.goal:4: there is no b before this line in its rank"),
        (
            pair("a: calc 1\nb: send 4b to 1\na requires b\nb requires a"),
            "mine.goal:3: calc can never be over: what it waits for waits for it",
        ),
        (
            pair("calc 99999999999999999"),
            "mine.goal:3: calc '99999999999999999' must be a whole number from 0 to 86400000000000",
        ),
        (
            pair("bcast 4b"),
            "mine.goal:3: 'bcast 4b' is not read: write send Nb to R, recv Nb from R, calc N, a requires b or a irequires b",
        ),
    ],
)
def test_a_bad_file_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(TrafficError) as refusal:
        read(text)
    assert str(refusal.value) == says


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(TrafficError) as refusal:
        read(b"num_ranks 2\n\xff\xfe")
    assert str(refusal.value) == "mine.goal:2: is not text in UTF-8: give the file itself, not an archive of it"


def test_broken_files_are_refused_in_one_line() -> None:
    texts = refusals(read, to_goal(traffic.schedule("all_reduce", "ring", 3), 30).encode())
    assert len(texts) > 100
    assert all(text.startswith("mine.goal:") and "\n" not in text for text in texts)
