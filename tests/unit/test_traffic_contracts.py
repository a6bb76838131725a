"""Each collective's contract, on three ranks by hand: right, and wrong in the way that its name does not say."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.unit.traffic_fakes import filled, replayed, wrong
from traffic import Schedule, TrafficError
from traffic.check import verify
from traffic.contracts import CONTRACTS, buffer_ratio
from traffic.schedule import ScheduleBuilder

N = 3


def builder(collective: str, n_chunks: int, **more: Any) -> ScheduleBuilder:
    return ScheduleBuilder(collective, "by hand", N, n_chunks, **more)


def all_reduce(last: int = 2) -> Schedule:
    b = builder("all_reduce", 1)
    up = [b.send(r, 0, 0, reduce=True) for r in (1, 2)]
    for r in (1, last):
        b.send(0, r, 0, reduce=False, after=up)
    return b.build()


def reduce_scatter(shift: int = 0) -> Schedule:
    """Everybody sends each part to whom it belongs."""
    b = builder("reduce_scatter", N)
    for r in range(N):
        for part in range(N):
            if (part + shift) % N != r:
                b.send(r, (part + shift) % N, part, reduce=True)
    return b.build()


def all_gather(left_out: int = N) -> Schedule:
    b = builder("all_gather", N)
    for r in range(N):
        for other in {0, 1, 2} - {r, left_out}:
            b.send(r, other, r, reduce=False)
    return b.build()


def all_to_all(collective: str = "all_to_all", swapped: bool = False, shift: int = 0) -> Schedule:
    b = builder(collective, 2 * N, n_blocks=2 * N)
    for r in range(N):
        for d in range(N):
            lands = 3 - r - d if swapped and r != d else r
            b.send(r, d, (d + shift) % N, dst_chunk=N + lands, reduce=False)
    return b.build()


def broadcast(root: int = 1) -> Schedule:
    b = builder("broadcast", 2, root=1)
    for r in range(N):
        if r != root:
            b.send(root, r, 0, n_chunks=2, reduce=False)
    return b.build()


def reduce(to: int = 2) -> Schedule:
    b = builder("reduce", 1, root=2)
    for r in range(N):
        if r != to:
            b.send(r, to, 0, reduce=True)
    return b.build()


def gather(to: int = 1) -> Schedule:
    b = builder("gather", N, root=1)
    for r in range(N):
        if r != to:
            b.send(r, to, r, reduce=False)
    return b.build()


def scatter(root: int = 2) -> Schedule:
    b = builder("scatter", N, root=2)
    for r in range(N):
        if r != root:
            b.send(root, r, r, reduce=False)
    return b.build()


def sendrecv(step: int = 1) -> Schedule:
    b = builder("sendrecv", 2, n_blocks=2)
    for r in range(N):
        b.send(r, (r + step) % N, 0, dst_chunk=1, reduce=False)
    return b.build()


RIGHT: dict[str, Callable[[], Schedule]] = {
    "all_reduce": all_reduce,
    "reduce_scatter": reduce_scatter,
    "all_gather": all_gather,
    "all_to_all": all_to_all,
    "all_to_all_v": lambda: all_to_all("all_to_all_v"),
    "broadcast": broadcast,
    "reduce": reduce,
    "gather": gather,
    "scatter": scatter,
    "sendrecv": sendrecv,
}
WRONG: dict[str, tuple[Callable[[], Schedule], str]] = {
    "all_reduce": (
        lambda: all_reduce(last=1),
        "in the end rank 2 lacks the contributions of ranks 0, 1 in chunk 0; no send goes into it",
    ),
    "reduce_scatter": (
        lambda: reduce_scatter(shift=1),
        "in the end rank 0 lacks the contributions of ranks 1, 2 in chunk 0; no send goes into it",
    ),
    "all_gather": (
        lambda: all_gather(left_out=1),
        "in the end rank 1 lacks the contributions of rank 0 in chunk 0; no send goes into it",
    ),
    "all_to_all": (
        lambda: all_to_all(swapped=True),
        (
            "in the end rank 0 lacks the contributions of rank 1 and has the contributions of rank 2 too many in chunk 4; "
            "the last send into it is 6 (2 -> 0, chunk 0 into chunk 4)"
        ),
    ),
    "all_to_all_v": (
        lambda: all_to_all("all_to_all_v", shift=1),
        (
            "in the end rank 0 holds chunk 1 of rank 0 where chunk 0 belongs, in chunk 3; "
            "the last send into it is 0 (rank 0, chunk 1 into chunk 3)"
        ),
    ),
    "broadcast": (lambda: broadcast(root=0), "send 0 (0 -> 1, chunks 0 to 1): rank 0 holds nothing of chunk 0 then"),
    "reduce": (
        lambda: reduce(to=0),
        "in the end rank 2 lacks the contributions of ranks 0, 1 in chunk 0; no send goes into it",
    ),
    "gather": (
        lambda: gather(to=2),
        "in the end rank 1 lacks the contributions of rank 0 in chunk 0; no send goes into it",
    ),
    "scatter": (lambda: scatter(root=0), "send 0 (0 -> 1, chunk 1): rank 0 holds nothing of chunk 1 then"),
    "sendrecv": (
        lambda: sendrecv(step=2),
        (
            "in the end rank 0 lacks the contributions of rank 2 and has the contributions of rank 1 too many in chunk 1; "
            "the last send into it is 1 (1 -> 0, chunk 0 into chunk 1)"
        ),
    ),
}
every_collective = pytest.mark.parametrize("collective", CONTRACTS)


def refusal(schedule: Schedule) -> str:
    with pytest.raises(TrafficError) as caught:
        verify(schedule)
    return str(caught.value)


@every_collective
def test_a_right_schedule_passes_and_gives_the_values(collective: str) -> None:
    s = RIGHT[collective]()
    verify(s)
    for count in (0, 6, 6 * 61, 6 * 64, 1003):
        if count:
            assert wrong(s, filled(s, count)) > 0
        assert replayed(s, count)[1] == 0


@every_collective
def test_a_wrong_schedule_is_refused_and_its_values_are_wrong(collective: str) -> None:
    made, text = WRONG[collective]
    assert refusal(made()) == text
    for count in (6 * 11, 6 * 64, 6 * 4096):
        assert replayed(made(), count)[1] > 0


@every_collective
def test_the_size_column_counts_what_is_sent_and_not_what_is_received(collective: str) -> None:
    two_regions = collective in ("all_to_all", "all_to_all_v", "sendrecv")
    assert buffer_ratio(RIGHT[collective]()) == (2 if two_regions else 1)


def plain_values(rank: int, count: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return (7 * np.arange(count) + 13 * rank) % 61


def test_values_are_those_of_the_formula() -> None:
    """An all-to-all of three ranks with five elements for each: input 15, output 15."""
    s, buffers = all_to_all(), filled(all_to_all(), 30)
    for rank, buffer in enumerate(buffers):
        np.testing.assert_array_equal(buffer[:15], plain_values(rank, 15))
        assert not buffer[15:].any()
    for rank, buffer in enumerate(buffers):
        for source in range(N):
            buffer[15 + 5 * source : 20 + 5 * source] = plain_values(source, 15)[5 * rank : 5 * rank + 5]
    assert wrong(s, buffers) == 0
    total = np.sum([plain_values(r, 100) for r in range(N)], axis=0)
    assert wrong(all_reduce(), [total.astype(np.float32)] * N) == 0


# -- unequal chunks ---------------------------------------------------------------------------------------------------

MATRIX = np.array([[3, 0, 5], [1, 2, 700], [11, 13, 0]])


def matrix_exchange(sizes: "np.ndarray[tuple[int, int], np.dtype[np.int64]]") -> Schedule:
    b = ScheduleBuilder("all_to_all_v", "direct", N, 2 * N, chunk_elements=sizes)
    for r in range(N):
        for d in range(N):
            b.send(r, d, d, dst_chunk=N + r, reduce=False)
    return b.build()


def test_a_matrix_is_exchanged_and_both_ends_agree_at_every_size() -> None:
    """Rows of the matrix are sent, columns received."""
    s = matrix_exchange(np.concatenate((MATRIX, MATRIX.T), axis=1))
    verify(s)
    # Rank 1: 703 out, 15 in; rank 2: 24 out, 705 in.
    assert s.natural_count == 729
    off_diagonal = MATRIX - np.diag(np.diag(MATRIX))
    assert s.sent_per_rank(729).tolist() == off_diagonal.sum(axis=1).tolist()
    assert s.received_per_rank(729).tolist() == off_diagonal.sum(axis=0).tolist()
    assert s.elements(2 * 729).sum() == 2 * off_diagonal.sum()
    for count in (729, 100, 3, 1000, 2 * 729):
        assert (s.bounds(count)[:, -1] <= count).all()
        assert replayed(s, count)[1] == 0


def test_sizes_beyond_63_bits_are_scaled_exactly() -> None:
    b = ScheduleBuilder("broadcast", "test", 2, 2, chunk_elements=np.array([3 << 40, 1 << 40]))
    b.send(0, 1, 0, n_chunks=2, reduce=False)
    assert b.build().bounds(1_000_003).tolist() == [[0, 750_002, 1_000_002]]


def test_ends_that_do_not_agree_are_refused() -> None:
    assert refusal(matrix_exchange(np.concatenate((MATRIX, MATRIX), axis=1))) == (
        "send 1 (0 -> 1, chunk 1 into chunk 3) is impossible: chunks are as large where they land as where they come from"
    )
    b = builder("sendrecv", 4, n_blocks=2)
    b.send(0, 1, 0, dst_chunk=3, reduce=False)
    assert refusal(b.build()) == (
        "send 0 (0 -> 1, chunk 0 into chunk 3) is impossible: chunks land at the same place of a block as they come from"
    )


# -- helpers, scratch, local operations -------------------------------------------------------------------------------


def server() -> ScheduleBuilder:
    """Rank 3 helps: it adds up what ranks 0 to 2 send, and sends it back."""
    b = ScheduleBuilder("all_reduce", "server", N + 1, 1, n_members=N)
    up = [b.send(r, N, 0, reduce=True) for r in range(N)]
    for r in range(N):
        b.send(N, r, 0, reduce=False, after=up)
    return b


def test_a_helper_contributes_nothing_and_need_hold_nothing() -> None:
    s = server().build()
    verify(s)
    assert replayed(s, 100)[1] == 0
    early = ScheduleBuilder("all_reduce", "server", N + 1, 1, n_members=N)
    early.send(N, 0, 0, reduce=True)
    assert refusal(early.build()) == "send 0 (3 -> 0, chunk 0): rank 3 holds nothing of chunk 0 then"


def test_adding_one_chunk_to_another_is_refused() -> None:
    b = builder("all_reduce", 2, n_blocks=2)
    b.send(0, 1, 0, dst_chunk=1, reduce=True)
    assert refusal(b.build()) == (
        "send 0 (0 -> 1, chunk 0 into chunk 1) adds chunk 0 to chunk 1 at rank 1, which holds chunk 1"
    )


def test_a_copy_back_waits_for_the_rank_s_own_send_to_leave() -> None:
    def ends(waits: bool) -> Schedule:
        b = ScheduleBuilder("all_reduce", "exchange", 2, 2, n_blocks=2, n_data_chunks=1)
        sent = [b.send(r, 1 - r, 0, dst_chunk=1, reduce=False) for r in (0, 1)]
        for r in (0, 1):
            b.send(r, r, 1, dst_chunk=0, reduce=True, after=[sent[1 - r], sent[r]] if waits else [sent[1 - r]])
        return b.build()

    verify(ends(waits=True))
    assert replayed(ends(waits=True), 200)[1] == 0
    assert refusal(ends(waits=False)) == (
        "chunk 0 at rank 0 is left to chance: send 0 (0 -> 1, chunk 0 into chunk 1) sends it, "
        "send 2 (rank 0, chunk 1 into chunk 0) adds to it, and neither waits for the other"
    )


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            {"n_members": 4},
            "all_reduce of ranks (0, 1, 2, 3) with root 0: it needs some of the ranks 0 to 2, each once",
        ),
        ({"root": 3}, "all_reduce of ranks (0, 1, 2) with root 3: it needs some of the ranks 0 to 2, each once"),
        ({"n_data_chunks": 5}, "all_reduce has chunks 0 to 4: a collective needs its own of the chunks 0 to 3"),
        ({"n_blocks": 3}, "3 blocks cut into () are not 4 chunks"),
    ],
)
def test_buffers_and_members_that_do_not_fit(more: dict[str, int], text: str) -> None:
    assert refusal(builder("all_reduce", 4, **more).build()).startswith(text)


def test_what_only_a_local_operation_does() -> None:
    b = builder("all_reduce", 1)
    b.send(0, 1, 0, reduce=True, calc_ns=5)
    assert refusal(b.build()) == "send 0 (0 -> 1, 5 ns, chunk 0) is impossible: only a local operation computes"
    b = builder("all_reduce", 1)
    b.calc(0, -1)
    assert refusal(b.build()) == "send 0 (rank 0, -1 ns) is impossible: computing takes 0 ns or more"


def test_buffers_have_room_for_what_arrives_and_what_is_under_way() -> None:
    assert buffer_ratio(ScheduleBuilder("all_reduce", "test", 3, 6, n_blocks=3, n_data_chunks=2).build()) == 3
    # The size is what rank 2 receives, 705; its buffer has 729.
    assert buffer_ratio(matrix_exchange(np.concatenate((MATRIX, MATRIX.T), axis=1))) == Fraction(729, 705)
