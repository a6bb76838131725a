"""The controller against a real Open vSwitch, in a sandbox. Each test runs one function of this file there."""

import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller import POLICIES, client, fits, policy, rules_of
from controller.dataplane import DataPlane
from controller.demand import Demand, to_plain
from controller.flow import TCP, UDP, Flow
from controller.many_flows import FlowTable, egress_ports, numbers_of, table_of
from tests.emulation.ovs_sandbox import (
    REST,
    build,
    build_without_hosts,
    controller,
    controller_log,
    lost,
    ping,
    ready,
    run,
    sh,
    start_controller,
    start_vswitchd,
    stop_vswitchd,
)
from tests.emulation.waiting import wait_for
from topologies import topology
from topologies.builder import FabricBuilder
from topologies.dragonfly import Dragonfly
from topologies.fabric import Fabric, Port
from topologies.spine_leaf import SpineLeaf

pytestmark = [
    pytest.mark.emulation,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
    pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="needs openvswitch-switch"),
]


# -- what runs inside the sandbox -----------------------------------------------------------------------------------


def two_stage_fabric() -> Fabric:
    """Two pods of one leaf and two aggregation switches, four cores: a choice of two, then another of two.

    Names without digits on purpose: ids come from the fabric, not from names.
    """
    fabric = FabricBuilder("two-stage", {})
    cores = [fabric.switch(f"core{c}", "core") for c in "ABCD"]
    for pod, prefix in (("left", "198.18.0.0/29"), ("right", "198.18.0.8/29")):
        tor = fabric.switch(f"{pod}Tor", "leaf", prefix=prefix)
        for i in range(2):
            base = 1 if pod == "left" else 9
            fabric.link(fabric.host(f"{pod}{'AB'[i]}", f"198.18.0.{base + i}"), tor, "scale-out")
        for half, letter in ((0, "A"), (2, "B")):
            aggregation = fabric.switch(f"{pod}Agg{letter}", "aggregation")
            fabric.link(tor, aggregation, "scale-out")
            for core in cores[half : half + 2]:
                fabric.link(aggregation, core, "scale-out")
    return fabric.build()


def traced_output(egress: Port, ingress: Port, flow: Flow, eth_dst: str) -> tuple[str, str]:
    """The interface by which Open vSwitch says that the switch would send the flow, and the MAC that it would have."""
    kind = {UDP: "udp", TCP: "tcp"}[flow.proto]
    text = (
        f"in_port={ingress.number},{kind},dl_dst={eth_dst},nw_src={flow.src_ip},nw_dst={flow.dst_ip},"
        f"nw_ttl=64,{kind}_src={flow.src_port},{kind}_dst={flow.dst_port}"
    )
    trace = sh(f"ovs-appctl ofproto/trace --names {egress.node} '{text}'")
    (final,) = re.findall(r"^Final flow: (.*)$", trace, re.MULTILINE)
    written = re.search(r"dl_dst=([0-9a-f:]+)", final)
    return trace.splitlines()[-1].rpartition(",")[2], written[1] if written else eth_dst


def trace_random_flows(n: int) -> dict[str, Any]:
    fabric = two_stage_fabric()
    build(fabric)
    rng = random.Random(7)
    with controller(fabric):
        ready()
        plane = DataPlane(fabric, policy("ecmp")(fabric, frozenset()))
        ends = [fabric.scale_out_port(h).ip or "" for h in ("leftA", "leftB", "rightA", "rightB")]
        different, ways = [], set()
        for _ in range(n):
            left, right = rng.choice(ends[:2]), rng.choice(ends[2:])
            pair = (left, right) if rng.random() < 0.5 else (right, left)
            flow = Flow(*pair, rng.choice((UDP, TCP)), rng.randrange(1, 65536), rng.randrange(1, 65536))
            nic, first, second, *_ = plane.path(flow)
            ways.add((first.intf, second.intf))
            for before, egress in ((nic, first), (first, second)):
                traced, _ = traced_output(egress, fabric.peer(before), flow, fabric.gateway_mac)
                if traced != egress.intf:
                    different.append(f"{flow}: trace {traced}, computed {egress.intf}")
        return {"different": different, "ways": len(ways)}


