"""What circuits did: from a history and counters that are written down here to records, totals, reasons and a picture."""

import math
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from controller.circuits.plan import Plan, PlannedSlice
from lab.measuring import timeline
from lab.measuring.verdict import Evidence, judge
from lab.planning.circuits import Optical, optical
from lab.planning.experiment import Experiment
from lab.reporting import report, results, tables
from lab.reporting.charts import circuits as chart
from lab.rows import CircuitRecord, CircuitTotal, LinkSamples
from tests.unit import lab_samples
from topologies.describe import describe
from topologies.ocs_leaf import OcsLeaf

FABRIC = OcsLeaf(leaves=4, hosts_per_leaf=1, uplinks=1, ocs=1, spines=1).build()
OPTICAL = optical(Experiment(dark="20ms", circuits="round-robin"), FABRIC)
# leaf k is plugged into port k of the optical switch, by its own port 3: a host and a spine have the others.
PAIRS, OTHER_PAIRS = {1: 2, 2: 1, 3: 4, 4: 3}, {1: 3, 3: 1, 2: 4, 4: 2}


def at() -> Optical:
    assert OPTICAL is not None
    return OPTICAL


def counted(**sent: tuple[int, ...]) -> LinkSamples:
    """Counters at 10.0, 10.1, ... s of the run, which began at 90 s of the controller's clock."""
    n, intfs = len(next(iter(sent.values()))), tuple(sent)
    return LinkSamples(10 + np.arange(n) / 10, intfs, intfs, ("circuit",) * len(intfs), np.array(list(sent.values())).T)


def light(source: int, target: int, up_s: float, down_s: float | None, **changes: Any) -> dict[str, Any]:
    found = {"change": 1, "ocs": "ocs1", "source": source, "target": target, "requested_us": 20_000.0, "achieved_us": 21_000.0,
             "met": True, "up_s": up_s, "down_s": down_s}  # fmt: skip
    return found | changes


def records(history: list[dict[str, Any]], seen: LinkSamples) -> list[CircuitRecord]:
    return timeline.from_history(history, at(), seen, size_bytes=8, origin_s=90.0)


def test_a_circuit_carried_what_left_by_its_port_while_it_was_up() -> None:
    """1000 bytes a tenth of a second from port 2: up from 100.05 to 100.25 s is 2000 bytes."""
    seen = counted(**{at().egress("ocs1", 2): (0, 1000, 2000, 3000, 4000)})
    (found,) = records([light(1, 2, 100.05, 100.25)], seen)
    assert found.bytes_sent == 2000
    assert (found.source, found.target) == ("leaf1:3", "leaf2:3")
    assert (found.up_s, found.down_s) == pytest.approx((10.05, 10.25))


def test_circuits_are_cut_off_at_the_edges_of_the_row() -> None:
    seen = counted(**{at().egress("ocs1", 2): (0, 1000, 2000)})
    found = records([light(1, 2, 99.0, 99.9), light(1, 2, 99.9, None), light(3, 4, 100.5, None)], seen)
    assert [(one.up_s, one.down_s) for one in found] == [pytest.approx((10.0, 10.2))]
    assert found[0].bytes_sent == 2000


def test_circuits_that_stay_are_up_all_along() -> None:
    seen = counted(**{at().egress("ocs1", 2): (0, 10, 70)})
    found = timeline.all_along({"ocs1": PAIRS}, at(), seen, size_bytes=8)
    assert [(one.source, one.target) for one in found] == [
        ("leaf1:3", "leaf2:3"), ("leaf2:3", "leaf1:3"), ("leaf3:3", "leaf4:3"), ("leaf4:3", "leaf3:3"),
    ]  # fmt: skip
    assert found[0].bytes_sent == 70 and found[1].bytes_sent == 0
    assert all(math.isnan(one.achieved_dark_us) and one.met for one in found)


def total(found: list[CircuitRecord], seen: LinkSamples) -> CircuitTotal:
    slices = (PlannedSlice({"ocs1": PAIRS}, 200_000.0), PlannedSlice({"ocs1": OTHER_PAIRS}, 200_000.0))
    return timeline.total(found, at(), Plan(slices), seen, size_bytes=8, late_us=0.0, error=None)


def test_duty_cycles_planned_and_measured() -> None:
    """Slices of 200 ms with 20 ms of dark are light for 90 %; 170 ms of light after 30 ms of dark are 85 %."""
    seen = counted(**{at().egress("ocs1", 2): (0, 0, 0, 0, 0)})
    found = records(
        [
            light(1, 2, 100.03, 100.20, achieved_us=30_000.0),
            light(1, 3, 100.23, 100.40, achieved_us=30_000.0, met=False),
        ],
        seen,
    )
    summed = total(found, seen)
    assert summed.planned_duty_cycle == pytest.approx(0.9)
    assert summed.duty_cycle == pytest.approx(0.85)
    assert (summed.set_up, summed.unmet, summed.worst_dark_us, summed.shortest_slice_us) == (2, 1, 30_000.0, 200_000.0)


def test_bytes_by_circuit_by_packet_path_and_lost_in_the_dark() -> None:
    """A leaf sends 900 into the optical switch, which sends 700 on; 50 go up to the spine; what the spine and a host send is
    neither."""
    leaf = {far.node: own.intf for own, far, _ in FABRIC.neighbours("leaf1")}
    spine = next(own.intf for own, far, _ in FABRIC.neighbours("spine1") if far.node == "leaf1")
    sent = {
        leaf["ocs1"]: (100, 1000),
        at().egress("ocs1", 2): (0, 700),
        leaf["spine1"]: (0, 50),
        spine: (0, 60),
        leaf["h1"]: (0, 9),
    }
    summed = total([], counted(**sent))
    assert (summed.bytes_by_circuits, summed.bytes_by_packets, summed.bytes_lost) == (700, 50, 200)


