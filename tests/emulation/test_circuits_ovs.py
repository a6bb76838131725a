"""Circuits on a real Open vSwitch, in a sandbox. Each test runs one function of this file there."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from controller import client
from tests.emulation.ovs_sandbox import REST, build, controller, lost, ping, ready, run, sh
from tests.emulation.waiting import wait_for
from topologies.fabric import Fabric
from topologies.ocs_leaf import OcsLeaf

pytestmark = [
    pytest.mark.emulation,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="needs openvswitch-switch"),
]

A = ["leaf1:2 - leaf2:2", "leaf3:2 - leaf4:2"]
B = ["leaf1:2 - leaf3:2", "leaf2:2 - leaf4:2"]


# -- what runs inside the sandbox -----------------------------------------------------------------------------------


def tables(fabric: Fabric) -> dict[str, list[str]]:
    """Every bridge's rules as Open vSwitch has them, without counters."""
    return {
        s.name: sorted(
            line
            for line in sh(f"ovs-ofctl -O OpenFlow13 --no-stats dump-flows {s.name}").splitlines()
            if "actions=" in line
        )
        for s in fabric.switches
    }


def there_and_back(times: int) -> dict[str, Any]:
    fabric = OcsLeaf(leaves=4, hosts_per_leaf=1, uplinks=1, ocs=1).build()
    build(fabric)
    with controller(fabric, "ecmp", "--dark", "10ms"):
        ready()
        dark = ping(fabric, "h1", "h2", "-c 2 -i 0.2 -W 1")
        client.set_circuits(REST, A)
        joined = [lost(ping(fabric, *pair, "-c 3 -i 0.2 -W 2")) for pair in (("h1", "h2"), ("h4", "h3"))]
        before = tables(fabric)
        for _ in range(times):
            client.set_circuits(REST, B)
            client.set_circuits(REST, A)
        after = tables(fabric)
        second = client.set_circuits(REST, B)
        others = [lost(ping(fabric, *pair, "-c 3 -i 0.2 -W 2")) for pair in (("h1", "h3"), ("h2", "h4"))]
        again = client.set_circuits(REST, B)["changed"]
        history, everything = client.circuit_history(REST), client.circuits(REST)["circuits"]
        client.set_circuits(REST, B[:1])
        left = tables(fabric)
        return {
            "dark": lost(dark),
            "joined": joined,
            "others": others,
            "same": before == after,
            "n_rules": sum(map(len, after.values())),
            "unreachable": second["unreachable"],
            "circuits": second["circuits"],
            "again": again,
            "history": history,
            "everything": everything,
            "into_the_dark": [name for name in ("leaf2", "leaf4") if any("output:2" in rule for rule in left[name])],
            "kept": [name for name in ("leaf1", "leaf3") if any("output:2" in rule for rule in left[name])],
            "status": client.status(REST),
        }


def around_one_way() -> dict[str, Any]:
    """Three leaves with one uplink each: the reply comes by two circuits, in and out of the third leaf's only uplink."""
    fabric = OcsLeaf(leaves=3, hosts_per_leaf=1, uplinks=1, ocs=1).build()
    build(fabric)
    with controller(fabric, "ecmp", "--dark", "10ms"):
        ready()
        told = client.set_circuits(REST, ["leaf1 > leaf2", "leaf2 > leaf3", "leaf3 > leaf1"])
        pings = [lost(ping(fabric, a, b, "-c 3 -i 0.2 -W 2")) for a, b in (("h1", "h2"), ("h3", "h2"))]
        return {
            "pings": pings,
            "unreachable": told["unreachable"],
            "rules": client.rules(REST),
            "tables": tables(fabric),
        }


def refusals() -> list[str]:
    fabric = OcsLeaf(leaves=4, hosts_per_leaf=1, uplinks=1, ocs=1).build()
    build(fabric)
    texts = []
    with controller(fabric, "ecmp", "--dark", "10ms"):
        ready()
        for wrong in (
            ["leaf1 - leaf1"],
            ["leaf1 - leaf9"],
            ["leaf1:2 - leaf2:2", "leaf1:2 - leaf3:2"],
            {"leaf1": "leaf2"},
        ):
            try:
                client.set_circuits(REST, wrong)  # type: ignore[arg-type]
            except client.ControllerError as error:
                texts.append(str(error).partition(": ")[2])
        return [*texts, *client.circuits(REST)["circuits"]]


