"""A real namespace's counters and queues, against what iproute2 says of them."""

import json
import subprocess
from typing import Any

import pytest

from topologies import namespaces
from topologies.builder import FabricBuilder
from topologies.fabric import Fabric
from topologies.link_sampler import DEQUEUED, DROPPED, FILTERED, WAITING, WAITING_BYTES, LinkSampler

pytestmark = pytest.mark.root


def two_switches() -> Fabric:
    fabric = FabricBuilder("pair", {})
    a, b = (fabric.switch(name, "leaf") for name in ("leaf1", "leaf2"))
    fabric.link(a, b, "scale-out", rate_mbps=20)
    return fabric.build()


def sh(command: str) -> str:
    done = subprocess.run(["bash", "-ec", command], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def link() -> None:
    """A cable whose first end has room for four frames and sends one in ten seconds."""
    sh(
        "ip link add leaf1-eth1 type veth peer name leaf2-eth1; ip link set leaf1-eth1 up; ip link set leaf2-eth1 up;"
        "tc qdisc add dev leaf1-eth1 root handle 5: htb default 1;"
        "tc class add dev leaf1-eth1 parent 5: classid 5:1 htb rate 8bit burst 100 cburst 100 quantum 1500;"
        "tc qdisc add dev leaf1-eth1 parent 5:1 handle 50: bfifo limit 400; tc qdisc add dev leaf1-eth1 clsact;"
        "ip addr add 198.18.0.1/24 dev leaf1-eth1; ip neigh add 198.18.0.2 dev leaf1-eth1 lladdr 02:00:00:00:00:02;"
        # A filter that lets everything pass, so that frames are counted there.
        "tc filter add dev leaf1-eth1 egress u32 match u32 0 0 flowid 5:1"
    )


def test_counters_and_queues_are_those_that_iproute2_shows() -> None:
    def inside() -> tuple[Any, ...]:
        link()
        sampler = LinkSampler(two_switches())
        first = sampler.queues()
        sh("ping -c 20 -i 0.01 -s 58 -W 0.1 198.18.0.2 > /dev/null || true")
        counted, queues = sampler.read(), sampler.queues()
        stats = json.loads(sh("ip -s -j link show leaf1-eth1"))[0]["stats64"]["tx"]
        queued = json.loads(sh("tc -s -j qdisc show dev leaf1-eth1"))
        sampler.close()
        return sampler.intfs, first, counted, queues, stats, queued

    intfs, first, counted, queues, stats, queued = namespaces.scratch(inside)
    assert intfs == ("leaf1-eth1", "leaf2-eth1")
    assert first[0, WAITING] == first[0, DROPPED] == first[0, FILTERED] == 0
    assert counted[0].tolist() == [stats["bytes"], stats["packets"]]
    root = next(q for q in queued if q["kind"] == "htb")
    filters = next(q for q in queued if q["kind"] == "clsact")
    assert root["qlen"] > 0 and root["drops"] > 0
    assert queues[0, [WAITING_BYTES, WAITING, DROPPED]].tolist() == [root["backlog"], root["qlen"], root["drops"]]
    assert queues[0, FILTERED] == filters["packets"] >= 20
    assert queues[0, DEQUEUED] == root["packets"] > 0
    # The other end has neither a queue of its own nor filters.
    assert queues[1, FILTERED] == -1


def test_an_interface_that_is_made_anew_goes_on_where_the_old_one_was() -> None:
    def inside() -> tuple[Any, ...]:
        cable = "ip link add leaf1-eth1 type veth peer name leaf2-eth1; ip link set leaf1-eth1 up; ip link set leaf2-eth1 up;"
        neighbour = "ip neigh replace 198.18.0.2 dev leaf1-eth1 lladdr 02:00:00:00:00:02;"
        frames = neighbour + "ping -c 5 -i 0.01 -W 0.1 198.18.0.2 || true"
        address = "ip addr add 198.18.0.1/24 dev leaf1-eth1;"
        sh(cable + address + frames)
        sampler = LinkSampler(two_switches())
        before = sampler.read()
        sh("ip link del leaf1-eth1;" + cable)
        between = sampler.read()
        sh(address + frames)
        after = sampler.read()
        sampler.close()
        return before, between, after

    before, between, after = namespaces.scratch(inside)
    assert before[0, 1] >= 5
    assert (between >= before).all() and after[0, 1] >= before[0, 1] + 5
