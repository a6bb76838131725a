"""MSCCL XML: our own schedules survive the way there and back, hand-made files do what their steps say, bad ones are named."""

import numpy as np
import pytest

import traffic
from tests.unit.broken_files import refusals
from tests.unit.traffic_fakes import replayed
from traffic import COLLECTIVES, Schedule, TrafficError
from traffic.check import verify
from traffic.formats.msccl import read_msccl
from traffic.formats.msccl_export import to_msccl
from traffic.formats.msccl_file import COLLECTIVES as NAMES
from traffic.formats.source import Source

ALGORITHMS = [(c, a) for c in NAMES.values() for a in COLLECTIVES[c]]


def read(text: str | bytes) -> Schedule:
    return read_msccl(Source("mine.xml", text if isinstance(text, bytes) else text.encode()))


def sends_by_rank(s: Schedule) -> list[list[tuple[int, int, int, int, bool]]]:
    """Of each rank, in order: to whom, on which channel, which chunk, how many, added or not."""
    columns = (s.src, s.dst, s.channel, s.first_chunk, s.n_chunks_sent, s.reduce)
    rows = [row for row in zip(*(c.tolist() for c in columns), strict=True) if row[0] != row[1]]
    return [[row[1:] for row in rows if row[0] == rank] for rank in range(s.n_ranks)]


# -- there and back -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("collective", "algorithm"), ALGORITHMS)
@pytest.mark.parametrize("n_ranks", [2, 3, 8])
def test_ours_survive_a_round_trip(collective: str, algorithm: str, n_ranks: int) -> None:
    ours = traffic.schedule(collective, algorithm, n_ranks)
    if ours.n_ranks != n_ranks:
        with pytest.raises(TrafficError, match="MSCCL XML has no helpers"):
            to_msccl(ours)
        return
    back = read(to_msccl(ours))
    verify(back)
    assert (back.collective, back.algorithm, back.n_ranks) == (collective, "mine.xml", n_ranks)
    # Not divisible, where the algorithm allows that.
    count = ours.n_chunks * 1001 + (5 if ours.n_blocks == 1 else 0)
    np.testing.assert_array_equal(back.sent_per_rank(count), ours.sent_per_rank(count))
    np.testing.assert_array_equal(back.received_per_rank(count), ours.received_per_rank(count))


def test_a_ring_comes_back_send_by_send() -> None:
    """A rank of 4 sends its own chunk first, then what came, 6 in all; 2 x 3/4 of the buffer."""
    ring = traffic.schedule("all_reduce", "ring", 4)
    back = read(to_msccl(ring))
    assert sends_by_rank(back) == sends_by_rank(ring)
    assert [row[2] for row in sends_by_rank(back)[0]] == [0, 3, 2, 1, 0, 3]
    # It waits for what came from the left, each time but the first.
    for s in range(len(back)):
        rank = int(back.src[s])
        assert [(int(back.src[d]), int(back.dst[d])) for d in back.deps_of(s)] in ([((rank - 1) % 4, rank)], [])
    assert np.count_nonzero(np.diff(back.dep_start) == 0) == 4
    assert back.sent_per_rank(1000).tolist() == [1500] * 4


# -- hand-made files ----------------------------------------------------------------------------------------------------


def gpu(number: int, *blocks: str, i: int = 2, o: int = 2, s: int = 0) -> str:
    return f'<gpu id="{number}" i_chunks="{i}" o_chunks="{o}" s_chunks="{s}">{"".join(blocks)}</gpu>\n'


def tb(number: int, send: int, recv: int, *steps: str, chan: int = 0) -> str:
    numbered = "".join(f'\n<step s="{n}" {step}/>' for n, step in enumerate(steps))
    return f'<tb id="{number}" send="{send}" recv="{recv}" chan="{chan}">{numbered}</tb>\n'


def step(type_: str, src: str, dst: str, cnt: int = 1, after: tuple[int, int] = (-1, -1)) -> str:
    """src, dst: 'i0' is the first chunk of the input."""
    places = f'srcbuf="{src[0]}" srcoff="{src[1:]}" dstbuf="{dst[0]}" dstoff="{dst[1:]}"'
    return f'type="{type_}" {places} cnt="{cnt}" depid="{after[0]}" deps="{after[1]}" hasdep="0"'


def algo(coll: str, n: int, k: int, *gpus: str, inplace: int = 1) -> str:
    head = f'<algo name="hand" proto="Simple" nchannels="1" nchunksperloop="{k}" ngpus="{n}" coll="{coll}"'
    return f'{head} inplace="{inplace}">\n{"".join(gpus)}</algo>'


