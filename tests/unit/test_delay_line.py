"""Delay lines without a clock: when frames may leave, and how late those left that did."""

import pytest

from topologies import wires
from topologies.delay_line import DelayLine, Lateness, Report
from topologies.errors import TopologyError
from topologies.spine_leaf import SpineLeaf

MS = 1_000_000


def test_a_constant_delay() -> None:
    line = DelayLine(5 * MS, 0, seed=1)
    assert [line.due_ns(came) for came in (0, 1, 7 * MS)] == [5 * MS, 5 * MS + 1, 12 * MS]


def test_jitter_is_uniform_up_and_down() -> None:
    """Frames so far apart that none waits for its predecessor: 10 000 draws from -2 to 2 ms, deviation 4/sqrt(12) ms."""
    line = DelayLine(5 * MS, 2 * MS, seed=1)
    extra = [(line.due_ns(came) - came) / MS - 5 for came in range(0, 10_000 * 10 * MS, 10 * MS)]
    assert -2 <= min(extra) < -1.99 and 1.99 < max(extra) <= 2
    assert sum(extra) / len(extra) == pytest.approx(0, abs=4 * 1.1547 / 100)


def test_jitter_keeps_the_order_and_repeats_with_its_seed() -> None:
    def dues(seed: int) -> list[int]:
        line = DelayLine(5 * MS, 5 * MS, seed)
        return [line.due_ns(came) for came in range(0, 100 * MS, MS // 10)]

    assert dues(3) == sorted(dues(3)) == dues(3)
    assert dues(3) != dues(4)


def test_lateness_is_known_to_16_us() -> None:
    late = Lateness()
    for us in range(1000):
        late.add(us * 1000)
    assert late.frames == 1000
    for percent in (50, 99, 100):
        assert 10 * percent - 1 <= late.percentile_us(percent) <= 10 * percent + 17
    assert Lateness().percentile_us(99) == 0


def test_a_frame_that_is_seconds_late_is_late() -> None:
    late = Lateness()
    late.add(10**10)
    assert late.percentile_us(99) > 67_000


def test_a_report_knows_its_rate() -> None:
    assert Report(frames=300, lost=0, seconds=1.5, cpu_s=0.1, late_p99_us=80).frames_per_s == 200


def test_the_hop_delays_each_link_by_its_own() -> None:
    made = SpineLeaf(spines=1, leaves=1, hosts_per_leaf=1).build().with_links(delay_us=2000)
    assert wires.cables(list(made.links), 500) == [
        ("wire0a", "wire0b", 2000, 500),
        ("wire1a", "wire1b", 2000, 500),
    ]


@pytest.mark.parametrize(
    ("delay_us", "jitter_us", "text"),
    [
        (
            200,
            0,
            (
                "link h1-leaf1 has an emulated delay of 200 us: without the kernel's netem, and with jitter, 1000 us is the "
                "least: use a longer delay, a --scale RATE:SIZE with a larger ratio, or the kernel module sch_netem"
            ),
        ),
        (
            2000,
            2001,
            (
                "link h1-leaf1 has a delay of 2000 us and a jitter of 2001 us: a frame cannot arrive before it was sent, use "
                "a jitter up to the delay"
            ),
        ),
    ],
)
def test_what_the_hop_cannot_do(delay_us: float, jitter_us: float, text: str) -> None:
    made = SpineLeaf(spines=1, leaves=1, hosts_per_leaf=1).build()
    wires.require_hop(made, jitter_us)
    with pytest.raises(TopologyError) as refusal:
        wires.require_hop(made.with_links(delay_us=delay_us), jitter_us)
    assert str(refusal.value) == text
