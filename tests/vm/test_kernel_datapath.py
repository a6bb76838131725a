"""Open vSwitch's kernel datapath: used where it is, and as predictable as the userspace one."""

import os
import re
import signal
import socket
import time
from typing import Any

import pytest

from controller import policy
from controller.dataplane import DataPlane
from controller.flow import TCP, UDP, Flow
from lab.machine.bringup import Lab
from tests.emulation.netns_sandbox import sh
from tests.emulation.waiting import wait_for
from tests.vm.inside import address, in_host, in_lab
from topologies.fabric import Fabric
from topologies.spine_leaf import SpineLeaf

PORTS = range(20000, 20128)
THREE_WAYS = SpineLeaf(spines=3, leaves=2, hosts_per_leaf=1).build()
# Between two leaves, whose uplinks these are.
UPLINKS = [p.intf for p in THREE_WAYS.ports_of("leaf1") if not THREE_WAYS.node(THREE_WAYS.peer(p).node).is_host]


def send(proto: int, to: str) -> None:
    """A flow from each port: one datagram, or one SYN, which RST answers. Each is news to the switch program: on an emulated
    CPU, no faster than it can be asked."""
    for port in PORTS:
        time.sleep(0.02)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM if proto == UDP else socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("", port))
            if proto == UDP:
                sock.sendto(bytes(100), (to, 4791))
            else:
                sock.settimeout(20)
                assert sock.connect_ex((to, 4791))


def shares(lab: Lab, proto: int) -> dict[str, int]:
    """Flows on each of the uplinks, by the frames that leave there."""

    def sent() -> dict[str, int]:
        counters = lab.net.link_counters()
        return {intf: counters[intf].tx_packets for intf in UPLINKS}

    before = sent()
    in_host("h1", lambda: send(proto, address(lab.fabric, "h2")))
    wait_for(
        lambda: sum(sent().values()) - sum(before.values()) >= len(PORTS),
        20,
        lambda: f"{len(PORTS)} frames more than {before}, not {sent()}; lost {lab.net.datapath_drops()}",
    )
    return {intf: n - before[intf] for intf, n in sent().items()}


def spread_and_fail_over(lab: Lab) -> dict[str, Any]:
    seen = {"datapaths": sh("ovs-appctl dpif/show"), "udp": shares(lab, UDP), "tcp": shares(lab, TCP)}
    # Without a controller: what moves, moves in the switch.
    assert lab.controller
    lab.controller.kill()
    sh(f"ip link set {UPLINKS[0]} down")
    wait_for(lambda: "LINK_DOWN" in sh("ovs-ofctl -O OpenFlow13 dump-ports-desc leaf1"), 20, "the port's state")
    # Until then the kernel's cache sends known flows to the dead port.
    sh("ovs-appctl revalidator/wait")
    return {**seen, "without": shares(lab, UDP), "lost": lab.net.datapath_drops()}


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    result: dict[str, Any] = in_lab(THREE_WAYS, spread_and_fail_over, policy="ecmp")
    return result


def computed(proto: int, *dead: str) -> dict[str, int]:
    """By uplink, how many of the flows Open vSwitch's hash puts there when some links are dead."""
    down = frozenset(THREE_WAYS.link_of(intf).index for intf in dead)
    plane = DataPlane(THREE_WAYS, policy("ecmp")(THREE_WAYS, frozenset()), down)
    a, b = address(THREE_WAYS, "h1"), address(THREE_WAYS, "h2")
    ways = [plane.path(Flow(a, b, proto, port, 4791))[1].intf for port in PORTS]
    return {intf: ways.count(intf) for intf in UPLINKS}


def test_bridges_are_on_the_kernel_s_datapath(seen: dict[str, Any]) -> None:
    assert re.search(r"^system@ovs-system: ", seen["datapaths"], re.MULTILINE)
    assert "netdev@" not in seen["datapaths"]


@pytest.mark.parametrize(("name", "proto"), [("udp", UDP), ("tcp", TCP)])
def test_flows_that_differ_in_source_port_take_the_computed_ways(seen: dict[str, Any], name: str, proto: int) -> None:
    assert seen[name] == computed(proto)
    # Binomial, 3.3 sigma: a third of 128 is 43 +- 18.
    assert all(abs(n - len(PORTS) / 3) < 18 for n in seen[name].values())


def test_flows_of_a_dead_uplink_take_others_and_no_other_flow_moves(seen: dict[str, Any]) -> None:
    dead, *alive = before = computed(UDP)
    assert seen["without"] == computed(UDP, dead)
    assert all(seen["without"][intf] >= before[intf] for intf in alive)


def test_nothing_was_lost_on_the_way_to_the_switch_program(seen: dict[str, Any]) -> None:
    assert seen["lost"] == 0


# -- what the kernel could not ask the switch program -------------------------------------------------------------------


def new_flows(to: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for port in range(1024, 3072):
            sock.sendto(bytes(1400), (to, port))


def flood(lab: Lab) -> dict[str, int]:
    """The switch program is stopped, and more new flows come than the kernel holds for it."""
    before = lab.net.datapath_drops()
    os.kill(lab.daemons.switch_pid, signal.SIGSTOP)
    in_host("h1", lambda: new_flows(address(lab.fabric, "h2")))
    os.kill(lab.daemons.switch_pid, signal.SIGCONT)

    def theirs() -> int:
        found = re.search(r"lost:(\d+)", sh("ovs-appctl dpctl/show system@ovs-system"))
        assert found
        return int(found[1])

    # Until no more frames are on their way.
    wait_for(lambda: theirs() == theirs(), 60, "an end of what is lost")
    counted = {"ours": lab.net.datapath_drops(), "theirs": theirs(), "again": lab.net.datapath_drops()}
    return {"before": before, **counted}


def test_frames_that_the_switch_program_could_not_be_asked_about_are_counted() -> None:
    fabric: Fabric = SpineLeaf(spines=1, leaves=2, hosts_per_leaf=1).build().with_links(rate_mbps=1000.0)
    counts = in_lab(fabric, flood)
    assert counts["before"] == counts["again"] == 0
    assert counts["ours"] == counts["theirs"] > 0
