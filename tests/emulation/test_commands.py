"""What each command does on a real machine: refusals that need root to be seen, a lab at the prompt, other people's doors."""

import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.machine import probes
from tests.emulation.commands import (
    COMMAND,
    ROOT,
    Terminal,
    fabric,
    host_state,
    inside,
    of_lab,
    run_topo,
    sizes,
    started,
    terminal,
)
from tests.emulation.test_run import rows
from tests.emulation.waiting import wait_for

SMALL = (*fabric(), *sizes("64K"))
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def without(*capabilities: str) -> tuple[str, ...]:
    return ("setpriv", "--bounding-set", ",".join(f"-{c}" for c in capabilities))


# -- refusals -----------------------------------------------------------------------------------------------------------


def refused(cwd: Path, *arguments: str, under: tuple[str, ...] = (), **env: str) -> str:
    """The one line of a refusal, within seconds, on a machine that stays as it was."""
    before = host_state()
    done = run_topo(*arguments, cwd=cwd, deadline_s=20, under=under, **env)
    assert done.status == 2, done.err
    assert done.out == ""
    assert done.err.startswith("run_topo.py: ") and done.err.count("\n") == 1, done.err
    assert list(cwd.iterdir()) == []
    assert host_state() == before
    return done.err


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        yield s.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def test_a_controller_that_is_not_there(tmp_path: Path, closed_port: int) -> None:
    line = refused(tmp_path, *SMALL, "--controller", f"tcp:127.0.0.1:{closed_port}")
    assert f"tcp:127.0.0.1:{closed_port}" in line and "start it first" in line


def test_a_published_port_that_is_taken(tmp_path: Path, taken_port: int) -> None:
    assert f"127.0.0.1:{taken_port}" in refused(tmp_path, *SMALL, "--publish", str(taken_port))
    assert f"127.0.0.1:{taken_port}" in refused(tmp_path, "cli", *fabric(), "--publish", str(taken_port))


@pytest.mark.needs("setpriv")
def test_without_root_the_command_to_type_is_named(tmp_path: Path) -> None:
    line = refused(tmp_path, *SMALL, under=NOBODY)
    assert f"`sudo {' '.join([*COMMAND, *SMALL])}`" in line


@pytest.mark.needs("setpriv")
@pytest.mark.parametrize("capability", ["net_admin", "sys_admin", "net_raw"])
def test_a_root_that_may_not(tmp_path: Path, capability: str) -> None:
    assert f"CAP_{capability.upper()} missing" in refused(tmp_path, *SMALL, under=without(capability))


