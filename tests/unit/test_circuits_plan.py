"""Plan files: what they say, and the exact words in which a plan that cannot be meant is refused."""

from pathlib import Path

import numpy as np
import pytest

from controller.circuits.plan import Plan, PlannedSlice, check_plan, planned
from controller.circuits.plan_file import circuits_from_texts, plan_from_csv, plan_from_toml, read_plan, texts_of
from controller.circuits.schedulers import SCHEDULERS, slices_of
from controller.circuits.slices import DemandMatrix, Parameters, demand_matrix
from controller.circuits.uplinks import uplinks
from topologies.errors import Refused
from topologies.ocs_dragonfly import OcsDragonfly
from topologies.ocs_leaf import OcsLeaf

# Four hosts on each leaf, ports 1 to 4; port 5 leads to ocs1, port 6 to ocs2, where leaf i has port i.
FABRIC = OcsLeaf(leaves=4, hosts_per_leaf=4, uplinks=2, ocs=2).build()
HYBRID = OcsLeaf(leaves=4, hosts_per_leaf=4, uplinks=2, ocs=2, spines=2).build()

TOML = """
slice = "100ms"
guardband = "1ms"
cycles = 3

[[slices]]
circuits = ["leaf1:5 - leaf2:5", "leaf3 > leaf4"]

[[slices]]
length = "200ms"
circuits = ["leaf1 - leaf3", "leaf1 - leaf2"]
"""

CSV = """# slice = "100ms"
# guardband = "1ms"
# cycles = 3
slice,circuit,length
1,leaf1:5 - leaf2:5,
1,leaf3 > leaf4,
2,leaf1 - leaf3,200ms
2,leaf1 - leaf2,200ms
"""

WANTED = Plan(
    slices=(
        PlannedSlice({"ocs1": {1: 2, 2: 1, 3: 4}}, 100_000.0),
        PlannedSlice({"ocs1": {1: 3, 3: 1}, "ocs2": {1: 2, 2: 1}}, 200_000.0),
    ),
    slice_us=100_000.0,
    guardband_us=1_000.0,
    cycles=3,
)


def test_toml_and_csv_say_the_same(tmp_path: Path) -> None:
    assert plan_from_toml(TOML, FABRIC) == WANTED
    assert plan_from_csv(CSV, FABRIC) == WANTED
    for name, text in (("plan.toml", TOML), ("plan.csv", CSV)):
        (tmp_path / name).write_text(text)
        assert read_plan(str(tmp_path / name), FABRIC) == WANTED


def test_a_scheduler_can_stand_in_for_slices() -> None:
    plan = plan_from_toml('scheduler = "solstice"\nslice = "1ms"', FABRIC)
    assert (plan.scheduler, plan.slice_us, plan.slices, plan.cycles) == ("solstice", 1000.0, (), None)


def test_once_is_one_cycle() -> None:
    assert plan_from_toml('cycles = "once"\nscheduler = "static"', FABRIC).cycles == 1


def test_a_dragonflys_routers_are_joined_by_name() -> None:
    fabric = OcsDragonfly().build()
    plan = plan_from_toml('slice = "1s"\n[[slices]]\ncircuits = ["g1r1 - g2r1"]', fabric)
    (ocs,) = plan.slices[0].circuits
    ends = {own.number: far.node for own, far, _ in fabric.neighbours(ocs)}
    (a, b), (c, d) = plan.slices[0].circuits[ocs].items()
    assert {(ends[a], ends[b]), (ends[c], ends[d])} == {("g1r1", "g2r1"), ("g2r1", "g1r1")}


def test_circuits_by_name_and_back() -> None:
    texts = ["leaf1:5 - leaf2:5", "leaf3:5 > leaf4:5", "leaf4:6 > leaf1:6"]
    joined = uplinks(FABRIC)
    assert texts_of(circuits_from_texts(texts, joined, "test"), joined) == texts


