"""`mn --custom topologies/custom.py`, as a user of stock Mininet types it, with the testbed's controller."""

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.emulation.netns_sandbox import ROOT, in_sandbox, sh
from tests.emulation.waiting import wait_for
from topologies import ovs_daemons
from topologies.spine_leaf import SpineLeaf

TOPO = "spine-leaf,spines=2,leaves=2,hosts_per_leaf=2,rate=20Mbit"
COMMANDS = """
h1 ethtool -k h1-eth0 | grep ^tx-checksumming
h1 ip link show h1-eth0
h1 ip neigh
sh tc -d class show dev leaf1-eth1
sh tc -d class show dev spine2-eth1
sh ovs-vsctl get bridge leaf1 datapath_type
iperf
h4 iperf3 -s -1 -D
h1 iperf3 -c 198.18.0.6 -t 1
"""


def _mn(*arguments: str) -> dict[str, Any]:
    start = time.monotonic()
    done = subprocess.run(
        ["mn", "--custom", f"{ROOT}/topologies/custom.py", *arguments],
        cwd="/", capture_output=True, text=True, timeout=50, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    return {"text": done.stdout + done.stderr, "status": done.returncode, "seconds": time.monotonic() - start}


def _session() -> dict[str, Any]:
    ovs_daemons.start_daemons()
    Path("/run/fabric.json").write_text(SpineLeaf(spines=2, leaves=2, hosts_per_leaf=2).build().to_json())
    controller = subprocess.Popen(
        [sys.executable, "-m", "controller", "--fabric", "/run/fabric.json", "--policy", "ecmp"],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for(lambda: sh("ss -Hltn sport = :6653"), 15, "the controller")
    Path("/run/commands").write_text(COMMANDS)
    seen = _mn("--topo", TOPO, "--controller", "remote", "--test", "pingall", "--post", "/run/commands")
    seen["left"] = sh("ls /run/netns; ip -br link | grep -- '-eth' || true; ovs-vsctl list-br")
    controller.terminate()
    controller.wait(10)
    return seen


@pytest.fixture(scope="module")
def session() -> dict[str, Any]:
    result: dict[str, Any] = in_sandbox(_session, timeout_s=90)
    return result


def test_all_hosts_reach_each_other(session: dict[str, Any]) -> None:
    assert session["status"] == 0
    assert "Results: 0% dropped (12/12 received)" in session["text"]


def test_tcp_runs_at_the_asked_rate(session: dict[str, Any]) -> None:
    rates = re.findall(r"Results: \['([\d.]+) Mbits/sec', '([\d.]+) Mbits/sec'\]", session["text"])
    assert rates
    assert 15 < float(rates[0][0]) < 21
    assert re.search(r"[\d.]+ Mbits/sec +receiver", session["text"])


def test_links_are_shaped_and_hosts_need_no_flags(session: dict[str, Any]) -> None:
    text = session["text"]
    assert "16/16 interfaces shaped" in text
    assert text.count("rate 20Mbit ceil 20Mbit") == 2
    assert "tx-checksumming: off" in text
    assert "mtu 9000" in text
    assert "lladdr 02:fa:b0:00:00:fe PERMANENT" in text


def test_nothing_is_left(session: dict[str, Any]) -> None:
    assert session["left"] == ""


def _refusals() -> dict[str, Any]:
    ovs_daemons.start_daemons()
    return {
        "parameter": _mn("--topo", "spine-leaf,spine=2", "--controller", "none"),
        "value": _mn("--topo", "spine-leaf,spines=-1", "--controller", "none"),
        "rate": _mn("--topo", "spine-leaf,rate=50", "--controller", "none"),
        "name": _taken(),
    }


def _taken() -> dict[str, Any]:
    """Something of another's is in the way: it must survive."""
    sh("ip netns add h1; ovs-vsctl add-br mine")
    found = _mn("--topo", TOPO, "--controller", "none", "--test", "none")
    found["left"] = sh("ip netns list; ovs-vsctl list-br").split()
    return found


def test_what_cannot_be_built_is_refused_in_one_line_and_nobody_elses_work_is_cleaned_up() -> None:
    seen = in_sandbox(_refusals)
    for case, text in (
        ("parameter", "refused: topology 'spine-leaf': unknown parameter 'spine'"),
        ("value", "refused: spines=-1 is too small"),
        ("rate", "refused: rate '50' is not a positive number with a unit"),
        ("name", "refused: namespace 'h1' exists already"),
    ):
        assert text in seen[case]["text"], case
        assert seen[case]["status"] == 2, case
        assert "Traceback" not in seen[case]["text"], case
    assert seen["name"]["left"] == ["h1", "mine"]
