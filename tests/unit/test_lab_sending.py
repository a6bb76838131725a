"""A transport's settings: what each becomes here, and the refusal of what cannot be meant or would be ignored."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.errors import LabError
from lab.model.fluid import Latency
from lab.model.predictor import predict
from lab.model.wire import Sends, over_queue_pairs, queue_pair_connection
from lab.planning.experiment import DEFAULT_FILE, load
from lab.planning.forecast import forecast_of
from lab.planning.plan import plan, wire_flows
from lab.planning.scale import Scale
from lab.planning.sending import (
    ack_timeout_ns,
    framing,
    of_a_program,
    options,
    resent_for,
    spread_by_hosts,
    tcp_congestion_control,
)
from topologies import Fabric, topology
from topologies.shaping import shape
from topologies.spread import Spread
from traffic.framing import rocev2
from traffic.rocev2.reliability import Reliability

ROCEV2 = {"transport": "rocev2"}
HARDWARE_MBPS = 400_000.0
# Two such queues of 32 frames of 9014 bytes take 92 ms to drain, less than four times the kernel's 200 ms.
LINK = shape(50, 9000, queue_frames=32)


def sent(scale: Scale, **settings: Any) -> dict[str, Any]:
    return options(load(None, ROCEV2 | settings), scale, HARDWARE_MBPS, [LINK])


def test_unasked_rocev2_goes_back_n_over_one_queue_pair_and_is_not_held_back() -> None:
    made = sent(Scale())
    # Four times the kernel's 200 ms are 800 ms; the next of 4.096 us x 2^n is 1.07 s.
    assert made["reliability"] == Reliability(mtu_bytes=4096, timeout_ns=4096 << 18)
    assert (made["dcqcn"], made["qps"], made["spread"].unit) == (None, 1, "flow")


def test_tcp_is_told_its_congestion_control_alone() -> None:
    assert options(load(None, {}), Scale(), HARDWARE_MBPS, []) == {"congestion_control": "cubic"}
    assert options(load(None, {"congestion_control": "reno"}), Scale(), HARDWARE_MBPS, []) == {
        "congestion_control": "reno"
    }
    # What a program of the user's own sends is TCP's, whatever the file says of RoCEv2.
    assert tcp_congestion_control(load(None, ROCEV2 | {"congestion_control": "dcqcn"})) == "cubic"


@pytest.mark.parametrize("transport", ["rocev2", "carrier-pigeon"])
def test_a_program_of_the_users_own_is_taken_to_speak_tcp(transport: str) -> None:
    asked = of_a_program(load(None, {"transport": transport, "congestion_control": "dcqcn"}))
    assert (asked.transport, tcp_congestion_control(asked)) == ("tcp", "cubic")
    reno = load(None, {"congestion_control": "reno"})
    assert of_a_program(reno) == reno


@pytest.mark.parametrize(
    "file",
    # A sweep is many experiments.
    [f for f in sorted(DEFAULT_FILE.parent.glob("*.toml")) if not f.stem.startswith("sweep")],
    ids=lambda file: file.stem,
)
def test_every_experiment_that_we_ship_can_be_planned(file: Path) -> None:
    assert plan(load(file)).ranks >= 2


def test_dcqcn_is_scaled_as_links_sizes_and_times_are() -> None:
    """8000:64: rates / 8000, bytes / 64, times x 125."""
    control = "dcqcn:min_rate=400Mbit,rate_timer=300us,byte_counter=64K,gain=0.5,cnp_interval=4us"
    p = sent(Scale(8000, 64), congestion_control=control)["dcqcn"]
    # The published increase is a thousandth of the line rate.
    assert (p.line_rate_mbps, p.min_rate_mbps, p.additive_increase_mbps) == (50, 0.05, 400 / 8000)
    assert (p.rate_timer_ns, p.alpha_timer_ns, p.byte_counter, p.gain) == (37_500_000, 6_875_000, 1024, 0.5)
    assert p.fast_recovery_steps == 5
    assert p.cnp_interval_ns == 500_000


def test_a_rate_limit_is_divided_as_links_are() -> None:
    assert sent(Scale(8000, 64), rate_limit="40Gbit")["rate_mbps"] == 5


def test_a_packet_is_sent_again_after_a_time_of_the_hardwares() -> None:
    """x 125: asked for 3 ms it is 375 ms; unasked 4.096 us x 2^11 = 8.4 ms are 1.05 s here, where 0.52 s would be too short."""
    asked, unasked = (sent(Scale(8000, 64), **s)["reliability"].timeout_ns for s in ({"ack_timeout": "3ms"}, {}))
    assert (asked, unasked) == (375_000_000, 4096 * 2**11 * 125)


def test_a_slow_links_full_queue_is_waited_for() -> None:
    """1 Mbit/s: 256 frames of 9014 bytes are 18.46 s, two such queues 36.9 s; 4.096 us x 2^24 are 68.7 s."""
    e = load(None, ROCEV2)
    assert ack_timeout_ns(e, Scale(), [shape(1, 9000)]) == 4096 << 24


def test_a_flowlets_pause_is_stretched() -> None:
    spread = sent(Scale(8000, 64), spread="flowlet", flowlet_gap="20us", entropy=8)["spread"]
    assert (spread.unit, spread.entropy, spread.gap_ns) == ("flowlet", 8, 2_500_000)


def test_tcp_is_spread_by_its_hosts_and_rocev2_by_itself() -> None:
    tcp = load(None, {"spread": "flowlet", "flowlet_gap": "20us", "entropy": 8})
    assert spread_by_hosts(tcp, Scale(8000, 64)) == Spread("flowlet", 8, 2_500_000)
    assert spread_by_hosts(load(None, ROCEV2 | {"spread": "packet"}), Scale()) == Spread()
    # What the file says of RoCEv2 is not for a program of the user's own; what it says of TCP is.
    assert of_a_program(load(None, ROCEV2 | {"spread": "packet", "entropy": 8})).spread == "flow"
    assert of_a_program(tcp) == tcp


@pytest.mark.parametrize("transport", ["tcp", "rocev2"])
def test_a_sprayed_connection_is_predicted_to_load_equal_paths_alike(transport: str) -> None:
    """Four hosts of one leaf send to four of the other over four uplinks. Of 1024 ports, hashed at random, 256 +- 14 take each
    path: four deviations are 22 %. In all it is what the flows send, whatever the paths."""
    settings = {
        "topology": "spine-leaf:spines=4,leaves=2,hosts_per_leaf=4", "collective": "group_shift", "group_size": 4,
        "transport": transport, "spread": "packet", "entropy": 1024, "min_bytes": "64M", "max_bytes": "64M", "scale": "8000:8",
    }  # fmt: skip
    planned = plan(load(None, settings))
    found = forecast_of(planned, Scale(8000, 8))
    (size,) = planned.sizes(Scale(8000, 8))
    predicted = found.prediction(size, Scale(8000, 8))
    assert predicted
    into_hosts = sum(n for intf, n in predicted.bytes_by_intf.items() if is_into_host(found.emulated, intf))
    uplinks = {
        port.intf: predicted.bytes_by_intf[port.intf]
        for leaf in ("leaf1", "leaf2")
        for port in found.emulated.ports_of(leaf)
        if not is_into_host(found.emulated, port.intf)
    }
    assert len(uplinks) == 8
    assert sum(uplinks.values()) == pytest.approx(into_hosts)
    assert max(uplinks.values()) < 1.22 * into_hosts / 8
    assert min(uplinks.values()) > 0.78 * into_hosts / 8
    # A flow's 8 MiB at 50 Mbit/s take 1.34 s; the fullest uplink decides. By flow two of them would meet, or more.
    assert 1.34 < predicted.seconds < 1.22 * 1.37


def is_into_host(fabric: Fabric, intf: str) -> bool:
    link = fabric.link_of(intf)
    far = link.b if link.a.intf == intf else link.a
    return fabric.node(far.node).is_host


def test_what_takes_other_paths_after_each_pause_is_not_predicted() -> None:
    found = forecast_of(plan(load(None, {"spread": "flowlet"})), Scale(8000, 64))
    assert found.unknown == "with --spread flowlet paths follow pauses, which nobody knows before"


def test_spread_packets_may_overtake_each_other_before_one_is_taken_for_lost() -> None:
    assert sent(Scale(), reliability="selective")["reliability"].reorder == 0
    assert sent(Scale(), reliability="selective", spread="packet")["reliability"].reorder == 32


def test_a_smaller_path_mtu_is_what_predictions_reckon_with() -> None:
    """Ethernet 14, IP 20, UDP 8, BTH 12, ICRC 4."""
    made = framing(load(None, ROCEV2 | {"path_mtu": 1024}))
    assert (made.payload_bytes, made.frame_bytes, made.frames_per_ack) == (1024, 1082, 16)


@pytest.mark.parametrize(
    ("settings", "lost", "timeouts", "resent"),
    [
        ({"transport": "tcp"}, 5, 0, 5),
        # A window of 64 goes out again for each.
        (ROCEV2, 5, 1, 6 * 64),
        (ROCEV2 | {"reliability": "selective"}, 5, 1, 5 + 64),
    ],
)
def test_how_much_losses_explain(settings: dict[str, Any], lost: int, timeouts: int, resent: int) -> None:
    assert resent_for(load(None, settings), lost, timeouts) == resent


_CONSTANTS = (
    "gain, alpha_timer, rate_timer, byte_counter, fast_recovery_steps, additive_increase, hyper_increase, min_rate, "
    "cnp_interval"
)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"transport": "tcp", "qps": 4}, "--qps is not for tcp: use it with --transport rocev2"),
        ({"transport": "tcp", "path_mtu": 1024}, "--path-mtu is not for tcp: use it with --transport rocev2"),
        (
            {"transport": "tcp", "reliability": "selective"},
            "--reliability is not for tcp: use it with --transport rocev2",
        ),
        (
            {"mtu": 1500, "path_mtu": 4096},
            (
                "--path-mtu 4096 makes packets of 4156 bytes, more than --mtu 1500: use --path-mtu 1024, or --mtu 4156 or more"
            ),
        ),
        ({"window": 8}, "--window is not for rocev2: use it with --transport tcp"),
        ({"entropy": 8}, "--entropy 8 is not for --spread flow, which has one source port: use --spread packet"),
        (
            {"spread": "packet", "flowlet_gap": "9us"},
            "--flowlet-gap is not for --spread packet: use it with --spread flowlet",
        ),
        (
            {"spread": "packet", "routing": "per-flow"},
            "--spread packet leaves the source ports that per-flow places flows by: use --routing ecmp",
        ),
        (
            {"spread": "packet", "routing": "single-path"},
            "--spread packet spreads nothing: single-path gives every destination one path; use --routing ecmp",
        ),
        ({"congestion_control": "cubic"}, "--congestion-control 'cubic' is not for rocev2: choose from none, dcqcn"),
        (
            {"transport": "tcp", "congestion_control": "dcqcn"},
            "--congestion-control 'dcqcn' is not for tcp: choose from cubic, reno, dctcp, bbr",
        ),
        (
            {"congestion_control": "dcqcn"},
            "--congestion-control dcqcn waits for marks, and no link marks: add --ecn-threshold, such as 50us",
        ),
        (
            {"transport": "tcp", "congestion_control": "dctcp"},
            "--congestion-control dctcp waits for marks, and no link marks: add --ecn-threshold, such as 50us",
        ),
        ({"congestion_control": "none:x=1"}, "--congestion-control none has no constants: write it without 'x=1'"),
        (
            {"congestion_control": "dcqcn:speed=1"},
            (
                "--congestion-control: unknown constant of DCQCN 'speed': choose from additive_increase, alpha_timer, "
                "byte_counter, cnp_interval, fast_recovery_steps, gain, hyper_increase, min_rate, rate_timer"
            ),
        ),
        (
            {"congestion_control": "dcqcn:min_rate=-3Mbit"},
            (
                "--congestion-control dcqcn: min_rate: rate '-3Mbit' is not a positive number with a unit: write it like "
                "400Gbit or 50Mbit"
            ),
        ),
        (
            {"rate_limit": "10Gbit", "congestion_control": "dcqcn", "ecn_threshold": "50us"},
            "--rate-limit is not for --congestion-control dcqcn, which chooses the rate: leave one of them out",
        ),
        (
            {"rate_limit": "-10Gbit"},
            "--rate-limit: rate '-10Gbit' is not a positive number with a unit: write it like 400Gbit or 50Mbit",
        ),
        (
            {"rate_limit": "10Gbit", "transport": "udp"},
            "--rate-limit is not for udp: use it with --transport rocev2",
        ),
        (
            {"ack_timeout": "0us"},
            "--ack-timeout 0 would send every packet again before it can be acknowledged: use 1us or more",
        ),
        (
            {"transport": "tcp", "lossless": "credits"},
            "--lossless is not for tcp: use it with --transport rocev2",
        ),
        (
            {"lossless": "pfc"},
            "--lossless = 'pfc': choose from credits",
        ),
        ({"congestion_control": "dcqcn:gain=much"}, "--congestion-control dcqcn: gain: 'much' is not a number"),
        (
            {"congestion_control": "dcqcn:min_rate=100Mbit", "link_rate": "50Mbit"},
            (
                "--congestion-control dcqcn:min_rate=100Mbit: DCQCN least rate 100 Mbit/s: use more than 0 and at most the line "
                f"rate, 50 Mbit/s; constants: {_CONSTANTS}"
            ),
        ),
    ],
)
def test_refused_in_one_line(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(LabError) as caught:
        plan(load(None, ROCEV2 | settings))
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"qps": 0}, "--qps = 0 is too small: use 1 or more"),
        ({"qps": 257}, "--qps = 257 is too large: use 256 or less"),
        ({"path_mtu": 1000}, "--path-mtu = 1000: choose from 256, 512, 1024, 2048, 4096"),
        ({"reliability": "best"}, "--reliability = 'best': choose from go-back-N, selective"),
        ({"spread": "worm"}, "--spread = 'worm': choose from flow, flowlet, packet"),
        ({"entropy": 1}, "--entropy = 1 is too small: use 2 or more"),
    ],
)
def test_values_that_do_not_exist(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(LabError) as caught:
        load(None, settings)
    assert str(caught.value) == text


# -- queue pairs in predictions -------------------------------------------------------------------------------------


def test_every_queue_pair_is_a_flow_of_its_own() -> None:
    planned = plan(load(None, ROCEV2 | {"qps": 4, "collective": "permutation"}))
    flows = wire_flows(planned, planned.fabric)
    assert len(flows) == 16 * 4
    assert len({(f.src_ip, f.src_port) for f in flows if f.src_rank == 0}) == 4
    assert queue_pair_connection((3, 5, 2), 1, 4) == (3, 5, 9)


def test_what_waits_for_a_message_waits_for_all_its_parts() -> None:
    """A message, a calculation that waits for it, and a message that waits for that: the second overtakes no part."""
    n_bytes = np.array([1000, 0, 300])
    sends = Sends(
        connections=[(0, 1, 0), (1, 0, 0)],
        connection=np.array([0, -1, 1]),
        n_bytes=n_bytes,
        dep_start=np.array([0, 0, 1, 2]),
        deps=np.array([0, 1]),
        waits_to_leave=np.zeros(2, bool),
        calc_s=np.array([0.0, 2.0, 0.0]),
        framing=rocev2(9000),
    )
    over = over_queue_pairs(sends, 3)
    # Three parts and what joins them, the calculation, three parts and what joins them.
    assert over.connections == [(0, 1, 0), (0, 1, 1), (0, 1, 2), (1, 0, 0), (1, 0, 1), (1, 0, 2)]
    assert over.connection.tolist() == [0, 1, 2, -1, -1, 3, 4, 5, -1]
    # 1000 / 3 and 300 / 3 bytes, rounded up to multiples of 128.
    assert over.n_bytes.tolist() == [384, 384, 232, 0, 0, 128, 128, 44, 0]
    waits = [over.deps[a:b].tolist() for a, b in zip(over.dep_start, over.dep_start[1:], strict=False)]
    assert waits == [[], [], [], [0, 1, 2], [3], [4], [4], [4], [5, 6, 7]]
    assert over.calc_s.tolist() == [0, 0, 0, 0, 2.0, 0, 0, 0, 0]


def test_waiting_for_a_message_to_leave_is_waiting_for_each_part() -> None:
    sends = Sends(
        connections=[(0, 1, 0)],
        connection=np.array([0, -1]),
        n_bytes=np.array([256, 0]),
        dep_start=np.array([0, 0, 1]),
        deps=np.array([0]),
        waits_to_leave=np.ones(1, bool),
        calc_s=np.zeros(2),
        framing=rocev2(9000),
    )
    over = over_queue_pairs(sends, 2)
    assert over.deps.tolist() == [0, 1, 0, 1]
    assert over.dep_start.tolist() == [0, 0, 0, 2, 4]
    assert over.waits_to_leave.tolist() == [False, False, True, True]


def test_queue_pairs_on_two_paths_carry_twice_as_much_as_on_one() -> None:
    """Links of 50 Mbit/s: 8 MB take 1.28 s over one of them, 0.64 s over two, and headers."""
    fabric = topology("spine-leaf:spines=2,leaves=2,hosts_per_leaf=1").build().with_links(rate_mbps=50.0)
    ports = {p.intf: p for h in (*fabric.hosts, *fabric.switches) for p in fabric.ports_of(h.name)}
    uplinks = [p for p in ports.values() if p.node == "leaf1" and fabric.peer(p).node.startswith("spine")]
    whole = Sends([(0, 1, 0)], np.array([0]), np.array([8_000_000]), np.zeros(2, int), np.zeros(0, int), np.zeros(0, bool),
                  np.zeros(1), rocev2(9000))  # fmt: skip
    over = over_queue_pairs(whole, 2)
    seconds = [
        predict(
            fabric,
            over,
            {c: [uplinks[i]] for c, i in zip(over.connections, ways, strict=True)},
            9000,
            ack_paths={c: [] for c in over.connections},
            latency=Latency(0.0, 0.0),
        ).seconds
        for ways in ((0, 0), (0, 1))
    ]
    # 4154 bytes for 4096 of payload; half a percent for bursts and last frames.
    assert seconds[0] == pytest.approx(8e6 * 4154 / 4096 * 8 / 50e6, rel=0.01)
    assert seconds[1] == pytest.approx(seconds[0] / 2, rel=0.01)
