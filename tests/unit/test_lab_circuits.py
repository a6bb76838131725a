"""From an experiment on a fabric with optical switches to its circuits: demand, plans, paths, predictions, refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller.circuits.device import parse_device
from controller.circuits.plan_file import plan_from_data, texts_of
from controller.circuits.uplinks import uplinks
from lab.planning.circuits import device_text, parse_circuits, plan_data
from lab.planning.experiment import load
from lab.planning.forecast import forecast_of
from lab.planning.plan import Plan, plan
from lab.planning.scale import TYPICAL_BUDGET, Scale, choose_scale
from topologies import Refused
from topologies.ocs_dragonfly import OcsDragonfly
from topologies.ocs_leaf import OcsLeaf

ROOT = Path(__file__).resolve().parents[2]
# Payload and length of a full frame of TCP at an MTU of 9000.
MSS, FRAME = 8948, 9014


def planned(**overrides: Any) -> Plan:
    return plan(load(None, {"topology": "ocs-leaf", "min_bytes": "1G", "max_bytes": "1G"} | overrides))


def refusal(**overrides: Any) -> str:
    with pytest.raises(Refused) as refused:
        planned(**overrides)
    return str(refused.value)


def test_a_ring_s_demand_is_its_edges_between_leaves() -> None:
    """Each edge carries 2 (n - 1) / n of the buffer; of sixteen ranks on four leaves every fourth edge leaves its leaf."""
    demand = planned().demand
    carried = 2 * 15 / 16 * 2**30 * FRAME / MSS
    wanted = np.zeros((4, 4))
    for leaf in range(4):
        wanted[leaf, (leaf + 1) % 4] = carried
    assert demand == pytest.approx(wanted, rel=5e-3)


def test_an_all_to_all_s_demand_is_even_between_leaves_and_none_within() -> None:
    """Each of four ranks of a leaf sends a sixteenth of its buffer to each of four ranks of another."""
    demand = planned(collective="all_to_all").demand
    carried = 4 * 4 * 2**30 / 16 * FRAME / MSS
    assert demand == pytest.approx(carried * (1 - np.eye(4)), rel=5e-3)


def test_groups_of_a_dragonfly_are_the_ends() -> None:
    p = planned(topology="ocs-dragonfly:a=2,p=1,h=1,g=3")
    assert p.demand.shape == (3, 3)
    assert (p.demand > 0).sum() == 3


@pytest.mark.parametrize("topology", ["ocs-leaf", "ocs-dragonfly", "ocs-leaf:spines=2"])
def test_by_default_circuits_are_static_and_give_every_send_a_way(topology: str) -> None:
    p = planned(topology=topology)
    assert p.circuits is not None and len(p.circuits.slices) == 1
    assert np.isfinite(p.switches).all()
    assert p.circuits_for(2**30) is None
    assert p.routing == "circuits:ring-permutations"


def test_switches_on_the_way_count_optical_ones() -> None:
    """Sixteen edges of the ring: twelve over their leaf, four over a leaf, an optical switch and a leaf."""
    p = planned()
    assert sorted(set(p.switches.tolist())) == [1.0, 3.0]
    assert p.switches.sum() / 30 == 12 * 1 + 4 * 3


def test_a_ring_of_circuits_is_predicted_to_carry_a_ring_as_a_non_blocking_fabric_does() -> None:
    """The roofline has no network in it; headers and acknowledgements are (9014 + 66 / 2) / 8948 = 1.1 % of it."""
    p, scale = planned(), Scale(4000, 80)
    expected = forecast_of(p, scale)
    (size,) = p.sizes(scale)
    prediction = expected.prediction(size, scale)
    assert prediction is not None
    ratio = scale.hardware_s(prediction.seconds) / expected.roofline_s(size, scale)
    assert 1.0 < ratio < 1 / 0.9


def test_two_leaves_over_one_circuit_share_it() -> None:
    """Four hosts to four over one uplink of their rate: four flows on one link take four times as long."""
    scale = Scale(4000, 80)

    def seconds(uplinks_per_leaf: int) -> float:
        spec = f"ocs-leaf:leaves=2,hosts_per_leaf=4,uplinks={uplinks_per_leaf},ocs=1"
        p = planned(topology=spec, collective="group_shift", group_size=4)
        found = forecast_of(p, scale).prediction(p.sizes(scale)[0], scale)
        assert found is not None
        return found.seconds / forecast_of(p, scale).roofline_s(p.sizes(scale)[0], scale)

    assert seconds(1) / scale.time_dilation == pytest.approx(4 * 1.011, rel=0.02)


def test_what_a_scheduler_is_told() -> None:
    p = planned(topology="ocs-leaf:spines=2", circuits="hotspot:slice=5ms", dark="100us+20us~5us", link_rate="200Gbit")
    assert p.optical is not None
    told = p.optical.parameters
    assert (told.rate_mbps, told.uplinks, told.dark_us, told.slice_us) == (200_000, 2, 125.0, 5000.0)
    # Two links of a leaf to spines.
    assert told.packet_mbps == 400_000


def test_changing_circuits_follow_each_size_and_are_not_predicted() -> None:
    """birkhoff-von-neumann holds each permutation for as long as its bytes take: half the bytes, half the days."""
    p = planned(collective="all_to_all", circuits="birkhoff-von-neumann", dark="rotor")
    whole, half = p.circuits_for(2**30), p.circuits_for(2**29)
    assert whole is not None and half is not None
    days_us = [sum(one.length_us - 20.0 for one in found.slices) for found in (whole, half)]
    # Every leaf sends 3 x 1 GiB over two uplinks of 400 Gbit/s.
    assert days_us[0] == pytest.approx(3 * 2**30 * FRAME / MSS * 8 / 800e3, rel=6e-3)
    assert days_us[1] == pytest.approx(days_us[0] / 2, rel=1e-3)
    assert forecast_of(p, Scale(4000, 80)).unknown == "circuits change while it runs"


def test_before_a_plan_begins_all_have_a_way_at_once() -> None:
    """With one uplink a slice of the tournament joins pairs only; the ring that connections are made over joins all four."""
    p = planned(topology="ocs-leaf:uplinks=1,ocs=1", circuits="round-robin", dark="rotor")
    set_up = p.set_up(Scale(4000, 80))
    assert set_up is not None
    assert set_up.circuits == ("leaf1:5 > leaf2:5", "leaf2:5 > leaf3:5", "leaf3:5 > leaf4:5", "leaf4:5 > leaf1:5")
    # 20 us at a dilation of 50.
    assert parse_device(set_up.dark).longest_dark_us == 1000.0


@pytest.mark.parametrize("circuits", ["ring-permutations", "round-robin", "multi-uplink", "solstice:guardband=2us"])
def test_a_plan_reaches_the_controller_as_it_is(circuits: str) -> None:
    p = planned(collective="all_to_all", circuits=circuits, dark="rotor")
    assert p.circuits is not None
    emulated, joined = p.circuits.dilated(50.0), uplinks(p.fabric)
    read = plan_from_data(plan_data(emulated, joined), p.fabric)
    assert [texts_of(one.circuits, joined) for one in read.slices] == [
        texts_of(one.circuits, joined) for one in p.circuits.slices
    ]
    assert [one.length_us for one in read.slices] == pytest.approx(
        [50 * one.length_us for one in p.circuits.slices], abs=1e-3
    )
    assert read.guardband_us == pytest.approx(50 * p.circuits.guardband_us)


def test_a_device_reaches_the_controller_as_it_is() -> None:
    device = parse_device("20us+5ms~1ms")
    read = parse_device(device_text(device.dilated(3.0)))
    assert (read.switching_us, read.link_up_us, read.jitter_us) == (60.0, 15_000.0, 3000.0)


def test_a_plan_file_says_which_circuits(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text('slice = "1ms"\n[[slices]]\ncircuits = ["leaf1:5 - leaf2:5", "leaf2:6 - leaf3:6"]\n')
    p = planned(topology="ocs-leaf:leaves=3", circuits=str(file))
    assert p.circuits is not None
    assert texts_of(p.circuits.slices[0].circuits, uplinks(p.fabric)) == ["leaf1:5 - leaf2:5", "leaf2:6 - leaf3:6"]


def test_a_scheduler_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from controller.circuits.schedulers.static import static as MINE\n")
    asked = parse_circuits(f"{file}:MINE:slice=3ms", OcsLeaf().build())
    assert (asked.scheduler, asked.slice_us) == (f"{file}:MINE", 3000.0)


REFUSED = {
    "settings of circuits without optical switches": (
        {"topology": "spine-leaf", "dark": "rotor"},
        "--dark rotor is about optical circuits, of which spine-leaf has none: use --topology ocs-leaf or ocs-dragonfly",
    ),
    "settings of circuits with a controller of one's own": (
        {"circuits": "solstice", "controller": "tcp:127.0.0.1:6653"},
        "--circuits solstice is about optical circuits, which the controller of your own sets",
    ),
    "another policy": (
        {"routing": "single-path"},
        "--routing single-path is not for ocs-leaf, where routes follow the circuits: leave it out and use --circuits",
    ),
    "an unknown parameter": (
        {"circuits": "solstice:slize=1ms"},
        "circuits solstice:slize=1ms: unknown parameter 'slize': choose from guardband, slice",
    ),
    "a slice that is over before its circuits are up": (
        {"circuits": "round-robin:slice=1ms", "dark": "3d-mems"},
        "a slice of 1000 us would be over before its circuits are up, after the dark time of 10000 us: make it longer",
    ),
    "a time that is none": (
        {"circuits": "round-robin:slice=1"},
        "circuits round-robin:slice=1: slice: duration '1' is not a positive number with a unit: write it like 20us or 10ms",
    ),
    "one way for all of a ring's leaves": (
        {"topology": "ocs-leaf:leaves=8,hosts_per_leaf=1,uplinks=1,ocs=1"},
        ("circuits ring-permutations: leaf1 has traffic for leaf8, but no slice gives it a way of at most 4 circuits and there "
        "is no packet network: add a slice that joins them, or use a hybrid fabric (ocs-leaf:spines=2)"),
    ),
    "connections that cannot be made": (
        {"topology": "ocs-leaf:leaves=8,hosts_per_leaf=1,uplinks=1,ocs=1", "circuits": "round-robin", "dark": "rotor"},
        ("circuits round-robin: no set of circuits gives all that exchange traffic a way of at most 4 circuits at the same time, "
        "so connections cannot be made: use more uplinks, fewer leaves, or a hybrid (ocs-leaf:spines=2)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    overrides, text = REFUSED[case]
    assert refusal(**overrides) == text


@pytest.mark.parametrize("file", sorted(ROOT.glob("experiments/ocs-*.toml")), ids=lambda file: file.stem)
def test_every_experiment_with_circuits_can_be_run(file: Path) -> None:
    p = plan(load(file))
    scale = p.experiment.scale or choose_scale(p.load, TYPICAL_BUDGET, p.experiment.time_limit_s)
    assert p.circuits is not None and p.optical is not None
    assert p.frames_per_step(p.sizes(scale)[0]) >= 30
    if len(p.circuits.slices) > 1:
        # What software keeps on a machine that does something else as well.
        assert p.optical.device.dilated(scale.time_dilation).shortest_dark_us >= 10_000


def test_an_unknown_scheduler_lists_the_known_ones() -> None:
    text = refusal(circuits="magic")
    assert text.startswith("unknown scheduler 'magic': choose from birkhoff-von-neumann, edmonds")


def test_a_dragonfly_s_groups_have_no_packet_network() -> None:
    fabric = OcsDragonfly(a=2, p=1, h=1, g=3).build()
    p = planned(topology="ocs-dragonfly:a=2,p=1,h=1,g=3")
    assert p.optical is not None and p.optical.parameters.packet_mbps == 0.0
    assert p.optical.packet_intfs == frozenset()
    into, out = p.optical.circuit_intfs
    assert len(into) == len(out) == sum(link.kind == "circuit" for link in fabric.links)
