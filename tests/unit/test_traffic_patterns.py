"""Traffic patterns: who sends to whom, what the check refuses, and that every flow's bytes arrive at its own receiver."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import traffic
from lab.planning.experiment import load
from lab.planning.forecast import forecast
from lab.planning.plan import endpoints, plan
from lab.planning.scale import Scale
from tests.unit.traffic_fakes import FakeTransport, filled, replayed, wrong
from traffic import PATTERNS, TRANSPORTS, Demand, Schedule, TrafficError
from traffic.check import verify
from traffic.pattern_check import RULES
from traffic.replay import Replay
from traffic.schedule import ScheduleBuilder
from traffic.transport import Endpoint

every_pattern = pytest.mark.parametrize("name", PATTERNS)


def made(name: str, n_ranks: int, flows_per_host: int = 1, **more: Any) -> Schedule:
    """Groups of one rank, unless it says otherwise."""
    return traffic.schedule(name, None, n_ranks, Demand(flows_per_host, **({"group_size": 1} | more)))


def destinations(schedule: Schedule) -> list[int]:
    """Of rank 0, 1, ... where each rank sends to one other only."""
    to = dict(zip(schedule.src.tolist(), schedule.dst.tolist(), strict=True))
    assert len(set(zip(schedule.src.tolist(), schedule.dst.tolist(), strict=True))) == len(to)
    return [to[rank] for rank in range(schedule.n_ranks)]


# -- every pattern ----------------------------------------------------------------------------------------------------


def test_every_pattern_has_a_rule() -> None:
    assert RULES.keys() == PATTERNS.keys()


@every_pattern
@pytest.mark.parametrize("n_ranks", [*range(2, 18), 64])
@pytest.mark.parametrize("flows_per_host", [1, 8])
def test_a_pattern_keeps_its_rule(name: str, n_ranks: int, flows_per_host: int) -> None:
    schedule = made(name, n_ranks, flows_per_host)
    verify(schedule)
    assert (schedule.collective, schedule.algorithm) == (name, "direct")
    per_sender = set(Counter(schedule.src.tolist()).values())
    assert per_sender == {flows_per_host}


@every_pattern
def test_no_two_flows_touch_one_chunk_of_one_rank(name: str) -> None:
    for seed in range(20):
        s = made(name, 9, 5, seed=seed)
        touched = [(int(end[i]), int(s.first_chunk[i])) for i in range(len(s)) for end in (s.src, s.dst)]
        assert len(set(touched)) == 2 * len(s)
        busiest = max(Counter(rank for rank, _ in touched).values())
        assert s.n_chunks < 2 * busiest


@every_pattern
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_flows_differ_on_the_wire(name: str, transport: str) -> None:
    schedule = made(name, 6, 8)
    ends = [Endpoint(rank, f"h{rank}", f"198.18.0.{rank + 1}") for rank in range(6)]
    flows = TRANSPORTS[transport].plan(ends, schedule.connections)
    assert len({(f.src_ip, f.dst_ip, f.proto, f.src_port, f.dst_port) for f in flows}) == len(schedule) == len(flows)


@every_pattern
@pytest.mark.parametrize("n_ranks", [2, 3, 8])
def test_receivers_get_their_senders_bytes(name: str, n_ranks: int) -> None:
    schedule = made(name, n_ranks, 3)
    count = 101 * schedule.n_chunks
    assert wrong(schedule, filled(schedule, count)) > 0
    result, n_wrong = replayed(schedule, count)
    assert n_wrong == 0
    assert (result.finished > 0).all()


@pytest.mark.parametrize("length", [1, 5, 64, 101])
def test_two_channels_exchanged_on_the_wire_are_noticed(length: int) -> None:
    schedule = made("permutation", 4, 2)
    src, dst = int(schedule.src[0]), int(schedule.dst[0])
    count = length * schedule.n_chunks
    with FakeTransport(schedule.connections) as transport:
        first, second = transport.receivers[src, dst, 0], transport.receivers[src, dst, 1]
        transport.receivers[src, dst, 0], transport.receivers[src, dst, 1] = second, first
        buffers = filled(schedule, count)
        Replay(schedule, count, transport).run(buffers)
    assert wrong(schedule, buffers) == 2 * length


@every_pattern
@pytest.mark.parametrize(("n_ranks", "flows"), [(1, 1), (0, 1), (4, 0)])
def test_too_few_ranks_or_flows(name: str, n_ranks: int, flows: int) -> None:
    with pytest.raises(TrafficError, match=r"a pattern needs two ranks and one flow at least$"):
        made(name, n_ranks, flows)


# -- each pattern -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_ranks", range(2, 40))
def test_a_permutation_is_a_derangement(n_ranks: int) -> None:
    for seed in range(5):
        to = destinations(made("permutation", n_ranks, 2, seed=seed))
        assert sorted(to) == list(range(n_ranks))
        assert all(src != dst for src, dst in enumerate(to))


def test_all_derangements_are_equally_likely() -> None:
    """Four ranks have 9; 1800 seeds give each 200 +- 4 standard deviations of 13.3."""
    seen = Counter(tuple(destinations(made("permutation", 4, seed=seed))) for seed in range(1800))
    assert len(seen) == 9
    assert all(147 <= n <= 253 for n in seen.values())


@pytest.mark.parametrize("name", ["permutation", "uniform_random"])
def test_a_seed_gives_one_pattern(name: str) -> None:
    first, again, other = (made(name, 16, 4, seed=seed) for seed in (7, 7, 8))
    assert first.dst.tolist() == again.dst.tolist() != other.dst.tolist()


def test_uniform_random_goes_to_every_other_rank_alike() -> None:
    """5 ranks x 4000 flows: each of a rank's four others gets 1000 +- 4 standard deviations of 27."""
    schedule = made("uniform_random", 5, 4000)
    pairs = Counter(zip(schedule.src.tolist(), schedule.dst.tolist(), strict=True))
    assert len(pairs) == 5 * 4 and all(src != dst for src, dst in pairs)
    assert all(892 <= n <= 1108 for n in pairs.values())
    assert set(schedule.channel.tolist()) == set(range(max(pairs.values())))


