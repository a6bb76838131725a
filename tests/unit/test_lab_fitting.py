"""What `--scale auto` makes of flows that share links, and of messages for which there is no time."""

from typing import Any

import pytest

from lab.planning.experiment import load
from lab.planning.fitting import fitted, shortened, slowed
from lab.planning.plan import Plan, plan
from lab.planning.scale import Budget, Scale, frames_per_step

# Frames x switches a second: fast enough that none of these is held up by it.
BUDGET = Budget(1e6)
# What 45 s leave for traffic, and eight times as much where messages would have too few frames.
TRAFFIC_S, LONGEST_S = 45 - 12, 8 * (45 - 12)


def planned(**overrides: Any) -> Plan:
    """Four hosts of one leaf send to the four of the other over one uplink."""
    settings = {
        "topology": "spine-leaf:spines=1,leaves=2,hosts_per_leaf=4", "collective": "group_shift", "group_size": 4,
        "min_bytes": "1G", "max_bytes": "1G", "iterations": 3, "warmup_iterations": 1, "time_limit": "45s",
    }  # fmt: skip
    return plan(load(None, settings | overrides))


def frames(p: Plan, scale: Scale) -> float:
    return frames_per_step(p.load.step_bytes, p.load.mss, scale)


def test_a_link_of_four_flows_takes_four_times_as_long_as_their_nics() -> None:
    """Less than 2 % more for headers, and for acknowledgements of what goes the other way."""
    p = planned()
    assert p.load.traffic_s == pytest.approx(4 * 2**30 * 8 / 400e9)
    assert slowed(p, Scale(8000, 8)).traffic_s / p.load.traffic_s == pytest.approx(4, rel=0.02)
    assert slowed(p, Scale(80_000, 50)).traffic_s == pytest.approx(slowed(p, Scale(8000, 8)).traffic_s, rel=1e-3)


def test_nics_decide_where_no_flows_meet() -> None:
    p = planned(topology="spine-leaf:spines=1,leaves=1,hosts_per_leaf=8")
    assert slowed(p, Scale(8000, 8)).traffic_s == pytest.approx(p.load.traffic_s, rel=0.02)


def test_what_has_no_path_known_before_is_taken_for_alone() -> None:
    p = planned(routing="ecmp-group", topology="spine-leaf:spines=2,leaves=2,hosts_per_leaf=4")
    assert slowed(p, Scale(8000, 8)) == p.load


def test_auto_ends_within_the_time_though_flows_meet() -> None:
    p, scale = fitted(planned(), BUDGET)
    assert p.experiment.iterations == 3
    one_s = 4 * 2**30 * 8 / 400e9 * scale.time_dilation
    assert 4 * one_s <= TRAFFIC_S


# Eight flows a host at 0.5 Mbit/s over an uplink that four hosts share: 4 x 8 x 30 frames of 72 112 bits take 138 s. That is
# what half of a budget of 503 carries: 8 hosts, 7 frames a second and half an acknowledgement each, 3 switches.
SLOW = Budget(510.0)


def test_where_all_iterations_would_have_too_few_frames_fewer_run() -> None:
    """One fits into 264 s; four, or two, do not."""
    asked = planned(flows_per_host=8)
    chosen, scale = fitted(asked, SLOW)
    assert scale.rate_scale == 400_000 / 0.5
    assert (chosen.experiment.iterations, chosen.experiment.warmup_iterations) == (1, 0)
    assert frames(chosen, scale) >= 30
    assert 138 <= slowed(chosen, scale).traffic_s * scale.time_dilation <= LONGEST_S


def test_what_is_left_out_is_said_and_the_limit_that_is_named_has_it_all() -> None:
    asked = planned(flows_per_host=8)
    chosen, scale = fitted(asked, SLOW)
    said = shortened(asked, chosen, scale)
    assert said.startswith("1 of 3 iterations, and none of 1 to warm up: for messages of 30 frames all would take ")
    assert ", auto goes up to 4; " in said
    limit = said.rpartition("--time-limit ")[2].removesuffix(" has them all")
    longer = planned(flows_per_host=8, time_limit=limit)
    again, scale = fitted(longer, SLOW)
    assert again is longer and frames(again, scale) >= 30
    assert shortened(longer, again, scale) == ""


def test_where_one_iteration_is_too_long_as_well_time_beats_frames() -> None:
    """At 0.1 Mbit/s, the slowest that a link can be, it would take 690 s."""
    asked = planned(flows_per_host=8)
    chosen, scale = fitted(asked, Budget(20.0))
    assert chosen is asked
    assert frames(chosen, scale) < 30
