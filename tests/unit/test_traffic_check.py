"""The symbolic check: right schedules pass, and each way of being wrong is named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import traffic
from traffic import Schedule, TrafficError
from traffic.check import verify
from traffic.contracts import CONTRACTS, Contract
from traffic.races import check_races, order
from traffic.schedule import ScheduleBuilder

COLUMNS = ("src", "dst", "channel", "first_chunk", "dst_chunk", "n_chunks_sent", "reduce", "calc_ns")


def refusal(schedule: Schedule) -> str:
    with pytest.raises(TrafficError) as caught:
        verify(schedule)
    return str(caught.value)


def ring(n_ranks: int = 4, collective: str = "all_reduce") -> Schedule:
    return traffic.schedule(collective, "ring", n_ranks)


def with_value(schedule: Schedule, column: str, at: int, value: int) -> Schedule:
    """Chunks land where they come from."""
    changed = getattr(schedule, column).copy()
    changed[at] = value
    columns = ("first_chunk", "dst_chunk") if column == "first_chunk" else (column,)
    return replace(schedule, **dict.fromkeys(columns, changed))


def without_dependencies(schedule: Schedule, send: int) -> Schedule:
    start, end = schedule.dep_start[send : send + 2]
    dep_start = schedule.dep_start.copy()
    dep_start[send + 1 :] -= end - start
    return replace(schedule, deps=np.delete(schedule.deps, np.s_[start:end]), dep_start=dep_start)


def with_sends(schedule: Schedule, chosen: NDArray[Any]) -> Schedule:
    """The schedule's sends `chosen`, of which each waits for what it waited for."""
    n_deps = np.diff(schedule.dep_start)[chosen]
    return replace(
        schedule,
        **{c: getattr(schedule, c)[chosen] for c in COLUMNS},
        dep_start=np.concatenate(([0], np.cumsum(n_deps))),
        deps=np.concatenate([schedule.deps_of(i) for i in chosen]),
    )


# -- right ones -----------------------------------------------------------------------------------------------------


def star(n_ranks: int) -> ScheduleBuilder:
    """Everybody sends to rank 0, which adds in any order and sends the sum back."""
    builder = ScheduleBuilder("all_reduce", "star", n_ranks, 1)
    up = [builder.send(r, 0, 0, reduce=True) for r in range(1, n_ranks)]
    for r in range(1, n_ranks):
        builder.send(0, r, 0, reduce=False, after=up)
    return builder


@pytest.mark.parametrize("n_ranks", [1, 2, 5, 64])
def test_additions_need_no_order_among_themselves(n_ranks: int) -> None:
    verify(star(n_ranks).build())


def test_the_order_on_a_connection_stands_for_dependencies() -> None:
    """Rank 1 gets chunk 0 before chunk 1 on the same connection, so what waits for chunk 1 may send both."""
    builder = ScheduleBuilder("all_gather", "chain", 2, 4)
    first = builder.send(0, 1, 0, reduce=False)
    second = builder.send(0, 1, 1, reduce=False)
    assert first < second
    builder.send(1, 0, 2, n_chunks=2, reduce=False)
    verify(builder.build())
    relay = ScheduleBuilder("all_reduce", "chain", 3, 2)
    relay.send(0, 1, 0, reduce=True)
    last = relay.send(0, 1, 1, reduce=True)
    last = relay.send(1, 2, 0, n_chunks=2, reduce=True, after=[last])
    last = relay.send(2, 1, 0, n_chunks=2, reduce=False, after=[last])
    relay.send(1, 0, 0, n_chunks=2, reduce=False, after=[last])
    verify(relay.build())


def test_channels_of_one_pair_are_in_no_order() -> None:
    relay = ScheduleBuilder("all_reduce", "chain", 3, 2)
    relay.send(0, 1, 0, reduce=True)
    last = relay.send(0, 1, 1, reduce=True, channel=1)
    relay.send(1, 2, 0, n_chunks=2, reduce=True, after=[last])
    assert refusal(relay.build()) == (
        "chunk 0 at rank 1 is left to chance: send 0 (0 -> 1, chunk 0) adds to it, send 2 (1 -> 2, chunks 0 to 1) sends it, "
        "and neither waits for the other"
    )