@pytest.mark.parametrize(("shift", "to"), [(1, 8), (2, 16), (-1, 64), (10, 8)])
def test_a_group_sends_to_the_same_place_in_another(shift: int, to: int) -> None:
    """The balanced dragonfly with h = 2: nine groups of eight hosts."""
    assert destinations(made("group_shift", 72, 8, group_size=8, group_shift=shift)) == [
        (rank + to) % 72 for rank in range(72)
    ]


@pytest.mark.parametrize(
    ("n_ranks", "options", "text"),
    [
        (12, {"group_size": None}, "group_shift needs a group_size: 12 ranks make groups of 1, 2, 3, 4, 6"),
        (12, {"group_size": 5}, "group_size 5 does not cut 12 ranks into two or more whole groups: use 1, 2, 3, 4, 6"),
        (
            12,
            {"group_size": 12},
            "group_size 12 does not cut 12 ranks into two or more whole groups: use 1, 2, 3, 4, 6",
        ),
        (12, {"group_size": 4, "group_shift": 0}, "group_shift 0 over 3 groups ends where it begins: use 1 to 2"),
        (12, {"group_size": 6, "group_shift": 4}, "group_shift 4 over 2 groups ends where it begins: use 1"),
    ],
)
def test_groups_that_do_not_work_out(n_ranks: int, options: dict[str, Any], text: str) -> None:
    with pytest.raises(TrafficError) as caught:
        made("group_shift", n_ranks, **options)
    assert str(caught.value) == text


def test_an_incast_goes_to_rank_0() -> None:
    schedule = made("incast", 5, 2)
    assert schedule.connections == [(src, 0, channel) for src in (1, 2, 3, 4) for channel in (0, 1)]


