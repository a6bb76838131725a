"""One planted fault, one finding, with its kind and its element; on tables made by hand of a small spine-leaf fabric."""

from dataclasses import replace
from typing import Any

import pytest

from lab.measuring.diagnosis import CircuitUse, HostUse, LinkUse, RankUse, Stranger, Tables, diagnose
from topologies import topology
from topologies.fabric import Fabric
from topologies.inspected import Inspection, IpCounts, LinkEnd, Plugged
from topologies.shaping import Held, findings, shape

FABRIC: Fabric = topology("spine-leaf:spines=2,leaves=2,hosts_per_leaf=1").build().with_links(rate_mbps=20)
ASKED = shape(20, 9000)


def wired() -> Inspection:
    """Numbers as the kernel gives them: the switches' ends count on in one namespace, each host's is 2 in its own."""
    cables = tuple((link.a.intf, link.b.intf) for link in FABRIC.links)
    number: dict[str, int] = {}
    for link in FABRIC.links:
        for port in link.ports:
            number[port.intf] = 2 if FABRIC.node(port.node).is_host else 10 + len(number)
    ends = {}
    for a, b in cables:
        ends[a], ends[b] = LinkEnd(number[a], number[b]), LinkEnd(number[b], number[a])
    plugged = {p.intf: Plugged(s.name, p.number) for s in FABRIC.switches for p in FABRIC.ports_of(s.name)}
    hosts = [h.name for h in FABRIC.hosts]
    zero = dict.fromkeys(hosts, 0)
    return Inspection(ends, cables, plugged, {}, dict.fromkeys(hosts, IpCounts()), zero, zero)


def swapped(a: str, b: str) -> Inspection:
    """The far ends of two cables changed places."""
    seen = wired()
    far_a, far_b = seen.peer(a), seen.peer(b)
    ends = dict(seen.ends)
    for near, far in ((a, far_b), (b, far_a)):
        ends[near] = LinkEnd(ends[near].number, ends[far].number)
        ends[far] = LinkEnd(ends[far].number, ends[near].number)
    return replace(seen, ends=ends)


def first(**tables: Any) -> tuple[str, str]:
    given: dict[str, Any] = {"fabric": FABRIC, "inspection": wired()} | tables
    found = diagnose(Tables(**given))
    return (found[0].kind, found[0].element) if found else ("", "")


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    held = Held("htb", ASKED.rate_bytes_s, ASKED.rate_bytes_s, ASKED.burst_ticks, ASKED.burst_ticks, ASKED.limit_bytes)
    tables = Tables(
        fabric=FABRIC,
        inspection=wired(),
        shaping=list(findings("leaf1-eth2", ASKED, held)),
        links=[LinkUse("leaf1-eth2", sent=1000, swallowed=2, excess=1.0)],
        hosts=[HostUse("h1")],
        circuits=[CircuitUse("ocs1", "leaf1:2", "leaf2:2", 1_000, 999, None)],
        ranks=[RankUse(0, "h1", 0.3, 0.0), RankUse(1, "h2", 0.32, 0.0)],
        other_cores=0.3,
    )
    assert diagnose(tables) == ()


def test_spine_ports_that_changed_places() -> None:
    """leaf1's cables to the two spines are crossed at the spines: everything still arrives, over the wrong links."""
    found = diagnose(Tables(FABRIC, swapped("leaf1-eth2", "leaf1-eth3")))
    assert {(one.kind, one.element) for one in found} == {
        ("wrong wiring", "leaf1-spine1"), ("wrong wiring", "leaf1-spine2"),
    }  # fmt: skip
    assert found[0].detail == "leaf1-eth2 is cabled to spine2-eth1, not to spine1-eth1"


def test_hosts_that_changed_places() -> None:
    """Each host's interface is number 2 of its namespace, so that the leaves' side alone could not tell."""
    found = diagnose(Tables(FABRIC, swapped("h1-eth0", "h2-eth0")))
    assert {one.element for one in found} == {"h1-leaf1", "h2-leaf2"}
    assert all(one.kind == "wrong wiring" for one in found)


def test_a_port_in_the_wrong_place_of_its_switch() -> None:
    seen = wired()
    there = {"leaf1-eth2": Plugged("leaf1", 3), "leaf1-eth3": Plugged("leaf1", 2)}
    found = diagnose(Tables(FABRIC, replace(seen, plugged={**(seen.plugged or {}), **there})))
    assert [(one.kind, one.element) for one in found] == [
        ("wrong wiring", "leaf1-spine1"),
        ("wrong wiring", "leaf1-spine2"),
    ]
    assert found[0].detail == "leaf1-eth2 is in port 3 of leaf1, should be in 2 of leaf1"


