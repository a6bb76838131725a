"""Loss, marks and delay on real links, counted by the frames that ping, iperf3 and raw sockets see arrive."""

import csv
import json
import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from statistics import pstdev, quantiles
from typing import Any

import pytest

from tests.emulation.commands import fabric as small_fabric
from tests.emulation.commands import run_topo, sizes
from tests.emulation.netns_sandbox import in_sandbox, network, sh
from tests.emulation.waiting import wait_for
from topologies.fabric import Fabric
from topologies.impairments import Impairments
from topologies.mininet_adapter import FabricNet
from topologies.spine_leaf import SpineLeaf

LOSS = 0.01
FRAMES = 20_000
# Two-sided 99.9 % of the normal distribution, which a binomial of this size follows.
SIGMAS = 3.29
# Reads what arrives on one interface until nothing came for half a second, and prints the numbers that the frames carry.
_LISTEN = """
import json, socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5))
s.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)
s.bind((sys.argv[1], 0x88B5))
print("listening", flush=True)
s.settimeout(5)
got = []
try:
    while True:
        got.append(int.from_bytes(s.recv(2000)[14:18], "big"))
        s.settimeout(0.5)
except TimeoutError:
    print(json.dumps(got))
"""
# Sends numbered frames of a local experimental type (IEEE 802's 0x88B5).
_SEND = """
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind((sys.argv[1], 0))
for i in range(int(sys.argv[2])):
    s.send(bytes(12) + b"\\x88\\xb5" + i.to_bytes(4, "big") + bytes(42))
"""


def fabric(rate_mbps: float = 50.0, delay_us: float = 0.0) -> Fabric:
    made = SpineLeaf(spines=1, leaves=2, hosts_per_leaf=2).build()
    return made.with_links(rate_mbps=rate_mbps, delay_us=delay_us)


# -- loss ---------------------------------------------------------------------------------------------------------------


def arrived(made: Fabric, host: str, n: int) -> list[int]:
    """The numbers of the frames that come out of a host's cable, of n that it sends."""
    nic = made.scale_out_port(host)
    far = made.peer(nic).intf
    listener = subprocess.Popen(["python3", "-c", _LISTEN, far], stdout=subprocess.PIPE, text=True)
    assert listener.stdout
    listener.stdout.readline()
    sh(f"python3 -c '{_SEND}' {nic.intf} {n}", host)
    found: list[int] = json.loads(listener.communicate(timeout=20)[0])
    return found


def _lose(seed: int) -> dict[str, Any]:
    with network(fabric(rate_mbps=1000), impairments=Impairments(loss=LOSS, seed=seed)) as net:
        seen: dict[str, Any] = {"arrived": {}, "audit": [str(f) for f in net.audit()]}
        for host in ("h1", "h2"):
            before = net.egress_counts()[f"{host}-eth0"]
            seen["arrived"][host] = arrived(net.fabric, host, FRAMES)
            after = net.egress_counts()[f"{host}-eth0"]
            seen[host] = (after.seen - before.seen, after.lost - before.lost)
        sh("tc qdisc del dev h1-eth0 clsact", "h1")
        seen["spoilt"] = [str(f) for f in net.audit()]
    return seen


@pytest.fixture(scope="module")
def lossy() -> dict[str, Any]:
    result: dict[str, Any] = in_sandbox(_lose, 7)
    return result


def missing(numbers: list[int]) -> set[int]:
    return set(range(FRAMES)) - set(numbers)


def test_a_link_loses_its_share_of_frames(lossy: dict[str, Any]) -> None:
    band = SIGMAS * math.sqrt(FRAMES * LOSS * (1 - LOSS))
    for host in ("h1", "h2"):
        assert abs(len(missing(lossy["arrived"][host])) - FRAMES * LOSS) <= band


def test_what_is_lost_is_counted(lossy: dict[str, Any]) -> None:
    for host in ("h1", "h2"):
        assert lossy[host] == [FRAMES, len(missing(lossy["arrived"][host]))]


