"""How many frames a second the impairment hop delays on this machine, with a core of its own: measured once and kept.

One cable with the hop in it gets more full frames than it can pass on; those that it does, over the CPU time that it takes.
The CPU's time, because whether frames are also in time depends on what else runs: each row's verdict sees to that.
"""

import socket
import time
from contextlib import closing

from lab.machine import kept
from lab.progress import Progress
from topologies import namespaces, netlink, netlink_requests, wires
from topologies.hop_process import HopProcess
from topologies.netlink_requests import End

_FILE = kept.FOLDER / "hop.json"
_SECONDS = 0.5


def known(mtu: int) -> float | None:
    """Frames a second, if they were measured on this machine as it is now."""
    found = kept.known(_FILE, mtu)
    return float(found) if found is not None else None


def measured(mtu: int, *, again: bool = False, progress: Progress) -> float:
    """The known rate, or measure it now (about 1 s) and keep it. Needs root."""
    rate = None if again else known(mtu)
    if rate is None:
        progress.step("measuring what the impairment hop carries")
        rate = float(
            kept.measured_in_sandbox(
                lambda: _measure(mtu),
                fabric="one cable",
                doing="measuring the impairment hop",
                remedy="leave out the delay",
            )
        )
        kept.keep(_FILE, mtu, rate)
    return rate


def _measure(mtu: int) -> float:
    """Runs inside a sandbox."""
    namespaces.create([wires.NAMESPACE], lambda _: namespaces.write_sysctl("net/ipv6/conf/default/disable_ipv6", "1"))
    namespaces.write_sysctl("net/ipv6/conf/default/disable_ipv6", "1")
    with open(namespaces.path(wires.NAMESPACE)) as netns:
        near = [End(name, None, mtu) for name in ("source", "sink")]
        far = [End(name, None, mtu, netns.fileno()) for name in ("wire0a", "wire0b")]
        netlink.apply([netlink_requests.veth(*ends) for ends in zip(near, far, strict=True)])
    namespaces.each([(wires.NAMESPACE, ["wire0a", "wire0b"])], _open)
    _open(["source", "sink"])
    cable = ("wire0a", "wire0b", wires.HOP_LEAST_DELAY_US, 0.0)
    with closing(HopProcess(wires.NAMESPACE, [cable], mtu, seed=1)) as hop:
        hop.report()
        _send(mtu)
        report = hop.report()
    return report.frames / report.cpu_s


def _open(intfs: list[str]) -> None:
    index = netlink.indexes()
    netlink.apply([netlink_requests.set_link(index[intf], intf, up=True) for intf in intfs])


def _send(mtu: int) -> None:
    frame = bytes(12) + b"\x88\xb5" + bytes(mtu)
    end = time.monotonic() + _SECONDS
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as source:
        source.bind(("source", 0))
        while time.monotonic() < end:
            source.send(frame)
