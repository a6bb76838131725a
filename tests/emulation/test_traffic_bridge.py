"""A collective between namespaces on a Linux bridge whose links are slow, fail, or are many.

Each test runs one function of this file in a sandbox. Host i lives in namespace h<i> with the address 198.18.0.<i>; b<i> is
its bridge port.
"""

import threading
import time
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from tests.emulation.netns_sandbox import in_sandbox, sh
from tests.unit.traffic_fakes import filled, wrong
from traffic import schedule
from traffic.errors import ReplayStalledError
from traffic.replay import IterationResult, Replay
from traffic.schedule import Connection, Schedule
from traffic.transport import Endpoint
from traffic.transports.tcp import TcpTransport

pytestmark = pytest.mark.needs("ip", "tc")


# -- what runs inside the sandbox -------------------------------------------------------------------------------------


def bridge(n_hosts: int, rate_mbps: int = 0) -> list[Endpoint]:
    """`n_hosts` hosts on a bridge, their egress at `rate_mbps` (0 = as fast as it goes)."""
    sh("mkdir -p /run/netns; ip link add br0 type bridge; ip link set br0 up")
    for i in range(1, n_hosts + 1):
        sh(
            f"ip netns add h{i}; ip link add b{i} type veth peer name h{i}-eth0 netns h{i}; ip link set b{i} master br0 up;"
            f"ip -n h{i} addr add 198.18.0.{i}/24 dev h{i}-eth0; ip -n h{i} link set h{i}-eth0 up"
        )
        if rate_mbps:
            sh(f"tc qdisc add dev h{i}-eth0 root tbf rate {rate_mbps}mbit burst 20kb limit 200kb", f"h{i}")
    return [Endpoint(i - 1, f"h{i}", f"198.18.0.{i}", f"h{i}") for i in range(1, n_hosts + 1)]


def run_once(s: Schedule, count: int, transport: TcpTransport, stall_s: float = 10.0) -> tuple[IterationResult, int]:
    buffers = filled(s, count)
    result = Replay(s, count, transport).run(buffers, stall_s)
    return result, wrong(s, buffers)


def error_when_a_link_fails_on_the_way() -> list[Any]:
    """At 20 Mbit/s each rank needs 0.8 s; the link goes down after 0.2 s."""
    ends = bridge(4, rate_mbps=20)
    s = schedule("all_reduce", "ring", 4)
    failure = threading.Timer(0.2, sh, ["ip link set b3 down"])
    with closing(TcpTransport(ends, s.connections)) as transport:
        failure.start()
        begun = time.monotonic()
        try:
            run_once(s, 350_000, transport, stall_s=1.0)
        except ReplayStalledError as error:
            return [str(error), time.monotonic() - begun]
        finally:
            failure.join()
    return ["no error", 0.0]


def shaped_run(rate_mbps: int, count: int) -> dict[str, float]:
    ends = bridge(8, rate_mbps)
    s = schedule("all_reduce", "ring", 8)
    with closing(TcpTransport(ends, s.connections)) as transport:
        run_once(s, count, transport)
        cpu = time.process_time()
        result, n_wrong = run_once(s, count, transport)
        cpu = time.process_time() - cpu
    return {
        "wrong": n_wrong,
        "cpu_s": cpu,
        "wall_s": result.duration_ns / 1e9,
        "ideal_s": float(s.sent_per_rank(count).max()) * 32 / (rate_mbps * 1e6),
        "late_s": float(np.percentile(result.lateness_ns, 99)) / 1e9,
    }


def many_pairs(n_hosts: int) -> list[int]:
    """A mesh: a burst of connections to every host at once."""
    ends = bridge(n_hosts)
    connections: list[Connection] = [(a, b, 0) for a in range(n_hosts) for b in range(n_hosts) if a != b]
    with closing(TcpTransport(ends, connections)) as transport:
        return [len(transport.senders), len(transport.receivers)]


# -- tests ------------------------------------------------------------------------------------------------------------


def test_a_link_that_fails_on_the_way_ends_the_run_with_the_stuck_sends() -> None:
    text, waited_s = in_sandbox(error_when_a_link_fails_on_the_way)
    assert text.startswith("nothing moved for 1 s: ")
    assert "2 -> 3" in text
    assert waited_s < 5.0


def test_senders_sleep_while_the_link_is_busy() -> None:
    """A spinning sender would use a whole core: CPU time as long as the run."""
    got = in_sandbox(shaped_run, 20, 250_000)
    assert got["wrong"] == 0
    assert got["cpu_s"] < 0.5 * got["wall_s"]
    assert got["wall_s"] > got["ideal_s"]


def test_a_full_mesh_connects() -> None:
    assert in_sandbox(many_pairs, 12) == [132, 132]