def test_two_links_lose_independently(lossy: dict[str, Any]) -> None:
    """Frames lost on both are as many as chance makes: 2 of 20 000, and 10 with a probability below 1e-4."""
    assert len(missing(lossy["arrived"]["h1"]) & missing(lossy["arrived"]["h2"])) < 10


def test_a_seed_repeats_its_losses_and_another_has_others(lossy: dict[str, Any]) -> None:
    again, other = in_sandbox(_lose, 7), in_sandbox(_lose, 8)
    assert again["arrived"] == lossy["arrived"]
    assert other["arrived"]["h1"] != lossy["arrived"]["h1"]


def test_the_audit_misses_a_program_that_was_taken_off(lossy: dict[str, Any]) -> None:
    assert lossy["audit"] == []
    assert lossy["spoilt"] == ["h1-eth0: program should be attached, is none"]


# -- delay --------------------------------------------------------------------------------------------------------------


def round_trips_ms(net: FabricNet, n: int) -> list[float]:
    """h1 to h2, over two links and one switch."""
    text = sh(f"ping -n -c {n} -i 0.02 -W 2 {net.get('h2').IP()}", "h1")
    return [float(ms) for ms in re.findall(r"time=([\d.]+) ms", text)]


def _delay(delay_us: float, jitter_us: float) -> dict[str, Any]:
    """One of the two links between h1 and h2 is delayed."""
    made = fabric(rate_mbps=200)
    late = made.link_of("h1-eth0")
    made = replace(made, links=tuple(replace(x, delay_us=delay_us) if x == late else x for x in made.links))
    with network(made, impairments=Impairments(jitter_us=jitter_us, seed=5)) as net:
        seen: dict[str, Any] = {"audit": [str(f) for f in net.audit()]}
        round_trips_ms(net, 5)
        net.hop_report()
        seen["ms"] = round_trips_ms(net, 200)
        seen["report"] = net.hop_report()
        seen["arrived"] = arrived(net.fabric, "h1", 2000)
        net.configLinkStatus("h1", "leaf1", "down")
        net.configLinkStatus("h1", "leaf1", "up")
        seen["again"] = sh(f"ping -c 3 -i 0.1 -W 1 -q {net.get('h2').IP()}", "h1")
    return seen


def lower_quartile(values: list[float]) -> float:
    """A busy machine makes frames late, never early: the quicker half shows the delay."""
    return quantiles(values, n=4)[0]


@pytest.fixture(scope="module")
def base_ms() -> float:
    return lower_quartile(in_sandbox(_delay, 0.0, 0.0)["ms"])


@pytest.fixture(scope="module")
def delayed() -> dict[str, Any]:
    result: dict[str, Any] = in_sandbox(_delay, 5000.0, 0.0)
    return result


def test_a_links_delay_is_in_the_round_trip_once_each_way(delayed: dict[str, Any], base_ms: float) -> None:
    assert lower_quartile(delayed["ms"]) == pytest.approx(10 + base_ms, rel=0.05)


def test_a_delayed_link_loses_and_swaps_nothing(delayed: dict[str, Any]) -> None:
    assert len(delayed["ms"]) == 200
    assert delayed["arrived"] == list(range(2000))
    assert delayed["audit"] == []


def test_a_delayed_link_comes_back(delayed: dict[str, Any]) -> None:
    assert " 3 received" in delayed["again"]


def test_jitter_varies_the_delay_within_its_bounds_and_keeps_the_order(base_ms: float) -> None:
    """5 ms +- 3 ms each way: the sum is distributed as a triangle on 4 to 16 ms, a quarter of it below 4 + sqrt(18) ms."""
    seen = in_sandbox(_delay, 5000.0, 3000.0)
    extra = [ms - base_ms for ms in seen["ms"]]
    assert min(extra) > 4 - 0.5
    assert lower_quartile(extra) == pytest.approx(4 + math.sqrt(18), abs=1.25)
    assert pstdev(extra) > 0.75 * math.sqrt(2 * 6**2 / 12)
    assert seen["arrived"] == list(range(2000))