def test_an_exchange_adds_what_comes_only_when_its_own_has_left() -> None:
    """Both send their buffer and add the other's, in one thread block each: the step that adds comes after the one that sends,
    so what comes early waits in a place of its own."""
    exchange = [tb(0, 1 - g, 1 - g, step("s", "i0", "i0"), step("rrc", "i0", "i0")) for g in (0, 1)]
    s = read(algo("allreduce", 2, 1, *(gpu(g, exchange[g], i=1, o=1) for g in (0, 1))))
    verify(s)
    sends, local = np.flatnonzero(~s.is_local), np.flatnonzero(s.is_local)
    assert sorted(zip(s.src[sends].tolist(), s.dst[sends].tolist(), strict=True)) == [(0, 1), (1, 0)]
    assert not s.reduce[sends].any() and s.reduce[local].all() and len(local) == 2
    for i in local.tolist():
        rank = int(s.src[i])
        waits = {(int(s.src[d]), int(s.dst[d])) for d in s.deps_of(i)}
        assert waits == {(rank, 1 - rank), (1 - rank, rank)}
    assert s.sent_per_rank(2 * 100).tolist() == [100, 100]
    assert replayed(s, 200)[1] == 0


def test_fused_steps_add_and_send_on() -> None:
    """A chain 0 -> 1 -> 2 of one chunk, its sum back 2 -> 1 -> 0: rrcs or rrs on the way, rcs on the way back."""
    for middle in ("rrcs", "rrs"):
        s = read(
            algo(
                "allreduce",
                3,
                1,
                gpu(0, tb(0, 1, -1, step("s", "i0", "i0")), tb(1, -1, 1, step("r", "i0", "i0", after=(0, 0)))),
                gpu(
                    1,
                    tb(0, 2, 0, step(middle, "i0", "i0")),
                    tb(1, 0, 2, step("rcs", "i0", "i0", after=(0, 0))),
                ),
                gpu(2, tb(0, 1, 1, step("rrc", "i0", "i0"), step("s", "i0", "i0"))),
            )
        )
        verify(s)
        # Three ranks send one buffer's worth, the middle one two.
        per_buffer = s.n_chunks
        assert s.sent_per_rank(per_buffer * 10).tolist() == [10, 20, 10]
        assert replayed(s, per_buffer * 10)[1] == 0


def test_an_output_apart_is_what_counts() -> None:
    """Gathered over two ranks: o is i[0] of both; a file that forgets its own part is wrong."""
    own = [tb(1, -1, -1, step("cpy", "i0", f"o{g}")) for g in (0, 1)]
    move = [tb(0, 1 - g, 1 - g, step("s", "i0", f"o{g}"), step("r", "i0", f"o{1 - g}")) for g in (0, 1)]
    whole = algo("allgather", 2, 2, *(gpu(g, move[g], own[g], i=1) for g in (0, 1)), inplace=0)
    s = read(whole)
    verify(s)
    assert replayed(s, s.n_chunks * 10)[1] == 0
    assert s.sent_per_rank(s.n_chunks * 10).tolist() == [10, 10]
    with pytest.raises(TrafficError, match="holds nothing of chunk"):
        verify(read(algo("allgather", 2, 2, *(gpu(g, move[g], i=1) for g in (0, 1)), inplace=0)))


def test_scratch_and_nops_and_channels() -> None:
    """0 sends both chunks to 1's scratch on two channels; a nop waits for one, a local reduction for the other; then the sum goes
    back."""
    s = read(
        algo(
            "allreduce",
            2,
            2,
            gpu(
                0,
                tb(0, 1, -1, step("s", "i0", "s0")),
                tb(1, 1, -1, step("s", "i1", "s1"), chan=1),
                tb(2, -1, 1, 'type="nop" depid="1" deps="0"', step("r", "i0", "i0", 2, (0, 0))),
            ),
            gpu(
                1,
                tb(0, -1, 0, step("r", "i0", "s0")),
                tb(1, -1, 0, step("r", "i1", "s1"), chan=1),
                tb(
                    2,
                    0,
                    -1,
                    'type="nop" depid="0" deps="0"',
                    step("re", "s0", "i0", 2, (1, 0)),
                    step("s", "i0", "i0", 2),
                ),
                s=2,
            ),
        )
    )
    verify(s)
    assert s.connections == [(0, 1, 0), (0, 1, 1), (1, 0, 0)]
    assert s.sent_per_rank(s.n_chunks * 10).tolist() == [20, 20]
    assert replayed(s, s.n_chunks * 10)[1] == 0


# -- what is refused ------------------------------------------------------------------------------------------------------