@pytest.mark.parametrize("n_ranks", [128, 256])
@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather"])
def test_large_rings(collective: str, n_ranks: int) -> None:
    verify(ring(n_ranks, collective))


def test_clocks_in_several_passes_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traffic.races._CLOCK_BYTES", 8 * 113 * 3)
    verify(ring(8))
    assert "left to chance" in refusal(without_dependencies(ring(8), 100))


# -- wrong ones: the text names send, ranks and chunk -----------------------------------------------------------------


def test_sent_before_it_arrived() -> None:
    assert refusal(without_dependencies(ring(), 9)) == (
        "chunk 3 at rank 1 is left to chance: send 4 (0 -> 1, chunk 3) adds to it, send 9 (1 -> 2, chunk 3) sends it, "
        "and neither waits for the other"
    )


def test_overwritten_while_it_is_still_needed() -> None:
    """Rank 1 passes its chunk on to rank 2 while rank 0 overwrites it."""
    builder = ScheduleBuilder("all_reduce", "test", 3, 1)
    builder.send(1, 2, 0, reduce=True)
    builder.send(0, 1, 0, reduce=False)
    assert refusal(builder.build()) == (
        "chunk 0 at rank 1 is left to chance: send 0 (1 -> 2, chunk 0) sends it, send 1 (0 -> 1, chunk 0) overwrites it, "
        "and neither waits for the other"
    )


def test_added_and_overwritten_in_no_order() -> None:
    builder = ScheduleBuilder("all_reduce", "test", 3, 1)
    builder.send(1, 0, 0, reduce=True)
    builder.send(2, 0, 0, reduce=False)
    assert refusal(builder.build()) == (
        "chunk 0 at rank 0 is left to chance: send 0 (1 -> 0, chunk 0) adds to it, send 1 (2 -> 0, chunk 0) overwrites it, "
        "and neither waits for the other"
    )


def test_a_contribution_added_twice() -> None:
    builder = ScheduleBuilder("all_reduce", "test", 2, 1)
    builder.send(1, 0, 0, reduce=True)
    builder.send(1, 0, 0, reduce=True)
    assert refusal(builder.build()) == (
        "send 1 (1 -> 0, chunk 0) adds to chunk 0 at rank 0 what is in it already: the contributions of rank 1"
    )


def test_a_contribution_that_is_missing() -> None:
    assert refusal(with_value(ring(), "reduce", 3, 0)) == (
        "in the end rank 0 lacks the contributions of rank 0 in chunk 3; the last send into it is 19 (3 -> 0, chunk 3)"
    )
    assert refusal(ScheduleBuilder("all_reduce", "test", 20, 1).build()) == (
        "in the end rank 0 lacks the contributions of ranks 1, 2, 3, 4 and 15 more in chunk 0; no send goes into it"
    )


def test_a_contribution_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    contract = Contract(lambda r, c, s: True, lambda r, c, s: (0, c))
    monkeypatch.setitem(CONTRACTS, "broadcast", contract)
    builder = ScheduleBuilder("broadcast", "test", 2, 1)
    builder.send(0, 1, 0, reduce=True)
    assert refusal(builder.build()) == (
        "in the end rank 1 has the contributions of rank 1 too many in chunk 0; the last send into it is 0 (0 -> 1, chunk 0)"
    )
    verify(replace(builder.build(), reduce=np.array([False])))


def test_sending_what_is_not_there() -> None:
    builder = ScheduleBuilder("all_gather", "test", 2, 2)
    builder.send(0, 1, 1, reduce=False)
    assert refusal(builder.build()) == "send 0 (0 -> 1, chunk 1): rank 0 holds nothing of chunk 1 then"


def test_a_cycle() -> None:
    ring_of_waits = replace(ring(2), deps=np.array([3, 2], dtype=np.int32))
    assert refusal(ring_of_waits) == (
        "2 sends wait for each other (dependencies and the order on a connection): 2 (0 -> 1, chunk 1), 3 (1 -> 0, chunk 0)"
    )


