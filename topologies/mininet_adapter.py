"""Mininet over a Fabric: its objects, API and prompt, over a network that `topologies.emulation` builds in batches.

    net = FabricNet(fabric)
    net.start()
    net.get("h1").cmd("ping -c1", net.get("h2").IP())

Stock Mininet pays about 32 ms for each shaped link, because it types every command into a shell.
"""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mininet.log import error, output
from mininet.net import Mininet

from topologies import namespaces
from topologies.addressing import FABRIC_NETWORK
from topologies.delay_line import Report
from topologies.emulation import Emulation, no_progress
from topologies.errors import EmulationError
from topologies.fabric import Fabric, Link
from topologies.impairments import NO_IMPAIRMENTS, EgressCounts, Impairments
from topologies.mininet_nodes import FabricHost, FabricSwitch, link_options
from topologies.netlink_readings import Counters
from topologies.ovs_daemons import RUN_DIR
from topologies.shaping import Finding
from topologies.tcp import DEFAULT_TCP, Tcp

_CONNECT_DEADLINE_S = 30.0
_LISTEN_DEADLINE_S = 5.0
# Beyond the time that iperf sends for: a connection that nothing answers would be tried for two minutes.
_ANSWER_DEADLINE_S = 5.0
_POLL_S = 0.05


class WorkingIperf(Mininet):  # type: ignore[misc]
    """Mininet 2.3.0's `iperf` waits for a second line of results that iperf 2.1 no longer prints, and for a host that cannot
    be reached, for ever."""

    def iperf(
        self,
        hosts: Sequence[Any] | None = None,
        l4Type: str = "TCP",
        udpBw: str = "10M",
        fmt: str | None = None,
        seconds: float = 5,
        port: int = 5001,
    ) -> list[str]:
        """Mininet's: [server's rate, client's rate], for UDP with the asked one before; first and last host if unset. As there,
        '' is a rate that was not measured; why is said."""
        client, server = hosts or (self.hosts[0], self.hosts[-1])
        output(f"*** Iperf: testing {l4Type} bandwidth between {client} and {server}\n")
        options = ["-p", str(port), *(["-u"] if l4Type == "UDP" else []), *(["-f", fmt] if fmt else [])]
        bandwidth = ["-b", udpBw] if l4Type == "UDP" else []
        sent, listener = "", server.popen(["iperf", "-s", *options])
        try:
            _wait_listening(server, port)
            sent = _sent(client, server, seconds, [*options, *bandwidth])
        except EmulationError as reason:
            error(f"*** Error: {reason}\n")
        finally:
            listener.terminate()
            received = listener.communicate()[0].decode()
        rates = [self._parseIperf(text) if sent else "" for text in (received, sent)]
        result = [*([udpBw] if l4Type == "UDP" else []), *rates]
        output(f"*** Results: {result}\n")
        return result


def _sent(client: Any, server: Any, seconds: float, options: Sequence[str]) -> str:
    """What iperf's client says in the end."""
    process = client.popen(["iperf", "-c", server.IP(), "-t", str(seconds), *options])
    try:
        out, err = process.communicate(timeout=seconds + _ANSWER_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise EmulationError(
            f"iperf from {client} to {server} got no answer within {seconds + _ANSWER_DEADLINE_S:g} s: "
            f"see whether there is a way with `{client} ping {server}`"
        ) from None
    if process.returncode:
        raise EmulationError(
            f"iperf from {client} to {server}: {err.decode().strip() or f'status {process.returncode}'}"
        )
    return str(out.decode())


def _wait_listening(server: Any, port: int) -> None:
    deadline = time.monotonic() + _LISTEN_DEADLINE_S
    while not server.pexec(["ss", "-Hltun", f"sport = :{port}"])[0]:
        if time.monotonic() > deadline:
            raise EmulationError(f"iperf does not listen on port {port} of {server}")
        time.sleep(_POLL_S)


class FabricNet(WorkingIperf):
    """Mininet's network; the parameters are `Emulation`'s."""

    def __init__(
        self,
        fabric: Fabric,
        *,
        mtu: int = 9000,
        addressing: str = "l3",
        datapath: str = "netdev",
        controllers: Sequence[str] = ("tcp:127.0.0.1:6653",),
        tcp: Tcp = DEFAULT_TCP,
        impairments: Impairments = NO_IMPAIRMENTS,
        progress: Callable[[str], None] = no_progress,
        run_dir: Path = RUN_DIR,
    ) -> None:
        self.emulation = Emulation(
            fabric,
            mtu=mtu,
            addressing=addressing,
            datapath=datapath,
            controllers=controllers,
            tcp=tcp,
            impairments=impairments,
            progress=progress,
            run_dir=run_dir,
        )
        self.fabric = fabric
        with _no_global_setup():
            super().__init__(build=False, controller=None, ipBase=str(FABRIC_NETWORK))
        for host in fabric.hosts:
            self.addHost(host.name, cls=FabricHost, emulation=self.emulation)
        for switch in fabric.switches:
            self.addSwitch(switch.name, cls=FabricSwitch, dpid=f"{switch.dpid:x}", emulation=self.emulation)
        for link in fabric.links:
            self.addLink(link.a.node, link.b.node, **link_options(link))
        self.built = True

    def start(self) -> None:
        """Everything up, shaped and checked. Raises EmulationError, with what was made taken back."""
        self.emulation.start()

    def stop(self) -> None:
        """Take back what `start` made. A sandbox need not call this: its end does the same."""
        for node in self.values():
            node.terminate()
        self.emulation.stop()

    @property
    def seconds(self) -> dict[str, float]:
        """How long each step of the last start took."""
        return self.emulation.seconds

    def netns_path(self, host: str) -> Path:
        """Where a host's namespace can be entered from."""
        return namespaces.path(host)

    def audit(self) -> list[Finding]:
        return self.emulation.audit()

    def link_counters(self) -> dict[str, Counters]:
        return self.emulation.link_counters()

    def host_drops(self) -> dict[str, int]:
        return self.emulation.host_drops()

    def switch_drops(self) -> dict[str, int]:
        return self.emulation.switch_drops()

    def backlog_drops(self) -> dict[str, int]:
        return self.emulation.backlog_drops()

    def datapath_drops(self) -> int:
        return self.emulation.datapath_drops()

    def egress_counts(self) -> dict[str, EgressCounts]:
        return self.emulation.egress_counts()

    @property
    def uses_hop(self) -> bool:
        """Links are delayed by the impairment hop, not by netem."""
        return self.emulation.uses_hop

    def hop_report(self) -> Report | None:
        return self.emulation.hop_report()

    @property
    def hop_pid(self) -> int | None:
        """The impairment hop's process; None where there is none."""
        return self.emulation.hop_pid

    def set_link_rate(self, link: Link, rate_mbps: float) -> None:
        self.emulation.set_link_rate(link, rate_mbps)

    def waitConnected(self, timeout: float | bool | None = None, delay: float = 0.5) -> bool:
        """Mininet's: True once every switch is connected; False after `timeout` seconds (None or a bool: 30)."""
        unset = timeout is None or isinstance(timeout, bool)
        return self.emulation.wait_connected(_CONNECT_DEADLINE_S if unset else float(timeout or 0))


@contextmanager
def _no_global_setup() -> Iterator[None]:
    """Mininet's constructor writes global sysctls, which nobody restores, unless it believes that it has done so."""
    before, Mininet.inited = Mininet.inited, True
    try:
        yield
    finally:
        Mininet.inited = before