def one(*circuits: str, settings: str = 'slice = "100ms"') -> str:
    listed = ", ".join(f'"{circuit}"' for circuit in circuits)
    return f"{settings}\n[[slices]]\ncircuits = [{listed}]"


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (
            one("leaf1:5 - leaf2:5", "leaf1:5 - leaf3:5"),
            (
                "slice 1: leaf1 port 5 is used twice, by 'leaf1:5 - leaf2:5' and 'leaf1:5 - leaf3:5': "
                "a port has one circuit each way"
            ),
        ),
        (
            one("leaf2:5 > leaf1:5", "leaf3:5 > leaf1:5"),
            (
                "slice 1: leaf1 port 5 is used twice, by 'leaf2:5 > leaf1:5' and 'leaf3:5 > leaf1:5': "
                "a port has one circuit each way"
            ),
        ),
        (
            one("leaf1 - leaf2", "leaf1 - leaf3", "leaf1 - leaf4"),
            "slice 1: 'leaf1 - leaf4': no optical switch has a port of leaf1 and one of leaf4 left",
        ),
        (one("leaf1:5 - leaf1:6"), "slice 1: 'leaf1:5 - leaf1:6' joins leaf1 to itself: a circuit joins two ToRs"),
        (one("leaf1 - leaf1"), "slice 1: 'leaf1 - leaf1' joins leaf1 to itself: a circuit joins two ToRs"),
        (
            one("leaf1 - leaf9"),
            "slice 1: 'leaf1 - leaf9': unknown ToR 'leaf9': choose from leaf1, leaf2, leaf3, leaf4",
        ),
        (one("leaf1 - ocs1"), "slice 1: 'leaf1 - ocs1': unknown ToR 'ocs1': choose from leaf1, leaf2, leaf3, leaf4"),
        (
            one("leaf1:3 - leaf2:5"),
            "slice 1: 'leaf1:3 - leaf2:5': leaf1 port 3 does not lead to an optical switch: choose from 5, 6",
        ),
        (
            one("leaf1:5 - leaf2:6"),
            (
                "slice 1: 'leaf1:5 - leaf2:6': leaf1 port 5 ends in ocs1 and leaf2 port 6 in ocs2: "
                "a circuit joins two ports of one optical switch"
            ),
        ),
        (
            one("leaf1 leaf2"),
            "slice 1: 'leaf1 leaf2' is not a circuit: write it like 'leaf1:5 - leaf2:5', or 'leaf1 > leaf2' for one way",
        ),
        (one("leaf1 - leaf2", settings=""), 'slice 1 has no length: give it one, or all of them with slice = "100ms"'),
        (
            one("leaf1 - leaf2", settings='slice = "100"'),
            "slice: duration '100' is not a positive number with a unit: write it like 20us or 10ms",
        ),
        (
            one("leaf1 - leaf2", settings='slice = "1ms"\ncycles = 0'),
            'cycles = 0: must be a whole number from 1, or "once"',
        ),
        (
            one("leaf1 - leaf2", settings='scheduler = "static"\nslice = "1ms"'),
            "a plan has either slices or a scheduler",
        ),
        ('slice = "1ms"', "a plan has either slices or a scheduler"),
        ('slize = "1ms"', "unknown setting 'slize': choose from cycles, guardband, scheduler, slice, slices"),
        (
            'slice = "1ms"\n[[slices]]\ncircuits = []\nlenght = "1ms"',
            "slice 1: unknown setting 'lenght': choose from circuits, length",
        ),
        ('slice = "1ms"\n[[slices]]\ncircuit = []', 'slice 1: must have circuits = ["leaf1 - leaf2", ...]'),
        ("slices = 3", "slices must be a list of tables, [[slices]]"),
        (
            'scheduler = "hungry"',
            (
                "unknown scheduler 'hungry': choose from birkhoff-von-neumann, edmonds, hotspot, hungarian, multi-uplink, "
                "opera, ring-permutations, round-robin, solstice, static"
            ),
        ),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused(text: str, refusal: str) -> None:
    with pytest.raises(Refused) as refused:
        plan_from_toml(text, FABRIC)
    assert str(refused.value) == refusal


def test_what_is_not_toml_is_refused() -> None:
    with pytest.raises(Refused, match="not TOML: "):
        plan_from_toml("slice = ", FABRIC)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (
            "slot,circuit\n1,leaf1 - leaf2",
            "no column 'slice': the first line must be slice,circuit,length, length may be left out",
        ),
        ("slice,circuit,length\n1,leaf1 - leaf2,1ms\n1,leaf3 - leaf4,2ms", "slice 1 is given two lengths, 1ms and 2ms"),
        ("slice,circuit\n1,leaf1 - leaf2", 'slice 1 has no length: give it one, or all of them with slice = "100ms"'),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(text: str, refusal: str) -> None:
    with pytest.raises(Refused) as refused:
        plan_from_csv(text, FABRIC)
    assert str(refused.value) == refusal


def test_a_refusal_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    with pytest.raises(Refused) as refused:
        read_plan(str(file), FABRIC)
    assert str(refused.value) == f"{file}: No such file or directory"
    file.write_text(one("leaf1 - leaf1"))
    with pytest.raises(Refused) as refused:
        read_plan(str(file), FABRIC)
    assert str(refused.value).startswith(f"{file}: slice 1: 'leaf1 - leaf1' joins leaf1 to itself")


# -- a plan in time -------------------------------------------------------------------------------------------------

A, B = "leaf1:5 - leaf2:5", "leaf1:5 - leaf3:5"


def plan(*slices: str, settings: str = 'slice = "100ms"') -> Plan:
    tables = "\n".join(f'[[slices]]\ncircuits = ["{circuit}"]' for circuit in slices)
    return plan_from_toml(f"{settings}\n{tables}", FABRIC)


