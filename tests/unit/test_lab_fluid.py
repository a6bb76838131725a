"""The fluid model against shares and times worked out by hand, and against the model of whole levels where both hold."""

from dataclasses import replace

import numpy as np
import pytest

from lab.model import fluid
from lab.model.fluid import Fluid, Latency, max_min
from lab.model.level_walk import LevelWalk
from lab.model.wire import Crossed, Paths, Sends
from lab.planning.experiment import load
from lab.planning.forecast import forecast_of
from lab.planning.plan import plan
from lab.planning.scale import Scale
from topologies import Fabric, Port, topology
from traffic.framing import rocev2, tcp
from traffic.schedule import Connection

NO_LATENCY = Latency(per_hop_s=0.0, end_s=0.0)
MTU = 9000
MSS = tcp(MTU).payload_bytes
RATE_MBPS = 50.0
# With half an acknowledgement of 66 bytes in the other direction, which no test's data goes.
FRAME_S = (MSS + 66) * 8 / (RATE_MBPS * 1e6)
BURST_S = max((MTU + 14 + 50) * 8 / (RATE_MBPS * 1e6), 2e-3)
WAITS = tuple[int, ...]


def sends(*rows: tuple[Connection, int, WAITS], calc_s: float = 0.0) -> Sends:
    """Each send: its connection, its full frames, and those that it waits for. From a rank to itself: `calc_s` of computing."""
    connections = sorted({c for c, _, _ in rows if c[0] != c[1]})
    return Sends(
        connections,
        np.array([connections.index(c) if c in connections else -1 for c, _, _ in rows]),
        np.array([frames * MSS for _, frames, _ in rows]),
        np.cumsum([0, *(len(after) for _, _, after in rows)]),
        np.array([a for _, _, after in rows for a in after], dtype=np.int64),
        # A rank waits for the arrival of what is sent to it, and for its own to leave.
        np.array([rows[a][0][1] != c[0] for c, _, after in rows for a in after], dtype=bool),
        np.array([calc_s if c[0] == c[1] else 0.0 for c, _, _ in rows]),
        tcp(MTU),
    )


def star(n: int) -> tuple[Fabric, list[Port]]:
    """n hosts below one leaf, and their ports."""
    fabric = topology(f"spine-leaf:spines=1,leaves=1,hosts_per_leaf={n}").build().with_links(rate_mbps=RATE_MBPS)
    return fabric, [fabric.scale_out_port(h.name) for h in fabric.hosts]


def arrivals(n: int, what: Sends, latency: Latency = NO_LATENCY) -> list[float]:
    fabric, ports = star(n)
    paths = {c: [ports[c[0]], fabric.peer(ports[c[1]])] for c in what.connections}
    back = {c: [ports[c[1]], fabric.peer(ports[c[0]])] for c in what.connections}
    model = Fluid(fabric, what, Paths.of(what.connections, paths, back), MTU, latency)
    result = model.run()
    assert result.seconds == max(model.arrived_s)
    return list(model.arrived_s)


def test_max_min_is_progressive_filling() -> None:
    """Links of 1 and 2: the flow over both gets 1/2, as the other on the first; what is left of the second is its own."""
    crossed = Crossed(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 2]), np.ones(4))
    assert max_min(crossed, np.array([1.0, 2.0]), 4).tolist() == [0.5, 0.5, 1.5, np.inf]


def test_a_parking_lot_is_shared_link_by_link() -> None:
    """One flow over links of 3, 2 and 6 with one, one and two others: 1 on the middle link, then 2, 1, and 5/2 each."""
    link = np.array([0, 1, 2, 0, 1, 2, 2])
    flow = np.array([0, 0, 0, 1, 2, 3, 4])
    assert max_min(Crossed(link, flow, np.ones(7)), np.array([3.0, 2.0, 6.0]), 5).tolist() == [1.0, 2.0, 1.0, 2.5, 2.5]


