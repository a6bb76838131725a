"""Messages that are no collective: each has a place of its own, arrives whole, and the check says what is none."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.traffic_fakes import Ticks, filled, replayed, wrong
from traffic import Schedule, TrafficError
from traffic.check import verify
from traffic.contracts import buffer_ratio
from traffic.messages import MAX_PER_RANK, MessageBuilder
from traffic.schedule import ScheduleBuilder


def relay() -> Schedule:
    """40 bytes 0 -> 1, then after 500 ns 81 bytes (21 elements) 1 -> 2, and meanwhile 8 bytes 0 -> 1 again."""
    b = MessageBuilder("hand", 3)
    first = b.send(0, 1, 40)
    computed = b.calc(1, 500, after=[first])
    b.send(1, 2, 81, after=[computed])
    b.send(0, 1, 8)
    return b.build()


def test_sizes_are_the_messages_own() -> None:
    s = relay()
    verify(s)
    assert (s.collective, s.algorithm, s.natural_count) == ("messages", "hand", 33)
    # Rank 1 receives 10 + 2 and sends 21 elements: its buffer has 33. The size is the most in one direction.
    assert s.elements(33).tolist() == [10, 0, 21, 2]
    assert buffer_ratio(s) * 21 == 33
    assert s.elements(66).tolist() == [20, 0, 42, 4]


def test_every_message_arrives_whole_and_a_missing_one_is_noticed() -> None:
    s = relay()
    assert replayed(s, 33, clock=Ticks(1000))[1] == 0
    assert replayed(s, 1000, clock=Ticks(1000))[1] == 0
    # Of what is received: 10 + 21 + 2 elements, but for values that are zero anyway.
    assert wrong(s, filled(s, 33)) > 30


def test_many_messages_between_many_ranks_touch_no_common_place() -> None:
    b = MessageBuilder("hand", 5)
    chance = np.random.default_rng(3)
    for _ in range(200):
        src, dst = chance.choice(5, 2, replace=False).tolist()
        b.send(src, dst, int(chance.integers(0, 100)), channel=int(chance.integers(3)))
    s = b.build()
    verify(s)
    # Fewer chunks than messages: only messages of one rank must differ.
    assert s.n_chunks < 2 * int(np.bincount(np.concatenate((s.src, s.dst))).max())
    assert replayed(s, s.natural_count or 0, clock=Ticks(1000))[1] == 0


def test_more_messages_than_there_is_room_for_are_refused() -> None:
    b = MessageBuilder("hand", 2)
    for _ in range(MAX_PER_RANK + 1):
        b.send(0, 1, 4)
    with pytest.raises(TrafficError) as refusal:
        b.build()
    assert str(refusal.value) == (
        "hand: rank 0 sends and receives 65537 messages: with 2 ranks use 65536 or fewer at each"
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"reduce": True}, "send 0 (0 -> 1, chunk 0) is added to what is there: messages are copied"),
        (
            {"dst_chunk": 1},
            "send 0 (0 -> 1, chunk 0 into chunk 1) lands elsewhere: a message has one chunk at both ends",
        ),
        ({"n_chunks_sent": 2}, "send 0 (0 -> 1, chunks 0 to 1) has several chunks: a message has one"),
        ({"dst": 0, "dst_chunk": 1}, "send 0 (rank 0, chunk 0 into chunk 1) stays at its rank: messages go to others"),
        (
            {"first_chunk": 1, "dst_chunk": 1},
            "send 1 (1 -> 2, chunk 1) shares its chunk with another: each message has its own",
        ),
    ],
)
def test_what_is_no_message_is_refused(change: dict[str, int], says: str) -> None:
    b = ScheduleBuilder("messages", "hand", 3, 2, n_blocks=2)
    b.send(0, 1, 0, reduce=False)
    b.send(1, 2, 1, reduce=False)
    good = b.build()
    verify(good)
    columns = {}
    for name, value in change.items():
        columns[name] = getattr(good, name).copy()
        columns[name][0] = value
    with pytest.raises(TrafficError) as refusal:
        verify(replace(good, **columns))
    assert str(refusal.value) == says
