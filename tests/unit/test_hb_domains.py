"""HB domains: who speaks to whom over which interface, what that asks of the machine, and what it should take."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lab.planning.announcing import to_announce
from lab.planning.experiment import load
from lab.planning.forecast import forecast_of
from lab.planning.interfaces import interfaces, scale_up_hops
from lab.planning.plan import Plan, endpoints, plan
from lab.planning.roofline import Cut, worst_cut
from lab.planning.scale import Budget, Scale, choose_scale
from lab.planning.site import fabric_of
from tests.unit.loopback import NETWORK
from topologies import topology
from topologies.builder import FabricBuilder
from topologies.fabric import Fabric
from topologies.spine_leaf import SpineLeaf
from topologies.tiers import hb_domain_ports
from traffic.placement import hb_domains, place
from traffic.transport import Endpoint, address_pair
from traffic.transports.tcp import TcpTransport

RAILS = topology("rail-optimised").build()


def planned(**overrides: Any) -> Plan:
    return plan(load(None, {"topology": "rail-optimised", "min_bytes": "256M", "max_bytes": "1G"} | overrides))


# -- who is in one domain ---------------------------------------------------------------------------------------------


def test_ranks_of_a_server_are_a_domain() -> None:
    hosts = place(RAILS, 16, "contiguous")
    assert hb_domains(RAILS, hosts) == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15))


def test_a_domains_ranks_stand_in_the_order_of_their_rails() -> None:
    """However they are placed: the i-th of every domain is on one leaf."""
    hosts = place(RAILS, 16, "random", seed=3)
    domains = hb_domains(RAILS, hosts)
    for rail in zip(*domains, strict=True):
        assert len({RAILS.switch_of(hosts[rank]) for rank in rail}) == 1
    assert [{hosts[rank][:2] for rank in domain} for domain in domains] == [{"s1"}, {"s2"}, {"s3"}, {"s4"}]


def test_domains_hold_the_job_s_ranks_only() -> None:
    assert hb_domains(RAILS, ["s1g2", "s3g1", "s1g1"]) == ((2, 0), (1,))
    spine_leaf = topology("spine-leaf").build()
    assert hb_domains(spine_leaf, [h.name for h in spine_leaf.hosts]) == ()


def chain() -> Fabric:
    """a - nv1 - nv2 - b joined by scale-up links, and c, whose own switch b is plugged into as well; d has a NIC only."""
    b = FabricBuilder("chain", {})
    leaf = b.switch("leaf", "leaf", prefix="198.18.0.0/24")
    nv = [b.switch(f"nv{i}", "scale-up", prefix=f"198.19.128.{16 * i}/28") for i in (1, 2, 3)]
    for i, (name, ends) in enumerate((("a", [nv[0]]), ("b", [nv[1], nv[2]]), ("c", [nv[2]]), ("d", []))):
        b.host(name, f"198.18.0.{i + 1}", *(f"198.19.128.{16 * int(end[2]) + i + 1}" for end in ends))
        b.link(name, leaf, "scale-out")
        for end in ends:
            b.link(name, end, "scale-up", rate_mbps=3.6e6)
    b.link(nv[0], nv[1], "scale-up", rate_mbps=3.6e6)
    return b.build()


def test_a_domain_may_have_several_switches_and_ends_at_its_hosts() -> None:
    fabric = chain()
    assert [[port.intf for port in ports] for ports in hb_domain_ports(fabric)] == [["a-eth1", "b-eth1"], ["c-eth1"]]
    assert hb_domains(fabric, ["d", "c", "b", "a"]) == ((3, 2), (1,), (0,))


# -- addresses --------------------------------------------------------------------------------------------------------


def test_ranks_of_one_domain_speak_between_their_scale_up_addresses() -> None:
    a, b = (Endpoint(i, f"g{i}", f"10.0.0.{i}", domain=7, scale_up_ip=f"10.1.0.{i}") for i in (1, 2))
    elsewhere = Endpoint(3, "g3", "10.0.0.3", domain=8, scale_up_ip="10.1.0.3")
    plain = [Endpoint(i, f"h{i}", f"10.0.0.{i}") for i in (4, 5)]
    assert address_pair(a, b) == ("10.1.0.1", "10.1.0.2")
    assert address_pair(b, elsewhere) == ("10.0.0.2", "10.0.0.3")
    assert address_pair(a, plain[0]) == ("10.0.0.1", "10.0.0.4")
    assert address_pair(*plain) == ("10.0.0.4", "10.0.0.5")


def test_tcp_uses_the_pair_at_both_ends() -> None:
    """Ranks 0 and 1 are a domain, 2 is outside: six connections, each between the addresses of the network it belongs to."""
    ends = [
        Endpoint(r, f"h{r}", f"{NETWORK}.1.{r + 1}", domain=r // 2, scale_up_ip=f"{NETWORK}.2.{r + 1}")
        for r in range(3)
    ]
    pairs = [(a, b, 0) for a in range(3) for b in range(3) if a != b]
    with TcpTransport(ends, pairs, congestion_control="reno") as transport:
        for (a, b, _), sender in transport.senders.items():
            network = 2 if {a, b} == {0, 1} else 1
            assert sender.getsockname()[0] == f"{NETWORK}.{network}.{a + 1}"
            assert sender.getpeername()[0] == f"{NETWORK}.{network}.{b + 1}"
        assert transport.receivers.keys() == set(pairs)


def test_a_plan_s_endpoints_have_both_addresses() -> None:
    p = planned()
    at = endpoints(p, p.fabric)
    assert [e.domain for e in at] == [rank // 4 for rank in range(16)]
    assert (at[5].ip, at[5].scale_up_ip) == tuple(port.ip for port in p.fabric.ports_of("s2g2"))


# -- what each connection crosses -------------------------------------------------------------------------------------


def test_switches_are_those_of_the_network_in_use() -> None:
    """A contiguous ring: one scale-up switch inside a server; from the last of one to the first of the next another rail, so
    leaf, spine and leaf."""
    p = planned(algorithm="ring")
    first_step = p.switches[:16].tolist()
    assert first_step == [1, 1, 1, 3] * 4
    paths = forecast_of(p, Scale(8000, 64)).paths
    assert [port.node for port in paths[0, 1, 0]] == ["s1g1", "hb1"]
    assert [len(paths[rank, (rank + 1) % 16, 0]) - 1 for rank in range(16)] == first_step


def test_a_domain_of_several_switches_is_crossed_by_all_that_lie_between() -> None:
    fabric = chain()
    p = interfaces(fabric, ["a", "b", "c"])
    src, dst = np.array([0, 1]), np.array([1, 2])
    assert p.inside(src, dst).tolist() == [True, False]
    assert scale_up_hops(fabric, p, src[:1], dst[:1]).tolist() == [2]


def test_interfaces_are_busy_apart() -> None:
    """9 GB from s1g1 to s1g2 over 3.6 Tbit/s are 20 ms, 1 GB to s2g1 over 400 Gbit/s as well; s2g1 takes 2 GB in all."""
    at = interfaces(RAILS, ["s1g1", "s1g2", "s2g1"])
    busy_s = at.busy_s(np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([9e9, 1e9, 1e9]))
    assert busy_s.tolist() == pytest.approx([0.02, 0.02, 0.04, 0.02, 0.02, 0.0])


def test_the_machine_is_asked_for_what_the_fastest_phase_takes() -> None:
    """Four ranks of one server: four flows of 3.6 Tbit/s through one switch, an acknowledgement for every second frame."""
    asked = planned(ranks=4).load
    assert asked.frame_hops_per_s == pytest.approx(4 * 3600e9 / 8 / 8948 * 1.5)
    assert asked.traffic_s == pytest.approx(1.75 * 2**30 * 1.5 * 8 / 3600e9 * 4)
    assert (asked.rate_mbps, asked.fastest_mbps) == (400_000, 3_600_000)


def test_auto_keeps_the_fastest_interface_within_what_shapes_well() -> None:
    """200 Mbit/s is the most: a NIC is then slower by the ratio of 9, which 20 is the next readable rate below."""
    assert choose_scale(planned(ranks=4).load, Budget(1e9), 60.0).rate_scale == 400_000 / 20
    assert choose_scale(planned(topology="spine-leaf").load, Budget(1e9), 60.0).rate_scale == 400_000 / 200


def test_only_flows_of_the_network_are_announced() -> None:
    """Of a ring's 16 connections the four that leave a server, at their NIC's whole rate."""
    p = planned(algorithm="ring", routing="per-flow")
    demands = to_announce(p, Scale(8000, 64).fabric(p.fabric))
    assert [demand.rate_mbps for demand in demands] == [50.0] * 4
    inside = {e.scale_up_ip for e in endpoints(p, p.fabric)}
    assert not inside & {ip for demand in demands for ip in (demand.flow.src_ip, demand.flow.dst_ip)}


# -- roofline ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("collective", "ranks", "factor", "gbps"),
    [
        # 4 domains in the accelerators' place, each with 4 NICs.
        ("all_reduce", 16, 2 * 3 / 4, 1600),
        ("all_gather", 16, 3 / 4, 1600),
        # The root is in the larger of two domains, whose NICs take in 2 of 6 parts.
        ("gather", 6, 2 / 6, 1600),
        # Each rank sends 12 of its 16 blocks to other domains over its own NIC.
        ("all_to_all", 16, 12 / 16, 400),
        # One domain alone uses no NIC.
        ("all_reduce", 4, 2 * 3 / 4, 3600),
    ],
)
def test_the_roofline_is_the_worst_cut_s(collective: str, ranks: int, factor: float, gbps: float) -> None:
    at = interfaces(RAILS, [h.name for h in RAILS.hosts][:ranks])
    cut = worst_cut(collective, at, 400_000)
    assert (cut.factor, cut.mbps) == (factor, gbps * 1e3)


@pytest.mark.parametrize(
    ("slow", "share_mbps", "where"),
    [
        # A member at half the rate sends a quarter of S; at a sixth it is the slowest: 1/4 / 1/6 > 3/4.
        (1 / 2, 3 / 4 / 400_000, "at the root's NIC"),
        (1 / 6, 1 / 4 * 6 / 400_000, "at the slowest NIC of the others"),
    ],
)
@pytest.mark.parametrize("collective", ["gather", "scatter"])
def test_one_slow_link_bounds_a_rooted_collective_by_its_own_part(
    collective: str, slow: float, share_mbps: float, where: str
) -> None:
    fabric = SpineLeaf(spines=1, leaves=1, hosts_per_leaf=4).build()
    links = (replace(x, rate_mbps=x.rate_mbps * slow) if "h2" in (x.a.node, x.b.node) else x for x in fabric.links)
    fabric = replace(fabric, links=tuple(links))
    cut = worst_cut(collective, interfaces(fabric, ["h1", "h2", "h3", "h4"]), 400_000 * slow)
    assert cut.factor / cut.mbps == pytest.approx(share_mbps)
    assert cut.where == where


def test_a_slow_scale_up_interface_is_a_cut_too() -> None:
    """1.875 S through 400 + 100 Gbit/s of an accelerator take longer than 1.5 S through 1.6 Tbit/s of a domain."""
    p = planned(topology="rail-optimised:hb_rate_gbps=100")
    assert str(p.cut) == "1.875 S / 500Gbit at each accelerator's NIC and scale-up interface"


def test_without_hb_domains_the_roofline_is_the_draft_s() -> None:
    p = planned(topology="spine-leaf")
    assert p.cut == Cut(1.875, 400_000, "at each accelerator's NIC")
    assert p.b_acc_mbps == 400_000


@pytest.mark.parametrize(
    ("collective", "options", "factor"), [("incast", {}, 12), ("group_shift", {"group_size": 4}, 1)]
)
def test_a_pattern_s_roofline_is_its_busiest_interface(collective: str, options: dict[str, Any], factor: int) -> None:
    """Incast: 12 of 15 flows come by the NIC of rank 0, three from its own server by the other interface."""
    p = planned(collective=collective, **options)
    assert p.algo_factor == factor
    assert p.cut.seconds(2**30) == pytest.approx(factor * 2**30 * 8 / 400e9)


def test_a_pattern_inside_a_domain_uses_no_nic() -> None:
    p = planned(collective="incast", ranks=4)
    assert p.algo_factor == 3
    assert p.cut.seconds(2**30) == pytest.approx(3 * 2**30 * 8 / 3600e9)


# -- rates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "link_rate", "scale_up_mbps"),
    [
        ("rail-optimised", "100Mbit", 900),
        ("rail-optimised:hb_rate_gbps=0.45", "100Mbit", 450),
        ("rail-optimised:hb_rate_gbps=3600", "200Gbit", 3_600_000),
        ("multi-dc:site=rail-only(servers=2;gpus_per_server=2),rate_mbps=400000", "100Mbit", 900),
        ("rail-optimised", None, 3_600_000),
    ],
)
def test_another_link_rate_keeps_the_ratio_unless_a_rate_was_given(
    spec: str, link_rate: str | None, scale_up_mbps: float
) -> None:
    fabric = fabric_of(load(None, {"topology": spec, "link_rate": link_rate}))
    rates = {link.rate_mbps for link in fabric.links if link.kind == "scale-up"}
    assert list(rates) == [pytest.approx(scale_up_mbps)]


# -- schedules that forward -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topology_", "collective", "algorithm"),
    [
        ("rail-only", "all_reduce", "hierarchical"),
        ("rail-only", "all_to_all", "hierarchical"),
        ("rail-only", "all_gather", "rail-ring"),
        # Ranks that differ in one bit are in one server or on one rail; over three of two accelerators a snake does not close.
        ("rail-only:servers=3,gpus_per_server=2", "all_reduce", "hierarchical"),
        ("rail-only:servers=1", "all_reduce", "ring"),
        ("rail-only:servers=3", "all_reduce", "hierarchical"),
        # Rails are joined: a snake of rings keeps to them all the same.
        ("rail-optimised", "all_reduce", "rail-ring"),
        ("rail-optimised", "reduce_scatter", "rail-ring"),
        ("superpod", "all_gather", "rail-ring"),
        ("rail-optimised", "broadcast", "ring"),
        ("rail-optimised:servers=1", "all_reduce", "ring"),
        ("spine-leaf", "all_reduce", "ring"),
    ],
)
def test_ranks_that_only_hb_domains_join_get_the_schedule_that_forwards(
    topology_: str, collective: str, algorithm: str
) -> None:
    """One server needs no network."""
    assert planned(topology=topology_, collective=collective).algorithm == algorithm


def test_a_ring_over_domains_of_different_sizes_takes_ranks_in_order() -> None:
    assert planned(ranks=6).algorithm == "ring"


def test_a_ring_for_each_rail_takes_as_long_as_its_nics_need_and_ranks_in_order_as_one_of_them() -> None:
    """Over 4 NICs a server sends its 2 (n-1)/n S; in order all of it leaves by one."""
    seconds = {}
    for algorithm in ("rail-ring", "ring"):
        p = planned(algorithm=algorithm, min_bytes="1G")
        scale = Scale(8000, 8)
        found = forecast_of(p, scale).prediction(p.sizes(scale)[0], scale)
        assert found
        seconds[algorithm] = found.seconds
        spines = {i for i in found.bytes_by_intf if i.startswith("spine")}
        assert bool(spines) == (algorithm == "ring")
    # 128 MiB at 50 Mbit/s and the headers of full frames; a few milliseconds for each of 30 steps.
    least = 2 * 15 / 16 * 2**27 / 4 * 8 / 50e6 * 9014 / 8948
    assert least < seconds["rail-ring"] < 1.05 * least
    # Those of all servers go from one leaf to another, and may meet on the way.
    assert seconds["ring"] > 4 * least


def test_hierarchical_never_climbs() -> None:
    """However the ranks are placed: one switch on every send, the domain's or the rail's."""
    p = planned(algorithm="hierarchical", placement="random")
    assert set(p.switches.tolist()) == {1.0}


def predicted(spec: str, frames: int) -> tuple[float, str]:
    """Emulated seconds and busiest link of a hierarchical all-reduce of 4 x `frames` full frames at rates / 8000."""
    size = str(4 * frames * 8948)
    p = planned(topology=spec, algorithm="hierarchical", min_bytes=size, max_bytes=size)
    scale = Scale(8000, 1)
    found = forecast_of(p, scale).prediction(p.sizes(scale)[0], scale)
    assert found is not None
    return found.seconds, found.bottleneck


def by_hand_s(frames: int, scale_up_mbps: float, nic_mbps: float) -> float:
    """Two servers of two accelerators: S/2 to the other of the server and S/2 back in the end; between, S/4 twice along the
    rail. A frame is 9014 bytes, and half an acknowledgement of 66 for each of the other direction's. Each of the three parts
    begins with a full bucket, 2 ms of its rate or 9064 bytes, and its last frame leaves before it is paid for."""
    inside_s, outside_s = (8 / (mbps * 1e6) for mbps in (scale_up_mbps, nic_mbps))
    free = [9014 + max(9064, 2e-3 / byte_s) for byte_s in (inside_s, outside_s)]
    frame = 9014 + 33
    return 2 * (2 * frames * frame - free[0]) * inside_s + (2 * frames * frame - free[1]) * outside_s


@pytest.mark.parametrize(
    ("hb_rate_gbps", "scale_up_mbps", "busiest"), [(3600, 450, "leaf"), (100, 12.5, "hb")], ids=["fast", "slow"]
)
def test_the_predicted_time_of_two_servers_by_hand(hb_rate_gbps: float, scale_up_mbps: float, busiest: str) -> None:
    """But for the latency of four steps, a quarter of a millisecond each. Inside go twice the bytes."""
    seconds, bottleneck = predicted(f"rail-optimised:servers=2,gpus_per_server=2,hb_rate_gbps={hb_rate_gbps}", 1000)
    assert seconds == pytest.approx(by_hand_s(1000, scale_up_mbps, 50), abs=2e-3)
    assert busiest in bottleneck


@pytest.mark.parametrize(("nic", "hb_rate_gbps", "share"), [("50Gbit", 450, 0.111), ("25Gbit", 300, 0.083)])
def test_forwarding_an_all_to_all_costs_the_ratio_of_the_rates(nic: str, hb_rate_gbps: int, share: float) -> None:
    """Rail-only, by PXN: what goes to other servers, (n - g)/n of the buffer, passes the NIC once and as much the HB domain, its
    own blocks among it, one after the other: 1 + B_NIC / B_HB times the NIC's time (the rail-only paper: 8.2 to 11.2 %)."""
    p = planned(
        topology=f"rail-only:servers=4,gpus_per_server=4,hb_rate_gbps={hb_rate_gbps}", collective="all_to_all",
        link_rate=nic, min_bytes="4G", max_bytes="4G",
    )  # fmt: skip
    scale = Scale(1000, 1)
    (size,) = p.sizes(scale)
    found = forecast_of(p, scale).prediction(size, scale)
    assert found is not None
    nic_s = size.emulated_bytes * 12 / 16 * (9014 + 33) / 8948 * 8 / (p.nic_mbps / 1000 * 1e6)
    assert found.seconds / nic_s - 1 == pytest.approx(share, abs=0.003)


def test_local_operations_cross_nothing_and_are_sent_nowhere() -> None:
    """An all-to-all keeps its own block: 15 of 16 parts of S leave each rank, 3 of 16 for its own server, and 9 more of 16 to
    the rank there on whose rail they go on."""
    p = planned(topology="rail-only", collective="all_to_all")
    s = p.schedule
    assert s.is_local.any() and set(p.switches[s.is_local].tolist()) == {0.0}
    size = p.sizes(Scale(8000, 64))[0]
    sent = p.message_bytes(size.count)
    inside = p.interfaces.inside(s.src, s.dst)
    assert sent[~inside].sum() == size.emulated_bytes * 12
    assert sent[inside].sum() == size.emulated_bytes * (3 + 9)
