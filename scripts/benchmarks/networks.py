"""A fabric as this project builds it and as Mininet's own classes do, each in a sandbox of its own."""

import time
from functools import partial
from typing import Any

from benchmarks import machine
from lab.machine.bringup import lab_up
from lab.machine.sandbox import OVS_RUN_DIR
from lab.progress import Progress
from topologies import ovs_daemons
from topologies.fabric import Fabric


def ours_s(fabric: Fabric) -> dict[str, float]:
    """Seconds from an empty sandbox: up = with rules confirmed by every switch; built = of which the network itself took."""

    def job() -> dict[str, float]:
        began = time.monotonic()
        with lab_up(fabric, policy="ecmp", mtu=9000, progress=Progress(quiet=True)) as lab:
            return {"up": time.monotonic() - began, "built": sum(lab.net.emulation.seconds.values())}

    return machine.inside(job, fabric.name)


def stock(fabric: Fabric, rate_mbps: float) -> dict[str, Any]:
    """The same fabric of stock Mininet, without a controller: up_s, down_s, and pss and rss in bytes."""
    return machine.inside(lambda: _stock(fabric, rate_mbps), f"stock Mininet, {fabric.name}")


def _stock(fabric: Fabric, rate_mbps: float) -> dict[str, Any]:
    """Runs inside a sandbox."""
    from mininet.link import TCLink
    from mininet.log import setLogLevel
    from mininet.net import Mininet
    from mininet.node import OVSSwitch

    # Its constructor would write sysctls of the whole machine; what they are for, enough open files, is done here.
    Mininet.inited = True
    # Each of its links makes the kernel warn of HTB's quantum.
    setLogLevel("critical")
    ovs_daemons.raise_open_file_limit()
    began = time.monotonic()
    ovs_daemons.start_daemons(OVS_RUN_DIR)
    switch = partial(OVSSwitch, datapath="user", failMode="secure")
    net = Mininet(switch=switch, link=partial(TCLink, bw=rate_mbps), controller=None, autoStaticArp=False)
    numbers = {s.name: f"s{i + 1}" for i, s in enumerate(fabric.switches)}
    for host in fabric.hosts:
        net.addHost(host.name)
    for name in numbers.values():
        net.addSwitch(name)
    for link in fabric.links:
        net.addLink(numbers.get(link.a.node, link.a.node), numbers.get(link.b.node, link.b.node))
    net.start()
    up_s = time.monotonic() - began
    pss, rss = machine.memory_bytes(machine.all_pids())
    began = time.monotonic()
    net.stop()
    return {"up_s": up_s, "down_s": time.monotonic() - began, "pss": pss, "rss": rss}
