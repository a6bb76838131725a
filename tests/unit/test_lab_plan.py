"""Plans: what is computed before a run, and what is refused, in the words that a user reads."""

from typing import Any

import numpy as np
import pytest

from lab.planning.experiment import load
from lab.planning.forecast import forecast_of, require_short_ways
from lab.planning.plan import Plan, plan
from lab.planning.scale import Budget, Scale, choose_scale
from lab.planning.site import fabric_of
from topologies import Refused


def planned(**overrides: Any) -> Plan:
    """The default experiment from 256 MiB to 1 GiB, changed."""
    return plan(load(None, {"min_bytes": "256M", "max_bytes": "1G"} | overrides))


def test_the_default_plan() -> None:
    p = planned()
    assert (p.ranks, p.algorithm, p.hosts[0], p.hosts[-1]) == (16, "ring", "h1", "h16")
    assert (p.b_acc_mbps, p.nic_mbps, p.algo_factor, p.framing.payload_bytes) == (400_000, 400_000, 1.875, 8948)
    assert [s.size_bytes for s in p.sizes(Scale(8000, 64))] == [2**28, 2**29, 2**30]
    assert [s.emulated_bytes for s in p.sizes(Scale(8000, 64))] == [2**22, 2**23, 2**24]
    assert not p.has_delays


def test_the_defaults_load_by_hand() -> None:
    """16 edges of the ring cross 12 x 1 + 4 x 3 = 24 switches; every NIC is busy all the time."""
    load_ = planned().load
    assert load_.frame_hops_per_s == pytest.approx(24 * 400e9 / 8 / 8948 * 1.5)
    # 1.75 GiB x 1.875 at 400 Gbit/s, three timed iterations and a warm-up.
    assert load_.traffic_s == pytest.approx(1.75 * 2**30 * 1.875 * 8 / 400e9 * 4)
    assert load_.step_bytes == 2**28 / 16


@pytest.mark.parametrize("budget", [40_000, 60_000, 100_000, 200_000, 1_000_000])
def test_auto_runs_the_default_file_within_its_time_and_with_enough_frames(budget: float) -> None:
    p = plan(load())
    scale = choose_scale(p.load, Budget(budget), p.experiment.time_limit_s)
    assert p.load.traffic_s * scale.time_dilation <= p.experiment.time_limit_s - 10
    assert p.frames_per_step(p.sizes(scale)[0]) >= 30


def test_sends_carry_uneven_chunks_exactly() -> None:
    """S = 1 000 003 elements on 4 ranks: 250001 x 3 + 250000; all ranks together send 2(n-1)S."""
    p = planned(ranks=4)
    sends = p.sends(1_000_003, 1.0)
    assert sorted(set(sends.n_bytes.tolist())) == [4 * 250_000, 4 * 250_001]
    assert sends.n_bytes.sum() == 2 * 3 * 1_000_003 * 4


