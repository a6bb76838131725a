"""How many frames this machine's switches forward: measured once, kept, and used by `scale = "auto"`.

Three chains of 1, 3 and 5 switches are built unshaped in a sandbox of their own; one host of each chain in turn sends
more full frames than can be carried, and what the switches forward in a second is counted. The smallest of frames x
switches is the budget: longer chains cost more per hop, since frames are dropped on the way.
"""

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise

from lab.machine import kept
from lab.machine.bringup import lab_up
from lab.planning.scale import Budget
from lab.progress import Progress
from topologies import Fabric, netlink_readings, syscalls
from topologies.addressing import host_ip, leaf_prefixes
from topologies.builder import FabricBuilder

CHAINS = (1, 3, 5)
_CACHE = kept.FOLDER / "budget.json"
_SECONDS = 1.0
# Fast enough that no qdisc holds a frame back.
_UNSHAPED_MBPS = 30_000.0
_UDP_HEADERS = 28


def known(mtu: int) -> Budget | None:
    """The budget that was measured on this machine as it is now, if any."""
    with suppress(TypeError):
        return Budget(**kept.known(_CACHE, mtu))
    return None


def measured(mtu: int, *, again: bool = False, progress: Progress) -> Budget:
    """The known budget, or measure it now (about 6 s) and keep it. Needs root."""
    budget = None if again else known(mtu)
    if budget is None:
        by_hops = kept.measured_in_sandbox(
            lambda: _measure(mtu, progress),
            fabric="chains of 1, 3, 5 switches",
            doing="measuring the switching budget",
            remedy="use --scale RATE[:SIZE]",
        )
        budget = Budget(
            frame_hops_per_s=min(by_hops),
            mtu=mtu,
            measured_at=time.strftime("%Y-%m-%d %H:%M"),
            cpu_count=os.cpu_count() or 1,
        )
        kept.keep(_CACHE, mtu, asdict(budget))
    return budget


def chains(lengths: Sequence[int] = CHAINS) -> Fabric:
    """One chain of switches per length, a host at each end; the chains are not joined."""
    fabric = FabricBuilder("chains", {"lengths": list(lengths)})
    prefixes = leaf_prefixes(len(lengths), 2)
    for c, length in enumerate(lengths):
        switches = [fabric.switch(f"c{c}s{i}", "chain") for i in range(length)]
        ends = [fabric.host(f"c{c}h{i}", host_ip(prefixes[c], i)) for i in range(2)]
        path = [ends[0], *switches, ends[1]]
        for a, b in pairwise(path):
            fabric.link(a, b, "scale-out", rate_mbps=_UNSHAPED_MBPS)
    return fabric.build()


def _measure(mtu: int, progress: Progress) -> list[float]:
    """Frames x switches per second for each chain. Runs inside a sandbox."""
    fabric = chains()
    with lab_up(fabric, policy=None, mtu=mtu, progress=progress) as lab:
        for switch in fabric.switches:
            _join_ports(switch.name)
        rates = []
        for c, length in enumerate(CHAINS):
            progress.step(f"measuring what {length} switch{'es' * (length > 1)} in a row forward")
            rates.append(_forwarded_per_s(fabric, str(lab.net.netns_path(f"c{c}h0")), c, mtu))
    return rates


def _join_ports(switch: str) -> None:
    """A chain's switch passes frames straight through, rewriting nothing: the cheapest rule there is."""
    for here, there in ((1, 2), (2, 1)):
        rule = f"in_port={here},actions=output:{there}"
        # On an emulated CPU it finds itself slow, and says so at length.
        quiet = ["ovs-ofctl", "-vconsole:err", "-O", "OpenFlow13"]
        subprocess.run([*quiet, "add-flow", switch, rule], check=True, timeout=10)


def _forwarded_per_s(fabric: Fabric, netns: str, chain: int, mtu: int) -> float:
    far = fabric.scale_out_port(f"c{chain}h1").ip
    over = threading.Event()
    sender = threading.Thread(target=_blast, args=(netns, str(far), mtu, over))
    ports = [p.intf for s in fabric.switches if s.name.startswith(f"c{chain}s") for p in fabric.ports_of(s.name)]
    sender.start()
    try:
        time.sleep(_SECONDS / 4)
        before, start = _sent(ports), time.monotonic()
        time.sleep(_SECONDS)
        return (_sent(ports) - before) / (time.monotonic() - start)
    finally:
        over.set()
        sender.join()


def _sent(ports: Sequence[str]) -> int:
    counters = netlink_readings.link_counters()
    return sum(counters[p].tx_packets for p in ports)


def _blast(netns: str, far_ip: str, mtu: int, over: threading.Event) -> None:
    import socket

    syscalls.enter_namespace(netns, syscalls.CLONE_NEWNET)
    payload = bytes(mtu - _UDP_HEADERS)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((far_ip, 9))
        while not over.is_set():
            with suppress(OSError):
                for _ in range(64):
                    s.send(payload)
