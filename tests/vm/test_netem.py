"""Delays by the kernel's netem: as long as asked, with room for all that is under way, and what they lose is counted."""

import re
import socket
import time
from statistics import median
from typing import Any

import pytest

from lab.machine.bringup import Lab
from tests.emulation.netns_sandbox import sh
from tests.emulation.waiting import wait_for
from tests.vm.inside import address, in_host, in_lab
from topologies import wires
from topologies.fabric import Fabric
from topologies.spine_leaf import SpineLeaf

PINGS = 100


def fabric(delay_us: float, rate_mbps: float = 100.0) -> Fabric:
    """h1 - leaf1 - spine1 - leaf2 - h2: four links."""
    made = SpineLeaf(spines=1, leaves=2, hosts_per_leaf=1).build()
    return made.with_links(rate_mbps=rate_mbps, delay_us=delay_us)


def timer_late_ms() -> float:
    """How late a sleep of 1 ms ends, in the median."""
    late = []
    for _ in range(100):
        begun = time.perf_counter()
        time.sleep(1e-3)
        late.append((time.perf_counter() - begun) * 1e3 - 1.0)
    return median(late)


def idle(lab: Lab) -> dict[str, Any]:
    to = address(lab.fabric, "h2")
    sh(f"ping -c 3 -i 0.2 -W 5 -q {to}", "h1")
    out = sh(f"ping -c {PINGS} -i 0.05 -W 5 {to}", "h1")
    return {
        "ms": [float(ms) for ms in re.findall(r"time=([\d.]+) ms", out)],
        "late_ms": timer_late_ms(),
        "hop": lab.net.uses_hop,
        "audit": [str(f) for f in lab.net.audit()],
    }


@pytest.fixture(scope="module")
def base() -> dict[str, Any]:
    result: dict[str, Any] = in_lab(fabric(0.0), idle)
    return result


@pytest.fixture(scope="module")
def delayed() -> dict[str, Any]:
    result: dict[str, Any] = in_lab(fabric(1000.0), idle)
    return result


def test_one_ms_on_each_of_four_links_is_eight_in_the_round_trip(base: dict[str, Any], delayed: dict[str, Any]) -> None:
    """Never less. More by what the machine takes for the same path, and by eight timers as late as one is in the median."""
    quickest = [min(seen["ms"]) for seen in (base, delayed)]
    late_ms = delayed["late_ms"]
    print("quickest round trip without delay {:.2f} ms, with 1 ms a link {:.2f} ms;".format(*quickest), end=" ")
    print("medians {:.2f} and {:.2f} ms;".format(*(median(seen["ms"]) for seen in (base, delayed))), end=" ")
    print(f"a timer of 1 ms is {late_ms:.2f} ms late")
    assert len(delayed["ms"]) == PINGS
    assert 8.0 <= quickest[1] <= quickest[0] + 8.0 + 0.5 + 8 * late_ms


def test_it_was_netem_that_delayed(delayed: dict[str, Any]) -> None:
    assert not delayed["hop"]
    assert delayed["audit"] == []


# -- the length of the line ---------------------------------------------------------------------------------------------

DELAY_US = 600_000.0
DATAGRAMS = 3000


def send(to: str) -> None:
    """Within half a second, while the line takes longer to let the first one out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((to, 5001))
        for n in range(DATAGRAMS):
            sock.send(bytes(18))
            if n % 60 == 0:
                time.sleep(0.01)


def long_line(lab: Lab, limit: int | None = None) -> dict[str, Any]:
    """More frames under way than the 1 000 for which netem has room if it is told nothing."""
    if limit:
        nic = lab.fabric.scale_out_port("h1")
        far = wires.far_name(lab.fabric.link_of(nic.intf), nic)
        sh(f"tc qdisc change dev {far} handle a: root netem delay {DELAY_US}us limit {limit}", wires.NAMESPACE)
    before = sum(lab.net.backlog_drops().values())
    begun = time.monotonic()
    in_host("h1", lambda: send(address(lab.fabric, "h2")))
    took_s = time.monotonic() - begun

    def so_far() -> dict[str, Any]:
        lost = {intf: n for intf, n in lab.net.backlog_drops().items() if n}
        queued = sum({**lab.net.switch_drops(), **lab.net.host_drops()}.values())
        return {"lost": lost, "queued": queued, "arrived": lab.net.link_counters()["h2-eth0"].rx_packets}

    def all_known() -> dict[str, Any] | None:
        now = so_far()
        return now if now["arrived"] + now["queued"] + sum(now["lost"].values()) >= DATAGRAMS else None

    found = wait_for(all_known, 60, lambda: str(so_far()))
    return {**(found or {}), "before": before, "took_s": took_s}


def test_the_line_holds_all_that_is_under_way() -> None:
    """The limit follows the rate and the delay: 10 Mbit/s x 0.6 s are 11 700 of the smallest frames."""
    found = in_lab(fabric(DELAY_US, rate_mbps=10.0), long_line)
    assert found["took_s"] > 0.5
    assert found["arrived"] == DATAGRAMS
    assert found["lost"] == {}


def test_what_a_line_has_no_room_for_is_counted_where_it_was_sent() -> None:
    found = in_lab(fabric(DELAY_US, rate_mbps=10.0), lambda lab: long_line(lab, limit=100))
    assert found["before"] == found["queued"] == 0
    assert found["lost"] == {"h1-eth0": DATAGRAMS - found["arrived"]}
    assert found["arrived"] < DATAGRAMS - 1000
