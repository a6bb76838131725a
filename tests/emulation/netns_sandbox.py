"""Runs a function of a test file inside network, PID and mount namespaces of its own, which the kernel takes back.

    result = in_sandbox(function, *arguments)       # function: of a module's top level; arguments and result as JSON

Inside: a fresh /proc, empty /run, loopback up, no daemon. A failure carries what the function wrote.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from topologies import ovs_daemons
from topologies.fabric import Fabric
from topologies.mininet_adapter import FabricNet

ROOT = Path(__file__).resolve().parents[2]
_UNSHARE = ("unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--propagation", "private")
_PREPARE = "mount -t proc proc /proc; mount -t tmpfs tmpfs /run; ip link set lo up"
_INSIDE = "from tests.emulation import netns_sandbox; netns_sandbox.inside()"


def in_sandbox(function: Callable[..., Any], *arguments: Any, timeout_s: float = 60.0) -> Any:
    """What `function(*arguments)` returns when it is called inside a new sandbox."""
    call = json.dumps([function.__module__, function.__name__, arguments])
    process = subprocess.Popen(
        [*_UNSHARE, sys.executable, "-c", _INSIDE, call],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        # unshare's own death takes the sandbox's first process along, and that one all others.
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the sandbox took more than {timeout_s:g} s: {out[-2000:]} {err[-4000:]}") from None
    assert process.returncode == 0, out[-2000:] + err[-6000:]
    return json.loads(out.splitlines()[-1])


def inside() -> None:
    module, name, arguments = json.loads(sys.argv[1])
    sh(_PREPARE)
    print(json.dumps(getattr(importlib.import_module(module), name)(*arguments)))


def sh(command: str, netns: str | None = None) -> str:
    """A shell command's output, in a namespace if named; a failure carries its error text."""
    enter = ["ip", "netns", "exec", netns] if netns else []
    done = subprocess.run([*enter, "bash", "-ec", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[:200]}: {done.stdout[-500:]} {done.stderr[-2000:]}"
    return done.stdout


@contextmanager
def network(fabric: Fabric, **options: Any) -> Iterator[FabricNet]:
    """A started network with rules and without a controller, on the datapath that a run would use; taken back at the end."""
    daemons = ovs_daemons.start_daemons()
    net = FabricNet(fabric, controllers=(), **{"datapath": ovs_daemons.find_datapath(), **options})
    net.start()
    try:
        install_rules(fabric)
        yield net
    finally:
        net.stop()
        daemons.stop()


def install_rules(fabric: Fabric) -> None:
    """Rules for a spine-leaf by ovs-ofctl, without a controller: one path, by destination, through the first spine."""
    for switch in fabric.switches:
        rules = Path("/run/rules")
        rules.write_text("\n".join(_rule(fabric, switch.name, host.name) for host in fabric.hosts))
        sh(f"ovs-ofctl -O OpenFlow13 add-flows {switch.name} {rules}")


def _rule(fabric: Fabric, switch: str, host: str) -> str:
    nic = fabric.scale_out_port(host)
    leaf = fabric.switch_of(host)
    if leaf == switch:
        actions = f"set_field:{nic.mac}->eth_dst,output:{fabric.peer(nic).number}"
    else:
        ports = fabric.ports_of(switch)
        toward = [p for p in ports if fabric.peer(p).node == leaf] or [p for p in ports if _goes_up(fabric, p.intf)]
        actions = f"output:{toward[0].number}"
    return f"ip,nw_dst={nic.ip},actions={actions}"


def _goes_up(fabric: Fabric, intf: str) -> bool:
    link = fabric.link_of(intf)
    return not any(fabric.node(port.node).is_host for port in link.ports)
