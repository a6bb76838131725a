"""Optical switches: what a change of cross-connects takes, in which order, and who is dark for how long."""

from itertools import permutations

import pytest

from controller.circuits.changing import (
    CrossConnects,
    Phase,
    check_bijective,
    duty_cycle,
    phases,
    reconfiguration,
    rules_of,
)
from controller.circuits.device import DEVICES, OcsDevice, parse_device
from controller.circuits.uplinks import check_radix, uplinks
from topologies.dragonfly import Dragonfly
from topologies.errors import Refused
from topologies.ocs_dragonfly import OcsDragonfly
from topologies.ocs_leaf import OcsLeaf
from topologies.spine_leaf import SpineLeaf

# Circuits 1-2 and 3-4, then 1-3 and 2-4: each is two cross-connects.
A = {1: 2, 2: 1, 3: 4, 4: 3}
B = {1: 3, 3: 1, 2: 4, 4: 2}


def applied(cross_connects: CrossConnects, planned: list[Phase]) -> list[dict[int, int]]:
    """The state after each phase; a port that would be used twice on the way raises."""
    states, now = [], dict(cross_connects)
    for phase in planned:
        for source, target in phase.cross_connects:
            if phase.operation == "tear-down":
                assert now.pop(source) == target
            else:
                assert source not in now and target not in now.values()
                now[source] = target
        states.append(dict(now))
    return states


def test_an_unchanged_set_is_no_change() -> None:
    assert phases(A, A, 10.0) == []
    assert reconfiguration({"ocs1": A}, {"ocs1": A}, {"ocs1": 10.0}) == {}


def test_break_before_make_is_dark_for_the_devices_time() -> None:
    down, up = phases(A, B, 25_000.0)
    assert (down.operation, down.wait_us, set(down.cross_connects)) == ("tear-down", 0.0, set(A.items()))
    assert (up.operation, up.wait_us, set(up.cross_connects)) == ("set-up", 25_000.0, set(B.items()))


def test_a_kept_circuit_is_in_no_phase() -> None:
    wanted = {**A, 5: 6, 6: 5}
    (up,) = phases(A, wanted, 10.0)
    assert set(up.cross_connects) == {(5, 6), (6, 5)}
    down, _ = phases(wanted, {1: 2, 2: 1, 3: 5, 5: 3}, 10.0)
    assert set(down.cross_connects) == {(3, 4), (4, 3), (5, 6), (6, 5)}


def test_make_before_break_never_takes_a_port_in_use() -> None:
    """1-2 moves to 3-4, all free; 5-6 becomes 5-7, of which 5 is in use."""
    old, new = {1: 2, 2: 1, 5: 6, 6: 5}, {3: 4, 4: 3, 5: 7, 7: 5}
    first, down, rest = phases(old, new, 10.0, make_before_break=True)
    assert (first.operation, first.wait_us, first.cross_connects) == ("set-up", 10.0, ((3, 4), (4, 3)))
    assert (down.operation, down.wait_us, set(down.cross_connects)) == ("tear-down", 0.0, set(old.items()))
    assert (rest.operation, rest.wait_us, rest.cross_connects) == ("set-up", 10.0, ((5, 7), (7, 5)))


@pytest.mark.parametrize("make_before_break", [False, True])
def test_every_change_of_four_ports_ends_where_it_should(make_before_break: bool) -> None:
    """All matchings of four inputs to four outputs without fixed points, half of them incomplete; each to each."""
    full = [dict(zip((1, 2, 3, 4), p, strict=True)) for p in permutations((1, 2, 3, 4))]
    full = [one for one in full if all(i != o for i, o in one.items())]
    sets = [{}, *full, *({i: o for i, o in one.items() if i < 3} for one in full)]
    for old in sets:
        for new in sets:
            states = applied(old, phases(old, new, 1.0, make_before_break=make_before_break))
            assert (states[-1] if states else old) == new
            assert all(state.items() >= (old.items() & new.items()) for state in states)


def test_there_and_back_leaves_what_was_there() -> None:
    now = dict(A)
    for wanted in (B, A) * 100:
        now = applied(now, phases(now, wanted, 1.0))[-1]
    assert rules_of(now) == rules_of(A)


def test_a_cross_connect_is_one_rule_that_sends_a_port_to_a_port() -> None:
    assert [str(rule) for rule in rules_of({3: 7}).flows] == ["table=0,priority=1000,in_port=3 actions=output:7"]
    (up,) = phases({}, {3: 7}, 1.0)
    assert [str(step) for step in up.steps] == ["add-flow table=0,priority=1000,in_port=3 actions=output:7"]


def test_devices_change_side_by_side() -> None:
    changes = reconfiguration(
        {"ocs1": A, "ocs2": A}, {"ocs1": B, "ocs2": A, "ocs3": A}, {"ocs1": 1.0, "ocs2": 1.0, "ocs3": 5.0}
    )
    assert list(changes) == ["ocs1", "ocs3"]
    assert [phase.wait_us for phase in changes["ocs3"]] == [5.0]


@pytest.mark.parametrize(
    ("cross_connects", "text"),
    [
        ({1: 2, 3: 2}, "ocs1 port 2: light from ports 1 and 3 cannot both leave by it"),
        ({2: 2}, "ocs1 port 2: light cannot be led back to where it came from"),
        ({1: 9}, "ocs1 has no port 9: its ports are 1..4"),
    ],
)
def test_what_no_optical_switch_can_set_is_refused(cross_connects: CrossConnects, text: str) -> None:
    with pytest.raises(Refused) as refused:
        check_bijective("ocs1", cross_connects, range(1, 5))
    assert str(refused.value) == text