def test_a_sprayed_flow_takes_of_each_link_its_part() -> None:
    """Half of a flow over each of two links of 10, beside a whole one on the first: x / 2 + x = 10, and 10 = x / 2 + y."""
    crossed = Crossed(np.array([0, 1, 0, 1]), np.array([0, 0, 1, 2]), np.array([0.5, 0.5, 1.0, 1.0]))
    assert max_min(crossed, np.array([10.0, 10.0]), 3) == pytest.approx([20 / 3, 20 / 3, 20 / 3])
    alone = Crossed(np.array([0, 1]), np.array([0, 0]), np.array([0.5, 0.5]))
    assert max_min(alone, np.array([10.0, 4.0]), 1).tolist() == [8.0]


def test_one_message_takes_its_frames_less_the_burst_and_the_last_frame() -> None:
    (alone,) = arrivals(2, sends(((0, 1, 0), 100, ())))
    assert alone == pytest.approx(99 * FRAME_S - BURST_S)


def test_a_message_in_rocev2_packets() -> None:
    """100 packets of 4096 bytes: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4, and 16 of RETH once; an acknowledgement of 62
    for every 16th packet and the last."""
    one = sends(((0, 1, 0), 1, ()))
    fabric, ports = star(2)
    there, back = ([ports[a], fabric.peer(ports[b])] for a, b in ((0, 1), (1, 0)))
    paths = Paths.of(one.connections, {(0, 1, 0): there}, {(0, 1, 0): back})
    what = replace(one, n_bytes=np.array([100 * 4096]), framing=rocev2(MTU))
    found = Fluid(fabric, what, paths, MTU, NO_LATENCY).run()
    n_bytes = 100 * (4096 + 58) + 16
    assert found.bytes_by_intf[ports[0].intf] == n_bytes
    assert found.bytes_by_intf[ports[1].intf] == 7 * 62
    assert found.seconds == pytest.approx((n_bytes - 4154) * 8 / (RATE_MBPS * 1e6) - BURST_S)


@pytest.mark.parametrize(("mtu", "path_mtu"), [(9000, 4096), (4156, 4096), (4155, 2048), (1500, 1024), (576, 512)])
def test_the_path_mtu_is_the_largest_that_fits_with_its_headers(mtu: int, path_mtu: int) -> None:
    """IPv4 20, UDP 8, BTH 12, RETH 16, ICRC 4."""
    assert rocev2(mtu).payload_bytes == path_mtu


def test_the_shorter_of_two_ends_first_and_leaves_its_share() -> None:
    """100 and 300 frames into one host: both at half the rate until 200 frames' time, then the longer one alone."""
    short, long = arrivals(3, sends(((0, 2, 0), 100, ()), ((1, 2, 0), 300, ())))
    # It is the 199th or the 200th frame, by who goes first, and leaves before its own time.
    assert short == pytest.approx(198.5 * FRAME_S - BURST_S, abs=0.51 * FRAME_S)
    assert long == pytest.approx(399 * FRAME_S - BURST_S, abs=0.51 * FRAME_S)


def test_sends_of_different_depth_share_a_link() -> None:
    """0 -> 1 (100 frames), then 1 -> 2 (100), beside 3 -> 2 (200 frames): from 100 frames' time on the last two share."""
    first, second, beside = arrivals(4, sends(((0, 1, 0), 100, ()), ((1, 2, 0), 100, (0,)), ((3, 2, 0), 200, ())))
    assert first == pytest.approx(100 * FRAME_S, rel=0.05)
    assert second == pytest.approx(300 * FRAME_S, rel=0.02)
    assert beside == pytest.approx(300 * FRAME_S, rel=0.02)


def test_a_connection_sends_one_after_the_other() -> None:
    """The second waits for the first on its stream, though for no arrival; the third for an arrival and the latency."""
    latency = Latency(per_hop_s=10e-3, end_s=30e-3)
    one, two, three = arrivals(
        3, sends(((0, 1, 0), 100, ()), ((0, 1, 0), 100, ()), ((1, 2, 0), 100, (1,))), latency
    )  # fmt: skip
    assert two - one == pytest.approx(100 * FRAME_S)
    assert three - two == pytest.approx(99 * FRAME_S - BURST_S + 2 * 10e-3 + 30e-3)


