"""What ranks did, from a replay's times that are written down here."""

import numpy as np
import pytest

from lab.measuring.spans import rank_spans, representative
from lab.reporting.ranks import rank_times, stands_out
from lab.rows import SPAN_KINDS, RankSpans
from traffic.replay import IterationResult
from traffic.schedule import Schedule, ScheduleBuilder

MS = 1_000_000


def result(times_ms: list[tuple[float, float]], schedule: Schedule) -> IterationResult:
    """times_ms: (started, finished) of each send."""
    started, finished = (np.array(column) * MS for column in zip(*times_ms, strict=True))
    rank_finished = np.zeros(schedule.n_ranks)
    for ends in (schedule.src, schedule.dst):
        np.maximum.at(rank_finished, ends, finished)
    whole = (started.astype(np.int64), finished.astype(np.int64), rank_finished.astype(np.int64))
    return IterationResult(0, int(finished.max()), whole[0], *whole)


def told(spans: RankSpans) -> dict[tuple[int, str], list[tuple[float, float]]]:
    """(rank, kind) -> spans in ms."""
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for rank, kind, begin, end in zip(spans.rank, spans.kind, spans.begin_s, spans.end_s, strict=True):
        found.setdefault((int(rank), SPAN_KINDS[kind]), []).append((round(begin * 1e3, 6), round(end * 1e3, 6)))
    return found


def test_computing_sending_receiving_and_waiting_rank_by_rank() -> None:
    """Rank 0 computes for 10 ms, sends twice with nothing between; rank 1 waits for it, receives, waits, and sends back."""
    make = ScheduleBuilder("x", "y", 2, 1)
    make.calc(0, 10 * MS)
    make.send(0, 1, 0, reduce=False, after=[0])
    make.send(0, 1, 0, reduce=False, after=[0])
    make.send(1, 0, 0, reduce=False, after=[2])
    schedule = make.build()
    done = result([(0, 10), (10, 20), (18, 30), (40, 50)], schedule)
    spans = rank_spans(schedule, done, size_bytes=8, iteration=1, time_dilation=1.0)
    assert told(spans) == {
        (0, "compute"): [(0, 10)],
        (0, "send"): [(10, 30)],
        (0, "receive"): [(40, 50)],
        (0, "wait"): [(30, 40)],
        (1, "send"): [(40, 50)],
        (1, "receive"): [(10, 30)],
        (1, "wait"): [(0, 10), (30, 40)],
    }
    assert (spans.size_bytes, spans.iteration) == (8, 1)
    slower = rank_spans(schedule, done, size_bytes=8, iteration=1, time_dilation=10.0)
    assert told(slower)[0, "send"] == [(1, 3)]


def test_many_messages_leave_few_spans_and_their_time_stays() -> None:
    """30 000 messages with pauses of a tenth of their length would be 60 000 spans of two ranks; the bound is 50 000."""
    n = 30_000
    make = ScheduleBuilder("x", "y", 2, 1)
    for _ in range(n):
        make.send(0, 1, 0, reduce=False)
    schedule = make.build()
    begin = np.arange(n) * 1.1
    done = result(list(zip(begin, begin + 1, strict=True)), schedule)
    spans = rank_spans(schedule, done, size_bytes=8, iteration=0, time_dilation=1.0)
    assert len(spans.rank) <= 50_000
    times = rank_times(spans, 2)
    assert times.end_s == pytest.approx([(begin[-1] + 1) / 1e3] * 2)


def test_a_rank_that_does_nothing_waits_for_nothing() -> None:
    make = ScheduleBuilder("x", "y", 3, 1)
    make.send(0, 1, 0, reduce=False)
    schedule = make.build()
    found = told(rank_spans(schedule, result([(0, 5)], schedule), size_bytes=8, iteration=0, time_dilation=1.0))
    assert found == {(0, "send"): [(0, 5)], (1, "receive"): [(0, 5)]}


def test_the_iteration_of_median_duration_is_shown() -> None:
    make = ScheduleBuilder("x", "y", 2, 1)
    make.send(0, 1, 0, reduce=False)
    schedule = make.build()
    assert representative([result([(0, ms)], schedule) for ms in (9, 3, 5)]) == 2


def spans_of(*lines: tuple[int, str, float, float]) -> RankSpans:
    rank, kind, begin, end = zip(*lines, strict=True)
    places = np.array([SPAN_KINDS.index(k) for k in kind])
    return RankSpans(8, 0, 0.0, np.array(rank), places, np.array(begin), np.array(end))


def test_times_of_ranks_count_what_overlaps_once() -> None:
    """Computes 0 to 4, sends 3 to 6, receives 5 to 8: own time 6, of the receiving 2 beside nothing else."""
    times = rank_times(spans_of((0, "compute", 0, 4), (0, "send", 3, 6), (0, "receive", 5, 8), (0, "wait", 8, 9)), 1)
    assert (times.compute_s[0], times.send_s[0], times.own_s[0]) == (4, 3, 6)
    assert (times.receive_only_s[0], times.wait_s[0], times.whole_s) == (2, 1, 9)


def test_a_straggler_stands_out_and_equals_do_not() -> None:
    even = [(rank, "compute", 0.0, 4.0) for rank in range(4)] + [(rank, "send", 4.0, 10.0) for rank in range(4)]
    assert stands_out(rank_times(spans_of(*even), 4)) is None
    slow = [line if line[0] != 2 else (2, "compute", 0.0, 8.0) for line in even[:4]] + even[4:]
    found = stands_out(rank_times(spans_of(*slow), 4))
    assert found is not None and (found.rank, found.what, found.seconds, found.median_s) == (2, "computes", 8.0, 4.0)
    sends = [(rank, "send", 0.0, 10.0 if rank == 1 else 5.0) for rank in range(4)]
    found = stands_out(rank_times(spans_of(*sends), 4))
    assert found is not None and (found.rank, found.what) == (1, "sends")