@pytest.mark.parametrize("ranks", [2, 3, 5, 6])
@pytest.mark.parametrize("size", [4, 8, 12, 1_000_003])
def test_odd_ranks_and_tiny_sizes_plan(ranks: int, size: int) -> None:
    """Fewer elements than ranks: some chunks are empty, the total stays 2(n-1)S."""
    p = planned(ranks=ranks, min_bytes=str(size), max_bytes=str(size), scale="8000:1")
    row = p.sizes(Scale(8000, 1))[0]
    assert row.count == size // 4
    assert p.sends(row.count, 1.0).n_bytes.sum() == 2 * (ranks - 1) * (size // 4) * 4


def test_divided_collectives_print_the_rounded_size() -> None:
    """nccl-tests rounds each rank's part down to 16 bytes: 1000 B over 16 ranks is 48 B each."""
    p = planned(collective="all_gather", min_bytes="1000", max_bytes="1000", scale="8000:1")
    assert p.sizes(Scale(8000, 1))[0].size_bytes == 768


def test_a_patterns_size_is_what_a_host_sends() -> None:
    """1000 B in 8 flows of 31 whole elements each; a buffer has room for more, at both ends."""
    p = planned(collective="permutation", flows_per_host=8, min_bytes="1000", max_bytes="1000", scale="8000:1")
    row = p.sizes(Scale(8000, 1))[0]
    assert row.size_bytes == row.emulated_bytes == 8 * 31 * 4
    assert set(p.message_bytes(row.count).tolist()) == {31 * 4}
    assert p.schedule.sent_per_rank(row.count).tolist() == [8 * 31] * 16


@pytest.mark.parametrize(("collective", "factor"), [("permutation", 1), ("group_shift", 1), ("incast", 15)])
def test_a_patterns_factor_is_the_busiest_nics(collective: str, factor: int) -> None:
    options = {"group_size": 4} if collective == "group_shift" else {}
    p = planned(collective=collective, flows_per_host=3, **options)
    assert p.algo_factor == factor
    # The largest size in time_limit_s' reckoning: what the busiest NIC carries at its rate.
    assert p.load.traffic_s == pytest.approx(1.75 * 2**30 * factor * 8 / 400e9 * 4)


def test_link_options_change_every_link() -> None:
    fabric = fabric_of(load(None, {"link_rate": "100Gbit", "delay": "1us"}))
    assert {(x.rate_mbps, x.delay_us) for x in fabric.links} == {(100_000.0, 1.0)}
    assert planned(delay="1us").has_delays


def test_frames_per_step_and_its_remedy_agree() -> None:
    p, scale = planned(min_bytes="64M", max_bytes="64M"), Scale(8000, 64)
    assert p.frames_per_step(p.sizes(scale)[0]) == pytest.approx(2**26 / 64 / 16 / 8948, rel=1e-4)
    assert p.more_frames(scale) == "use 274.9MB or more, or a smaller size_scale"
    assert pytest.approx(30 * 8948 * 16 * 64, rel=1e-3) == 274.9e6


def test_the_load_of_256_ranks_is_quick() -> None:
    p = planned(topology="spine-leaf:spines=16,leaves=16,hosts_per_leaf=16")
    assert p.ranks == 256 and np.isfinite(p.load.frame_hops_per_s)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"ranks": 32}, "32 ranks do not fit on 16 hosts: use at most 16"),
        ({"ranks": 1}, "1 rank has nobody to send to: a collective needs 2 or more"),
        ({"max_bytes": "1M"}, "-e 1MiB is below -b 256MiB: use -e 256MiB or more, or a smaller -b"),
        (
            {"min_bytes": "3", "scale": "8000:1"},
            "-b 3B leaves all_reduce over 16 ranks nothing to send: use -b 4B or more",
        ),
        (
            {"min_bytes": "64", "scale": "8000:64"},
            (
                "-b 64B at size_scale 64 leaves all_reduce over 16 ranks nothing to send: use -b 256B or more, or a smaller "
                "--scale RATE:SIZE"
            ),
        ),
        (
            {"collective": "all_gather", "min_bytes": "255"},
            "-b 255B leaves all_gather over 16 ranks nothing to send: use -b 256B or more",
        ),
        ({"loss": "100%"}, "loss 100% lets nothing through: use less"),
        (
            {"jitter": "5us", "delay": "4us"},
            "jitter 5us is more than the delay of some link, 4us: use a --delay that is as long or longer",
        ),
        ({"transport": "carrier-pigeon"}, "unknown transport 'carrier-pigeon': choose from "),
        ({"routing": "magic"}, "unknown policy 'magic': choose from "),
        ({"collective": "all_reduc"}, "unknown collective 'all_reduc': choose from "),
        ({"algorithm": "square"}, "unknown algorithm of all_reduce 'square': choose from "),
        ({"collective": "incast", "algorithm": "ring"}, "unknown algorithm of incast 'ring': choose from direct"),
        (
            {"flows_per_host": 8},
            (
                "--flows-per-host 8 is not for all_reduce, whose algorithm says who sends to whom: use it with permutation, "
                "uniform_random, group_shift, incast"
            ),
        ),
        (
            {"collective": "incast", "group_size": 4},
            "--group-size and --group-shift are not for incast: use --collective group_shift",
        ),
        ({"collective": "group_shift"}, "group_shift needs a group_size: 16 ranks make groups of 1, 2, 4, 8"),
        (
            {"collective": "group_shift", "group_size": 5},
            "group_size 5 does not cut 16 ranks into two or more whole groups: use 1, 2, 4, 8",
        ),
        (
            {"collective": "group_shift", "group_size": 4, "group_shift": 4},
            "group_shift 4 over 4 groups ends where it begins: use 1 to 3",
        ),
        (
            {"collective": "permutation", "flows_per_host": 8, "min_bytes": "31"},
            "-b 31B leaves permutation over 16 ranks nothing to send: use -b 32B or more",
        ),
        (
            {
                "topology": "spine-leaf:spines=0,leaves=1,hosts_per_leaf=2",
                "collective": "permutation",
                "flows_per_host": 22_769,
            },
            "22769 TCP connections from one rank do not fit: it has ports for 22768, use fewer",
        ),
        ({"topology": "ring"}, "unknown topology 'ring': choose from "),
        (
            {"routing": "minimal"},
            (
                "policy 'minimal' does not fit fabric spine-leaf: choose from adaptive, ecmp, ecmp-group, "
                "ecmp-polarised, k-shortest, per-flow, single-path"
            ),
        ),
        ({"topology": "spine-leaf:spines=0"}, "spines=0 with leaves=4 leaves the leaves unconnected"),
        (
            {"scale": "1"},
            (
                "link h1-leaf1: 400Gbit at rate_scale 1 is 400Gbit here, and a link can be shaped to 100kbit to 34Gbit: "
                "use --scale auto, or another --scale RATE[:SIZE]"
            ),
        ),
        (
            {"topology": "spine-leaf:leaves=1,hosts_per_leaf=1"},
            "1 rank has nobody to send to: a collective needs 2 or more",
        ),
    ],
)
def test_refusals(overrides: dict[str, Any], text: str) -> None:
    with pytest.raises(Refused) as caught:
        planned(**overrides)
    if text.endswith(("choose from ", "unconnected")):
        assert str(caught.value).startswith(text)
    else:
        assert str(caught.value) == text
    assert "\n" not in str(caught.value)


