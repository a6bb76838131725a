"""What a rate becomes in tc, and what the audit says of an interface that is not as asked."""

from dataclasses import replace

import pytest

from topologies import wires
from topologies.builder import FabricBuilder
from topologies.errors import TopologyError
from topologies.fabric import Link, Port
from topologies.ocs_leaf import OcsLeaf
from topologies.shaping import Held, Shape, at_another_rate, findings, shape, shaped_ports, shapes
from topologies.spine_leaf import SpineLeaf

AS_ASKED = Held("htb", 6_250_000, 6_250_000, 31_250, 31_250, 2_307_584)


@pytest.mark.parametrize(
    ("rate_mbps", "mtu", "burst", "limit"),
    [
        (5, 1500, 1564, 387_584),  # one frame and 50 B; 256 frames
        (10, 9000, 9064, 2_307_584),
        (50, 9000, 12_500, 2_307_584),  # 2 ms of line rate
        (10_000, 1500, 2_500_000, 2_500_000),  # two bandwidth-delay products of the emulator's own millisecond
    ],
)
def test_burst_and_queue_follow_the_rate(rate_mbps: float, mtu: int, burst: int, limit: int) -> None:
    made = shape(rate_mbps, mtu)
    assert (made.burst_bytes, made.limit_bytes) == (burst, limit)


@pytest.mark.parametrize(
    ("rate_mbps", "rate_bytes_s"), [(0.5, 62_500), (33.3333, 4_166_662), (10_000, 1_250_000_000), (1e5, 12_500_000_000)]
)
def test_rates_are_exact_above_what_32_bits_hold(rate_mbps: float, rate_bytes_s: int) -> None:
    assert shape(rate_mbps, 9000).rate_bytes_s == rate_bytes_s


@pytest.mark.parametrize("rate_mbps", [0, -5, float("inf"), float("nan")])
def test_a_rate_that_cannot_be_shaped_is_refused(rate_mbps: float) -> None:
    with pytest.raises(TopologyError, match="a rate must be positive"):
        shape(rate_mbps, 9000)


@pytest.mark.parametrize("mtu", [0, 575, 9217, 65_535])
def test_an_mtu_outside_ethernets_is_refused(mtu: int) -> None:
    with pytest.raises(TopologyError, match="outside 576 to 9216"):
        shape(50, mtu)


def test_the_queue_grows_with_the_links_delay() -> None:
    """1 Gbit/s and 5 ms one way: eight such links and 1 ms are a round trip of 41 ms, 5.1 MB; the queue holds two."""
    assert shape(1000, 9000, delay_us=5000).limit_bytes == 2 * 125_000_000 * 41 // 1000


@pytest.mark.parametrize("rate_mbps", [10, 17, 50, 400, 10_000])
def test_the_quantum_is_within_what_the_kernel_takes_without_a_warning(rate_mbps: float) -> None:
    """sch_htb.c warns below 1000 and above 200 000 bytes, of those it computes itself."""
    assert 1000 <= shape(rate_mbps, 9000).quantum <= 200_000


def test_the_stored_burst_is_never_smaller_than_asked() -> None:
    for rate_mbps in (0.5, 33.3, 50, 1000, 12_345.6):
        made = shape(rate_mbps, 9000)
        assert made.burst_ticks * 64e-9 * made.rate_bytes_s >= made.burst_bytes


def _arrival_s(made: Shape, n_bytes: int, mtu: int) -> float:
    """When HTB lets the last frame of a message go: a frame leaves with tokens >= 0 and may take them below zero."""
    payload = mtu - 52
    frames = [min(payload, n_bytes - sent) + 66 for sent in range(0, n_bytes, payload)]
    tokens, now = float(made.burst_bytes), 0.0
    for frame in frames:
        wait = max(0.0, -tokens / made.rate_bytes_s)
        now += wait
        tokens = min(made.burst_bytes, tokens + wait * made.rate_bytes_s) - frame
    return now


def test_a_short_message_does_not_slip_through_the_bucket() -> None:
    """30 kB over 10 Mbit/s are worth 24 ms: at MTU 1500 at least 21 of them are taken."""
    assert _arrival_s(shape(10, 1500), 30_000, 1500) >= 0.021


def test_at_jumbo_frames_two_frames_of_a_message_are_free() -> None:
    """The bound that the module's text gives: (all frames but the last, less the burst) / rate."""
    assert _arrival_s(shape(10, 9000), 30_000, 9000) == pytest.approx(0.0144, abs=0.0002)
    assert _arrival_s(shape(10, 9000), 30 * 8948, 9000) >= 0.92 * 30 * 9014 / 1_250_000


