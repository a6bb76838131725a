"""Open vSwitch that is missing, dies, or is asked for what it cannot do: one clear error, soon; and what it drops."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.emulation.netns_sandbox import in_sandbox, install_rules, sh
from topologies import ovs_bridges, ovs_daemons, ovs_sockets
from topologies.errors import EmulationError, Refused
from topologies.mininet_adapter import FabricNet
from topologies.ovs_bridges import Bridge
from topologies.spine_leaf import SpineLeaf


def _error(action: Any) -> dict[str, Any]:
    start = time.monotonic()
    try:
        action()
    except (EmulationError, Refused) as error:
        return {"text": str(error), "type": type(error).__name__, "seconds": time.monotonic() - start}
    return {"text": "", "type": "", "seconds": 0.0}


def _start_without_programs() -> dict[str, Any]:
    os.environ["PATH"] = "/nowhere"
    return _error(ovs_daemons.start_daemons)


def _start_without_room() -> dict[str, Any]:
    """A run directory that nobody can write to."""
    sh("mkdir /run/full; mount -t tmpfs -o ro tmpfs /run/full")
    return _error(lambda: ovs_daemons.start_daemons(Path("/run/full")))


def _start_twice() -> dict[str, Any]:
    ovs_daemons.start_daemons()
    return _error(ovs_daemons.start_daemons)


def _switch_that_dies() -> dict[str, Any]:
    fake = Path("/run/bin/ovs-vswitchd")
    fake.parent.mkdir()
    fake.write_text(
        '#!/bin/sh\nfor a; do case $a in --log-file=*) echo "out of luck" > "${a#*=}";; esac; done; exit 7\n'
    )
    fake.chmod(0o755)
    os.environ["PATH"] = f"/run/bin:{os.environ['PATH']}"
    return _error(ovs_daemons.start_daemons)


def _network_without_daemons() -> dict[str, Any]:
    net = FabricNet(SpineLeaf(spines=1, leaves=1, hosts_per_leaf=2).build().with_links(rate_mbps=10))
    found = _error(net.start)
    found["left"] = sh("ls /run/netns; ip -br link | grep -- '-eth' || true")
    return found


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (_start_without_programs, "ovsdb-tool is not on this machine: install the package openvswitch-switch"),
        (_start_without_room, "Open vSwitch's database cannot be made: [Errno 30] Read-only file system"),
        (_start_twice, "an Open vSwitch runs in /run/openvswitch already"),
        (_switch_that_dies, "ovs-vswitchd ended with status 7: out of luck"),
        (_network_without_daemons, "Open vSwitch's database does not answer at /run/openvswitch/db.sock"),
    ],
)
def test_what_is_wrong_is_said_within_five_seconds(function: Any, text: str) -> None:
    found = in_sandbox(function)
    assert found["text"].startswith(text)
    assert "\n" not in found["text"]
    assert found["seconds"] < 5
    assert found.get("left", "") == ""


def _wrong_bridges() -> dict[str, Any]:
    ovs_daemons.start_daemons()
    sh("ip link add name a-eth1 type veth peer name b-eth1; ovs-vsctl add-br taken")
    seen: dict[str, Any] = {
        "taken": _error(lambda: ovs_bridges.add_bridges([Bridge("taken", 1, [])], "netdev", 1500)),
        "missing": _error(lambda: _bridge_with("gone-eth1")),
        "two_hosts": _error(_names_that_exist),
    }
    seen["bridges"] = sh("ovs-vsctl list-br").split()
    return seen


def _bridge_with(intf: str) -> None:
    number = ovs_bridges.add_bridges([Bridge("br1", 1, [(intf, 1)])], "netdev", 1500)
    ovs_bridges.wait_configured(number, {intf: 1})


def _names_that_exist() -> None:
    sh("ip netns add h1")
    FabricNet(SpineLeaf(spines=0, leaves=1, hosts_per_leaf=2).build().with_links(rate_mbps=10), controllers=()).start()


def test_bridges_that_cannot_be_are_refused_by_name() -> None:
    seen = in_sandbox(_wrong_bridges)
    assert seen["taken"]["text"].startswith("Open vSwitch already has a bridge or port 'taken'")
    assert seen["missing"]["text"].startswith(
        "Open vSwitch cannot use interface gone-eth1: could not open network device"
    )
    assert seen["two_hosts"]["text"].startswith("namespace 'h1' exists already (1 of 2 names are taken)")
    assert seen["two_hosts"]["type"] == "TopologyError"
    assert seen["bridges"] == ["br1", "taken"]


def _starved_switch() -> dict[str, Any]:
    """A burst while the switch stands still: what its receive sockets cannot hold is lost, and must be counted."""
    fabric = SpineLeaf(spines=0, leaves=1, hosts_per_leaf=2).build().with_links(rate_mbps=8000)
    daemons = ovs_daemons.start_daemons()
    net = FabricNet(fabric, controllers=())
    net.start()
    install_rules(fabric)
    calm = ovs_sockets.datapath_drops(daemons.switch_pid)
    os.kill(daemons.switch_pid, 19)
    try:
        sh(f"timeout 5 iperf -u -c {net.get('h2').IP()} -b 6000M -t 0.5 -l 8900 >/dev/null 2>&1 || true", "h1")
    finally:
        os.kill(daemons.switch_pid, 18)
    sent = net.link_counters()["h1-eth0"].tx_packets
    first = ovs_sockets.datapath_drops(daemons.switch_pid)
    return {"calm": calm, "sent": sent, "drops": first, "again": ovs_sockets.datapath_drops(daemons.switch_pid)}


def test_frames_that_the_switchs_sockets_lose_are_counted() -> None:
    seen = in_sandbox(_starved_switch)
    assert seen["calm"] == 0
    assert seen["sent"] > 1000, "the burst must be larger than the sockets' buffers"
    assert 0 < seen["drops"] < seen["sent"]
    assert seen["again"] == 0