# -- marks --------------------------------------------------------------------------------------------------------------


def _incast(threshold_us: float | None, senders: list[str], options: str = "") -> dict[str, Any]:
    """TCP from the senders to h2, over the one link of 50 Mbit/s that all of them share: leaf1 to h2."""
    with network(fabric(), impairments=Impairments(ecn_threshold_us=threshold_us)) as net:
        receiver = net.get("h2")
        servers = [receiver.popen(f"iperf3 -s -1 -p {5201 + i}") for i, _ in enumerate(senders)]
        wait_for(lambda: sh("ss -Hltn", "h2").count(":52") == len(senders), 5, "listening senders")
        before = net.egress_counts()
        clients = [
            net.get(sender).popen(f"iperf3 -c {receiver.IP()} -p {5201 + i} -t 3 -O 1 -J {options}")
            for i, sender in enumerate(senders)
        ]
        ends = [json.loads(client.communicate(timeout=20)[0])["end"] for client in clients]
        for server in servers:
            server.wait(10)
        after = net.egress_counts()
        return {
            "mbps": sum(end["sum_received"]["bits_per_second"] for end in ends) / 1e6,
            "rtt_ms": [end["streams"][0]["sender"]["mean_rtt"] / 1e3 for end in ends],
            "marked": {intf: counts.since(before[intf]).marked for intf, counts in after.items()},
        }


@pytest.fixture(scope="module")
def marked() -> dict[str, Any]:
    result: dict[str, Any] = in_sandbox(_incast, 2000.0, ["h1", "h3"])
    return result


def test_the_congested_link_is_the_one_that_marks(marked: dict[str, Any]) -> None:
    into_the_receiver = fabric().peer(fabric().scale_out_port("h2")).intf
    assert marked["marked"][into_the_receiver] > 20
    assert max(marked["marked"], key=marked["marked"].__getitem__) == into_the_receiver


def test_marks_shorten_the_queue_and_cost_no_throughput(marked: dict[str, Any]) -> None:
    """Unmarked, 256 frames of 9000 bytes may wait at 50 Mbit/s: up to 369 ms. Marked above 2 ms, less than half of that."""
    unmarked = in_sandbox(_incast, None, ["h1", "h3"])
    assert unmarked["marked"] == {}
    assert max(marked["rtt_ms"]) < 0.5 * max(unmarked["rtt_ms"])
    assert marked["mbps"] > 0.85 * 50 * 8948 / 9014


def test_without_congestion_nothing_is_marked() -> None:
    """A sender at half of the link's rate, that writes a frame at a time."""
    seen = in_sandbox(_incast, 20_000.0, ["h1"], "-b 25M -l 8900 --pacing-timer 1000")
    assert sum(seen["marked"].values()) == 0


# -- a whole run --------------------------------------------------------------------------------------------------------


def test_a_run_says_what_was_done_to_its_frames(tmp_path: Path) -> None:
    impaired = ("--loss", "1%", "--delay", "10ms", "--jitter", "1ms", "--ecn-threshold", "20ms")
    done = run_topo(
        *small_fabric(hosts_per_leaf=1), *sizes("500K", iterations=2), *impaired, "--out", "out", cwd=tmp_path
    )
    assert done.status in (0, 1), done.err
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["machine"]["delays"] == "impairment hop"
    assert manifest["machine"]["hop_frames_per_s"] > 1000
    with (tmp_path / "out" / "results.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["wrong"] == "0"
    lost, seen = re.findall(r"links lost (\d+) of (\d+) frames as asked", row["reason"])[0]
    assert 0 < int(lost) <= int(row["dropped_fabric"])
    assert abs(int(lost) - 0.01 * int(seen)) <= SIGMAS * math.sqrt(0.01 * int(seen)) + 1
    assert "not its jitter" in row["reason"]