SENDS = step("s", "i0", "i0")
RECEIVES = step("r", "i0", "i0")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "mine.xml: is empty"),
        ("<algo", "mine.xml:1: is not XML: unclosed token"),
        ("\n<a></b>", "mine.xml:2: is not XML: mismatched tag"),
        ("<graphml/>", "mine.xml:1: <graphml> is no MSCCL algorithm: its root is <algo>"),
        ("<algo/>", "mine.xml:1: <algo> has no coll"),
        (
            algo("custom", 2, 2),
            "mine.xml:1: coll 'custom' is not one that is known: use allreduce, allgather, reduce_scatter, alltoall",
        ),
        (algo("allreduce", 2, 2, gpu(0)), "mine.xml:1: ngpus is 2, and there are 1 <gpu>: one for each id"),
        (
            algo("allgather", 2, 3, gpu(0), gpu(1)),
            "mine.xml:1: nchunksperloop 3 is not 2 equal parts: allgather needs that",
        ),
        (
            algo("alltoall", 2, 2, gpu(0), gpu(1)),
            "mine.xml:1: inplace alltoall: an all-to-all has its output apart here: use inplace 0",
        ),
        (
            algo("allreduce", 2, 2).replace('ngpus="2"', 'ngpus="99999999999999999999"'),
            "mine.xml:1: ngpus '99999999999999999999' must be a whole number from 1 to 1024",
        ),
        (
            algo("allreduce", 2, 2, gpu(0, tb(0, 1, -1, SENDS, 'type="xyz"')), gpu(1)),
            "mine.xml:4: type 'xyz' is not one that is known: use s, r, rcs, rrc, rrcs, rrs, cpy, re, nop",
        ),
        (
            algo("allreduce", 2, 2, gpu(0, tb(0, -1, -1, SENDS)), gpu(1)),
            "mine.xml:3: type s needs a peer, and its tb has send -1",
        ),
        (
            algo("allreduce", 2, 2, gpu(0, tb(0, 1, -1, step("s", "i7", "i7"))), gpu(1, tb(0, -1, 0, RECEIVES))),
            "mine.xml:3: i[7] and 0 more: gpu 0 has 2 chunks there",
        ),
        (
            algo("allreduce", 2, 2, gpu(0, tb(0, 1, -1, SENDS, SENDS)), gpu(1, tb(0, -1, 0, RECEIVES))),
            "mine.xml:4: gpu 0 sends 2 times to gpu 1 on channel 0, which receives 1 times",
        ),
        (
            algo("allreduce", 2, 2, gpu(0, tb(0, 1, -1, SENDS)), gpu(1, tb(0, -1, 0, step("r", "i0", "i0", 2)))),
            "mine.xml:6: receives 2 chunks, and line 3 sends 1",
        ),
        (
            algo("allreduce", 2, 2, gpu(0, tb(0, 1, -1, SENDS), tb(1, 1, -1, SENDS)), gpu(1)),
            "mine.xml:4: two tb of gpu 0 send to gpu 1 on channel 0: use one, or two channels",
        ),
        (
            algo(
                "allreduce",
                2,
                2,
                gpu(0, tb(0, 1, -1, step("s", "i0", "i0", after=(5, 0)))),
                gpu(1, tb(0, -1, 0, RECEIVES)),
            ),
            "mine.xml:3: waits for step 0 of tb 5: gpu 0 has none",
        ),
        (
            algo("allreduce", 2, 2, *(gpu(g, tb(0, 1 - g, 1 - g, RECEIVES, SENDS)) for g in (0, 1))),
            "mine.xml:3: r can never begin: what it waits for waits for it",
        ),
        (
            '<!DOCTYPE algo [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>\n<algo name="&b;"/>',
            "mine.xml:1: <!DOCTYPE is not read: take it out",
        ),
        ("<a>" * 100_000, "mine.xml:1: <a> is nested 16 deep: nothing in such files is"),
        ('<?xml version="1.0" encoding="klingon"?><algo/>', "mine.xml:1: is not XML: unknown encoding: klingon"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(TrafficError) as refusal:
        read(text)
    assert str(refusal.value) == says


def test_broken_files_are_refused_in_one_line() -> None:
    good = to_msccl(traffic.schedule("all_reduce", "ring", 3)).encode()
    texts = refusals(read, good)
    assert len(texts) > 100
    assert all(text.startswith("mine.xml:") and "\n" not in text for text in texts)


@pytest.mark.parametrize("name", ["broadcast", "sendrecv"])
def test_what_the_format_has_no_word_for_is_refused(name: str) -> None:
    with pytest.raises(TrafficError) as refusal:
        to_msccl(traffic.schedule(name, None, 4))
    assert str(refusal.value) == (f"MSCCL XML has no {name}: it has all_reduce, all_gather, reduce_scatter, all_to_all")