def trace_through_tables(policy_name: str, n: int) -> dict[str, Any]:
    """Flows between groups of a dragonfly, switch by switch, each with the MAC that the one before has given them."""
    fabric = Dragonfly(a=2, p=1, h=2, g=5).build()
    build(fabric)
    rng = random.Random(7)
    with controller(fabric, policy_name):
        ready()
        plane = DataPlane(fabric, rules_of(policy(policy_name), fabric))
        different, n_hops = [], 0
        for _ in range(n):
            a, b = (fabric.scale_out_port(host.name).ip or "" for host in rng.sample(fabric.hosts, 2))
            flow = Flow(a, b, rng.choice((UDP, TCP)), rng.randrange(1, 65536), rng.randrange(1, 65536))
            mac, way = fabric.gateway_mac, plane.path(flow)
            for before, egress in itertools.pairwise(way):
                traced, mac = traced_output(egress, fabric.peer(before), flow, mac)
                n_hops += 1
                if traced != egress.intf:
                    different.append(f"{flow}: trace {traced}, computed {egress.intf}")
        return {"different": different, "hops": n_hops, "installed": client.rules(REST), "policy": client.policy(REST)}


def trace_many_flows(name: str, n: int) -> dict[str, Any]:
    """The predictor's table of next hops against Open vSwitch, hop by hop, for flows with random ends and ports."""
    fabric = topology(name).build()
    build(fabric)
    rng = random.Random(11)
    with controller(fabric):
        ready()
        table = table_of(policy("ecmp"), fabric)
        assert table is not None
        hosts = [fabric.scale_out_port(host.name).ip or "" for host in fabric.hosts]
        pairs = [rng.sample(hosts, 2) for _ in range(n)]
        ports = [(rng.randrange(1, 65536), rng.randrange(1, 65536)) for _ in range(n)]
        src, dst = (numbers_of([pair[end] for pair in pairs]) for end in (0, 1))
        src_port, dst_port = (np.array([pair[end] for pair in ports]) for end in (0, 1))
        start, links = table.paths(FlowTable(src, dst, src_port, dst_port, UDP))
        different, n_hops = [], 0
        for (a, b), (sport, dport), first, end in zip(pairs, ports, start[:-1], start[1:], strict=True):
            flow, way = Flow(a, b, UDP, sport, dport), egress_ports(fabric, links[first:end])
            for before, egress in itertools.pairwise(way):
                traced, _ = traced_output(egress, fabric.peer(before), flow, fabric.gateway_mac)
                n_hops += 1
                if traced != egress.intf:
                    different.append(f"{flow}: trace {traced}, computed {egress.intf}")
        return {"different": different, "hops": n_hops}


def on_one_uplink(fabric: Fabric) -> dict[str, Flow]:
    """By host, two flows that ECMP puts on the first leaf's first uplink."""
    plane, flows = DataPlane(fabric, rules_of(policy("ecmp"), fabric)), dict[str, Flow]()
    for port in range(49152, 49200):
        for a, b in (("h1", "h3"), ("h2", "h4")):
            flow = Flow(fabric.scale_out_port(a).ip or "", fabric.scale_out_port(b).ip or "", UDP, port, 4791)
            if plane.path(flow)[1].intf == "leaf1-eth3":
                flows.setdefault(a, flow)
    return flows


def uplinks_of(fabric: Fabric, flows: dict[str, Flow]) -> list[str]:
    """Where Open vSwitch says that the first leaf sends them."""
    leaf = fabric.ports_of("leaf1")[0]
    ports = [fabric.peer(fabric.scale_out_port(host)) for host in flows]
    return [
        traced_output(leaf, port, flow, fabric.gateway_mac)[0] for port, flow in zip(ports, flows.values(), strict=True)
    ]