def from_the_start() -> dict[str, Any]:
    """Circuits that the controller is started with, and what it keeps of them in a change."""
    fabric = OcsLeaf(leaves=4, hosts_per_leaf=1, uplinks=1, ocs=1).build()
    build(fabric)
    Path("/run/circuits.json").write_text(json.dumps(A))
    with controller(fabric, "ecmp", "--dark", "10ms", "--circuits", "/run/circuits.json"):
        ready()
        first = client.circuits(REST)["circuits"]
        with subprocess.Popen(
            f"ip netns exec h1 ping -q -i 0.002 -w 30 {fabric.scale_out_port('h2').ip}".split(),
            stdout=subprocess.PIPE,
            text=True,
        ) as pinging:
            for _ in range(5):
                client.set_circuits(REST, A[:1])
                client.set_circuits(REST, A)
            pinging.send_signal(signal.SIGINT)
            lost_on_the_kept = lost(pinging.communicate(timeout=10)[0])
        return {"first": first, "lost": lost_on_the_kept, "history": client.circuit_history(REST)}


def lost_in_the_dark(in_the_dark: str, changes: int) -> int:
    """Of many pings a second, while the circuit that they take goes and comes, in a hybrid fabric."""
    fabric = OcsLeaf(leaves=3, hosts_per_leaf=1, uplinks=1, ocs=1, spines=1).build()
    build(fabric)
    with controller(fabric, "ecmp", "--dark", "50ms", "--in-the-dark", in_the_dark):
        ready()
        client.set_circuits(REST, ["leaf1 - leaf2"])
        with subprocess.Popen(
            f"ip netns exec h1 ping -q -i 0.002 -w 30 {fabric.scale_out_port('h2').ip}".split(),
            stdout=subprocess.PIPE,
            text=True,
        ) as pinging:
            for _ in range(changes):
                client.set_circuits(REST, ["leaf1 - leaf3"])
                client.set_circuits(REST, ["leaf1 - leaf2"])
            pinging.send_signal(signal.SIGINT)
            return lost(pinging.communicate(timeout=10)[0])


def going_round(cycles: int) -> dict[str, Any]:
    fabric = OcsLeaf(leaves=4, hosts_per_leaf=1, uplinks=1, ocs=1).build()
    build(fabric)
    with controller(fabric, "ecmp", "--dark", "20ms"):
        ready()
        begun_s = time.monotonic()
        slices = [{"circuits": A}, {"circuits": A}, {"circuits": B}]
        told = client.start_plan(REST, {"slice": "100ms", "cycles": cycles, "slices": slices})
        wait_for(lambda: not client.plan(REST)["running"], 20, "the end of the plan")
        took_s, end = time.monotonic() - begun_s, client.plan(REST)
        history, last = client.circuit_history(REST), client.circuits(REST)["circuits"]
        client.start_plan(REST, {"slice": "100ms", "slices": slices})
        stopped = client.stop_plan(REST)
        try:
            client.start_plan(REST, {"slice": "10ms", "slices": slices})
            refusal = ""
        except client.ControllerError as error:
            refusal = str(error).partition(": ")[2]
        return {"told": told, "end": end, "took_s": took_s, "stopped": stopped, "refusal": refusal, "last": last,
                "changes": sorted({dark["change"] for dark in history})}  # fmt: skip


def hybrid() -> dict[str, Any]:
    """Beside a spine: what has no circuit goes by packets."""
    fabric = OcsLeaf(leaves=3, hosts_per_leaf=1, uplinks=1, ocs=1, spines=1).build()
    build(fabric)
    with controller(fabric, "ecmp", "--dark", "10ms"):
        ready()
        pings = [lost(ping(fabric, "h1", "h2", "-c 3 -i 0.2 -W 2"))]
        client.set_circuits(REST, ["leaf1 - leaf2"])
        pings += [lost(ping(fabric, "h1", other, "-c 3 -i 0.2 -W 2")) for other in ("h2", "h3")]
        return {"pings": pings, "ocs": tables(fabric)["ocs1"]}


# -- tests ----------------------------------------------------------------------------------------------------------


