"""A Fabric becomes namespaces, cables, queues and bridges, in a few batches; and all of it is read back and checked.

Namespaces are made by one thread, links and queues over netlink, bridges in one database transaction. Nothing outside
the namespaces, links and bridges made here is changed.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock

from topologies import (
    host_routes,
    lost_frames,
    namespaces,
    netlink,
    netlink_readings,
    netlink_requests,
    offloads,
    ovs_bridges,
    ovs_daemons,
    ovs_kernel,
    ovs_sockets,
    wires,
)
from topologies.delay_line import Report
from topologies.egress import EgressPrograms
from topologies.errors import EmulationError, TopologyError, unknown
from topologies.fabric import Fabric, Link, Node, Port
from topologies.hop_process import HopProcess
from topologies.impairments import NO_IMPAIRMENTS, EgressCounts, Impairments, impaired_intfs
from topologies.netlink import Request
from topologies.netlink_readings import Counters, LinkReader
from topologies.netlink_requests import End
from topologies.shaping import Finding, Held, at_another_rate, findings, require_mtu, shape, shapes
from topologies.spray_programs import SprayPrograms
from topologies.tcp import DEFAULT_TCP, Tcp
from topologies.tcp_buffers import tcp_buffers
from topologies.tcp_timeout import least_timeout_ms

ADDRESSINGS = ("l3", "l2")
DATAPATHS = ("netdev", "system")
# What a host is told before anything is in it. Slow start after idle would make every step of a collective start cold,
# and saved metrics would make a run depend on the one before.
_HOST_SYSCTLS = {
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv4/tcp_slow_start_after_idle": "0",
    "net/ipv4/tcp_no_metrics_save": "1",
}
# Where frames are marked, hosts ask for ECN; by default they only grant it.
_ASK_FOR_ECN = {"net/ipv4/tcp_ecn": "1"}
_CONGESTION_CONTROL = "net/ipv4/tcp_congestion_control"
_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
# Descriptors that a run needs beside those of its hosts (one namespace and two sockets each).
_SPARE_FILES = 256
_POLL_S = 0.05


def no_progress(text: str) -> None:
    pass


class Emulation:
    """The fabric on this machine.

    mtu: of every interface, in bytes. addressing: 'l3' gives a host one route and one neighbour, its virtual gateway;
    'l2' a neighbour entry for every other host. datapath: of the bridges. controllers: OpenFlow targets.
    tcp: of every host. impairments: of every scale-out link. progress: told what is being done, in a few words. `seconds`
    holds how long each step of the last start took; uses_hop: links are delayed by the impairment hop, not by netem.
    """

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
        run_dir: Path = ovs_daemons.RUN_DIR,
    ) -> None:
        _require("addressing", addressing, ADDRESSINGS)
        _require("datapath", datapath, DATAPATHS)
        _require("congestion control", tcp.congestion_control, _AVAILABLE.read_text().split())
        require_mtu(mtu)
        self.fabric = fabric
        self.mtu = mtu
        self.addressing = addressing
        self.datapath = datapath
        self.controllers = tuple(controllers)
        self.tcp = tcp
        self.impairments = impairments
        self.progress = progress
        self.run_dir = run_dir
        self.shapes = shapes(fabric, mtu, impairments.queue_frames, impairments.hold_us)
        # A queue that was asked for may be far deeper than it ever is full.
        self._least_timeout_ms = least_timeout_ms(shapes(fabric, mtu).values())
        self._delayed = [link for link in fabric.links if link.delay_us]
        self.seconds: dict[str, float] = {}
        self.is_up = False
        self._group = 0x5FAB0000 | os.getpid() & 0xFFFF
        self._made_namespaces = self._made_links = self._made_bridges = False
        self._programs: EgressPrograms | None = None
        self._spray: SprayPrograms | None = None
        self._hop: HopProcess | None = None
        self.uses_hop = False
        self._kernel_lost = 0
        self._reader: LinkReader | None = None
        self._reader_lock = Lock()

    def port(self, intf: str) -> Port:
        """The fabric's port behind an interface name."""
        link = self.fabric.link_of(intf)
        return link.a if link.a.intf == intf else link.b

    def _is_host(self, port: Port) -> bool:
        return self.fabric.node(port.node).is_host

    # -- up -----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Everything up, shaped and checked. Raises EmulationError, with what was made taken back."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        hosts, switches = len(self.fabric.hosts), self.fabric.switches
        require_open_files(3 * hosts + _SPARE_FILES)
        if self._delayed and (self.impairments.jitter_us or not wires.has_netem()):
            wires.require_hop(self.fabric, self.impairments.jitter_us)
            self.uses_hop = True
        if self.impairments.at_egress:
            self._programs = EgressPrograms(impaired_intfs(self.fabric), self.impairments)
        if self.tcp.spread.unit != "flow":
            self._spray = SprayPrograms(self.fabric, self.tcp.spread)
        with self._step("namespaces", f"{hosts} namespaces"):
            self._make_namespaces()
        with self._step("links", f"{len(self.fabric.links)} links"):
            self._make_links()
        with self._step("hosts", f"addresses and queues of {hosts} hosts"):
            number = self._add_bridges(switches)
            # Open vSwitch works on the bridges on another core meanwhile.
            self._configure_hosts()
        with self._step("bridges", f"{len(switches)} switches"):
            self._await_bridges(number, switches)
        with self._step("queues", "queues of the switches"):
            self._shape_switches(switches)
        with self._step("buffers", "buffers"):
            self._enlarge_buffers()
        with self._step("audit", "shaping audit"):
            self._require_shaped(list(self.shapes))
        self.is_up = True

    @contextmanager
    def _step(self, name: str, text: str) -> Iterator[None]:
        self.progress(text)
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    def _make_namespaces(self) -> None:
        namespaces.create(self._namespaces(), self._setup_namespace)
        self._made_namespaces = True

    def _namespaces(self) -> list[str]:
        return [h.name for h in self.fabric.hosts] + ([wires.NAMESPACE] if self._delayed else [])

    def _setup_namespace(self, _: str) -> None:
        marked = self.impairments.ecn_threshold_us is not None
        buffers = tcp_buffers(self.fabric) if self._delayed else {}
        for key, value in (_HOST_SYSCTLS | (_ASK_FOR_ECN if marked else {}) | buffers).items():
            namespaces.write_sysctl(key, value)
        # The kernel allows a namespace only the algorithms that the host allows its unprivileged users. Whatever this
        # says, the host's route names the algorithm, and that decides.
        with suppress(EmulationError):
            namespaces.write_sysctl(_CONGESTION_CONTROL, self.tcp.congestion_control)
        # Loopback is interface 1 of every namespace.
        netlink.apply([netlink_requests.set_link(1, "lo", up=True)])

    def _make_links(self) -> None:
        with ExitStack() as stack:
            fds = {name: stack.enter_context(open(namespaces.path(name))).fileno() for name in self._namespaces()}
            self._made_links = True
            netlink.apply([cable for link in self.fabric.links for cable in self._cables(link, fds)])
        here = [port.intf for port in self._switch_ports()]
        for intf in here:
            namespaces.write_sysctl(f"net/ipv6/conf/{intf}/disable_ipv6", "1")
        index = netlink.indexes()
        netlink.apply([netlink_requests.set_link(index[intf], intf, up=True) for intf in here])

    def _cables(self, link: Link, fds: dict[str, int]) -> Iterator[Request]:
        a, b = (self._end(link, port, fds) for port in link.ports)
        if not link.delay_us:
            yield netlink_requests.veth(a, b)
            return
        for end, name in zip((a, b), wires.names(link), strict=True):
            yield netlink_requests.veth(end, End(name, None, self.mtu, fds[wires.NAMESPACE]))

    def _end(self, link: Link, port: Port, fds: dict[str, int]) -> End:
        group = 0 if port.node in fds else self._group
        return End(port.intf, mac(link, port), self.mtu, fds.get(port.node), group)

    def _switch_ports(self, switches: Sequence[Node] | None = None) -> Iterator[Port]:
        for switch in self.fabric.switches if switches is None else switches:
            yield from self.fabric.ports_of(switch.name)

    def _configure_hosts(self) -> None:
        namespaces.each(((h.name, h.name) for h in self.fabric.hosts), self._configure_host)
        if self._delayed:
            namespaces.each([(wires.NAMESPACE, self._delayed)], self._configure_wires)
        if self.uses_hop:
            cables = wires.cables(self._delayed, self.impairments.jitter_us)
            self._hop = HopProcess(wires.NAMESPACE, cables, self.mtu, self.impairments.seed)

    def _configure_wires(self, links: list[Link]) -> None:
        index = netlink.indexes()
        if self.uses_hop:
            netlink.apply(wires.opening(links, index))
        else:
            netlink.apply([request for link in links for request in wires.requests(link, index)])

    def _configure_host(self, host: str) -> None:
        """The queue comes first: putting one on an interface that is up waits for the kernel's readers."""
        requests: list[Request] = []
        for port in self.fabric.ports_of(host):
            offloads.turn_off(port.intf)
            index = netlink.index_of(port.intf)
            if port.intf in self.shapes:
                requests += netlink_requests.shaping(index, port.intf, self.shapes[port.intf])
            requests.append(netlink_requests.set_link(index, port.intf, up=True))
            if self._programs or self._spray:
                requests.append(netlink_requests.one_segment_at_a_time(index, port.intf))
            if port.ip:
                requests += [netlink_requests.address(index, port.ip, 32), *self._routes(port, index)]
        netlink.apply(requests)
        self._attach_programs(port.intf for port in self.fabric.ports_of(host))

    def _routes(self, port: Port, index: int) -> Iterator[Request]:
        tcp = self.tcp.congestion_control, self._least_timeout_ms
        return host_routes.requests(self.fabric, port, index, self.addressing, *tcp)

    def _attach_programs(self, intfs: Iterable[str]) -> None:
        """To those of the interfaces that have one; all of the calling thread's namespace."""
        for intf in intfs:
            if self._programs and intf in self._programs:
                self._programs.attach(intf, self.shapes[intf])
            if self._spray and intf in self._spray:
                self._spray.attach(intf)

    def _add_bridges(self, switches: Sequence[Node]) -> int:
        bridges = [
            ovs_bridges.Bridge(
                s.name, s.dpid or 0, [(p.intf, p.number) for p in self._switch_ports([s])], self.controllers
            )
            for s in switches
        ]
        number = ovs_bridges.add_bridges(bridges, self.datapath, self.mtu, self.run_dir)
        self._made_bridges = True
        return number

    def _await_bridges(self, number: int, switches: Sequence[Node]) -> None:
        numbers = {port.intf: port.number for port in self._switch_ports(switches)}
        ovs_bridges.wait_configured(number, numbers, self.run_dir)

    def _shape_switches(self, switches: Sequence[Node]) -> None:
        """After the ports are added, because adding a port to a bridge wipes its interface's qdisc."""
        index = netlink.indexes()
        held = netlink_readings.read_shaping([p.intf for p in self._switch_ports(switches) if p.intf in self.shapes])
        bare = [intf for intf, found in held.items() if found.kind != self.shapes[intf].kind]
        netlink.apply([r for intf in bare for r in netlink_requests.shaping(index[intf], intf, self.shapes[intf])])
        self._attach_programs(port.intf for port in self._switch_ports(switches))

    def _enlarge_buffers(self) -> None:
        of_switches = list(self._switch_ports())
        if self.datapath != "netdev" or not of_switches:
            return
        # Out of a port to a host, where an unknown frame ends.
        ports = sorted(of_switches, key=lambda p: not self._is_host(self.fabric.peer(p)))
        pid = ovs_daemons.switch_pid(self.run_dir)
        ovs_sockets.enlarge_socket_buffers(
            pid,
            ports[0].node,
            ports[0].number,
            len(ports),
            sum(self.shapes[p.intf].limit_bytes for p in ports if p.intf in self.shapes),
            self.run_dir,
        )

    def _require_shaped(self, intfs: Sequence[str]) -> None:
        found = [finding for finding in self.audit() if finding.intf in intfs or finding.intf not in self.shapes]
        wrong = len({f.intf for f in found})
        self.progress(f"{len(intfs) - wrong}/{len(intfs)} interfaces shaped")
        if found:
            raise EmulationError(f"{wrong} of {len(intfs)} interfaces are not shaped as asked: {found[0]}")

    # -- measuring and changing -----------------------------------------------------------------------------------------

    def audit(self) -> list[Finding]:
        """Every shaped interface, in every namespace, as tc holds it now, against what was asked; empty = all right."""
        held = self._held()
        found = [f for intf, asked in self.shapes.items() for f in findings(intf, asked, held[intf])]
        if self._hop and not self._hop.is_running:
            found.append(Finding("impairment hop", "process", "running", "ended"))
        elif self._delayed and not self._hop:
            found += namespaces.each([(wires.NAMESPACE, self._delayed)], lambda links: list(wires.findings(links)))[0]
        attached = self._attached()
        for programs in (self._programs, self._spray):
            found += programs.findings(attached) if programs else []
        return found

    def _attached(self) -> frozenset[tuple[str, str]]:
        """(interface, name) of every program that there is."""
        if not (self._programs or self._spray):
            return frozenset()

        def programs(node: str) -> frozenset[tuple[str, str]]:
            return netlink_readings.programs([port.intf for port in self.fabric.ports_of(node)])

        at_hosts = namespaces.each(((h.name, h.name) for h in self.fabric.hosts), programs)
        here = netlink_readings.programs([port.intf for port in self._switch_ports()])
        return here.union(*at_hosts)

    def _held(self) -> dict[str, Held]:
        def shaped(node: str) -> list[str]:
            return [p.intf for p in self.fabric.ports_of(node) if p.intf in self.shapes]

        hosts = [(h.name, shaped(h.name)) for h in self.fabric.hosts]
        held = netlink_readings.read_shaping([intf for s in self.fabric.switches for intf in shaped(s.name)])
        for found in namespaces.each(hosts, netlink_readings.read_shaping):
            held |= found
        return held

    def link_counters(self) -> dict[str, Counters]:
        """Counters of every end of every link, from one dump: a host's end is its switch port seen in the mirror."""
        with self._reader_lock:
            self._reader = self._reader or LinkReader()
            here = self._reader.read()
        counters = {}
        for link in self.fabric.links:
            for port, peer in (link.ports, link.ports[::-1]):
                counters[port.intf] = here[port.intf] if port.intf in here else _mirrored(here[peer.intf])
        return counters

    def host_drops(self) -> dict[str, int]:
        """Frames that the queues of the hosts' interfaces dropped since the start: interface -> frames."""
        return lost_frames.in_host_queues(self.fabric)

    def switch_drops(self) -> dict[str, int]:
        """The same for the switches' ports: what a full queue of the fabric dropped."""
        return lost_frames.in_switch_queues(self.fabric)

    def backlog_drops(self) -> dict[str, int]:
        """Frames that left an interface and did not come to the other end: interface -> frames. No queue lost them."""
        return lost_frames.behind_interfaces(self.fabric, self._delayed)

    def datapath_drops(self) -> int:
        """Frames lost inside Open vSwitch since last asked, or since the start."""
        if self.datapath == "netdev":
            return ovs_sockets.datapath_drops(ovs_daemons.switch_pid(self.run_dir))
        before, self._kernel_lost = self._kernel_lost, ovs_kernel.lost_frames()
        return self._kernel_lost - before

    def egress_counts(self) -> dict[str, EgressCounts]:
        """What the impairments did on every interface that has some, since the start."""
        return self._programs.counts() if self._programs else {}

    def hop_report(self) -> Report | None:
        """How the impairment hop kept its delays since last asked; None where there is none."""
        return self._hop.report() if self._hop else None

    @property
    def hop_pid(self) -> int | None:
        return self._hop.pid if self._hop else None

    def set_up(self, intf: str, up: bool) -> None:
        """Take an interface down or up; up brings back route and neighbours, which the kernel drops with it."""

        def change(port: Port) -> None:
            index = netlink.index_of(intf)
            again = self._routes(port, index) if up and port.ip and self._is_host(port) else ()
            netlink.apply([netlink_requests.set_link(index, intf, up=up), *again])

        port = self.port(intf)
        self._in_namespace(port, change)
        link = self.fabric.link_of(intf)
        if link.delay_us:
            # A cable with a hop in it does not carry the loss of carrier to the other end by itself.
            far = wires.far_name(link, port)
            namespaces.each([(wires.NAMESPACE, far)], lambda name: _set_link(name, up))

    def set_link_rate(self, link: Link, rate_mbps: float) -> None:
        """Another rate for both directions, in place: nothing is dropped and the link is never open."""
        new = shape(rate_mbps, self.mtu, link.delay_us, self.impairments.queue_frames)

        def reshape(port: Port) -> None:
            self.shapes[port.intf] = at_another_rate(self.shapes[port.intf], new)
            netlink.apply(netlink_requests.reshaping(netlink.index_of(port.intf), port.intf, self.shapes[port.intf]))
            self._attach_programs([port.intf])

        for port in link.ports:
            if port.intf in self.shapes:
                self._in_namespace(port, reshape)

    def _in_namespace(self, port: Port, work: Callable[[Port], None]) -> None:
        if self._is_host(port):
            namespaces.each([(port.node, port)], work)
        else:
            work(port)

    def wait_connected(self, timeout_s: float) -> bool:
        """Poll until every switch is connected to every controller; False when the time passes first."""
        deadline = time.monotonic() + timeout_s
        while not ovs_bridges.connected(self.run_dir):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    # -- down -----------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Take back what `start` made, whatever of it there is. A sandbox need not call this: its end does the same."""
        self.is_up = False
        if self._reader:
            self._reader.close()
            self._reader = None
        if self._programs:
            self._programs.close()
            self._programs = None
        if self._spray:
            self._spray.close()
            self._spray = None
        if self._hop:
            self._hop.close()
            self._hop = None
        if self._made_bridges:
            ovs_bridges.delete_bridges([s.name for s in self.fabric.switches], self.run_dir)
        if self._made_links:
            self._delete_links()
        if self._made_namespaces:
            namespaces.remove(self._namespaces())
        self._made_namespaces = self._made_links = self._made_bridges = False

    def _delete_links(self) -> None:
        present = netlink.indexes()
        if any(port.intf in present for port in self._switch_ports()):
            netlink.apply([netlink_requests.delete_group(self._group)])

    def start_switch(self, name: str) -> None:
        """Bring one bridge back after `stop_switch`, its ports shaped."""
        node = self.fabric.node(name)
        self._await_bridges(self._add_bridges([node]), [node])
        self._shape_switches([node])
        self._enlarge_buffers()
        self._require_shaped([port.intf for port in self._switch_ports([node]) if port.intf in self.shapes])

    def stop_switch(self, name: str) -> None:
        """Take one bridge out; its cables stay."""
        ovs_bridges.delete_bridges([name], self.run_dir)


def _set_link(intf: str, up: bool) -> None:
    netlink.apply([netlink_requests.set_link(netlink.index_of(intf), intf, up=up)])


def require_open_files(needed: int) -> None:
    """Lift the soft limit to the hard one; refuse, before anything is made, where that is too low."""
    limit = ovs_daemons.raise_open_file_limit()
    if limit < needed:
        raise TopologyError(
            f"this fabric needs {needed} open files, the limit is {limit}: raise it with `ulimit -Hn {needed}` as root"
        )


def mac(link: Link, port: Port) -> str:
    """A switch's port has one too, distinct from every host's (02:...)."""
    side = int(port == link.b)
    return port.mac or "06:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}".format(*link.index.to_bytes(4, "big"), side)


def _mirrored(far: Counters) -> Counters:
    """The near end of a cable, from its far end: what one sends the other receives."""
    return Counters(far.tx_bytes, far.tx_packets, far.rx_bytes, far.rx_packets, far.tx_dropped, far.rx_dropped)


def _require(what: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise TopologyError(unknown(what, value, known))