def announced_flows() -> dict[str, Any]:
    """Two flows that ECMP puts on one uplink, before they are announced, then announced, then withdrawn."""
    fabric = SpineLeaf(spines=2, leaves=2, hosts_per_leaf=2).build()
    build(fabric)
    flows = on_one_uplink(fabric)
    announcement = [to_plain(Demand(flow, 1000.0)) for flow in flows.values()]

    def uplinks() -> list[str]:
        return uplinks_of(fabric, flows)

    def after(generation: int) -> list[str]:
        wait_for(lambda: client.status(REST)["generation"] == generation, 5, f"generation {generation}")
        return uplinks()

    with controller(fabric, "per-flow"):
        ready()
        before = uplinks()
        told = client.announce(REST, announcement)
        during, listed, seen = after(2), client.flows(REST), client.policy(REST)
        try:
            client.announce(REST, [{"src_ip": "198.18.0.1"}])
            error = ""
        except client.ControllerError as refusal:
            error = str(refusal)
        client.withdraw(REST, announcement[:1])
        left = client.flows(REST)
        client.withdraw(REST)
        result = {
            "before": before,
            "during": during,
            "listed": listed == announcement,
            "left": left == announcement[1:],
        }
        told_later = {"told": told, "decided": seen["decided"], "error": error, "flows": client.flows(REST)}
        wait_for(lambda: uplinks() == before, 5, "the ways of ECMP")
        return {**result, **told_later, "status": client.status(REST)}


def elephants() -> dict[str, Any]:
    """Two flows of 5 Mbit/s each that ECMP puts on one uplink, which the controller takes for one of 8 Mbit/s."""
    fabric = SpineLeaf(spines=2, leaves=2, hosts_per_leaf=2).build().with_links(rate_mbps=8.0)
    build(fabric)
    flows = on_one_uplink(fabric)
    with controller(fabric, "adaptive"):
        ready()
        client.announce(REST, [to_plain(Demand(flow, 8.0)) for flow in flows.values()])
        before = uplinks_of(fabric, flows)
        senders = [subprocess.Popen(["ip", "netns", "exec", h, "python3", "-c", _steady(f)]) for h, f in flows.items()]
        try:
            wait_for(lambda: client.policy(REST)["decided"]["moves"], 10, "a move")
            first = client.policy(REST)["readings"]
            wait_for(lambda: client.policy(REST)["readings"] >= first + 4, 10, "four more readings")
        finally:
            for sender in senders:
                sender.kill()
        after = uplinks_of(fabric, flows)
        return {"before": before, "after": after, "policy": client.policy(REST), "status": client.status(REST)}


def _steady(flow: Flow) -> str:
    """A program that sends 1000 bytes every 1.6 ms."""
    return (
        "import socket, time\n"
        f"s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', {flow.src_port}))\n"
        "at = time.monotonic()\n"
        "while True:\n"
        f"    s.sendto(b'x' * 1000, ('{flow.dst_ip}', {flow.dst_port}))\n"
        "    at += 0.0016; time.sleep(max(0, at - time.monotonic()))\n"
    )


def all_pairs(policy_name: str) -> dict[str, Any]:
    """Ping between all hosts, then what the switches hold."""
    candidates = (SpineLeaf(spines=2, leaves=2, hosts_per_leaf=2).build(), Dragonfly(a=2, p=1, h=1, g=3).build())
    fabric = next(x for x in candidates if fits(policy(policy_name), x))
    build(fabric)
    names = [host.name for host in fabric.hosts]
    with controller(fabric, policy_name):
        status = ready()
        failed = [(a, b) for a in names for b in names if a != b and lost(ping(fabric, a, b))]
        first, *_ = switches = [switch.name for switch in fabric.switches]
        on_switch = sh(f"ovs-ofctl -O OpenFlow13 --no-stats dump-flows {first}")
        groups = sh("; ".join(f"ovs-ofctl -O OpenFlow13 dump-groups {switch}" for switch in switches))
        # A host that knows its peer's own MAC instead of the gateway's.
        peer = fabric.scale_out_port("h4")
        sh(f"ip -n h1 route add {peer.ip}/32 dev h1-eth0; ip -n h1 neigh add {peer.ip} lladdr {peer.mac} dev h1-eth0")
        failed += [("h1", "h4 by its MAC")] * lost(ping(fabric, "h1", "h4"))
        return {"failed": failed, "flows": on_switch, "groups": groups, "before": status, "after": client.status(REST)}


