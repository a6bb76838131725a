"""A fabric on this machine, as tc, ip, ethtool, ovs-vsctl and tcpdump see it; our own reading code is not asked."""

import io
import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from mininet.cli import CLI
from mininet.log import lg

from tests.emulation.netns_sandbox import in_sandbox, network, sh
from tests.emulation.waiting import wait_for
from topologies import ovs_daemons
from topologies.fabric import Fabric
from topologies.mininet_adapter import FabricNet
from topologies.spine_leaf import SpineLeaf

RATE_MBPS = 50.0
IDLE_S = 3.0
_OURS = r"\.(leaf|spine|ovs-)|netfilter.*count"


def fabric(rate_mbps: float = RATE_MBPS) -> Fabric:
    return SpineLeaf(spines=2, leaves=2, hosts_per_leaf=2).build().with_links(rate_mbps=rate_mbps)


# -- the network as it comes up ---------------------------------------------------------------------------------------


def _inspect() -> dict[str, Any]:
    before = _settings()
    with network(fabric()) as net:
        seen: dict[str, Any] = {
            "classes": {n: sh(f"tc -d class show dev {n}") for n in _switch_intfs()},
            "queues": {n: sh(f"tc qdisc show dev {n}") for n in _switch_intfs()},
            "host_class": sh("tc -d class show dev h1-eth0", "h1"),
            "host_queue": sh("tc qdisc show dev h1-eth0", "h1"),
            "features": sh("ethtool -k h1-eth0", "h1"),
            "address": sh("ip -d addr show dev h1-eth0", "h1"),
            "sysfs": [
                net.get("h1").cmd("ls /sys/class/net").split(),
                net.get("h1").pexec("ls /sys/class/net")[0].split(),
            ],
            "routes": sh("ip route", "h1"),
            "neighbours": sh("ip neigh", "h1"),
            "loopback": sh("ip -br addr show dev lo", "h1"),
            "sysctls": sh("sysctl -n net.ipv6.conf.all.disable_ipv6 net.ipv4.tcp_slow_start_after_idle", "h1").split(),
            "ipv6": sh("cat /proc/net/if_inet6; ip netns exec h1 cat /proc/net/if_inet6"),
            "bridges": sh("ovs-vsctl -f csv --no-heading --columns name,datapath_type,fail_mode,protocols list bridge"),
            "dpids": sh("ovs-vsctl -f csv --no-heading --columns name,datapath_id list bridge"),
            "ports": sh("ovs-vsctl -f csv --no-heading --columns name,ofport,mtu,error list interface"),
            "buffers": sh("ss --packet -a -m"),
            "drops": sh("ip -s -s link show dev h1-eth0", "h1"),
            "kernel": sh("dmesg | tail -n 200"),
        }
        seen["pingall"] = net.pingAll(timeout="2")
        seen["idle"] = _packets_in_idle_time()
        seen["arp"] = _stray_arp()
        seen["tcp"] = _one_flow(net)
        seen["widest"] = _widest_frame(net)
    seen["changed"] = sorted(before ^ _settings())
    return seen


def _settings() -> set[str]:
    """What Mininet's own start would raise and leave raised, without what belongs to our interfaces."""
    lines = sh("sysctl -a 2>/dev/null || true").splitlines()
    return {
        line
        for line in lines
        if re.match(r"net\.|fs\.file-max|kernel\.p(ty\.max|id_max)", line) and not re.search(_OURS, line)
    }


def _switch_intfs() -> list[str]:
    made = fabric()
    return [port.intf for switch in made.switches for port in made.ports_of(switch.name)]


def _packets_in_idle_time() -> int:
    def packets() -> int:
        return sum(int(line.split()[2]) + int(line.split()[10]) for line in sh("tail -n +3 /proc/net/dev").splitlines())

    before = packets()
    time.sleep(IDLE_S)
    return packets() - before