def test_every_end_is_shaped_but_an_optical_switchs() -> None:
    fabric = FabricBuilder("test", {})
    leaf, ocs = fabric.switch("leaf1", "leaf"), fabric.switch("ocs1", "ocs")
    fabric.link(fabric.host("h1", "198.18.0.1"), leaf, "scale-out")
    fabric.link(leaf, ocs, "circuit")
    assert {p.intf for p in shaped_ports(fabric.build())} == {"h1-eth0", "leaf1-eth1", "leaf1-eth2"}


def test_each_end_has_its_links_rate() -> None:
    fabric = SpineLeaf(spines=1, leaves=2, hosts_per_leaf=1).build().with_links(rate_mbps=40)
    asked = shapes(fabric, 9000)
    assert len(asked) == 2 * len(fabric.links)
    assert {made.rate_bytes_s for made in asked.values()} == {5_000_000}


def test_the_audit_is_silent_when_all_is_as_asked() -> None:
    assert not list(findings("leaf1-eth1", shape(50, 9000), AS_ASKED))


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (Held(None, None, None, None, None, None), "leaf1-eth1: qdisc should be htb at 50 Mbit/s, is none"),
        (Held("noqueue", None, None, None, None, None), "leaf1-eth1: qdisc should be htb at 50 Mbit/s, is noqueue"),
        (AS_ASKED._replace(rate_bytes_s=None), "leaf1-eth1: rate should be 50 Mbit/s, is none"),
        (AS_ASKED._replace(rate_bytes_s=3_125_000), "leaf1-eth1: rate should be 50 Mbit/s, is 25 Mbit/s"),
        (AS_ASKED._replace(ceil_bytes_s=12_500_000), "leaf1-eth1: ceil should be 50 Mbit/s, is 100 Mbit/s"),
        (AS_ASKED._replace(burst_ticks=4_000), "leaf1-eth1: burst should be 12500 B, is 1600 B"),
        (AS_ASKED._replace(limit_bytes=None), "leaf1-eth1: queue should be bfifo of 2307584 B, is none"),
    ],
)
def test_a_finding_names_interface_expectation_and_what_is_there(held: Held, text: str) -> None:
    assert [str(f) for f in findings("leaf1-eth1", shape(50, 9000), held)] == [text]


def test_only_what_leads_to_an_optical_switch_can_be_held() -> None:
    """50 Mbit/s for 40 ms are 250 000 B, beside the queue that a link has anyway."""
    fabric = OcsLeaf(leaves=2, hosts_per_leaf=1, uplinks=2, ocs=1, spines=1).build().with_links(rate_mbps=50)
    asked, held = shapes(fabric, 9000), shapes(fabric, 9000, hold_us=40_000)
    changed = {intf for intf in asked if asked[intf] != held[intf]}
    assert changed == {p.intf for p in shaped_ports(fabric) if fabric.link_of(p.intf).kind == "circuit"}
    assert len(changed) == 4
    for intf in changed:
        assert held[intf] == replace(asked[intf], kind="tbf", limit_bytes=asked[intf].limit_bytes + 250_000)
    (finding,) = findings("leaf1-eth2", held[changed.pop()], AS_ASKED)
    assert str(finding) == "leaf1-eth2: qdisc should be tbf at 50 Mbit/s, is htb"


def test_a_link_that_can_be_held_stays_one_at_another_rate() -> None:
    before = replace(shape(50, 9000), kind="tbf", limit_bytes=10**6)
    after = at_another_rate(before, shape(25, 9000))
    assert (after.kind, after.rate_mbps, after.limit_bytes) == ("tbf", 25, 10**6)
    assert at_another_rate(shape(50, 9000), shape(25, 9000)) == shape(25, 9000)


def test_a_delay_line_holds_all_that_is_under_way() -> None:
    a, b = Port("a", 0, "a-eth0"), Port("b", 0, "b-eth0")
    link = Link(7, a, b, "scale-out", rate_mbps=1000, delay_us=5000)
    assert wires.line_frames(link) == 14_649  # 1.5 x 625 kB in frames of 64 B
    assert wires.line_frames(replace(link, rate_mbps=10.0)) == 1000
    assert wires.delay_ticks(link) == 78_125
    assert wires.names(link) == ("wire7a", "wire7b")
    assert wires.far_name(link, a) == "wire7b"
    assert wires.far_name(link, b) == "wire7a"


def test_a_queue_holds_the_frames_that_it_was_asked_to() -> None:
    """Whatever the delay: 64 frames of 1500 bytes and Ethernet's 14."""
    assert shape(1, 1500, queue_frames=64).limit_bytes == 64 * 1514
    assert shape(1000, 1500, delay_us=1e6, queue_frames=1).limit_bytes == 1514
    assert shape(1, 1500).limit_bytes == 256 * 1514