def link_goes_and_comes() -> dict[str, Any]:
    """A steady ping over a link that fails for two seconds; rules on both sides of it, before, during and after."""
    fabric = SpineLeaf(spines=2, leaves=3, hosts_per_leaf=1).build()
    build(fabric)
    link = next(x for x in fabric.links if {x.a.node, x.b.node} == {"leaf1", "spine1"})
    with controller(fabric):
        ready()
        before = client.rules(REST)
        flows = ["h1 h2", "h2 h1", "h3 h1"]
        pings = [
            subprocess.Popen(
                ["ip", "netns", "exec", a, "ping", "-q", "-i", "0.01", "-c", "150", fabric.scale_out_port(b).ip or ""],
                stdout=subprocess.PIPE,
                text=True,
            )
            for a, b in (flow.split() for flow in flows)
        ]
        time.sleep(0.5)
        failed_at = time.time()
        sh(f"ip link set {link.a.intf} down")
        during = wait_for(lambda: (s := client.status(REST))["generation"] == 2 and s, 5, "rules without the link")
        took_s = during["converged_at"] - failed_at
        rules = client.rules(REST)
        down = [x["label"] for x in client.links(REST) if not x["up"]]
        sh(f"ip link set {link.a.intf} up")
        wait_for(lambda: client.status(REST)["generation"] == 3, 5, "rules with the link")
        after = client.rules(REST)
        return {
            "lost": [lost(p.communicate(timeout=20)[0]) for p in pings],
            "took_s": took_s,
            "down": down,
            "leaf2 to leaf1": [f for f in rules["leaf2"]["flows"] if "nw_dst=198.18.0.0/31" in f],
            "restored": before == after,
            "status": client.status(REST),
        }


def bundle_fails_over_alone() -> int:
    """Packets lost when an uplink dies while the controller is away."""
    fabric = SpineLeaf(spines=2, leaves=2, hosts_per_leaf=1).build()
    build(fabric)
    with controller(fabric):
        ready()
    a, b = (fabric.scale_out_port(h).ip or "" for h in ("h1", "h2"))
    used = DataPlane(fabric, policy("ecmp")(fabric, frozenset())).path(Flow(a, b, 1))[1]
    sh(f"ip link set {used.intf} down")
    return lost(ping(fabric, "h1", "h2", "-c 3 -i 0.05 -W 1"))


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def restarts(n: int) -> dict[str, Any]:
    """n times: kill the controller without warning, start it again; a ping runs all the while.

    The new one listens elsewhere and the switches are told so: else they would wait up to 8 s before dialling again,
    since Open vSwitch 3.1 heeds max_backoff only while connected.
    """
    fabric = SpineLeaf(spines=2, leaves=2, hosts_per_leaf=1).build()
    build(fabric)
    process = start_controller(fabric, "ecmp-group")
    ready()
    stream = subprocess.Popen(
        ["ip", "netns", "exec", "h1", "ping", "-q", "-i", "0.02", fabric.scale_out_port("h2").ip or ""],
        stdout=subprocess.PIPE,
        text=True,
    )
    n_files, errors = [], 0
    for i in range(n):
        process.kill()
        process.wait()
        # The width of the groups changes, too, between some of the restarts.
        port = 6654 + i % 2
        process = start_controller(fabric, ("ecmp-group", "ecmp", "single-path")[i % 3], port)
        dial = (f"-- set-controller {switch.name} tcp:127.0.0.1:{port}" for switch in fabric.switches)
        wait_for(lambda: controller_log().count("OpenFlow") == i + 2, 5, controller_log)  # noqa: B023
        sh(f"ovs-vsctl --no-wait {' '.join(dial)}")
        status = ready()
        errors += status["errors"]
        n_files.append(open_files(process.pid))
    stream.send_signal(signal.SIGINT)
    missing = lost(stream.communicate(timeout=5)[0])
    process.terminate()
    groups = sh("ovs-ofctl -O OpenFlow13 dump-groups leaf1")
    return {"lost": missing, "errors": errors, "files": n_files, "log": controller_log(), "groups": groups}


