"""Fabrics of every kind in real namespaces: every host reaches every other, also around a link that is down."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.emulation.commands import COMMAND

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