def test_an_empty_send_arrives_as_it_leaves() -> None:
    empty, after = arrivals(3, sends(((0, 1, 0), 0, ()), ((1, 2, 0), 100, (0,))))
    assert empty == 0.0
    assert after == pytest.approx(99 * FRAME_S - BURST_S)


def test_computing_takes_its_time_and_no_link() -> None:
    """Rank 1 computes for a second between what it receives and what it sends on."""
    what = sends(((0, 1, 0), 100, ()), ((1, 1, 0), 0, (0,)), ((1, 2, 0), 100, (1,)), ((2, 2, 0), 0, ()), calc_s=1.0)
    first, computed, passed_on, at_once = arrivals(3, what)
    assert computed - first == pytest.approx(1.0)
    assert at_once == 1.0
    assert passed_on - computed == pytest.approx(99 * FRAME_S - BURST_S)


def test_what_waits_for_a_ranks_own_send_waits_until_it_has_left() -> None:
    """Not until it has arrived, which takes a hundred times as long."""
    latency = Latency(per_hop_s=0.0, end_s=10.0)
    what = sends(((0, 1, 0), 100, ()), ((0, 2, 0), 100, (0,)), ((0, 1, 0), 0, ()), ((0, 2, 0), 0, (2,)))
    first, second, empty, after = arrivals(3, what, latency)
    assert first == pytest.approx(99 * FRAME_S - BURST_S + 10)
    # The first's last frame is paid for before the second begins.
    assert second - first == pytest.approx(100 * FRAME_S)
    assert [empty, after] == pytest.approx([first - 10, second - 10])


def test_sends_that_wait_for_each_other_never_start() -> None:
    with pytest.raises(ValueError, match="2 sends never start, first 0: the dependencies form a cycle"):
        arrivals(2, sends(((0, 1, 0), 1, (1,)), ((1, 0, 0), 1, (0,))))


def test_both_models_agree_where_no_link_is_shared() -> None:
    """A ring of 6 below one leaf, 20 steps, then one of computing."""
    n = 6
    rows: list[tuple[Connection, int, WAITS]] = [
        ((r, (r + 1) % n, 0), 40, ((t - 1) * n + (r - 1) % n,) if t else ()) for t in range(20) for r in range(n)
    ]
    what, (fabric, ports) = sends(*rows, ((0, 0, 0), 0, (19 * n,)), calc_s=5.0), star(n)
    there = {c: [ports[c[0]], fabric.peer(ports[c[1]])] for c in what.connections}
    back = {c: [ports[c[1]], fabric.peer(ports[c[0]])] for c in what.connections}
    fluid, levels = (
        model(fabric, what, Paths.of(what.connections, there, back), MTU, Latency()).run()
        for model in (Fluid, LevelWalk)
    )
    assert fluid.seconds == pytest.approx(levels.seconds, rel=2e-3)
    assert fluid.bytes_by_intf == levels.bytes_by_intf


def test_many_sends_are_followed_in_fewer_events_and_take_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairwise all-to-all of 20 ranks over shared uplinks, in which no two connections are in step."""
    experiment = load(None, {"topology": "spine-leaf:spines=4,leaves=4,hosts_per_leaf=5", "collective": "all_to_all"})
    planned, scale = plan(experiment), Scale(8000, 64)
    count, expected = planned.sizes(scale)[0].count, forecast_of(planned, scale)
    assert expected.ways is not None
    seconds, events = [], []
    for most in (len(planned.schedule), 0):
        monkeypatch.setattr(fluid, "FINE_SENDS", most)
        model = Fluid(expected.emulated, planned.sends(count, scale.time_dilation), expected.ways, experiment.mtu)
        found = model.run()
        seconds.append(found.seconds)
        events.append(len(np.unique(model.arrived_s)))
        carried = found.bytes_by_intf
    assert seconds[1] == pytest.approx(seconds[0], rel=0.04)
    assert events[1] * 3 < events[0]
    assert found.seconds >= max(n * 8e-6 / expected.emulated.link_of(i).rate_mbps for i, n in carried.items()) * 0.99