def test_missing_tools_are_listed_at_once(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of /usr/bin everything but two; the daemons are in sbin, which is searched always."""
    path = tmp_path_factory.mktemp("bin")
    for tool in Path("/usr/bin").iterdir():
        if tool.name not in ("ovs-vsctl", "mnexec"):
            (path / tool.name).symlink_to(tool)
    line = refused(tmp_path, *SMALL, PATH=str(path))
    assert all(word in line for word in ("ovs-vsctl", "openvswitch-switch", "mnexec", "package mininet"))


@pytest.mark.needs("prlimit")
def test_too_few_open_files(tmp_path: Path) -> None:
    line = refused(tmp_path, *SMALL, under=("prlimit", "--nofile=200:200"))
    assert "268 open files" in line and "200" in line


def test_a_delay_that_this_kernel_cannot_make(tmp_path: Path) -> None:
    if "netem" in probes.usable_qdiscs():
        pytest.skip("this kernel has netem")
    for command in ((), ("cli",)):
        line = refused(tmp_path, *command, *fabric(), "--delay", "10us")
        assert all(word in line for word in ("netem", "sch_netem", "1000 us"))


def test_results_that_cannot_be_written(tmp_path: Path) -> None:
    assert "/proc" in refused(tmp_path, *SMALL, "--out", "/proc/x")


def test_no_lab_to_enter_or_end(tmp_path: Path) -> None:
    for command in ("shell", "stop"):
        assert "999999999" in refused(tmp_path, command, "999999999") or "no lab is running"


# -- less than everything -----------------------------------------------------------------------------------------------


@pytest.mark.needs("setpriv")
def test_priorities_are_not_needed(tmp_path: Path) -> None:
    """A container's root may not raise them."""
    done = run_topo(*SMALL, "--out", "out", cwd=tmp_path, under=without("sys_nice", "sys_resource"))
    assert done.status in (0, 1), done.err
    (row,) = rows(tmp_path / "out")
    assert row["wrong"] == "0"


def test_doctor_changes_nothing_and_says_what_is_possible(tmp_path: Path) -> None:
    before = host_state()
    done = run_topo("doctor", cwd=tmp_path)
    assert done.status == 0, done.out
    assert "a run is possible" in done.out and "switching budget" in done.out
    assert host_state() == before


def test_doctor_without_root(tmp_path: Path) -> None:
    done = run_topo("doctor", cwd=tmp_path, under=NOBODY)
    assert "sudo" in done.out and done.err == ""


# -- a lab at the prompt --------------------------------------------------------------------------------------------------

UDP_FLOWS = """
import socket
for port in range(20000, 20256):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("", port))
        s.sendto(b"x" * 100, ("{to}", 9))
"""
STRAY_ARP = """
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("{intf}", 0))
head = bytes.fromhex("ffffffffffff" "020000000001" "0806" "0001" "0800" "06" "04" "0001" "020000000001")
s.send(head + socket.inet_aton("{ip}") + bytes(6) + socket.inet_aton("{to}") + bytes(18))
"""


class PromptLab:
    """A 2 x 2 x 2 spine-leaf at the prompt; h1 and h2 on leaf1, h3 and h4 on leaf2."""

    def __init__(self, prompt: Terminal, rest: str) -> None:
        self.prompt = prompt
        self.rest = rest
        self.lab = prompt.lab
        self.ip = {h: self.host(h, f"cat /sys/class/net/{h}-eth0/address; ip -4 -o addr show {h}-eth0") for h in HOSTS}
        self.ip = {h: re.findall(r"inet ([\d.]+)", text)[0] for h, text in self.ip.items()}

    def host(self, host: str, command: str) -> str:
        return inside(self.lab, command, net=host)

    def run(self, command: str) -> str:
        return inside(self.lab, command)

    def python(self, host: str, code: str) -> None:
        self.host(host, f"{sys.executable} - <<'EOF'\n{code}\nEOF")

    def counts(self, what: str = "tx_packets") -> dict[str, int]:
        """By switch port, from the kernel."""
        text = self.run(f"cd /sys/class/net; grep . $(ls -d leaf*-eth* spine*-eth* | sed 's:$:/statistics/{what}:')")
        return {line.split("/")[0]: int(line.rpartition(":")[2]) for line in text.splitlines()}

    def status(self) -> dict[str, object]:
        with urllib.request.urlopen(f"{self.rest}/status", timeout=10) as answer:
            return dict(json.load(answer))

    def spread(self, source: str, to: str) -> dict[str, int]:
        """How 256 UDP flows that differ in their source port alone use the uplinks of the source's leaf."""
        leaf = "leaf1" if source in ("h1", "h2") else "leaf2"
        last = {"h1": "leaf1-eth1", "h2": "leaf1-eth2", "h3": "leaf2-eth1", "h4": "leaf2-eth2"}[to]
        before = self.counts()
        self.python(source, UDP_FLOWS.format(to=self.ip[to]))
        wait_for(lambda: self.counts()[last] - before[last] >= 256, 10, f"256 datagrams at {to}")
        now = self.counts()
        return {port: now[port] - before[port] for port in (f"{leaf}-eth3", f"{leaf}-eth4")}


HOSTS = ("h1", "h2", "h3", "h4")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PromptLab]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    cwd = tmp_path_factory.mktemp("cli")
    with terminal("cli", *fabric(spines=2, hosts_per_leaf=2), "--publish", str(port), cwd=cwd) as prompt:
        prompt.says("mininet> ", 60)
        yield PromptLab(prompt, f"http://127.0.0.1:{port}")
        prompt.press("exit\n")
        assert prompt.ended() == 0
        assert list(cwd.iterdir()) == []


def test_every_host_reaches_every_other(lab: PromptLab) -> None:
    assert "0% dropped (12/12 received)" in lab.prompt.types("pingall", 60)


def test_an_idle_fabric_is_silent(lab: PromptLab) -> None:
    before = lab.counts()
    subprocess.run(["sleep", "4"], check=True)
    now = lab.counts()
    assert {port: n - before[port] for port, n in now.items() if n - before[port] >= 5} == {}