def test_a_cycle_through_the_order_on_a_connection() -> None:
    """Send 0 waits for send 2, which stands behind send 1, which waits for send 0."""
    builder = ScheduleBuilder("all_reduce", "test", 2, 1)
    for src in (1, 0, 0):
        builder.send(src, 1 - src, 0, reduce=True)
    waits = replace(builder.build(), dep_start=np.array([0, 1, 2, 2]), deps=np.array([2, 0], dtype=np.int32))
    assert refusal(waits).startswith(
        "3 sends wait for each other (dependencies and the order on a connection): 0 (1 -> 0"
    )


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("src", 9, "send 3 (9 -> 0, chunk 3) is impossible: ranks are 0 to 3"),
        ("dst", -1, "send 3 (3 -> -1, chunk 3) is impossible: ranks are 0 to 3"),
        (
            "dst",
            3,
            "send 3 (rank 3, chunk 3) is impossible: a rank copies or adds chunks into others, not into themselves",
        ),
        ("first_chunk", 4, "send 3 (3 -> 0, chunk 4) is impossible: it must carry one or more of the chunks 0 to 3"),
        (
            "n_chunks_sent",
            2,
            "send 3 (3 -> 0, chunks 3 to 4) is impossible: it must carry one or more of the chunks 0 to 3",
        ),
    ],
)
def test_out_of_range(column: str, value: int, text: str) -> None:
    assert refusal(with_value(ring(), column, 3, value)) == text


def test_a_channel_below_zero() -> None:
    assert refusal(with_value(ring(), "channel", 3, -1)).endswith("is impossible: channels count from 0")


def test_waiting_for_nothing_or_for_something_elsewhere() -> None:
    assert refusal(with_value(ring(), "deps", 0, 24)) == "send 4 (0 -> 1, chunk 3) waits for send 24: sends are 0 to 23"
    assert refusal(with_value(ring(), "deps", 0, 2)) == (
        "send 4 (0 -> 1, chunk 3) waits for send 2 (2 -> 3, chunk 2), which rank 0 neither receives nor sends"
    )


def test_columns_of_different_lengths() -> None:
    assert refusal(replace(ring(), src=ring().src[:20])) == (
        "the schedule's columns do not fit together: [20, 24, 24, 24, 24, 24, 24, 24], 25 and 20"
    )


def test_an_unknown_collective() -> None:
    assert refusal(replace(ring(), collective="all_sum")).startswith("unknown collective 'all_sum': choose from all_")


def test_parts_that_chunks_do_not_fill() -> None:
    schedule = replace(ring(collective="all_gather"), n_chunks=6)
    assert refusal(schedule) == "6 chunks do not divide into 4 ranks' parts: all_gather needs that"


# -- planted faults -------------------------------------------------------------------------------------------------

schedules = st.builds(ring, st.integers(2, 9), st.sampled_from(["all_reduce", "reduce_scatter", "all_gather"]))


def one_send_of(schedule: Schedule, data: st.DataObject, suits: Callable[[int], object] = lambda i: True) -> int:
    return data.draw(st.sampled_from([i for i in range(len(schedule)) if suits(i)]))


@given(st.integers(3, 9).map(ring), st.data())
def test_every_dependency_of_a_ring_is_needed(schedule: Schedule, data: st.DataObject) -> None:
    send = one_send_of(schedule, data, lambda i: len(schedule.deps_of(i)))
    assert "left to chance" in refusal(without_dependencies(schedule, send))


@given(schedules, st.data())
def test_another_chunk_is_noticed(schedule: Schedule, data: st.DataObject) -> None:
    send = one_send_of(schedule, data)
    chunk = (schedule.first_chunk[send] + data.draw(st.integers(1, schedule.n_chunks - 1))) % schedule.n_chunks
    refusal(with_value(schedule, "first_chunk", send, chunk))


@given(schedules, st.data())
def test_swapped_chunks_are_noticed(schedule: Schedule, data: st.DataObject) -> None:
    a = one_send_of(schedule, data)
    b = one_send_of(schedule, data, lambda i: schedule.first_chunk[i] != schedule.first_chunk[a])
    swapped = with_value(schedule, "first_chunk", a, schedule.first_chunk[b])
    refusal(with_value(swapped, "first_chunk", b, schedule.first_chunk[a]))


@given(schedules.filter(lambda s: s.reduce.any()), st.data())
def test_a_reversed_operation_is_noticed(schedule: Schedule, data: st.DataObject) -> None:
    send = one_send_of(schedule, data)
    refusal(with_value(schedule, "reduce", send, not schedule.reduce[send]))


