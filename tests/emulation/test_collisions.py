"""How often equal flows collide on equal-cost paths, live: against the exact numbers of throwing n balls into m urns."""

import math
import random
import socket
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from lab.machine.bringup import lab_up
from lab.machine.sandbox import RUN_DIR
from lab.progress import Progress
from tests.emulation.netns_sandbox import in_sandbox
from tests.emulation.waiting import wait_for
from topologies import namespaces
from topologies.spine_leaf import SpineLeaf

TRIALS = 400
# Two-sided, of a normal distribution: one false alarm in a thousand, were the ports drawn anew each time.
SIGMAS = 3.3


def _largest_loads(n: int) -> list[int]:
    """TRIALS times: n one-packet flows with ports at random from one leaf to another over n spines; the most on one uplink."""
    RUN_DIR.mkdir()
    fabric = SpineLeaf(spines=n, leaves=2, hosts_per_leaf=1).build().with_links(rate_mbps=1000)
    rng = random.Random(n)
    with lab_up(fabric, policy="ecmp", mtu=9000, progress=Progress()) as lab:
        uplinks = [own.intf for own, far, _ in fabric.neighbours("leaf1") if far.node.startswith("spine")]
        target = fabric.scale_out_port("h2").ip or ""

        def sent() -> list[int]:
            counters = lab.net.link_counters()
            return [counters[intf].tx_packets for intf in uplinks]

        def trial() -> int:
            before = sent()
            for _ in range(n):
                source, destination = rng.randrange(1024, 32768), rng.randrange(1024, 65536)
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                    s.bind(("", source))
                    s.sendto(b"x", (target, destination))
            wait_for(lambda: sum(sent()) - sum(before) == n, 5, "the packets")
            return max(b - a for a, b in zip(before, sent(), strict=True))

        # The counters are read where the switches are: the reader belongs to the namespace of its first use.
        sent()
        (loads,) = namespaces.each([("h1", None)], lambda _: [trial() for _ in range(TRIALS)])
    return loads


def _exact(n: int) -> Counter[int]:
    """Probability of each largest load of n balls in n urns, by counting all ways (as partitions into loads)."""
    ways: Counter[int] = Counter()

    def place(left: int, urns: int, largest: int, count: int) -> None:
        if urns == 1:
            ways[max(largest, left)] += count
            return
        for k in range(left + 1):
            place(left - k, urns - 1, max(largest, k), count * math.comb(left, k))

    place(n, n, 0, 1)
    return ways


@pytest.mark.parametrize(("n", "mean", "none"), [(4, 2.13, 0.0938), (8, 2.60, 0.0024)])
def test_flows_collide_as_often_as_chance_has_it(n: int, mean: float, none: float) -> None:
    ways = _exact(n)
    total = n**n
    assert sum(ways.values()) == total
    moments: list[Any] = [sum(Fraction(count, total) * load**power for load, count in ways.items()) for power in (1, 2)]
    deviation = math.sqrt(moments[1] - moments[0] ** 2)
    # The published table, to its own digits.
    assert float(moments[0]) == pytest.approx(mean, abs=0.005)
    assert ways[1] / total == pytest.approx(none, abs=5e-5)

    loads = in_sandbox(_largest_loads, n, timeout_s=120)
    assert len(loads) == TRIALS
    print(
        f"n = m = {n}: mean largest load {sum(loads) / TRIALS:.3f}, without a collision {loads.count(1) / TRIALS:.4f}"
    )
    assert sum(loads) / TRIALS == pytest.approx(float(moments[0]), abs=SIGMAS * deviation / math.sqrt(TRIALS))
    spread = math.sqrt(none * (1 - none) / TRIALS)
    assert loads.count(1) / TRIALS == pytest.approx(none, abs=SIGMAS * spread + 1 / TRIALS)