def test_a_stray_arp_request_goes_nowhere(lab: PromptLab) -> None:
    before, arrived = lab.counts(), lab.counts("rx_packets")
    lab.python("h1", STRAY_ARP.format(intf="h1-eth0", ip=lab.ip["h1"], to=lab.ip["h3"]))
    wait_for(lambda: lab.counts("rx_packets")["leaf1-eth1"] > arrived["leaf1-eth1"], 5, "the request at its leaf")
    # A datagram behind it, through the same queues: when that has passed, the request would have, too.
    lab.host("h1", f"ping -c 1 -W 5 {lab.ip['h4']}")
    moved = {port for port, n in lab.counts().items() if n > before[port]}
    assert moved <= {"leaf2-eth2", "leaf1-eth1", *(p for p in before if p[-1] in "34" or p.startswith("spine"))}
    assert sum(n - before[port] for port, n in lab.counts().items()) == 8 - 2


def test_packets_never_go_to_the_controller(lab: PromptLab) -> None:
    before = sum(map(int, re.findall(r"n_packets=(\d+)", lab.run("ovs-ofctl -O OpenFlow13 dump-flows leaf1"))))
    for _ in range(4):
        lab.spread("h1", "h3")
    status = lab.status()
    assert (status["ready"], status["packet_ins"], status["errors"]) == (True, 0, 0)

    def hits() -> int:
        return sum(map(int, re.findall(r"n_packets=(\d+)", lab.run("ovs-ofctl -O OpenFlow13 dump-flows leaf1"))))

    wait_for(lambda: hits() - before >= 1024, 10, "1024 hits of the rules of leaf1")


def test_datapath_ids_are_distinct_and_no_bridge_learns(lab: PromptLab) -> None:
    bridges = lab.run("ovs-vsctl list-br").split()
    assert bridges == ["leaf1", "leaf2", "spine1", "spine2"]
    ids = {lab.run(f"ovs-vsctl get bridge {b} datapath_id").strip() for b in bridges}
    assert len(ids) == 4
    assert {lab.run(f"ovs-vsctl get-fail-mode {b}").strip() for b in bridges} == {"secure"}
    assert "NORMAL" not in "".join(lab.run(f"ovs-ofctl -O OpenFlow13 dump-flows {b}") for b in bridges)


def test_every_end_of_every_link_is_shaped(lab: PromptLab) -> None:
    ends = [(None, port) for port in lab.counts()] + [(h, f"{h}-eth0") for h in HOSTS]
    for host, intf in ends:
        where = (lambda c, h=host: lab.host(h, c)) if host else lab.run
        kinds = {q["kind"] for q in json.loads(where(f"tc -j qdisc show dev {intf}"))}
        assert kinds == {"htb", "bfifo"}, intf
        assert "rate 20Mbit ceil 20Mbit" in where(f"tc class show dev {intf}"), intf


def test_udp_flows_spread_over_both_spines(lab: PromptLab) -> None:
    """By source port alone: what RoCE's entropy is. Binomial: 40 of 128 are five standard deviations."""
    assert all(abs(n - 128) <= 40 for n in lab.spread("h1", "h3").values())
    assert all(abs(n - 128) <= 40 for n in lab.spread("h4", "h2").values())


def test_a_link_that_fails_is_avoided_on_both_sides_and_used_again(lab: PromptLab) -> None:
    lab.prompt.types("link leaf1 spine1 down")
    wait_for(lambda: lab.status()["links_down"] == 1 and lab.status()["ready"], 10, "the rules without the link")
    for source, to in (("h1", "h3"), ("h3", "h1")):
        assert " 0% packet loss" in lab.host(source, f"ping -q -c 20 -i 0.02 -W 2 {lab.ip[to]}")
        assert min(lab.spread(source, to).values()) == 0, f"{source} still uses spine1"
    lab.prompt.types("link leaf1 spine1 up")
    wait_for(lambda: lab.status()["links_down"] == 0 and lab.status()["ready"], 10, "the rules with the link")
    for source, to in (("h1", "h3"), ("h3", "h1")):
        assert min(lab.spread(source, to).values()) > 60
    test_every_end_of_every_link_is_shaped(lab)


def test_ctrl_c_belongs_to_the_prompt(lab: PromptLab) -> None:
    lab.prompt.press("\x03")
    lab.prompt.says("mininet> ")
    lab.prompt.press(f"h1 ping {lab.ip['h3']}\n")
    lab.prompt.says("icmp_seq=2")
    lab.prompt.press("\x03")
    lab.prompt.says("mininet> ")
    assert "0% dropped" in lab.prompt.types("pingall", 60)
    assert lab.status()["ready"] is True