# -- devices --------------------------------------------------------------------------------------------------------


def test_dark_time_is_switching_and_link_up_and_a_seeded_draw() -> None:
    device = OcsDevice("x", None, switching_us=20.0, link_up_us=5.0, jitter_us=10.0)
    drawn = [device.dark_us(change, seed=1) for change in range(500)]
    assert drawn == [device.dark_us(change, seed=1) for change in range(500)]
    assert drawn != [device.dark_us(change, seed=2) for change in range(500)]
    assert 25.0 <= min(drawn) < 26.0 and 34.0 < max(drawn) <= device.longest_dark_us == 35.0
    # The mean of 500 draws from 25..35: its standard deviation is 10 / sqrt(12 x 500) = 0.13.
    assert sum(drawn) / len(drawn) == pytest.approx(30.0, abs=0.6)


def test_named_devices_say_where_their_figures_are_from() -> None:
    assert set(DEVICES) == {"2d-mems", "rotor", "3d-mems", "piezo", "patch-panel"}
    assert all(device.source and device.ports and device.shortest_dark_us > 0 for device in DEVICES.values())
    # Mordia's 11.5 us is the sum of its two parts.
    assert DEVICES["2d-mems"].shortest_dark_us == pytest.approx(11.5)


def test_a_device_in_slow_motion() -> None:
    """20 us at a dilation of 1000 are 20 ms."""
    assert DEVICES["rotor"].dilated(1000.0).shortest_dark_us == 20_000.0


def test_a_device_can_be_given_by_its_times() -> None:
    assert parse_device("3d-mems") is DEVICES["3d-mems"]
    device = parse_device("20us+5ms~1ms")
    assert (device.switching_us, device.link_up_us, device.jitter_us) == (20.0, 5000.0, 1000.0)
    assert parse_device("25ms").longest_dark_us == 25_000.0
    with pytest.raises(Refused) as refused:
        parse_device("4d-mems")
    assert str(refused.value) == (
        "unknown optical switch '4d-mems': choose from 2d-mems, 3d-mems, patch-panel, piezo, rotor, or give its dark time, "
        "such as 25ms or 20us+5ms~1ms"
    )


def test_a_device_with_too_few_ports_is_refused() -> None:
    DEVICES["rotor"].check_radix("ocs1", 128)
    parse_device("25ms").check_radix("ocs1", 4096)
    with pytest.raises(Refused) as refused:
        DEVICES["rotor"].check_radix("ocs1", 129)
    assert str(refused.value) == "ocs1 has 129 cables, a rotor 128 ports: spread them over more optical switches"
    # 13 leaves with two cables to the one optical switch.
    with pytest.raises(Refused, match="ocs1 has 26 cables, a 2d-mems 24 ports"):
        check_radix(OcsLeaf(leaves=13, uplinks=2, ocs=1).build(), DEVICES["2d-mems"])


# -- where circuits can be ------------------------------------------------------------------------------------------


def test_leaves_are_the_ends_of_a_leaf_fabric() -> None:
    found = uplinks(OcsLeaf(leaves=3, hosts_per_leaf=4, uplinks=2, ocs=2).build())
    assert found.ends == ("leaf1", "leaf2", "leaf3")
    # Four hosts on ports 1 to 4, so the uplinks are ports 5 and 6; the i-th leaf is plugged into port i of each OCS.
    assert [(u.switch, u.port, u.ocs, u.ocs_port) for u in found.of[1]] == [
        ("leaf2", 5, "ocs1", 2),
        ("leaf2", 6, "ocs2", 2),
    ]


def test_matchings_become_cross_connects() -> None:
    found = uplinks(OcsLeaf(leaves=3, uplinks=2, ocs=2).build())
    around, back = (1, 2, 0), (2, 0, 1)
    assert found.cross_connects([around, back]) == {"ocs1": {1: 2, 2: 3, 3: 1}, "ocs2": {1: 3, 2: 1, 3: 2}}
    assert found.cross_connects([around]) == {"ocs1": {1: 2, 2: 3, 3: 1}, "ocs2": {1: 2, 2: 3, 3: 1}}
    assert found.cross_connects([(1, 0, None), (None,) * 3]) == {"ocs1": {1: 2, 2: 1}, "ocs2": {}}
    with pytest.raises(Refused, match="3 matchings cannot be spread evenly over 2 uplinks"):
        found.cross_connects([around] * 3)


def test_groups_are_the_ends_of_a_dragonfly() -> None:
    """a h = 8 uplinks each, two of them in every one of four optical switches."""
    found = uplinks(OcsDragonfly().build())
    assert found.ends == tuple(f"group {g}" for g in range(1, 10))
    assert found.per_end == 8
    around = tuple((g + 1) % 9 for g in range(9))
    crossed = found.cross_connects([around])
    assert [len(one) for one in crossed.values()] == [18] * 4
    for ocs, one in crossed.items():
        check_bijective(ocs, one, range(1, 19))


def test_a_fabric_without_optical_switches_has_no_circuits() -> None:
    for fabric in (SpineLeaf().build(), Dragonfly().build()):
        with pytest.raises(Refused, match=f"fabric {fabric.name} has no optical switch: use ocs-leaf or ocs-dragonfly"):
            uplinks(fabric)


def test_duty_cycle_law() -> None:
    """slot / (slot + dark): RotorNet's 20 us of dark after 180 us of light are 90 %."""
    assert duty_cycle(slice_us=200.0, night_us=20.0) == pytest.approx(180.0 / (180.0 + 20.0)) == pytest.approx(0.9)
    assert duty_cycle(slice_us=200.0, night_us=0.0) == 1.0