def test_a_slice_that_is_over_in_the_dark_is_refused() -> None:
    check_plan(plan(A, B), FABRIC, dark_us=99_999.0)
    with pytest.raises(Refused) as refused:
        check_plan(plan(A, B), FABRIC, dark_us=100_000.0, what="plan.toml")
    assert str(refused.value) == (
        "plan.toml: slice 1 of 100000 us would be over before its circuits are up, after the dark time of 100000 us: make it "
        "longer"
    )
    with pytest.raises(Refused) as refused:
        check_plan(plan(A, B, settings='slice = "100ms"\nguardband = "50ms"'), FABRIC, dark_us=60_000.0)
    assert str(refused.value) == (
        "plan: slice 1 of 100000 us would be over before its circuits are up, after the dark time of 60000 us and the "
        "guardband of 50000 us: make it longer"
    )


def test_an_unchanged_matching_has_no_night() -> None:
    assert plan(A, A, B).nights_us(10_000.0) == [10_000.0, 0.0, 10_000.0]
    assert plan(A).nights_us(10_000.0) == [0.0]
    assert plan(A, A, settings='slice = "100ms"\ncycles = "once"').nights_us(10_000.0) == [10_000.0, 0.0]
    # Longer than the slice, but nothing changes.
    check_plan(plan(A), FABRIC, dark_us=10**9)


def test_duty_cycle_is_what_is_left_of_the_time() -> None:
    """Slices of 100 ms with 25 ms of dark: 75 %; with a guardband of 5 ms more: 70 %; with every second unchanged: 87.5 %."""
    assert plan(A, B).duty_cycle(25_000.0) == pytest.approx(0.75)
    assert plan(A, B, settings='slice = "100ms"\nguardband = "5ms"').duty_cycle(25_000.0) == pytest.approx(0.70)
    assert plan(A, A, B, B).duty_cycle(25_000.0) == pytest.approx(0.875)
    assert plan(A).duty_cycle(25_000.0) == 1.0


def test_a_plan_in_slow_motion_keeps_its_duty_cycle() -> None:
    slow = plan(A, B, settings='slice = "100us"\nguardband = "5us"').dilated(1000.0)
    assert [s.length_us for s in slow.slices] == [100_000.0, 100_000.0]
    assert (slow.guardband_us, slow.slice_us) == (5_000.0, 100_000.0)
    assert slow.duty_cycle(25_000.0) == pytest.approx(0.70)


def traffic(*pairs: tuple[int, int]) -> DemandMatrix:
    demand = np.zeros((4, 4))
    for i, j in pairs:
        demand[i, j] = 1.0
    return demand_matrix(demand)


def test_traffic_that_no_slice_gives_a_way_is_refused() -> None:
    """Joined in either slice is enough; leaf4 is in none, and there is no packet network."""
    check_plan(plan(A, B), FABRIC, 10.0, traffic((0, 1), (0, 2), (2, 0)))
    with pytest.raises(Refused) as refused:
        check_plan(plan(A, B), FABRIC, 10.0, traffic((0, 1), (1, 3)))
    assert str(refused.value) == (
        "plan: leaf2 has traffic for leaf4, but no slice gives it a way of at most 4 circuits and there is no packet network: "
        "add a slice that joins them, or use a hybrid fabric (ocs-leaf:spines=2)"
    )


def test_the_packet_network_of_a_hybrid_is_a_way() -> None:
    """Ports 5 and 6 lead to spines there, 7 and 8 to optical switches."""
    once = plan_from_toml(one("leaf1:7 - leaf2:7"), HYBRID)
    check_plan(once, HYBRID, 10.0, traffic((1, 3), (3, 0)))


def test_several_circuits_in_a_row_are_a_way_in_their_direction() -> None:
    """1 > 2 > 3 > 4: from leaf1 to leaf4 over three circuits, back over none."""
    text = one("leaf1:5 > leaf2:5", "leaf2:5 > leaf3:5", "leaf3:5 > leaf4:5")
    check_plan(plan_from_toml(text, FABRIC), FABRIC, 10.0, traffic((0, 3)))
    with pytest.raises(Refused, match="leaf4 has traffic for leaf1"):
        check_plan(plan_from_toml(text, FABRIC), FABRIC, 10.0, traffic((3, 0)))


def test_a_demand_for_another_fabric_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        check_plan(plan(A), FABRIC, 10.0, demand_matrix(np.ones((3, 3))))
    assert str(refused.value) == "a demand matrix of 3 ends, where there are 4: leaf1, leaf2, leaf3, leaf4"


def test_a_schedulers_slices_become_a_plan() -> None:
    """Round-robin over four leaves and two uplinks: three matchings in two slices, one of them twice."""
    slices = slices_of(SCHEDULERS["round-robin"], traffic((0, 1)), Parameters(uplinks=2, dark_us=20.0, slice_us=200.0))
    made = Plan(planned(slices, uplinks(FABRIC)))
    check_plan(made, FABRIC, 20.0, demand_matrix(np.ones((4, 4))))
    assert [{ocs: len(its) for ocs, its in s.circuits.items()} for s in made.slices] == [{"ocs1": 4, "ocs2": 4}] * 2
    assert made.duty_cycle(20.0) == pytest.approx(0.9)