def test_a_row_whose_circuits_were_dark_for_longer_is_degraded() -> None:
    changed = CircuitTotal(8, 12, 3, 10_000.0, 17_000.0, 0.9, 0.85, 100_000.0, 2_000.0, 10**6, 0, 5000)
    done = Evidence(
        iterations_done=1, iterations_asked=1, stall_s=3.0, segments=100.0, retransmits=30, circuits=changed
    )
    found = judge(done)
    assert found.level == "degraded"
    assert found.reasons == (
        (
            "3 of 12 circuits were dark for longer than asked, up to 17.0 ms where 10 ms are emulated: with a larger time "
            "dilation (--scale) the software would keep up"
        ),
        "12 circuits set while it ran, duty cycle 85.0%, planned 90.0%, 5,000 bytes lost in the dark, 30 segments sent again",
    )
    as_asked = judge(replace(done, circuits=replace(changed, unmet=0)))
    assert as_asked.level == "ok"
    never = replace(changed, set_up=0, unmet=0, duty_cycle=math.nan, bytes_lost=0)
    assert judge(replace(done, circuits=never)).reasons == (
        "no circuits set while it ran, 0 bytes lost in the dark, 30 segments sent again",
    )
    late = judge(replace(done, circuits=replace(changed, unmet=0, late_us=11_000.0)))
    assert late.level == "degraded"
    assert late.reasons[0] == "slices of circuits began up to 11.0 ms late, the shortest has 100 ms"
    forgotten = judge(replace(done, circuits=replace(changed, unmet=0, complete=False)))
    assert forgotten.level == "degraded"
    assert forgotten.reasons[0].startswith("more circuits were set in one iteration than the controller remembers")
    given_up = judge(replace(done, circuits=replace(changed, unmet=0, error="ocs1 is not connected")))
    assert (given_up.level, given_up.reasons[0]) == (
        "invalid",
        "the plan of circuits was given up: ocs1 is not connected",
    )


def test_static_circuits_are_judged_as_any_network_is() -> None:
    still = CircuitTotal(8, 0, 0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 10**6, 0, 0)
    assert judge(Evidence(iterations_done=1, iterations_asked=1, stall_s=3.0, circuits=still)).level == "invalid"
    assert judge(Evidence(iterations_done=1, iterations_asked=1, circuits=still)).reasons == ()


def _record(**changes: Any) -> CircuitRecord:
    one = CircuitRecord(2**30, "ocs1", "leaf1:3", "leaf2:3", 10.0, 12.0, 1e5, 1.2e5, True, 1234)
    return replace(one, **changes)


def test_the_picture_has_a_lane_for_each_uplink_and_the_hardwares_time() -> None:
    static = _record(source="leaf10:3", target="leaf1:3", requested_dark_us=math.nan, achieved_dark_us=math.nan)
    shown = [_record(), _record(up_s=12.5, down_s=13.0, met=False), static]
    drawn = chart.timeline(shown, time_dilation=100.0)
    # From the begin of the first dark, 9.88 s, to 13 s: 31.2 ms at a dilation of 100.
    assert drawn.end_s == pytest.approx(0.0312)
    assert 0 < drawn.left < drawn.right < 1 and drawn.above + drawn.below < 1
    texts = [text.text for text in ET.fromstring(drawn.picture).iter("{http://www.w3.org/2000/svg}text")]
    assert {"leaf1:3", "leaf10:3", "to leaf1", "to leaf2", "dark", "time of the hardware (ms)"} <= set(texts)
    assert texts.index("leaf1:3") < texts.index("leaf10:3")


def test_of_very_many_circuits_the_earliest_of_the_first_uplinks_are_drawn() -> None:
    many = [_record(source=f"leaf{leaf}:3", up_s=float(i), down_s=i + 1.0) for leaf in range(1, 101) for i in range(30)]
    shown = chart.shown(many)
    assert len(shown) == chart.MOST_BARS
    assert {one.source for one in shown} == {f"leaf{leaf}:3" for leaf in range(1, chart.MOST_LANES + 1)}
    assert max(one.up_s for one in shown) < 24


def test_a_folder_and_a_report_have_the_circuits() -> None:
    summed = CircuitTotal(2**30, 12, 3, 1e5, 1.7e5, 0.9, 0.85, 1e6, 2e4, 10**6, 50, 5000)
    experiment = {**lab_samples.EXPERIMENT, "circuits": "round-robin", "dark": "rotor", "in_the_dark": "drop"}
    record = lab_samples.record(
        lab_samples.ROW,
        circuits=[_record()],
        circuit_totals=[summed],
        experiment=experiment,
        fabric=describe(FABRIC),
        hosts=("h1",),
    )
    text = report.html(record)
    assert (
        "<h2>Circuits and dark times</h2>" in text
        and 'id="circuit-time"' in text
        and "round-robin on rotor; in the dark: drop" in text
    )
    # Dark 0.1 s at a dilation of 125.
    assert re.search(r"<td>12</td><td>3</td><td>800 µs</td><td>1.36 ms</td><td>90.0%</td><td>85.0%</td>", text)
    assert results.manifest(record)["circuits"][0]["bytes_lost"] == 5000
    header, line = results.circuits_text(record.circuits).splitlines()
    assert header == "size_bytes,ocs,source,target,up_s,down_s,requested_dark_us,achieved_dark_us,met,bytes_sent"
    assert line == "1073741824,ocs1,leaf1:3,leaf2:3,10.0,12.0,100000.0,120000.0,True,1234"
    assert tables.of(record)["circuits"].num_rows == 1
    without = report.html(lab_samples.record(lab_samples.ROW))
    assert "<h2>Circuits" not in without and "<script>" not in without
