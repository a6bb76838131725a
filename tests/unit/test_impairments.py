"""What the impairments' programs do with frames: run on a machine of the test's own, against published numbers."""

import struct
from dataclasses import replace
from itertools import accumulate

import pytest

from tests.unit.bpf_machine import Machine
from topologies import impairments
from topologies.bpf import assemble
from topologies.errors import TopologyError
from topologies.impairments import Impairments, impaired_intfs, seed_of
from topologies.shaping import shape
from topologies.spine_leaf import SpineLeaf

PASSED, LOST = -1, 4
# The first outputs of SplitMix64 from state 1234567, as https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64
# publishes them.
SPLITMIX_SEED = 1234567
SPLITMIX = [
    6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
]  # fmt: skip
SHAPE = shape(50, 9000)
FRAME = 9014


def splitmix64(state: int, n: int) -> list[int]:
    """Its reference implementation (Vigna, https://prng.di.unimi.it/splitmix64.c)."""
    mask, outputs = 2**64 - 1, []
    for _ in range(n):
        state = state + 0x9E3779B97F4A7C15 & mask
        z = state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        outputs.append(z ^ z >> 31)
    return outputs


class Link:
    """One direction of a link with its program. now_ns is the kernel's clock; every frame can carry a mark."""

    def __init__(self, asked: Impairments, memory: int = 0) -> None:
        self.memory = bytearray(memory + impairments.MEMORY_BYTES)
        self.now_ns, self.marked, self.at = 10**12, 0, memory
        code = assemble(impairments.program(3, memory, "x", SHAPE, asked))
        helpers = {5: lambda *_: self.now_ns, 39: lambda *_: 0, 97: self._mark}
        self._machine = Machine(code, bytearray(struct.pack("<I", FRAME)), self.memory, helpers)

    def _mark(self, *_: int) -> int:
        self.marked += 1
        return 1

    def send(self, n: int = 1) -> list[int]:
        return [self._machine.run() for _ in range(n)]

    def counts(self) -> tuple[int, ...]:
        return struct.unpack_from("<3Q", self.memory, self.at)


def test_the_tests_own_generator_is_splitmix64() -> None:
    assert splitmix64(SPLITMIX_SEED, 5) == SPLITMIX


def test_a_frame_is_lost_when_its_draw_is_below_the_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(impairments, "seed_of", lambda *_: SPLITMIX_SEED)
    assert Link(Impairments(loss=0.5)).send(5) == [LOST if z < 2**63 else PASSED for z in SPLITMIX]
    assert Link(Impairments(loss=0.2)).send(5) == [LOST if z < 2**64 / 5 else PASSED for z in SPLITMIX]


def test_a_long_run_of_losses_follows_the_seed_and_is_counted() -> None:
    link = Link(Impairments(loss=0.01, seed=3), memory=64)
    expected = [z < 2**64 / 100 for z in splitmix64(seed_of(3, "x"), 3000)]
    assert [result == LOST for result in link.send(3000)] == expected
    assert link.counts() == (3000, sum(expected), 0)
    assert link.memory[:64] == bytes(64)


def test_no_loss_and_all_loss() -> None:
    assert Link(Impairments(ecn_threshold_us=1e6)).send(100) == [PASSED] * 100
    assert Link(Impairments(loss=1)).send(100) == [LOST] * 100


def test_seeds_differ_by_interface_and_by_run() -> None:
    assert len({seed_of(seed, intf) for seed in range(10) for intf in ("h1-eth0", "h2-eth0", "leaf1-eth1")}) == 30


def test_a_burst_marks_from_the_frame_that_would_wait_longer() -> None:
    """Frame k of a burst waits for k frames less the 2 ms bucket: at 50 Mbit/s 1.44224 ms each. Above 5 ms: from k = 5."""
    link = Link(Impairments(ecn_threshold_us=5000))
    link.send(20)
    waits_ms = [k * FRAME * 8 / 50e3 - 2 for k in range(20)]
    assert link.marked == sum(wait > 5 for wait in waits_ms) == 15
    assert link.counts() == (20, 0, 15)


def test_at_the_links_rate_nothing_is_marked() -> None:
    link = Link(Impairments(ecn_threshold_us=100))
    for _ in range(1000):
        link.send()
        link.now_ns += FRAME * 8 * 20
    assert link.marked == 0


def test_above_the_links_rate_the_queue_grows_by_the_difference() -> None:
    """A tenth above the rate: frame k, sent at k / 1.1 frame times, would leave at k frame times less the bucket."""
    link = Link(Impairments(ecn_threshold_us=2000))
    frame_ns = FRAME * 8 * 20
    gap_ns = round(frame_ns / 1.1)
    expected = 0
    for at_ns, leaves_ns in zip(
        accumulate([0] + [gap_ns] * 99), accumulate([-2_000_000] + [frame_ns] * 99), strict=True
    ):
        expected += leaves_ns - at_ns >= 2_000_000
        link.send()
        link.now_ns += gap_ns
    assert link.marked == expected > 0


def test_a_lost_frame_waits_in_no_queue() -> None:
    link = Link(Impairments(loss=1, ecn_threshold_us=100))
    link.send(100)
    assert link.marked == 0


def test_scale_out_ends_alone_are_impaired() -> None:
    made = SpineLeaf(spines=1, leaves=2, hosts_per_leaf=2).build()
    assert set(impaired_intfs(made)) == {port.intf for link in made.links for port in link.ports}
    inside = replace(made, links=(*made.links[1:], replace(made.links[0], kind="scale-up")))
    assert set(impaired_intfs(made)) - set(impaired_intfs(inside)) == {port.intf for port in made.links[0].ports}


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"loss": 1.5}, "loss 1.5 is not a probability: use 0 to 1"),
        ({"ecn_threshold_us": 0.0}, "ECN threshold 0 us marks every frame: use more than 0"),
    ],
)
def test_what_cannot_be_meant(asked: dict[str, float], text: str) -> None:
    with pytest.raises(TopologyError) as refusal:
        Impairments(**asked)  # type: ignore[arg-type]
    assert str(refusal.value) == text