@pytest.mark.parametrize(
    ("held", "kind"),
    [
        (Held("noqueue", None, None, None, None, None), "unshaped link"),
        (Held("htb", 1_250_000, 1_250_000, ASKED.burst_ticks, ASKED.burst_ticks, ASKED.limit_bytes), "slow link"),
        (Held("htb", 5_000_000, 5_000_000, ASKED.burst_ticks, ASKED.burst_ticks, ASKED.limit_bytes), "fast link"),
        (Held("htb", None, None, None, None, None), "unshaped link"),
        (Held("htb", 2_500_000, 2_500_000, ASKED.burst_ticks, ASKED.burst_ticks, 9014), "misshaped link"),
    ],
)
def test_what_tc_holds(held: Held, kind: str) -> None:
    """20 Mbit/s are 2.5 Mbyte/s."""
    assert first(shaping=list(findings("leaf1-eth2", ASKED, held))) == (kind, "leaf1->spine1 (leaf1-eth2)")


def test_a_link_that_was_too_fast_for_a_while_though_its_shape_is_back() -> None:
    links = [LinkUse("leaf1-eth2", excess=1.02), LinkUse("spine1-eth2", excess=6.2, excess_mbps=124.0)]
    (found,) = diagnose(Tables(FABRIC, wired(), links=links))
    assert str(found) == (
        "unshaped link spine1->leaf2 (spine1-eth2): carried 124Mbit for a while, 6.20 times what 20Mbit allow"
    )


@pytest.mark.parametrize(
    ("use", "lost"),
    [
        # A filter that drops, and one that swallows what it takes.
        (LinkUse("leaf2-eth1", sent=990, filtered=10, swallowed=10), 10),
        (LinkUse("leaf2-eth1", sent=980, swallowed=20), 18),
        (LinkUse("leaf2-eth1", sent=1000, lost_behind=7), 7),
        (LinkUse("leaf2-eth1", sent=1000, arrived=988), 10),
    ],
)
def test_a_lossy_link(use: LinkUse, lost: int) -> None:
    """Two frames are the difference of counters that are not read at one moment."""
    (found,) = diagnose(Tables(FABRIC, wired(), links=[LinkUse("h1-eth0", sent=500), use]))
    assert (found.kind, found.element) == ("lossy link", "leaf2->h2 (leaf2-eth1)")
    assert found.detail.startswith(f"{lost} frames lost")


def test_packets_that_a_host_loses() -> None:
    assert first(hosts=[HostUse("h1", lost_in=12)]) == ("lossy link", "leaf1->h1 (leaf1-eth1)")
    assert first(hosts=[HostUse("h2", lost_out=12)]) == ("lossy link", "h2->leaf2 (h2-eth0)")


def test_a_circuit_without_light() -> None:
    dark = CircuitUse("ocs1", "leaf1:2", "leaf2:2", 14, 0, 1.25)
    (found,) = diagnose(Tables(FABRIC, wired(), circuits=[dark]))
    assert str(found) == "dark circuit leaf1:2->leaf2:2: 14 frames went into ocs1 after 1.2 s, 0 came out"


def test_a_link_without_carrier() -> None:
    seen = wired()
    ends = {**seen.ends, "leaf1-eth2": seen.ends["leaf1-eth2"]._replace(carrier=False)}
    assert first(inspection=replace(seen, ends=ends)) == ("link down", "leaf1-spine1")


def test_a_hog_is_named_with_what_it_took() -> None:
    strangers = [Stranger("python3", 4711, 0.97), Stranger("sshd", 12, 0.001)]
    (found,) = diagnose(Tables(FABRIC, wired(), other_cores=1.02, strangers=strangers))
    assert str(found) == "CPU hog python3 (4711): other processes used 1.0 cores: python3 (4711) 1.0"


def test_less_is_a_hog_where_nothing_was_idle() -> None:
    strangers = [Stranger("python3", 4711, 0.3)]
    assert first(other_cores=0.3, strangers=strangers, idle_share=0.2) == ("", "")
    assert first(other_cores=0.3, strangers=strangers, idle_share=0.002) == ("CPU hog", "python3 (4711)")


def test_a_slow_rank_is_one_that_was_stopped_or_that_computed_for_longer_than_the_others() -> None:
    even = [RankUse(rank, f"h{rank + 1}", 0.2, 0.0) for rank in range(4)]
    assert first(ranks=[*even[:3], RankUse(3, "h4", 0.1, 0.5)]) == ("slow rank", "3 (h4)")
    assert first(ranks=[*even[:3], RankUse(3, "h4", 0.6, 0.0)]) == ("slow rank", "3 (h4)")
    assert first(ranks=[*even[:3], RankUse(3, "h4", 0.25, 0.0)]) == ("", "")


def test_causes_come_before_what_follows_from_them() -> None:
    """Crossed cables make frames come to hosts that do not want them; a hog makes everybody late."""
    found = diagnose(
        Tables(
            FABRIC,
            swapped("h1-eth0", "h2-eth0"),
            hosts=[HostUse("h1", lost_in=40)],
            other_cores=1.0,
            strangers=[Stranger("stress", 9, 1.0)],
        )
    )
    assert (found[0].kind, found[-1].kind) == ("wrong wiring", "CPU hog")
