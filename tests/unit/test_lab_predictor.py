"""The model against closed forms; nothing here was fitted to a measurement."""

import time

import numpy as np
import pytest

from lab.model.fluid import Latency
from lab.model.predictor import predict, roofline_s
from lab.model.wire import Sends, levels
from topologies import Fabric, Port, topology
from traffic.framing import tcp
from traffic.schedule import Connection

NO_LATENCY = Latency(per_hop_s=0.0, end_s=0.0)


def ring(n: int, n_bytes: int, mtu: int = 9000) -> Sends:
    """All-reduce over a ring: 2(n-1) steps, send t of rank r depends on what r received at t - 1."""
    steps = 2 * (n - 1)
    rank = np.tile(np.arange(n), steps)
    step = np.repeat(np.arange(steps), n)
    has_dep = step > 0
    deps = ((step - 1) * n + (rank - 1) % n)[has_dep]
    start = np.concatenate(([0], np.cumsum(has_dep))).astype(np.int64)
    connections = [(r, (r + 1) % n, 0) for r in range(n)]
    no_waits, no_calc = np.zeros(len(deps), bool), np.zeros(n * steps)
    return Sends(connections, rank, np.full(n * steps, n_bytes), start, deps, no_waits, no_calc, tcp(mtu))


def shortest(fabric: Fabric, n: int) -> dict[Connection, list[Port]]:
    """Ring neighbours' paths over the first spine, both ways."""
    hosts = [h.name for h in fabric.hosts][:n]
    paths: dict[Connection, list[Port]] = {}
    for a in range(n):
        for b in ((a + 1) % n, (a - 1) % n):
            at, path = hosts[a], [fabric.scale_out_port(hosts[a])]
            leaf, to = fabric.switch_of(at), fabric.switch_of(hosts[b])
            for near, far in ([(leaf, "spine1"), ("spine1", to)] if leaf != to else []) + [(to, hosts[b])]:
                path.append(next(own for own, other, _ in fabric.neighbours(near) if other.node == far))
            paths[a, b, 0] = path
    return paths


def fewest_links(fabric: Fabric, a: int, b: int) -> list[Port]:
    """From the a-th host to the b-th: the egress port of every hop."""
    hosts = [h.name for h in fabric.hosts]
    ways: dict[str, list[Port]] = {hosts[a]: []}
    queue = [hosts[a]]
    for at in queue:
        for own, far, _ in fabric.neighbours(at):
            if far.node not in ways:
                ways[far.node] = [*ways[at], own]
                queue.append(far.node)
    return ways[hosts[b]]


def emulated(mbps: float, spec: str = "spine-leaf") -> Fabric:
    return topology(spec).build().with_links(rate_mbps=mbps)


def test_roofline_is_the_drafts_formula() -> None:
    """1 GiB over 16 accelerators of 400 Gbit/s: 8 x 2^30 x 1.875 / 4e11 s."""
    assert roofline_s(2**30, 2 * 15 / 16, 400_000) == pytest.approx(0.04026531840)


def test_levels_of_a_ring_are_its_steps() -> None:
    sends = ring(5, 10)
    assert [sorted(x) for x in levels(sends.dep_start, sends.deps)] == [list(range(t * 5, t * 5 + 5)) for t in range(8)]


def test_a_cycle_is_not_a_schedule() -> None:
    with pytest.raises(ValueError, match="cycle"):
        levels(np.array([0, 1, 2]), np.array([1, 0]))