def reconnects(n: int) -> dict[str, Any]:
    """n times every switch drops its connection and dials again; the controller's open files before and after."""
    fabric = SpineLeaf(spines=1, leaves=2, hosts_per_leaf=1).build()
    build_without_hosts(fabric)
    with controller(fabric) as process:
        ready()
        n_files = [open_files(process.pid)]
        for _ in range(n):
            for switch in ("leaf1", "leaf2", "spine1"):
                sh(f"ovs-vsctl del-controller {switch}")
            wait_for(lambda: client.status(REST)["connected"] == 0, 5, "all switches gone")
            for switch in ("leaf1", "leaf2", "spine1"):
                sh(f"ovs-vsctl set-controller {switch} tcp:127.0.0.1:6653")
            ready()
            n_files.append(open_files(process.pid))
        return {"files": n_files, "status": client.status(REST)}


def vswitchd_restart() -> dict[str, Any]:
    """The switch program is killed and started again: it comes back empty and must be filled."""
    fabric = SpineLeaf(spines=2, leaves=2, hosts_per_leaf=1).build()
    build(fabric)
    # A bridge that is none of the fabric's.
    sh("ovs-vsctl add-br other -- set bridge other datapath_type=netdev other-config:datapath-id=00000000000000ff")
    sh("ovs-vsctl set-controller other tcp:127.0.0.1:6653")
    with controller(fabric):
        ready()
        stop_vswitchd()
        wait_for(lambda: client.status(REST)["connected"] == 0, 5, "all switches gone")
        start_vswitchd()
        started = time.monotonic()
        status = ready()
        back_s = time.monotonic() - started
        return {
            "lost": lost(ping(fabric, "h1", "h2", "-c 3 -i 0.05 -W 1")),
            "back_s": back_s,
            "status": status,
            "fail_mode": sh("ovs-vsctl get-fail-mode leaf1").strip(),
            "warnings": controller_log().count("0xff is not a switch"),
        }


def frames_out(interfaces: list[str]) -> dict[str, int]:
    counters = client.ports(REST)["ports"]["leaf1"]
    return {intf: counters[intf]["tx_packets"] for intf in interfaces}


def spread_of_udp(n: int) -> dict[str, int]:
    """Frames out of each uplink when n UDP flows differ in source port only; and what was computed."""
    fabric = SpineLeaf(spines=2, leaves=2, hosts_per_leaf=1).build()
    build(fabric)
    a, b = (fabric.scale_out_port(h).ip or "" for h in ("h1", "h2"))
    uplinks = [p.intf for p in fabric.ports_of("leaf1") if not fabric.node(fabric.peer(p).node).is_host]
    send = (
        "import socket\n"
        f"for port in range(20000, 20000 + {n}):\n"
        "    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', port))\n"
        f"    s.sendto(b'x' * 100, ('{b}', 4791))\n"
    )
    with controller(fabric):
        ready()
        before = frames_out(uplinks)
        subprocess.run(["ip", "netns", "exec", "h1", "python3", "-c", send], check=True)
        wait_for(lambda: sum(frames_out(uplinks).values()) - sum(before.values()) >= n, 5, f"{n} frames on the uplinks")
        counts = {i: after - before[i] for i, after in frames_out(uplinks).items()}
    plane = DataPlane(fabric, policy("ecmp")(fabric, frozenset()))
    computed = [plane.path(Flow(a, b, UDP, port, 4791))[1].intf for port in range(20000, 20000 + n)]
    return {**counts, **{f"computed {i}": computed.count(i) for i in uplinks}}


def refused_rule() -> dict[str, Any]:
    """A user's policy with a rule that types allow and the switch does not: table 255 cannot hold rules."""
    fabric = SpineLeaf(spines=0, leaves=1, hosts_per_leaf=2).build()
    Path("/run/mine.py").write_text(
        "from controller.actions import Output\nfrom controller.match import Match\n"
        "from controller.rules import FlowRule, SwitchRules\n"
        "def POLICY(fabric, down):\n"
        "    return {'leaf1': SwitchRules((FlowRule(Match(in_port=1), (Output(2),), table=255),))}\n"
    )
    build(fabric)
    with controller(fabric, "/run/mine.py:POLICY"):
        try:
            client.wait_ready(REST, 30)
        except client.ControllerError as error:
            return {"text": str(error), "status": client.status(REST)}
        return {"text": "ready", "status": client.status(REST)}


