"""How queue pairs spread a permutation between two leaves over four spines: Linux's source ports, Open vSwitch's hash.

The slowdown is the messages on the busiest link. Were each queue pair's path drawn at random, it would be on average

    queue pairs    1      4      16     32
    slowdown       2.40   1.68   1.33   1.24

(8 hosts, 2 leaves, 4 spines; a simulation of balls and bins, which knows neither ports nor hashes).
"""

import random
import statistics
from collections import Counter
from dataclasses import replace

import pytest

from controller import policy, rules_of
from controller.dataplane import DataPlane
from lab.planning.announcing import flow_of
from lab.planning.experiment import load
from lab.planning.forecast import forecast_of
from lab.planning.plan import plan
from lab.planning.scale import Scale
from topologies import topology
from traffic.rocev2.queue_pair import first_number, linux_source_port, queue_pair_numbers
from traffic.transport import Endpoint, WireFlow
from traffic.transports.rocev2 import RoceTransport

SPEC = "spine-leaf:spines=4,leaves=2,hosts_per_leaf=4"
FABRIC = topology(SPEC).build()
PLANE = DataPlane(FABRIC, rules_of(policy("ecmp"), FABRIC))
ENDS = [Endpoint(i, h.name, str(FABRIC.scale_out_port(h.name).ip)) for i, h in enumerate(FABRIC.hosts)]


def across(draw: random.Random, qps: int, seed: int = 1) -> list[WireFlow]:
    """Each host of a leaf sends to another of the other leaf."""
    there = (*draw.sample(range(4, 8), 4), *draw.sample(range(4), 4))
    return RoceTransport.plan(ENDS, [(src, dst, 0) for src, dst in enumerate(there)], qps=qps, seed=seed)


def slowdown(flows: list[WireFlow], qps: int) -> float:
    carried = Counter(port.intf for flow in flows for port in PLANE.path(flow_of(flow)))
    return max(carried.values()) / qps


@pytest.mark.parametrize(
    ("qps", "expected", "trials"), [(1, 2.40, 200), (4, 1.68, 200), (16, 1.33, 60), (32, 1.24, 40)]
)
def test_queue_pairs_spread_a_permutation_as_chance_does(qps: int, expected: float, trials: int) -> None:
    draw = random.Random(1)
    mean = statistics.mean(slowdown(across(draw, qps, seed), qps) for seed in range(trials))
    assert mean == pytest.approx(expected, rel=0.05)


def test_hosts_that_all_counted_from_one_number_would_collide_more_often() -> None:
    """Their ports would be the same, and the hash takes an XOR of addresses: 0 to 4, 1 to 5, 2 to 6 and 3 to 7 share a path."""
    draw = random.Random(1)
    alike = [[replace(f, src_port=linux_source_port(0x11, 0x12)) for f in across(draw, 1)] for _ in range(100)]
    assert statistics.mean(slowdown(flows, 1) for flows in alike) > 2.40 * 1.1


def test_a_host_draws_its_first_number_from_the_seed_and_its_name_alone() -> None:
    drawn = {first_number(f"h{i}", seed) for i in range(100) for seed in range(10)}
    # Of 2^24 numbers a thousand are the same in 3 % of all cases.
    assert len(drawn) > 990
    assert min(drawn) >= 0x11 and max(drawn) < 2**24
    # The halves of the range are as likely as each other: 500 +- 5 standard deviations of 16.
    assert 420 < sum(n < 2**23 for n in drawn) < 580
    few, many = ({rank: f"h{rank}" for rank in range(n)} for n in (2, 64))
    assert queue_pair_numbers(few, [(0, 1, 0)], seed=3) == queue_pair_numbers(many, [(0, 1, 0)], seed=3)
    assert queue_pair_numbers(few, [(0, 1, 0)], seed=3) == [(first_number("h0", 3), first_number("h1", 3))]


@pytest.mark.parametrize("qps", [1, 4, 16])
def test_the_predicted_time_is_the_busiest_links(qps: int) -> None:
    """A message of 8 MB at 50 Mbit/s takes 1.28 s, and headers; on the busiest link are so many."""
    settings = {
        "topology": SPEC, "link_rate": "50Mbit", "collective": "group_shift", "group_size": 4, "min_bytes": "8MB",
        "max_bytes": "8MB", "transport": "rocev2", "qps": qps,
    }  # fmt: skip
    planned = plan(load(None, settings))
    found = forecast_of(planned, Scale()).prediction(planned.sizes(Scale())[0], Scale())
    # The experiment's own seed is 1.
    flows = RoceTransport.plan(ENDS, [(i, (i + 4) % 8, 0) for i in range(8)], qps=qps, seed=1)
    assert found is not None
    assert found.seconds == pytest.approx(slowdown(flows, qps) * 1.28 * 4154 / 4096, rel=0.01)