def test_memory_by_hand() -> None:
    """A ring of 4 holds 4 buffers of S, 4 messages of S / 4 and one more buffer with a byte of mask for each element."""
    p = planned(ranks=4, min_bytes="1G", max_bytes="1G")
    s = 2**30
    assert p.memory_bytes(Scale(8000, 1)) == pytest.approx(4 * s + s + 1.25 * s, rel=0.01)
    assert p.memory_bytes(Scale(8000, 64)) == pytest.approx(6.25 * s / 64, rel=0.02)


def test_memory_of_a_collective_that_only_copies() -> None:
    p = planned(collective="all_gather", ranks=4, min_bytes="1G", max_bytes="1G")
    assert p.memory_bytes(Scale(8000, 1)) == pytest.approx((4 + 1.25) * 2**30, rel=0.01)


def test_more_ranks_than_can_be_planned_are_refused() -> None:
    with pytest.raises(Refused, match="use --ranks 1024 or fewer"):
        planned(topology="spine-leaf:leaves=256,hosts_per_leaf=8")


def test_channels_are_connections_that_share_the_buffer() -> None:
    """Ring of 16, 1 GiB in 4 channels: 64 connections, each with 30 messages of a sixty-fourth."""
    whole, split = planned(), planned(channels=4)
    assert (len(whole.schedule.connections), len(split.schedule.connections)) == (16, 64)
    (row,) = split.sizes(Scale(8000, 64))[-1:]
    assert set(split.message_bytes(row.count).tolist()) == {2**30 // 64 // 16 // 4}
    assert len(split.schedule) == 64 * 30


def test_slices_are_no_larger_than_asked() -> None:
    """A step's message of 64 MiB in slices of 20 MiB at most: four of 16 MiB, which wait for slices of the step before."""
    p = planned(slice_bytes="20M")
    assert p.slices == 4
    (row,) = p.sizes(Scale(8000, 64))[-1:]
    assert set(p.message_bytes(row.count).tolist()) == {2**24 // 64}
    # One slice does not stand for a step.
    assert p.frames_per_step(row) == planned().frames_per_step(row)
    assert planned(slice_bytes="1G").schedule.n_chunks == 16


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"slice_bytes": "4K"}, "cuts a message of 64MiB into 16384 slices, more than 64: use --slice-bytes 1MiB or more"),
        ({"channels": 65}, "--channels = 65 is too large: use 64 or less"),
        ({"collective": "incast", "channels": 2}, "--channels and --slice-bytes are not for incast"),
    ],
)  # fmt: skip
def test_impossible_pieces_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        planned(**settings)


def test_round_trips_beyond_a_connections_deadline_are_refused() -> None:
    """Host to host over one switch and back: four links of 1 ms, x 4000 = 16 s; x 2000 = 8 s."""
    one_leaf = {"topology": "spine-leaf:spines=1,leaves=1,hosts_per_leaf=2", "delay": "1ms"}
    planned = plan(load(None, one_leaf))
    with pytest.raises(
        Refused, match=r"^a round trip h1 -> h2 would take 16 s here, more than 10 s: the delays x 4000; "
    ):
        require_short_ways(forecast_of(planned, Scale(4000, 1)), Scale(4000, 1))
    require_short_ways(forecast_of(planned, Scale(4000, 2)), Scale(4000, 2))