def _stray_arp() -> dict[str, int]:
    """A broadcast ARP request out of h1; which switch ports sent a frame because of it."""

    def sent() -> dict[str, int]:
        rows = (line.replace(":", " ").split() for line in sh("tail -n +3 /proc/net/dev").splitlines())
        return {row[0]: int(row[10]) for row in rows}

    before = sent()
    request = (
        "ffffffffffff" + "020000000001" + "0806" + "0001080006040001" + "020000000001c6120001" + "000000000000c6120063"
    )
    script = (
        "import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('h1-eth0', 0));"
        f"[s.send(bytes.fromhex('{request}')) for _ in range(3)]"
    )
    sh(f'python3 -c "{script}"', "h1")
    wait_for(
        lambda: "n_packets=0" not in sh("ovs-ofctl -O OpenFlow13 dump-ports leaf1 leaf1-eth1"), 2, "frames at leaf1"
    )
    time.sleep(0.3)
    after = sent()
    return {intf: n - before[intf] for intf, n in after.items() if n != before[intf]}


def _one_flow(net: FabricNet) -> dict[str, Any]:
    """iperf3 from h1 to h4: three switches on the way."""
    server = net.get("h4").popen("iperf3 -s -1")
    wait_for(lambda: sh("ss -Hltn sport = :5201", "h4"), 5, "iperf3's server")
    out, _, _ = net.get("h1").pexec(f"iperf3 -c {net.get('h4').IP()} -t 3 -O 1 -J")
    server.wait(10)
    end = json.loads(out)["end"]
    return {
        "mbps": end["sum_received"]["bits_per_second"] / 1e6,
        "congestion_control": end["sender_tcp_congestion"],
    }