def test_circuits_there_and_back_leave_the_tables_as_they_were() -> None:
    found = run(there_and_back, 100, timeout_s=150)
    assert (found["dark"], found["joined"], found["others"]) == (2, [0, 0], [0, 0])
    assert found["same"]
    # Four cross-connects; on each of four leaves a rule for its host and one for the peer's prefix.
    assert found["n_rules"] == 4 + 4 * 2
    assert found["circuits"] == B
    assert sorted(map(tuple, found["unreachable"])) == sorted(
        (f"leaf{i}", f"leaf{j}") for i in range(1, 5) for j in range(1, 5) if i != j and {i, j} not in ({1, 3}, {2, 4})
    )
    assert found["again"] == []
    assert found["everything"] == B
    # Of leaf1 - leaf3 alone: nobody else sends into a port that has no circuit.
    assert (found["into_the_dark"], found["kept"]) == ([], ["leaf1", "leaf3"])
    history = found["history"]
    # From nothing to A, two hundred changes, and one to B, of four cross-connects each.
    assert len(history) == (1 + 200 + 1) * 4
    up = [dark for dark in history if dark["down_s"] is None]
    # What is still up is B, set by the last change; all others ended after they had begun.
    assert len(up) == 4 and {dark["change"] for dark in up} == {202}
    assert all(dark["up_s"] <= dark["down_s"] for dark in history if dark not in up)
    assert all(dark["requested_us"] == 10_000 and dark["achieved_us"] >= dark["requested_us"] for dark in history)
    assert found["status"]["errors"] == 0


def test_a_packet_may_leave_by_the_port_it_came_in_by_where_its_directions_part() -> None:
    found = run(around_one_way)
    assert found["pings"] == [0, 0]
    assert found["unreachable"] == []
    (to_leaf3,) = [rule for rule in found["rules"]["leaf2"]["flows"] if "nw_dst=198.18.0.4/31" in rule]
    assert to_leaf3.endswith("actions=dec_ttl,load:0->NXM_OF_IN_PORT[],output:2")
    assert any("IN_PORT[]" in rule for rule in found["tables"]["leaf2"])


def test_a_circuit_that_a_change_keeps_loses_nothing() -> None:
    """Ten changes of leaf3 - leaf4, while pings go over leaf1 - leaf2 up to 500 times a second; five of them set two
    cross-connects again. ping reports one that was under way when it was stopped as lost."""
    found = run(from_the_start)
    assert found["first"] == A
    assert found["lost"] <= 1
    assert len(found["history"]) == 5 * 2
    assert {(dark["source"], dark["target"]) for dark in found["history"]} == {(3, 4), (4, 3)}


def test_what_cannot_be_set_is_refused_in_the_words_of_a_plan_file() -> None:
    assert run(refusals) == [
        "circuits: 'leaf1 - leaf1' joins leaf1 to itself: a circuit joins two ToRs",
        "circuits: 'leaf1 - leaf9': unknown ToR 'leaf9': choose from leaf1, leaf2, leaf3, leaf4",
        (
            "circuits: leaf1 port 2 is used twice, by 'leaf1:2 - leaf2:2' and 'leaf1:2 - leaf3:2': a port has one circuit each "
            "way"
        ),
        "circuits must be a list, such as ['leaf1:5 - leaf2:5', 'leaf3 > leaf4']",
    ]


def test_a_hybrid_takes_circuits_where_they_are_and_packets_elsewhere() -> None:
    found = run(hybrid)
    assert found["pings"] == [0, 0, 0]
    assert len(found["ocs"]) == 2


def test_in_the_dark_packets_are_dropped_or_take_another_way() -> None:
    """Five times the circuit that carries the pings goes, for 50 ms of dark; ping sends at least every 10 ms without answers."""
    assert run(lost_in_the_dark, "drop", 5) >= 5 * 3
    assert run(lost_in_the_dark, "divert", 5) <= 5


def test_a_plan_goes_round_in_its_time_and_changes_only_what_changes() -> None:
    """Three cycles of A, A, B at 100 ms: six changes, for the second A is none; two of three slices have 20 ms of dark."""
    found = run(going_round, 3)
    assert found["told"]["duty_cycle"] == pytest.approx(1 - 2 * 20 / 300)
    assert found["changes"] == [1, 2, 3, 4, 5, 6]
    assert (found["end"]["slices_begun"], found["end"]["error"], found["last"]) == (9, None, B)
    assert found["took_s"] >= 9 * 0.1
    assert not found["stopped"]["running"]
    assert found["refusal"] == (
        "plan: slice 1 of 10000 us would be over before its circuits are up, after the dark time of 20000 us: make it longer"
    )