def test_ring_without_latency_is_headers_over_roofline() -> None:
    """Every edge carries 2(n-1) messages: frames of MSS + 66 bytes, an acknowledgement of 66 for every second frame."""
    n, frames, mss = 16, 40, tcp(9000).payload_bytes
    fabric = emulated(50)
    result = predict(fabric, ring(n, frames * mss), shortest(fabric, n), 9000, latency=NO_LATENCY)
    step_s = (frames * (mss + 66) + frames / 2 * 66) * 8 / 50e6
    # The first burst of a frame and the last frame's own time: once, not per step.
    assert result.seconds == pytest.approx(30 * step_s, rel=2e-3)
    assert result.bytes_by_intf["h1-eth0"] == 30 * (frames * (mss + 66) + frames // 2 * 66)
    assert result.bottleneck == "h1->leaf1"


def test_latency_longer_than_the_burst_is_paid_at_every_step() -> None:
    n, mss = 4, tcp(9000).payload_bytes
    fabric = emulated(50, "spine-leaf:spines=1,leaves=1")
    hosts = [h.name for h in fabric.hosts]
    paths = {
        (a, b, 0): [fabric.scale_out_port(hosts[a]), fabric.peer(fabric.scale_out_port(hosts[b]))]
        for a in range(n) for b in range(n) if a != b
    }  # fmt: skip
    slow, fast = (
        predict(fabric, ring(n, 40 * mss), paths, 9000, latency=Latency(per_hop_s=x, end_s=0.0)).seconds
        for x in (20e-3, 10e-3)
    )
    assert slow - fast == pytest.approx(6 * 2 * 10e-3)


def test_a_slow_link_slows_the_whole_ring() -> None:
    """Every chunk crosses every edge: a link at half the rate doubles the bandwidth term."""
    from dataclasses import replace

    n, mss = 16, tcp(9000).payload_bytes
    fabric = emulated(50)
    paths = shortest(fabric, n)
    slow = replace(fabric, links=(replace(fabric.links[5], rate_mbps=25.0), *(x for x in fabric.links if x.index != 5)))
    fast_s, slow_s = (predict(f, ring(n, 40 * mss), paths, 9000, latency=NO_LATENCY) for f in (fabric, slow))
    assert slow_s.seconds / fast_s.seconds == pytest.approx(2.0, rel=0.01)
    assert slow_s.bottleneck in ("h6->leaf2", "leaf2->h6")


def test_two_flows_on_one_uplink_take_twice_as_long_and_it_is_named() -> None:
    fabric = emulated(50)
    paths = shortest(fabric, 16)
    via = {k: paths[k] for k in paths}
    up, down = paths[3, 4, 0][1:3]
    via[2, 6, 0] = [fabric.scale_out_port("h3"), up, down, fabric.peer(fabric.scale_out_port("h7"))]
    mss = tcp(9000).payload_bytes

    def at_once(*connections: Connection) -> Sends:
        m = len(connections)
        no_deps = np.zeros(m + 1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool), np.zeros(m)
        return Sends(connections, np.arange(m), np.full(m, 1000 * mss), *no_deps, tcp(9000))

    alone = predict(fabric, at_once((3, 4, 0)), via, 9000, latency=NO_LATENCY)
    both = predict(fabric, at_once((3, 4, 0), (2, 6, 0)), via, 9000, latency=NO_LATENCY)
    assert both.seconds / alone.seconds == pytest.approx(2.0, rel=0.01)
    assert both.bottleneck == "leaf1->spine1"


def test_nothing_to_send_takes_no_time() -> None:
    empty = np.zeros(0, dtype=np.int64)
    result = predict(
        emulated(50),
        Sends((), empty, empty, np.zeros(1, np.int64), empty, np.zeros(0, bool), np.zeros(0), tcp(9000)),
        {},
        9000,
    )
    assert (result.seconds, result.bottleneck) == (0.0, "")


def test_512_ranks_in_seconds() -> None:
    fabric = emulated(50, "spine-leaf:spines=8,leaves=32,hosts_per_leaf=16")
    sends, paths = ring(512, 100_000), shortest(fabric, 512)
    started = time.process_time()
    result = predict(fabric, sends, paths, 9000)
    assert time.process_time() - started < 5
    assert len(sends) == 523_264 and result.seconds > 0


def test_short_messages_take_the_latency_they_were_calibrated_on() -> None:
    """Two steps of 512 bytes between two hosts: 0.46 ms over one switch, 0.60 ms over three."""
    for spec, expected_s in (
        ("spines=1,leaves=1,hosts_per_leaf=2", 0.46e-3),
        ("spines=1,leaves=2,hosts_per_leaf=1", 0.60e-3),
    ):
        fabric = emulated(50, f"spine-leaf:{spec}")
        result = predict(fabric, ring(2, 512), shortest(fabric, 2), 9000)
        assert result.seconds == pytest.approx(expected_s, rel=0.02)


def test_a_long_haul_s_delay_is_paid_wherever_the_ring_crosses_it() -> None:
    """Four ranks on two sites: every second edge of the ring is long, so three of the six steps that follow each other.

    Before each step the links have rested, so a burst and a frame leave at once; that is all a step can save.
    """
    n, frames, mss, rate_bytes_s, delay_s = 4, 36, tcp(1500).payload_bytes, 5e6 / 8, 0.1
    site = "multi-dc:site=spine-leaf(spines=1;leaves=1;hosts_per_leaf=2),links_per_pair=1"
    fabric = topology(site).build().scaled(rate_scale=80_000, time_dilation=100)
    paths = {(a, b, 0): fewest_links(fabric, a, b) for a in range(n) for b in ((a + 1) % n, (a - 1) % n)}
    found = predict(fabric, ring(n, frames * mss, 1500), paths, 1500, latency=NO_LATENCY)
    step_s = (frames * (mss + 66) + frames / 2 * 66) / rate_bytes_s
    most_s = 6 * step_s + 3 * delay_s
    assert most_s - 6 * (1514 + 50 + 1514) / rate_bytes_s < found.seconds < most_s