def _widest_frame(net: FabricNet) -> int:
    """The longest frame that tcpdump sees on a leaf's uplink while TCP runs."""
    capture = subprocess.Popen(
        ["tcpdump", "-i", "leaf1-eth3", "-c", "200", "-e", "-n", "tcp"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert capture.stderr
    capture.stderr.readline()
    _one_flow(net)
    lines, _ = capture.communicate(timeout=10)
    return max(int(n) for n in re.findall(r"length (\d+): ", lines))


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    result: dict[str, Any] = in_sandbox(_inspect)
    return result


def test_every_switch_port_is_shaped(seen: dict[str, Any]) -> None:
    for intf in _switch_intfs():
        assert "rate 50Mbit ceil 50Mbit" in seen["classes"][intf], intf
        assert "burst 12500b" in seen["classes"][intf], intf
        assert re.search(r"bfifo 50: parent 5:1 limit 2307584b", seen["queues"][intf]), intf


def test_hosts_are_shaped_too(seen: dict[str, Any]) -> None:
    assert "rate 50Mbit ceil 50Mbit" in seen["host_class"]
    assert "bfifo 50: parent 5:1 limit 2307584b" in seen["host_queue"]


def test_offloads_that_a_userspace_switch_cannot_use_are_off(seen: dict[str, Any]) -> None:
    for feature in (
        "tx-checksumming",
        "tcp-segmentation-offload",
        "generic-segmentation-offload",
        "generic-receive-offload",
    ):
        assert f"{feature}: off" in seen["features"]


def test_a_host_has_one_address_one_route_and_one_neighbour(seen: dict[str, Any]) -> None:
    assert "inet 198.18.0.1/32" in seen["address"]
    assert "mtu 9000" in seen["address"]
    assert "link/ether 02:00:00:00:00:01" in seen["address"]
    assert [line.split(" proto")[0] for line in seen["routes"].splitlines()] == [
        "198.18.0.0/15 via 198.19.255.254 dev h1-eth0"
    ]
    assert seen["neighbours"].strip() == "198.19.255.254 dev h1-eth0 lladdr 02:fa:b0:00:00:fe PERMANENT"
    assert "127.0.0.1/8" in seen["loopback"]


def test_a_host_s_sysfs_shows_its_own_interfaces(seen: dict[str, Any]) -> None:
    """As stock Mininet's does: programs look there."""
    assert seen["sysfs"] == [["h1-eth0", "lo"]] * 2


def test_hosts_are_told_what_measurements_need(seen: dict[str, Any]) -> None:
    assert seen["sysctls"] == ["1", "0"]
    assert seen["tcp"]["congestion_control"] == "cubic"


def test_no_interface_has_an_ipv6_address(seen: dict[str, Any]) -> None:
    assert {line.split()[-1] for line in seen["ipv6"].splitlines()} <= {"lo"}


def test_bridges_speak_openflow_13_and_forward_nothing_by_themselves(seen: dict[str, Any]) -> None:
    rows = {row.split(",")[0]: row.split(",")[1:] for row in seen["bridges"].split()}
    assert set(rows) == {"leaf1", "leaf2", "spine1", "spine2"}
    for row in rows.values():
        assert row == [ovs_daemons.find_datapath(), "secure", "[OpenFlow13]"]


def test_datapath_ids_are_the_fabrics(seen: dict[str, Any]) -> None:
    found = dict(row.split(",") for row in seen["dpids"].replace('"', "").split())
    assert found == {s.name: f"{s.dpid:016x}" for s in fabric().switches}


def test_ports_have_their_numbers_and_mtu(seen: dict[str, Any]) -> None:
    rows = {row.split(",")[0]: row.split(",")[1:] for row in seen["ports"].split()}
    made = fabric()
    for switch in made.switches:
        for port in made.ports_of(switch.name):
            assert rows[port.intf] == [str(port.number), "9000", "[]"]


def test_the_switchs_sockets_have_room(seen: dict[str, Any]) -> None:
    """ss shows twice the asked size, as the kernel books it: 64 MiB to send, 8 MiB to receive, for 12 ports."""
    buffers = re.findall(r"rb(\d+),t\d+,tb(\d+)", seen["buffers"])
    assert len(buffers) == 13
    assert {int(tb) for _, tb in buffers} == {2 * (64 << 20)}
    assert {int(rb) for rb, _ in buffers} == {2 * (8 << 20)}


def test_bringing_up_costs_no_host_a_counted_drop(seen: dict[str, Any]) -> None:
    received, sent = re.findall(r"[RT]X:\s+bytes packets errors dropped.*\n\s+\d+\s+\d+\s+\d+\s+(\d+)", seen["drops"])
    assert (received, sent) == ("0", "0")


def test_the_kernel_has_nothing_to_complain_about(seen: dict[str, Any]) -> None:
    assert "quantum" not in seen["kernel"]


def test_every_host_reaches_every_other(seen: dict[str, Any]) -> None:
    assert seen["pingall"] == 0


def test_an_idle_fabric_is_silent(seen: dict[str, Any]) -> None:
    assert seen["idle"] == 0


def test_a_stray_arp_request_ends_at_the_first_switch(seen: dict[str, Any]) -> None:
    assert seen["arp"] == {}


def test_tcp_gets_the_links_rate_and_not_more(seen: dict[str, Any]) -> None:
    """The ideal is 8948 bytes of payload in 9014 of frame; a busy machine costs some of it."""
    share = seen["tcp"]["mbps"] / RATE_MBPS / (8948 / 9014)
    assert 0.90 < share <= 1.005


def test_no_frame_is_longer_than_a_wire_would_carry(seen: dict[str, Any]) -> None:
    assert 8000 < seen["widest"] <= 9014


def test_no_global_setting_is_changed(seen: dict[str, Any]) -> None:
    assert seen["changed"] == []


# -- changes ------------------------------------------------------------------------------------------------------------


def _change() -> dict[str, Any]:
    with network(fabric()) as net:
        seen: dict[str, Any] = {"clean": _texts(net)}
        sh(
            "tc class change dev spine1-eth2 parent 5: classid 5:1 htb rate 25mbit burst 12500 cburst 12500 quantum 9014"
        )
        sh("tc qdisc del dev h3-eth0 root", "h3")
        seen["spoilt"] = _texts(net)
        sh(
            "tc class change dev spine1-eth2 parent 5: classid 5:1 htb rate 50mbit burst 12500 cburst 12500 quantum 9014"
        )
        net.set_link_rate(net.fabric.link_of("leaf1-eth3"), 2000.0)
        seen["faster"] = sh(
            "tc -d class show dev leaf1-eth3; tc -d class show dev spine1-eth1; tc qdisc show dev leaf1-eth3"
        )
        seen["after"] = _texts(net)
        net.configLinkStatus("h1", "leaf1", "down")
        seen["down"] = sh("ip -br link show dev leaf1-eth1; ip netns exec h1 ip -br link show dev h1-eth0")
        net.configLinkStatus("h1", "leaf1", "up")
        seen["up"] = sh("ip addr show dev h1-eth0; ip route; ip neigh; tc qdisc show dev h1-eth0", "h1")
        seen["lost"] = sh(f"ping -c 3 -i 0.1 -W 1 -q {net.get('h4').IP()}", "h1")
        seen["port_drops"] = _overflow(net)
        seen["behind"] = _too_long(net)
        seen["prompt"] = _prompt(net)
        net.stop()
        seen["left"] = sh("ls /run/netns; ip -br link | grep -- '-eth' || true; ovs-vsctl list-br")
    return seen


def _texts(net: FabricNet) -> list[str]:
    return [str(finding) for finding in net.audit()]


def _overflow(net: FabricNet) -> dict[str, Any]:
    """More UDP out of h2 than its queue holds, from sockets enough that no socket's own buffer stops it first."""
    to = (net.get("h3").IP(), 9)
    script = (
        "import contextlib, socket\n"
        "for s in [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(64)]:\n"
        "    s.setblocking(False)\n"
        "    for _ in range(20):\n"
        f"        with contextlib.suppress(OSError): s.sendto(bytes(8900), {to!r})\n"
    )
    subprocess.run(["ip", "netns", "exec", "h2", "python3", "-c", script], check=True)
    dropped = re.search(r"htb 5: .*\n Sent .*\(dropped (\d+)", sh("tc -s qdisc show dev h2-eth0", "h2"))
    assert dropped
    return {"tc": int(dropped[1]), "ours": net.host_drops()["h2-eth0"]}


def _too_long(net: FabricNet) -> list[int]:
    """Five frames that leave the switch and that h4's interface is too narrow to take; before, none."""
    before = net.backlog_drops()
    sh("ip link set dev h4-eth0 mtu 1500", "h4")
    sh(f"ping -c 5 -i 0.1 -W 0.2 -s 8000 -q {net.get('h4').IP()} || true", "h2")
    sh("ip link set dev h4-eth0 mtu 9000", "h4")
    after = net.backlog_drops()
    egress = net.fabric.peer(net.fabric.scale_out_port("h4"))
    return [sum(before.values()), after[egress.intf], sum(after.values())]


def _prompt(net: FabricNet) -> str:
    """Mininet's own prompt, fed from a file."""
    script = Path("/run/script")
    script.write_text(
        "nodes\nnet\ndump\nlinks\nh1 ping -c 1 h4\nh2 hostname -I\npingall\niperf h1 h4\nswitch leaf1 stop\n"
    )
    with script.open("a") as file:
        file.write(
            "switch leaf1 start\nlink leaf1 spine1 down\nlink leaf1 spine1 up\nswitches\nsh tc class show dev leaf1-eth2\n"
        )
    text = io.StringIO()
    handler, lg.handlers[0].stream = lg.handlers[0].stream, text
    try:
        lg.setLogLevel("output")
        CLI(net, script=str(script))
    finally:
        lg.handlers[0].stream = handler
    return text.getvalue()


@pytest.fixture(scope="module")
def changed() -> dict[str, Any]:
    result: dict[str, Any] = in_sandbox(_change)
    return result


def test_the_audit_finds_a_halved_rate_and_a_deleted_queue(changed: dict[str, Any]) -> None:
    assert changed["clean"] == []
    assert changed["spoilt"] == [
        "h3-eth0: qdisc should be htb at 50 Mbit/s, is noqueue",
        "spine1-eth2: rate should be 50 Mbit/s, is 25 Mbit/s",
    ]


def test_a_links_rate_changes_in_place_at_both_ends(changed: dict[str, Any]) -> None:
    assert changed["faster"].count("rate 2Gbit ceil 2Gbit") == 2
    assert "bfifo 50: parent 5:1 limit 2307584b" in changed["faster"]
    assert [text for text in changed["after"] if not text.startswith("h3-eth0")] == []


def test_a_link_goes_down_at_both_ends(changed: dict[str, Any]) -> None:
    assert changed["down"].count(" DOWN ") == 2


def test_a_hosts_link_comes_back_as_it_was(changed: dict[str, Any]) -> None:
    assert "inet 198.18.0.1/32" in changed["up"]
    assert "mtu 9000" in changed["up"]
    assert "198.18.0.0/15 via 198.19.255.254" in changed["up"]
    assert "lladdr 02:fa:b0:00:00:fe PERMANENT" in changed["up"]
    assert "htb 5: root" in changed["up"]
    assert " 3 received" in changed["lost"]


def test_frames_lost_behind_an_interface_are_counted(changed: dict[str, Any]) -> None:
    assert changed["behind"] == [0, 5, 5]


def test_drops_of_a_hosts_queue_are_counted(changed: dict[str, Any]) -> None:
    assert changed["port_drops"]["tc"] > 0
    assert changed["port_drops"]["ours"] == changed["port_drops"]["tc"]


def test_mininets_prompt_works(changed: dict[str, Any]) -> None:
    text = changed["prompt"]
    assert "h1 h1-eth0:leaf1-eth1" in text
    assert "<FabricHost h1: h1-eth0:198.18.0.1" in text
    assert "leaf1-eth3<->spine1-eth1 (OK OK)" in text
    assert "1 packets transmitted, 1 received" in text
    assert "198.18.0.2" in text
    assert "Results: 0% dropped (12/12 received)" in text
    rates = re.findall(r"Results: \['([\d.]+) Mbits/sec', '([\d.]+) Mbits/sec'\]", text)
    assert rates
    assert 40 < float(rates[0][0]) < 52


def test_stop_takes_everything_back(changed: dict[str, Any]) -> None:
    assert changed["left"] == ""


# -- other ways to run it -----------------------------------------------------------------------------------------------


def _layer_2() -> dict[str, Any]:
    with network(fabric(), addressing="l2", mtu=1500) as net:
        made = net.fabric
        for switch in made.switches:
            sh(f"ovs-ofctl -O OpenFlow13 del-flows {switch.name}")
        sh("ovs-ofctl -O OpenFlow13 add-flow leaf1 dl_dst=02:00:00:00:01:01,actions=output:2")
        sh("ovs-ofctl -O OpenFlow13 add-flow leaf1 dl_dst=02:00:00:00:00:01,actions=output:1")
        sh(f"ovs-ofctl -O OpenFlow13 add-flow leaf1 dl_dst={net.get('h2').MAC()},actions=output:2")
        return {
            "neighbours": sh("ip neigh", "h1"),
            "routes": sh("ip route", "h1"),
            "ping": sh(f"ping -c 2 -i 0.1 -W 1 -q -s 1472 -M do {net.get('h2').IP()}", "h1"),
            "mtu": sh("ip link show dev h1-eth0", "h1"),
        }


def test_layer_2_gives_a_host_all_others_as_neighbours() -> None:
    seen = in_sandbox(_layer_2)
    assert len(seen["neighbours"].splitlines()) == 3
    assert seen["neighbours"].count("PERMANENT") == 3
    assert "198.18.0.0/15 dev h1-eth0" in seen["routes"]
    assert " via " not in seen["routes"]
    assert " 2 received" in seen["ping"]
    assert "mtu 1500" in seen["mtu"]


def _unanswered() -> dict[str, Any]:
    """iperf to a host whose link is down, and to it again when that is up."""
    with network(SpineLeaf(spines=0, leaves=1, hosts_per_leaf=2).build().with_links(rate_mbps=RATE_MBPS)) as net:
        hosts, text = (net.get("h1"), net.get("h2")), io.StringIO()
        handler, lg.handlers[0].stream = lg.handlers[0].stream, text
        lg.setLogLevel("output")
        try:
            net.configLinkStatus("h2", "leaf1", "down")
            begun = time.monotonic()
            rates = net.iperf(hosts, seconds=0.5)
            took_s = time.monotonic() - begun
            net.configLinkStatus("h2", "leaf1", "up")
            again = net.iperf(hosts, seconds=3)
        finally:
            lg.handlers[0].stream = handler
        return {
            "rates": rates,
            "took_s": took_s,
            "again": again,
            "said": text.getvalue(),
            "left": sh("pgrep -c iperf || true"),
        }


def test_iperf_to_a_host_that_does_not_answer_ends_and_says_so() -> None:
    """Mininet's own waits for ever."""
    seen = in_sandbox(_unanswered)
    assert seen["rates"] == ["", ""]
    assert seen["took_s"] < 15
    assert (
        "Error: iperf from h1 to h2 got no answer within 5.5 s: see whether there is a way with `h1 ping h2`"
        in seen["said"]
    )
    assert all(rate.endswith("Mbits/sec") for rate in seen["again"]), seen
    assert seen["left"].strip() == "0"


def _varied() -> dict[str, Any]:
    """TCP over a link whose rate goes 50, 5, 50 Mbit/s; (seconds, bytes that left, rate meanwhile) every tenth of a second."""
    rates, windows = (50.0, 5.0, 50.0), []
    with network(fabric()) as net:
        link = net.fabric.link_of("leaf1-eth3")
        ids = sh("ovs-vsctl get bridge leaf1 datapath_id")
        server = net.get("h4").popen("iperf3 -s -1")
        wait_for(lambda: sh("ss -Hltn sport = :5201", "h4"), 5, "iperf3's server")
        client = net.get("h1").popen(f"iperf3 -c {net.get('h4').IP()} -t 8")

        def left() -> tuple[float, int]:
            return time.monotonic(), net.link_counters()["leaf1-eth3"].tx_bytes

        try:
            wait_for(lambda: left()[1] > 500_000, 5, "the flow")
            for rate in rates:
                net.set_link_rate(link, rate)
                over = time.monotonic() + 1.5
                while time.monotonic() < over:
                    at, n_bytes = left()
                    time.sleep(0.1)
                    then, more = left()
                    windows.append((then - at, more - n_bytes, rate))
        finally:
            client.kill()
            server.kill()
            client.communicate()
            server.communicate()
        kept = ids == sh("ovs-vsctl get bridge leaf1 datapath_id") and not net.audit()
        return {"windows": windows, "kept": kept}


def test_a_rate_changed_under_load_is_never_exceeded() -> None:
    """Neither between two rates nor after: in no tenth of a second does more leave than the rate and one bucket. Afterwards as
    much as before: 2 ms or a frame, and a frame's time of the clock between two readings of it."""
    seen = in_sandbox(_varied)
    assert seen["kept"]
    for seconds, n_bytes, rate in seen["windows"]:
        bucket = max(9064, 2e-3 * rate * 1e6 / 8)
        assert n_bytes <= rate * 1e6 / 8 * (seconds + 0.005) + bucket + 2 * 9014, (seconds, n_bytes, rate)
    by_rate = [sum(n for _, n, r in seen["windows"] if r == rate) for rate in (50.0, 5.0)]
    assert 0 < by_rate[1] < by_rate[0] / 4


def _large() -> dict[str, Any]:
    """512 hosts, 48 switches, 1024 links."""
    made = SpineLeaf(spines=16, leaves=32, hosts_per_leaf=16).build().with_links(rate_mbps=10)
    start = time.monotonic()
    daemons = ovs_daemons.start_daemons()
    net = FabricNet(made, controllers=())
    net.start()
    up_s = time.monotonic() - start
    start = time.monotonic()
    clean = net.audit() == []
    audit_s = time.monotonic() - start
    seen = {
        "up_s": up_s,
        "audit_s": audit_s,
        "clean": clean,
        "shaped": len(
            re.findall(
                "class htb 5:1",
                sh("for i in $(grep -o 'leaf.*-eth[0-9]*' /proc/net/dev); do tc class show dev $i; done"),
            )
        ),
        "namespaces": len(sh("ip netns list").splitlines()),
        "memory_kb": int(re.findall(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[0]),
    }
    start = time.monotonic()
    daemons.stop()
    seen["down_s"] = time.monotonic() - start
    return seen


def test_a_thousand_links_come_up_in_seconds() -> None:
    """The limits are several times what an idle machine needs (4 s, 0.1 s, 0.4 s): they catch a wrong order of growth."""
    seen = in_sandbox(_large, timeout_s=90)
    assert seen["clean"]
    assert seen["namespaces"] == 512
    assert seen["shaped"] == 32 * 32
    assert seen["up_s"] < 20
    assert seen["audit_s"] < 1.5
    assert seen["down_s"] < 5
    assert seen["memory_kb"] < 150_000
