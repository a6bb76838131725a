"""A network, PID and mount namespace with an Open vSwitch of its own, and a fabric in it: for the controller's tests.

`run(function)` executes a module-level function inside such a sandbox and returns what it returns (JSON). When it
ends, however it ends, the kernel takes everything back.
"""

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from controller import client
from tests.emulation.waiting import wait_for
from topologies.fabric import Fabric, Port
from topologies.ovs_daemons import find_datapath

ROOT = Path(__file__).resolve().parents[2]
RUN = "/run/openvswitch"
REST = "http://127.0.0.1:8080"
# Else every interface that comes up sends neighbour solicitations, which counters count.
_NO_IPV6 = "for x in all default; do echo 1 > /proc/sys/net/ipv6/conf/$x/disable_ipv6; done"
_UNSHARE = ["unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--propagation", "private"]


def run(function: Callable[..., Any], *arguments: Any, timeout_s: float = 60.0) -> Any:
    """What `function(*arguments)` returns when called inside a new sandbox; arguments and result pass as JSON."""
    call = json.dumps([function.__module__, function.__name__, arguments])
    code = "import sys; from tests.emulation.ovs_sandbox import _inside; _inside(sys.argv[1])"
    done = subprocess.run(
        [*_UNSHARE, sys.executable, "-c", code, call],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OVS_RUNDIR": RUN, "OVS_DBDIR": RUN, "OVS_LOGDIR": RUN},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return json.loads(done.stdout.splitlines()[-1])


def _inside(call: str) -> None:
    module, name, arguments = json.loads(call)
    sh("mount -t proc proc /proc; mount -t tmpfs tmpfs /run; mkdir -p /run/netns /run/openvswitch; ip link set lo up")
    sh(_NO_IPV6)
    start_ovsdb()
    start_vswitchd()
    print(json.dumps(getattr(importlib.import_module(module), name)(*arguments)))


def sh(command: str) -> str:
    """The command's output; a failure carries its error text."""
    done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[:200]}: {done.stderr[-2000:]}")
    return done.stdout


def start_ovsdb() -> None:
    sh(
        f"ovsdb-tool create {RUN}/conf.db /usr/share/openvswitch/vswitch.ovsschema;"
        f"ovsdb-server {RUN}/conf.db --remote=punix:{RUN}/db.sock --pidfile --detach --no-chdir"
        " -vconsole:off -vfile:off;"
        "ovs-vsctl --no-wait init"
    )


def start_vswitchd() -> None:
    sh(f"ovs-vswitchd --pidfile --detach --no-chdir -vconsole:off -vsyslog:off --log-file={RUN}/vswitchd.log")


def stop_vswitchd() -> None:
    pid = int(Path(RUN, "ovs-vswitchd.pid").read_text())
    os.kill(pid, 9)
    wait_for(
        lambda: not Path(f"/proc/{pid}/stat").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text(),
        5,
        "the end of ovs-vswitchd",
    )


def build(fabric: Fabric) -> None:
    """Hosts, cables and bridges, all pointing to a controller on this sandbox's loopback."""
    hosts = {host.name for host in fabric.hosts}
    sh("; ".join(f"ip netns add {name}" for name in hosts))
    Path("/run/ip.batch").write_text("\n".join(x for link in fabric.links for x in _cable(link.a, link.b, hosts)))
    sh("ip -batch /run/ip.batch")
    for host in hosts:
        _configure_host(fabric, host)
    _vsctl(_bridges(fabric, {}))


def build_without_hosts(fabric: Fabric) -> None:
    """Bridges joined by patch ports: no interface of the kernel's, so that a large fabric comes and goes in seconds."""
    peers = {a.intf: b.intf for link in fabric.links for a, b in (link.ports, link.ports[::-1])}
    hosts = {port.intf for host in fabric.hosts for port in fabric.ports_of(host.name)}
    _vsctl(_bridges(fabric, {a: b for a, b in peers.items() if not hosts & {a, b}}, veth=False))


def _vsctl(words: Iterable[str]) -> None:
    # Not through a shell: one argument of it may have 128 KiB, all of a command's 2 MiB.
    subprocess.run(["ovs-vsctl", *" ".join(words).split()], check=True)


def _cable(a: Port, b: Port, hosts: set[str]) -> Iterator[str]:
    yield f"link add {a.intf} type veth peer name {b.intf}"
    for port in (a, b):
        if port.node in hosts:
            yield f"link set {port.intf} address {port.mac} netns {port.node}"
        else:
            yield f"link set {port.intf} up"


def _configure_host(fabric: Fabric, host: str) -> None:
    nic = fabric.scale_out_port(host)
    lines = (
        f"addr add {nic.ip}/32 dev {nic.intf}",
        f"link set {nic.intf} up",
        f"route add 198.18.0.0/15 via {fabric.gateway_ip} dev {nic.intf} onlink",
        f"neigh add {fabric.gateway_ip} lladdr {fabric.gateway_mac} dev {nic.intf} nud permanent",
    )
    sh(f"ip netns exec {host} sh -c '{_NO_IPV6}; ethtool -K {nic.intf} tx off'")
    sh("; ".join(f"ip -n {host} {line}" for line in lines))


def _bridges(fabric: Fabric, patched: dict[str, str], *, veth: bool = True) -> Iterator[str]:
    """ovs-vsctl's words. A port in `patched` joins the interface that it names there."""
    datapath = find_datapath()
    for switch in fabric.switches:
        yield f"-- add-br {switch.name} -- set bridge {switch.name} datapath_type={datapath} fail_mode=secure"
        yield f"protocols=OpenFlow13 other-config:datapath-id={switch.dpid:016x}"
        yield f"-- set-controller {switch.name} tcp:127.0.0.1:6653 -- set controller {switch.name} max_backoff=1000"
        for port in fabric.ports_of(switch.name):
            if veth or port.intf in patched:
                yield f"-- add-port {switch.name} {port.intf} -- set interface {port.intf}"
                yield f"ofport_request={port.number}"
            if port.intf in patched:
                yield f"type=patch options:peer={patched[port.intf]}"


@contextmanager
def controller(fabric: Fabric, policy: str = "ecmp", *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A running controller process; ended by SIGTERM."""
    process = start_controller(fabric, policy, 6653, *options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(5)


def start_controller(fabric: Fabric, policy: str = "ecmp", port: int = 6653, *options: str) -> subprocess.Popen[bytes]:
    Path("/run/fabric.json").write_text(fabric.to_json())
    with open("/run/controller.log", "ab") as log:
        return subprocess.Popen(
            [
                *f"{sys.executable} -m controller --fabric /run/fabric.json --policy {policy} --port {port}".split(),
                *options,
            ],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )


def controller_log() -> str:
    return Path("/run/controller.log").read_text()


def ready(deadline_s: float = 15.0) -> dict[str, Any]:
    """The controller's status once every switch has its rules."""
    try:
        return client.wait_ready(REST, deadline_s)
    except client.ControllerError as error:
        raise AssertionError(f"{error}\n{controller_log()[-3000:]}") from error


def lost(ping_output: str) -> int:
    """Packets that `ping` sent and did not get back."""
    found = re.search(r"(\d+) packets transmitted, (\d+) received", ping_output)
    assert found, ping_output
    return int(found[1]) - int(found[2])


def ping(fabric: Fabric, a: str, b: str, arguments: str = "-c 1 -W 1") -> str:
    return sh(f"ip netns exec {a} ping -q {arguments} {fabric.scale_out_port(b).ip} || true")