def foreign_switches() -> dict[str, Any]:
    """A fabric that somebody else built: bridges with Open vSwitch's default protocols, a rule of the user's in one."""
    fabric = SpineLeaf(spines=1, leaves=2, hosts_per_leaf=1).build()
    build(fabric)
    sh("; ".join(f"ovs-vsctl clear bridge {s.name} protocols" for s in fabric.switches))
    sh("ovs-ofctl add-flow leaf1 priority=7,arp,actions=drop")
    with controller(fabric):
        ready()
        missing = lost(ping(fabric, "h1", "h2"))
        rest = {path: client._get(REST, path, 5) for path in ("/fabric", "/rules/leaf1")}
        try:
            client._get(REST, "/rules/leaf7", 5)
        except client.ControllerError as error:
            rest["error"] = str(error)
    return {"lost": missing, "flows": sh("ovs-ofctl dump-flows leaf1"), **rest, "wanted": fabric.to_dict()}


def start_and_stop() -> dict[str, float]:
    fabric = SpineLeaf().build()
    begun = time.monotonic()
    process = start_controller(fabric)
    wait_for(lambda: "OpenFlow 6653" in controller_log(), 10, controller_log)
    up_s = time.monotonic() - begun
    second = start_controller(fabric)
    status = second.wait(10)
    process.terminate()
    begun = time.monotonic()
    code = process.wait(5)
    line = [x for x in controller_log().splitlines() if x.startswith("controller:")]
    return {
        "up_s": up_s,
        "stop_s": time.monotonic() - begun,
        "code": code,
        "second": status,
        "line": line,  # type: ignore[dict-item]
        "pid": process.pid,
    }


def large_fabric() -> dict[str, Any]:
    fabric = SpineLeaf(spines=16, leaves=32, hosts_per_leaf=16).build()
    build_without_hosts(fabric)
    with controller(fabric):
        wait_for(lambda: "OpenFlow 6653" in controller_log(), 10, controller_log)
        begun = time.monotonic()
        status = ready(30)
        return {"ready_s": time.monotonic() - begun, "status": status}


# -- the tests ------------------------------------------------------------------------------------------------------


def test_computed_paths_are_those_of_open_vswitch() -> None:
    result = run(trace_random_flows, 200)
    assert result["different"] == []
    # Two pods, two directions each way: every one of the 2 x 2 ways in both directions was met.
    assert result["ways"] == 8


@pytest.mark.parametrize("name", ["spine-leaf:spines=3,leaves=3,hosts_per_leaf=2", "fat-tree:k=4", "dragonfly"])
def test_paths_of_many_flows_at_once_are_those_of_open_vswitch(name: str) -> None:
    result = run(trace_many_flows, name, 60)
    assert result["different"] == []
    assert result["hops"] > 2 * 60


@pytest.mark.parametrize("name", ["valiant", "ugal", "k-shortest"])
def test_computed_paths_through_several_tables_are_those_of_open_vswitch(name: str) -> None:
    result = run(trace_through_tables, name, 60)
    assert result["different"] == []
    # At least the two switches that hosts of different routers are on.
    assert result["hops"] >= 2 * 60
    assert result["policy"]["name"] == name and result["policy"]["reactions"] == 0
    assert (name == "ugal") == ("period_s" in result["policy"]) == (result["policy"]["readings"] > 0)


def test_announced_flows_are_kept_apart_until_they_are_withdrawn() -> None:
    result = run(announced_flows)
    assert result["before"] == ["leaf1-eth3"] * 2 and sorted(result["during"]) == ["leaf1-eth3", "leaf1-eth4"]
    assert result["told"] == result["decided"] and result["told"]["placed"] == 2
    assert result["listed"] and result["left"] and result["flows"] == []
    assert "it needs src_ip, dst_ip, proto" in result["error"]
    assert result["status"]["errors"] == 0


