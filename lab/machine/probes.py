"""What this machine has: tools, kernel features, rights. Reads only; every probe happens in a namespace that is thrown away."""

import os
import platform
import resource
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from topologies import syscalls

# tool -> Debian and Ubuntu package
REQUIRED_TOOLS = {
    "ovsdb-tool": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "ovs-vswitchd": "openvswitch-switch",
    "ovs-vsctl": "openvswitch-switch",
    "ovs-ofctl": "openvswitch-switch",
    "mnexec": "mininet",
    "ip": "iproute2",
    "tc": "iproute2",
}
OPTIONAL_TOOLS = {
    "ping": ("iputils-ping", "pingall in `cli`"),
    "tcpdump": ("tcpdump", "looking at packets in `shell`"),
    "ethtool": ("ethtool", "looking at offloads in `shell`"),
    "iperf3": ("iperf3", "the goodput comparison of scripts/bench.py"),
    "tshark": ("tshark", "tests that read captures"),
    "tcpreplay": ("tcpreplay", "the sending comparison of scripts/bench.py"),
}
# qdisc -> (arguments that make one, kernel module, what it is for)
QDISCS = {
    "htb": ("htb", "sch_htb", "link rates: required"),
    "bfifo": ("bfifo", "built into sch_fifo", "link queues: required"),
    "netem": ("netem delay 1ms", "sch_netem", "link delay; without it the impairment hop delays, by 1 ms or more"),
    "clsact": ("clsact", "sch_ingress", "eBPF on a link's egress: loss and ECN marks"),
}
# capability -> its bit in <linux/capability.h>
CAPABILITIES = {"NET_ADMIN": 12, "NET_RAW": 13, "SYS_ADMIN": 21}
_SPARE_FILES = 256
# Of a fabric that is built: 8 times the largest that was tried.
MAX_HOSTS, MAX_LINKS = 4096, 8192


@dataclass(frozen=True)
class Finding:
    """One line of `doctor`. state: 'ok', 'missing' (a run is impossible) or 'absent' (one feature less)."""

    state: str
    what: str
    note: str


def complete_path() -> None:
    """A root shell without a login has no sbin on its PATH, where Open vSwitch's daemons are."""
    directories = os.environ.get("PATH", os.defpath).split(":")
    os.environ["PATH"] = ":".join([*directories, *(d for d in ("/usr/sbin", "/sbin") if d not in directories)])


def missing_tools() -> dict[str, str]:
    return {tool: package for tool, package in REQUIRED_TOOLS.items() if shutil.which(tool) is None}


def require_root() -> None:
    if os.geteuid() != 0:
        import sys

        raise LabError(f"needs root: run it as `sudo {shlex.join([sys.executable, *sys.argv])}`")


def require_tools() -> None:
    """Name everything that is missing at once, with the packages that bring it."""
    missing = missing_tools()
    try:
        import mininet.net  # noqa: F401
    except ImportError as error:
        missing[f"Mininet's Python module ({error})"] = "mininet, seen through .venv made by scripts/setup.sh"
    if missing:
        tools = ", ".join(f"{tool} (package {package})" for tool, package in missing.items())
        raise LabError(f"missing {tools}: run `sudo scripts/setup.sh`")


def require_congestion_control(name: str) -> None:
    """Of TCP, in this kernel."""
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    if name not in available:
        raise LabError(
            f"congestion control {name}: this kernel has {', '.join(available)}: use one of them, or `modprobe tcp_{name}` "
            f"where that module exists"
        )


def missing_capabilities() -> list[str]:
    """What root may not do here, as in a container: capabilities(7), of which CapEff in proc(5) is a bit mask."""
    status = Path("/proc/self/status").read_text()
    held = int(status.partition("CapEff:")[2].split()[0], 16)
    return [name for name, bit in CAPABILITIES.items() if not held >> bit & 1]


def require_capabilities() -> None:
    if missing := missing_capabilities():
        names = ", ".join(f"CAP_{name}" for name in missing)
        raise LabError(
            f"this root may not make a network, {names} missing: start the container with "
            f"{' '.join(f'--cap-add {name}' for name in missing)}, or use a virtual machine"
        )
    if not can_make_namespaces():
        raise LabError("this machine allows no new network namespaces: see user.max_net_namespaces in namespaces(7)")


def require_open_files(hosts: int, ports: int) -> None:
    """Of this process, for its hosts' namespaces and sockets; of Open vSwitch, for its ports."""
    needed = max(3 * hosts, 2 * ports) + _SPARE_FILES
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise LabError(
            f"{hosts} hosts need {needed} open files, the hard limit is {limit}: raise it as root with "
            f"`ulimit -n {needed}`, or in /etc/security/limits.conf for good"
        )


def require_memory(needed_bytes: int, what: str) -> None:
    """Refuse what would end in the kernel's killing somebody. `what` is named with its need."""
    available_bytes = available_memory_bytes()
    if needed_bytes > available_bytes:
        raise LabError(
            f"{what} needs {needed_bytes / 2**30:,.1f} GiB of memory, {available_bytes / 2**30:,.1f} GiB are available: "
            f"use a smaller -e, fewer --ranks, or a larger SIZE in --scale RATE:SIZE"
        )


def available_memory_bytes() -> int:
    """proc(5): MemAvailable, in KiB."""
    return int(Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]) * 1024


def require_network_size(hosts: int, links: int) -> None:
    """Larger fabrics can be described and predicted; to build one would take many minutes and gigabytes of kernel memory."""
    if hosts > MAX_HOSTS or links > MAX_LINKS:
        raise LabError(
            f"{hosts} hosts and {links} links are too many to build: at most {MAX_HOSTS} and {MAX_LINKS}; "
            f"`describe` and `predict` take larger ones"
        )


def in_throwaway_namespace(probe: Callable[[], str]) -> str:
    """Run `probe` in a child with a network namespace of its own and return its text; '' when it fails."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            syscalls.unshare(syscalls.CLONE_NEWNET)
            os.write(write, probe().encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


def usable_qdiscs() -> frozenset[str]:
    """The queueing disciplines of QDISCS that this kernel has. Needs root."""

    def probe() -> str:
        usable = []
        for name, (arguments, _, _) in QDISCS.items():
            where = [] if name == "clsact" else ["root"]
            command = ["tc", "qdisc", "replace", "dev", "lo", *where, *arguments.split()]
            if subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0:
                usable.append(name)
        return " ".join(usable)

    return frozenset(in_throwaway_namespace(probe).split())


def can_make_namespaces() -> bool:
    return in_throwaway_namespace(lambda: "yes") == "yes"


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.machine()


def open_vswitch_version() -> str:
    try:
        done = subprocess.run(["ovs-vsctl", "--version"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return "none"
    return done.stdout.splitlines()[0].rpartition(" ")[2]