@pytest.mark.parametrize("flows_per_host", [1, 8])
def test_an_incast_takes_as_long_as_the_receivers_link(flows_per_host: int) -> None:
    """15 senders x 64 MB at 400 Gbit/s, a frame of 8948 bytes payload with 66 of headers."""
    options = {"collective": "incast", "flows_per_host": flows_per_host, "min_bytes": "64MB", "max_bytes": "64MB"}
    planned, scale = plan(load(None, options)), Scale(2000, 4)
    emulated = scale.fabric(planned.fabric)
    flows = TRANSPORTS["tcp"].plan(endpoints(planned, emulated), planned.schedule.connections)
    found = forecast(planned, emulated, flows).prediction(planned.sizes(scale)[0], scale)
    assert found is not None
    assert scale.hardware_s(found.seconds) == pytest.approx(15 * 64e6 * 8 / 400e9 * (8948 + 66) / 8948, rel=1e-3)
    assert found.bottleneck == "leaf1->h1"


# -- broken ones ------------------------------------------------------------------------------------------------------


def refusal(schedule: Schedule) -> str:
    with pytest.raises(TrafficError) as caught:
        verify(schedule)
    return str(caught.value)


def with_value(schedule: Schedule, column: str, at: int, value: int) -> Schedule:
    """Chunks land where they come from."""
    changed = getattr(schedule, column).copy()
    changed[at] = value
    columns = ("first_chunk", "dst_chunk") if column == "first_chunk" else (column,)
    return replace(schedule, **dict.fromkeys(columns, changed))


def by_hand(name: str, n_ranks: int, flows: list[tuple[int, int]]) -> Schedule:
    """A chunk for each flow."""
    builder = ScheduleBuilder(name, "direct", n_ranks, len(flows))
    for chunk, (src, dst) in enumerate(flows):
        builder.send(src, dst, chunk, reduce=False)
    return builder.build()


@pytest.mark.parametrize(
    ("name", "flows"),
    [
        ("permutation", [(0, 1), (1, 2), (2, 1)]),
        ("permutation", [(0, 1), (1, 0)]),
        ("uniform_random", [(0, 1), (1, 2)]),
        ("group_shift", [(0, 1), (1, 0), (2, 0)]),
        ("group_shift", [(0, 1), (1, 2)]),
        ("incast", [(1, 0), (2, 1)]),
        ("incast", [(1, 0)]),
    ],
)
def test_flows_of_another_pattern_are_refused(name: str, flows: list[tuple[int, int]]) -> None:
    assert refusal(by_hand(name, 3, flows)) == f"this is no {name} of 3 ranks: there, {RULES[name].text}"


def test_unequal_senders_are_refused() -> None:
    assert refusal(by_hand("uniform_random", 3, [(0, 1), (0, 2), (1, 2), (2, 0)])) == (
        "rank 0 has 2 flows, others have fewer: uniform_random gives all alike"
    )


def test_flows_that_share_a_chunk_are_refused() -> None:
    assert refusal(with_value(by_hand("incast", 3, [(1, 0), (2, 0)]), "first_chunk", 1, 0)) == (
        "chunk 0 at rank 0 is left to chance: send 0 (1 -> 0, chunk 0) overwrites it, send 1 (2 -> 0, chunk 0) overwrites it, "
        "and neither waits for the other"
    )
    passed_on = with_value(by_hand("permutation", 2, [(0, 1), (1, 0)]), "first_chunk", 1, 0)
    assert "chunk 0 at rank 0 is left to chance" in refusal(passed_on)


def test_flows_that_share_a_connection_are_refused() -> None:
    assert refusal(with_value(made("permutation", 2, 2), "channel", 1, 0)) == (
        "4 flows on 3 connections: each needs its own"
    )


def test_flows_that_add_or_wait_are_refused() -> None:
    schedule = made("permutation", 2)
    assert refusal(replace(schedule, reduce=np.array([False, True]))) == (
        "send 1 (1 -> 0, chunk 1) is added to what is there: flows are copied"
    )
    waits = replace(schedule, dep_start=np.array([0, 0, 1]), deps=np.array([0], dtype=np.int32))
    assert refusal(waits) == "send 1 (1 -> 0, chunk 1) waits for another: flows start at once"