def test_two_elephants_on_one_uplink_separate_with_one_move() -> None:
    result = run(elephants)
    assert result["before"] == ["leaf1-eth3"] * 2 and sorted(result["after"]) == ["leaf1-eth3", "leaf1-eth4"]
    (moved,) = result["policy"]["decided"]["moved"].values()
    assert moved == {"moves": 1, "through": ["leaf1", "spine2"]}
    assert result["policy"]["reactions"] == 1 and result["status"]["errors"] == 0


@pytest.mark.parametrize("name", POLICIES)
def test_every_host_reaches_every_host(name: str) -> None:
    result = run(all_pairs, name)
    assert result["failed"] == []
    assert result["after"]["packet_ins"] == result["after"]["errors"] == 0
    assert result["after"]["connected"] == result["after"]["switches"]
    assert "CONTROLLER" not in result["flows"] and "FLOOD" not in result["flows"] and "NORMAL" not in result["flows"]
    assert (name == "ecmp-group") == ("type=select" in result["groups"])
    assert "weight:0" not in result["groups"]


def test_a_failed_link_is_repaired_on_both_sides() -> None:
    result = run(link_goes_and_comes)
    assert result["down"] == ["leaf1-spine1"]
    assert result["took_s"] < 1.0
    # The far leaf has one uplink left for this prefix: its second, which is port 3.
    assert len(result["leaf2 to leaf1"]) == 1 and result["leaf2 to leaf1"][0].endswith("output:3")
    assert result["restored"]
    # 10 ms apart: detection and repair together may cost some tens of milliseconds on a busy machine.
    assert max(result["lost"]) <= 30
    assert result["status"]["errors"] == 0


def test_a_leaf_leaves_its_dead_uplink_without_the_controller() -> None:
    assert run(bundle_fails_over_alone) == 0


@pytest.mark.slow
def test_twenty_restarts_of_the_controller_lose_nothing() -> None:
    result = run(restarts, 20)
    assert result["lost"] == 0
    assert result["errors"] == 0 and "refused" not in result["log"] and "Traceback" not in result["log"]
    # A status request may be open at the moment of counting.
    assert max(result["files"]) - min(result["files"]) <= 1


def test_reconnecting_switches_leave_no_open_files() -> None:
    result = run(reconnects, 10)
    assert result["files"][-1] <= result["files"][1]
    assert result["status"]["errors"] == 0


def test_a_restarted_switch_program_is_filled_again() -> None:
    result = run(vswitchd_restart)
    assert result["lost"] == 0
    assert result["back_s"] < 5
    assert result["fail_mode"] == "secure"
    assert result["status"]["unknown_datapaths"] == ["00000000000000ff"]
    assert result["warnings"] == 1


def test_udp_flows_that_differ_in_source_port_spread() -> None:
    counts = run(spread_of_udp, 256)
    for intf in ("leaf1-eth2", "leaf1-eth3"):
        assert abs(counts[intf] - 128) <= 24
        assert counts[intf] == counts[f"computed {intf}"]


def test_a_refused_rule_is_named_and_the_fabric_is_not_ready() -> None:
    result = run(refused_rule)
    assert "leaf1 refused: add-flow table=255,priority=1000,in_port=1 actions=output:2: OFPET" in result["text"]
    assert result["status"]["errors"] == 1 and not result["status"]["ready"]


def test_it_runs_on_bridges_that_somebody_else_made_and_leaves_their_rules_alone() -> None:
    result = run(foreign_switches)
    assert result["lost"] == 0
    assert "priority=7,arp actions=drop" in result["flows"]
    assert result["/fabric"] == result["wanted"]
    assert len(result["/rules/leaf1"]["flows"]) == 2
    assert result["error"].endswith("unknown switch 'leaf7': choose from leaf1, leaf2, spine1")


def test_start_and_stop_are_quick_and_a_second_one_is_refused() -> None:
    result = run(start_and_stop)
    assert result["up_s"] < 3 and result["stop_s"] < 1 and result["code"] == 0
    assert result["second"] == 2
    (line,) = result["line"]
    assert "port 6653" in line and f"process {int(result['pid'])}" in line


def test_a_large_fabric_is_ready_within_seconds() -> None:
    result = run(large_fabric)
    assert result["status"]["connected"] == 48
    # 2016 rules; about 1 s on an idle machine.
    assert result["ready_s"] < 10
