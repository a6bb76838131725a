"""What each switch of a spine-leaf fabric is told: every host is reached over the spine of its number, modulo
the spines. The fabric as `run_topo.py describe --json` gives it in, rules out; minimal_ryu_app.py and minimal_os_ken_app.py send
them."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple


class Rule(NamedTuple):
    """IPv4 packets for `ip` leave by `port`; mac: the receiver's, written where the receiver is attached."""

    ip: str
    port: int
    mac: str | None


def read_graph() -> dict[str, Any]:
    """From the file that the environment variable FABRIC names."""
    graph: dict[str, Any] = json.loads(Path(os.environ["FABRIC"]).read_text())["graph"]
    return graph


def rules(graph: dict[str, Any], dpid: int) -> list[Rule]:
    """One for each host. Raises KeyError for a datapath id that is no switch of the fabric."""
    ends = [ends for link in graph["links"] for ends in ((link["a"], link["b"]), (link["b"], link["a"]))]
    hosts = [(own, far["node"]) for own, far in ends if own["ip"]]
    spines = [node["name"] for node in graph["nodes"] if node["role"] == "spine"]
    me = {node["dpid"]: node["name"] for node in graph["nodes"] if node["dpid"]}[dpid]
    port = {far["node"]: own["number"] for own, far in ends if own["node"] == me}
    found = []
    for number, (nic, leaf) in enumerate(hosts):
        # Hosts send to their gateway's MAC, so that the last switch has to write the receiver's.
        mac = nic["mac"] if leaf == me else None
        hop = nic["node"] if leaf == me else leaf if me in spines else spines[number % len(spines)]
        found.append(Rule(nic["ip"], port[hop], mac))
    return found