@given(schedules.filter(lambda s: s.reduce.any()), st.data())
def test_an_addition_sent_twice_is_noticed(schedule: Schedule, data: st.DataObject) -> None:
    send = one_send_of(schedule, data, lambda i: schedule.reduce[i])
    refusal(with_sends(schedule, np.append(np.arange(len(schedule)), send)))


@given(schedules, st.data())
def test_a_lost_last_send_is_noticed(schedule: Schedule, data: st.DataObject) -> None:
    """One nobody waits for; those before it keep their numbers."""
    last = data.draw(st.integers(len(schedule) - schedule.n_ranks, len(schedule) - 1))
    refusal(with_sends(schedule, np.delete(np.arange(len(schedule)), last)))


@given(schedules.filter(lambda s: s.n_ranks > 2), st.data())
def test_another_receiver_is_noticed(schedule: Schedule, data: st.DataObject) -> None:
    send = one_send_of(schedule, data)
    others = set(range(schedule.n_ranks)) - {int(schedule.src[send]), int(schedule.dst[send])}
    refusal(with_value(schedule, "dst", send, data.draw(st.sampled_from(sorted(others)))))


# -- against the definition -----------------------------------------------------------------------------------------


@st.composite
def random_schedules(draw: st.DrawFn) -> Schedule:
    """Any sends and local operations, each waiting for some of those that its sender receives or sends."""
    n_ranks, n_chunks = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    builder = ScheduleBuilder("all_reduce", "random", n_ranks, n_chunks, n_blocks=n_chunks)
    received: list[list[int]] = [[] for _ in range(n_ranks)]
    for _ in range(draw(st.integers(0, 12))):
        src, step = draw(st.integers(0, n_ranks - 1)), draw(st.integers(0, n_ranks - 1))
        dst = (src + step) % n_ranks
        first, lands = draw(st.integers(0, n_chunks - 1)), draw(st.integers(0, n_chunks - 1))
        n_sent = draw(st.integers(1, n_chunks - max(first, lands)))
        after = draw(st.lists(st.sampled_from(received[src]), unique=True)) if received[src] else []
        number = builder.send(
            src,
            dst,
            first,
            n_chunks=n_sent,
            dst_chunk=lands,
            reduce=draw(st.booleans()),
            after=after,
            channel=draw(st.integers(0, 1)),
        )
        received[src].append(number)
        if dst != src:
            received[dst].append(number)
    return builder.build()


def has_race(s: Schedule) -> bool:
    """By the transitive closure of what happens before what: event 2i is S(i), 2i + 1 is R(i)."""
    m = len(s)
    before = np.zeros((2 * m, 2 * m), dtype=bool)
    for i in range(m):
        before[2 * i, 2 * i + 1] = True
        for d in s.deps_of(i):
            before[2 * d + (s.dst[d] == s.src[i]), 2 * i] = True
        for j in range(i):
            if s.src[i] != s.dst[i] and (s.src[i], s.dst[i], s.channel[i]) == (s.src[j], s.dst[j], s.channel[j]):
                before[2 * j, 2 * i] = before[2 * j + 1, 2 * i + 1] = True
    for k in range(2 * m):
        before |= before[:, k : k + 1] & before[k]
    runs = [
        [set(range(first[i], first[i] + s.n_chunks_sent[i])) for i in range(m)]
        for first in (s.first_chunk, s.dst_chunk)
    ]
    accesses = [(int(s.src[i]), runs[0][i], "read", 2 * i) for i in range(m)]
    accesses += [(int(s.dst[i]), runs[1][i], "add" if s.reduce[i] else "copy", 2 * i + 1) for i in range(m)]
    return any(
        a[0] == b[0]
        and a[1] & b[1]
        and (a[2] != b[2] or a[2] == "copy")
        and a[3] // 2 != b[3] // 2
        and not (before[a[3], b[3]] or before[b[3], a[3]])
        for k, a in enumerate(accesses)
        for b in accesses[:k]
    )


@settings(max_examples=200, deadline=None)
@given(random_schedules())
def test_races_are_those_of_the_definition(schedule: Schedule) -> None:
    try:
        check_races(schedule, order(schedule))
        found = False
    except TrafficError:
        found = True
    assert found == has_race(schedule)
