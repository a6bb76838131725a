"""htsim's connection matrices: flows, starts and triggers as dependencies; what nothing here could do is named."""

import pytest

from tests.unit.broken_files import refusals
from tests.unit.traffic_fakes import Ticks, replayed
from traffic import Schedule, TrafficError
from traffic.check import verify
from traffic.formats.htsim import read_htsim
from traffic.formats.source import Source


def read(text: str | bytes) -> Schedule:
    return read_htsim(Source("mine.cm", text if isinstance(text, bytes) else text.encode()))


def deps(s: Schedule) -> list[list[int]]:
    return [s.deps_of(i).tolist() for i in range(len(s))]


CHAIN = """Nodes 4
Connections 3
Triggers 2
# 1000 bytes round the corner, then back
0->1 id 1 start 0 size 1000 recv_done_trigger 7
1->2 id 2 trigger 7 size 2000 send_done_trigger 8
1->0 id 3 trigger 8 size 30
trigger id 7 oneshot
trigger id 8 oneshot
"""


def test_triggers_are_dependencies() -> None:
    s = read(CHAIN)
    verify(s)
    assert (s.collective, s.algorithm, s.n_ranks) == ("messages", "mine.cm", 4)
    assert s.src.tolist() == [0, 1, 1] and s.dst.tolist() == [1, 2, 0]
    assert deps(s) == [[], [0], [1]]
    assert s.waits_to_leave.tolist() == [False, True]
    natural = s.natural_count or 0
    assert s.elements(natural).tolist() == [250, 500, 8]
    assert replayed(s, natural, clock=Ticks(1000))[1] == 0


def test_a_start_is_time_that_passes_at_the_sender() -> None:
    s = read("Nodes 2\nConnections 2\n0->1 id 1 start 2500000 size 4\n0->1 id 2 start 0 size 4\n")
    verify(s)
    assert s.calc_ns.tolist() == [2500, 0, 0] and deps(s) == [[], [0], []]
    assert s.connections == [(0, 1, 0), (0, 1, 1)]


def test_a_barrier_waits_for_all_and_a_oneshot_starts_all() -> None:
    s = read(
        """Nodes 3
1->0 id 1 start 0 size 4 recv_done_trigger 1
2->0 id 2 start 0 size 4 recv_done_trigger 1
0->1 id 3 trigger 1 size 8 send_done_trigger 2
0->2 id 4 trigger 2 size 8
0->1 id 5 trigger 2 size 8
trigger id 1 barrier count 2
trigger id 2 oneshot
"""
    )
    verify(s)
    assert deps(s) == [[], [], [0, 1], [2], [2]]


def test_a_multishot_starts_one_after_the_other() -> None:
    s = read(
        """Nodes 4
0->1 id 1 start 0 size 4 send_done_trigger 1
0->2 id 2 trigger 1 size 4 send_done_trigger 1
0->3 id 3 trigger 1 size 4 send_done_trigger 1
trigger id 1 multishot
"""
    )
    verify(s)
    assert s.dst.tolist() == [1, 2, 3] and deps(s) == [[], [0], [1]]


HEAD = "Nodes 3\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "mine.cm: is empty"),
        (
            "0->1 id 1 start 0 size 4",
            "mine.cm:1: '0->1 id 1 start 0 size 4' stands before the number of hosts: the first line is Nodes N",
        ),
        ("Nodes 99999", "mine.cm:1: Nodes '99999' must be a whole number from 2 to 1024"),
        (HEAD, "mine.cm: nothing is sent: write SRC->DST id I start PS size B"),
        (
            HEAD + "Connections 5\n0->1 start 0 size 4",
            "mine.cm: Connections is 5, and there are 1: the file is not whole",
        ),
        (HEAD + "0->3 start 0 size 4", "mine.cm:2: host '3' must be a whole number from 0 to 2"),
        (HEAD + "1->1 start 0 size 4", "mine.cm:2: host 1 sends to itself: flows go to others"),
        (HEAD + "0->1 start 0", "mine.cm:2: a flow has a size, and either a start or a trigger"),
        (HEAD + "0->1 size 4", "mine.cm:2: a flow has a size, and either a start or a trigger"),
        (HEAD + "0->1 start 0 size 0", "mine.cm:2: size '0' must be a whole number from 1 to 1099511627776"),
        (HEAD + "0->1 start 0 size 4 prio 1", "mine.cm:2: prio '1': hosts know no priorities here: take it out"),
        (
            HEAD + "0->1 start 0 size 4 color 1",
            "mine.cm:2: 'color' is not read: use id, start, size, trigger, send_done_trigger, recv_done_trigger, prio",
        ),
        (
            HEAD + "failure switch_type TOR switch_id 1",
            "mine.cm:2: failures are not part of the traffic here: take the line out",
        ),
        (HEAD + "0->1 trigger 4 size 4", "mine.cm:2: there is no trigger 4"),
        (
            HEAD + "0->1 start 0 size 4\ntrigger id 4",
            "mine.cm:3: a trigger has an id and is one of oneshot, multishot, barrier; a barrier has a count",
        ),
        (
            HEAD + "0->1 start 0 size 4 recv_done_trigger 1\n0->2 trigger 1 size 4\ntrigger id 1 oneshot",
            (
                "mine.cm:3: host 0 would start when line 2 is done at host 1, of which nothing tells it: let trigger 1 start "
                "flows of host 1"
            ),
        ),
        (
            HEAD + "0->1 start 0 size 4 send_done_trigger 1\n0->2 trigger 1 size 4\ntrigger id 1 barrier count 2",
            "mine.cm:4: trigger 1 is a barrier that needs 2 flows to set it off, and has 1",
        ),
        (
            HEAD + "0->1 trigger 1 size 4 send_done_trigger 1\ntrigger id 1 oneshot",
            "mine.cm:2: this flow never starts: what sets it off waits for it",
        ),
        (
            HEAD
            + "0->1 start 0 size 4 send_done_trigger 1\n0->1 start 0 size 4 send_done_trigger 1\n"
            + "0->2 trigger 1 size 4\n0->2 trigger 1 size 4\ntrigger id 1 multishot",
            (
                "mine.cm:6: trigger 1 starts its flows in the order in which others end, which is not known beforehand: use a "
                "oneshot for each"
            ),
        ),
    ],
)
def test_a_bad_file_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(TrafficError) as refusal:
        read(text)
    assert str(refusal.value) == says


def test_broken_files_are_refused_in_one_line() -> None:
    texts = refusals(read, CHAIN.encode())
    assert len(texts) > 100
    assert all(text.startswith("mine.cm:") and "\n" not in text for text in texts)