def test_ps_and_shell(lab: PromptLab, tmp_path: Path) -> None:
    listed = run_topo("ps", cwd=tmp_path)
    (line,) = [line for line in listed.out.splitlines() if line.split()[0] == str(lab.lab)]
    assert "spine-leaf:spines=2" in line and " cli" in line
    number = str(lab.lab)
    assert run_topo("shell", number, "--", "ovs-vsctl", "list-br", cwd=tmp_path).out.split()[:2] == ["leaf1", "leaf2"]
    ping = run_topo("shell", number, "ip", "netns", "exec", "h1", "ping", "-c1", "-W5", lab.ip["h4"], cwd=tmp_path)
    assert (ping.status, " 0% packet loss" in ping.out) == (0, True)
    assert run_topo("shell", number, "--", "sh", "-c", "exit 7", cwd=tmp_path).status == 7
    missing = run_topo("shell", number, "nosuchcommand", cwd=tmp_path)
    assert (missing.status, missing.err) == (127, "nosuchcommand: No such file or directory\n")


def test_traffic_outlives_the_controller(lab: PromptLab) -> None:
    """Last of this lab's tests: its controller stays dead."""
    commands = {p: Path(f"/proc/{p}/cmdline").read_bytes().split(b"\0") for p in of_lab(lab.lab)}
    (controller,) = [p for p, words in commands.items() if b"controller" in words and b"--policy" in words]
    os.kill(controller, 9)
    wait_for(lambda: "is_connected" not in lab.run("ovs-vsctl show"), 10, "switches that know it")
    before = lab.counts()
    for source, to in (("h1", "h3"), ("h4", "h2")):
        assert " 0% packet loss" in lab.host(source, f"ping -q -c 20 -i 0.02 -W 2 {lab.ip[to]}")
    assert all(abs(n - 128) <= 40 for n in lab.spread("h1", "h3").values())
    moved = sum(n - before[port] for port, n in lab.counts().items())
    # Two times 20 pings there and back over four links, 256 datagrams over three ports, some ICMP errors: no flood.
    assert moved < 2 * 2 * 20 * 3 + 2 * 256 * 3 + 50


def test_stop_ends_a_lab(tmp_path: Path) -> None:
    with terminal("cli", *fabric(), cwd=tmp_path) as prompt:
        prompt.says("mininet> ", 60)
        number = prompt.lab
        done = run_topo("stop", str(number), cwd=tmp_path)
        assert (done.status, done.out) == (0, f"lab {number} ended\n")
        assert prompt.ended() == 143


# -- a controller of the user's own -----------------------------------------------------------------------------------------


@pytest.fixture
def own_controller(tmp_path_factory: pytest.TempPathFactory, closed_port: int) -> Iterator[int]:
    """Ours, but outside, on the host's loopback, with the fabric that `describe --json` gives."""
    folder = tmp_path_factory.mktemp("controller")
    described = run_topo("describe", *fabric(spines=2), "--json", cwd=folder)
    (folder / "fabric.json").write_text(described.out)
    with (folder / "log").open("wb") as log:
        options = ("--fabric", str(folder / "fabric.json"), "--policy", "ecmp", "--port", str(closed_port))
        process = subprocess.Popen(
            [sys.executable, "-m", "controller", *options],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip

    def listens() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", closed_port)) == 0

    try:
        wait_for(listens, 20, "the controller")
        yield closed_port
    finally:
        process.kill()
        process.wait()


def test_a_controller_of_the_user_s_own(tmp_path: Path, own_controller: int) -> None:
    target = f"tcp:127.0.0.1:{own_controller}"
    done = run_topo(*fabric(spines=2), *sizes("64K"), "--controller", target, "--out", "out", cwd=tmp_path)
    assert done.status in (0, 1), done.err
    (row,) = rows(tmp_path / "out")
    assert (row["wrong"], row["predicted_s"], row["bottleneck"]) == ("0", "", "")
    assert "controller is not ours" in done.out
    # Once more: the same controller, with switches that come back.
    again = run_topo(*fabric(spines=2), *sizes("64K"), "--controller", target, "--json", cwd=tmp_path)
    (row,) = json.loads(again.out)
    assert (row["wrong"], row["predicted_s"]) == (0, None)


@pytest.mark.slow
def test_something_that_listens_but_is_no_controller(tmp_path: Path, taken_port: int) -> None:
    target = f"tcp:127.0.0.1:{taken_port}"
    with started(*fabric(), *sizes("64K"), "--controller", target, "--out", "out", cwd=tmp_path) as command:
        command.says("waiting for the switches' rules")
        done = command.ended(60)
    assert done.status == 3
    assert target in done.err and "Traceback" not in done.err
