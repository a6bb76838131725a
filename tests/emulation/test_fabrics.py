"""Fabrics of every kind in real namespaces: every host reaches every other, also around a link that is down."""

import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from controller import client
from lab.machine.bringup import lab_up
from lab.machine.sandbox import REST_PORT, RUN_DIR
from lab.progress import Progress
from tests.emulation.commands import COMMAND
from tests.emulation.netns_sandbox import in_sandbox, sh
from tests.emulation.waiting import wait_for
from topologies import topology

# topology, policy, hosts, a link between switches with a way around it
FABRICS = [
    ("three-tier", "ecmp-group", 16, ("acc1", "agg1")),
    ("fat-tree", "ecmp", 16, ("edge1", "agg1")),
    ("torus:dims=3x3", "ecmp", 9, ("x1y1", "x1y2")),
    ("superpod:units=2,servers_per_unit=2,gpus_per_server=2,hb_rate_gbps=0.1", "ecmp", 8, ("u1leaf1", "spine1")),
    ("multi-dc:site=spine-leaf(spines=2;leaves=2;hosts_per_leaf=1),delay_us=0", "ecmp", 4, ("s1border", "s1spine1")),
    ("ocs-leaf:hosts_per_leaf=2", "ecmp", 8, ("leaf1", "ocs1")),
    ("ocs-dragonfly:a=2,p=1,h=2,g=3", "ecmp", 6, ("g1r1", "ocs1")),
    ("dragonfly:a=3,p=1,h=1,g=4", "minimal", 12, ("g1r1", "g1r2")),
    ("dragonfly:a=3,p=1,h=1,g=4", "valiant", 12, ("g1r1", "g1r2")),
    ("dragonfly:a=3,p=1,h=1,g=4", "ugal", 12, ("g1r1", "g1r2")),
]


@pytest.mark.parametrize(("topology", "policy", "hosts", "link"), FABRICS, ids=[f"{t}-{p}" for t, p, *_ in FABRICS])
def test_every_host_reaches_every_other(
    topology: str, policy: str, hosts: int, link: tuple[str, str], tmp_path: Path
) -> None:
    options = ("--topology", topology, "--routing", policy, "--scale", "1", "--link-rate", "20Mbit")
    typed = ("pingall", f"link {link[0]} {link[1]} down", "sh sleep 1", "pingall", "exit")
    done = subprocess.run(
        [*COMMAND, "cli", *options],
        cwd=tmp_path, input="\n".join(typed) + "\n", capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pairs = hosts * (hosts - 1)
    results = re.findall(r"(\d+)% dropped \((\d+)/(\d+) received\)", done.stdout + done.stderr)
    assert results == [("0", str(pairs), str(pairs))] * 2, (done.stdout + done.stderr)[-2000:]


# Loops are wider, the more spines there are; a tree has none.
LOOPED = [
    *(f"spine-leaf:spines={spines},leaves=4,hosts_per_leaf=2" for spines in (1, 2, 4, 8)),
    "fat-tree:k=4",
    "dragonfly:a=3,p=1,h=1,g=4",
    "rail-only:servers=2,gpus_per_server=4",
]


def _broadcast(spec: str) -> dict[str, Any]:
    """Frames at each port of the switches: while nobody sends, and after three ARP requests of the first host."""
    RUN_DIR.mkdir()
    fabric = topology(spec).build().with_links(rate_mbps=100)
    host = fabric.scale_out_port(fabric.hosts[0].name)
    request = (
        "ffffffffffff" + "020000000001" + "0806" + "0001080006040001" + "020000000001c6120001" + "000000000000c6120063"
    )
    script = (
        f"import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('{host.intf}', 0));"
        f"[s.send(bytes.fromhex('{request}').ljust(60, b'\\0')) for _ in range(3)]"
    )
    with lab_up(fabric, policy="ecmp", mtu=9000, progress=Progress()) as lab:
        ports = {p.intf for s in fabric.switches for p in fabric.ports_of(s.name)}

        def frames() -> dict[str, tuple[int, int]]:
            return {i: (c.rx_packets, c.tx_packets) for i, c in lab.net.link_counters().items() if i in ports}

        def since(before: dict[str, tuple[int, int]]) -> dict[str, list[int]]:
            now = frames()
            return {i: [now[i][0] - n[0], now[i][1] - n[1]] for i, n in before.items() if now[i] != n}

        before = frames()
        time.sleep(1)
        idle, before = since(before), frames()
        sh(f'python3 -c "{script}"', host.node)
        entry = fabric.peer(host).intf
        wait_for(lambda: since(before).get(entry, [0])[0] == 3, 5, "the requests at their switch")
        time.sleep(0.3)
        rest = f"http://127.0.0.1:{REST_PORT}"
        return {"idle": idle, "entry": entry, "moved": since(before), "packet_ins": client.status(rest)["packet_ins"]}


@pytest.mark.parametrize("spec", LOOPED)
def test_a_broadcast_ends_at_its_first_switch_however_many_loops_there_are(spec: str) -> None:
    seen = in_sandbox(_broadcast, spec)
    assert seen["idle"] == {}
    assert seen["moved"] == {seen["entry"]: [3, 0]}
    assert seen["packet_ins"] == 0
