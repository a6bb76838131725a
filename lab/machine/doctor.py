"""`doctor`: what this machine can do, what is missing and how to get it. Changes nothing but the kept measurement."""

import importlib
import os
import resource
import shutil
import sys

from lab.machine import budget, hop_budget, probes
from lab.machine.probes import OPTIONAL_TOOLS, QDISCS, REQUIRED_TOOLS, Finding
from lab.progress import Progress
from lab.rows import DATAPATHS
from topologies import ovs_daemons

_MODULES = ("mininet.net", "pyroute2", "numpy", "pandas", "pyarrow", "scapy", "ryu")
# A fabric of 512 hosts holds this many sockets and namespaces open at once.
_OPEN_FILES = 8192


def examine(*, mtu: int, again: bool) -> int:
    """Print the findings; 0 when a run is possible, 2 when something required is missing."""
    findings = [*_python(), *_tools(), *_limits(), *_kernel()]
    runnable = all(f.state != "missing" for f in findings)
    for f in findings:
        print(f"{f.state:<8} {f.what:<34} {f.note}")
    if runnable and os.geteuid() == 0:
        known = budget.measured(mtu, again=again, progress=Progress())
        print(
            f"{'ok':<8} {'switching budget':<34} {known.frame_hops_per_s:,.0f} frames x switches/s at MTU {known.mtu}, "
            f"{known.cpu_count} CPUs, measured {known.measured_at}"
        )
        delayed = hop_budget.measured(mtu, again=again, progress=Progress())
        print(f"{'ok':<8} {'impairment hop':<34} {delayed:,.0f} frames/s at MTU {mtu}: delay without netem, and jitter")
    print("a run is possible" if runnable else "a run is not possible: see the lines that say missing")
    return 0 if runnable else 2


def _python() -> list[Finding]:
    findings = [Finding("ok", "Python", f"{sys.version.split()[0]} at {sys.executable}")]
    for name in _MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            findings.append(Finding("missing", f"module {name}", f"{error}: run `sudo scripts/setup.sh`"))
        else:
            findings.append(Finding("ok", f"module {name}", str(getattr(module, "__version__", ""))))
    return findings


def _tools() -> list[Finding]:
    findings = []
    for tool, package in REQUIRED_TOOLS.items():
        where = shutil.which(tool)
        findings.append(Finding("ok" if where else "missing", tool, where or f"apt-get install {package}"))
    for tool, (package, purpose) in OPTIONAL_TOOLS.items():
        where = shutil.which(tool)
        findings.append(Finding("ok" if where else "absent", tool, where or f"{purpose}; apt-get install {package}"))
    return findings


def _limits() -> list[Finding]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    enough = hard == resource.RLIM_INFINITY or hard >= _OPEN_FILES
    note = f"{hard}" if enough else f"{hard}: 512 hosts need {_OPEN_FILES}; raise it in /etc/security/limits.conf"
    return [Finding("ok" if enough else "absent", "open files (hard limit)", note)]


def _kernel() -> list[Finding]:
    if os.geteuid() != 0:
        return [Finding("absent", "kernel features", "not looked at: run doctor with sudo")]
    allowed = probes.can_make_namespaces()
    lacking = ", ".join(f"CAP_{name}" for name in probes.missing_capabilities())
    findings = [
        Finding("missing" if lacking else "ok", "root's capabilities", f"{lacking} missing" if lacking else ""),
        Finding("ok" if allowed else "missing", "network namespaces", "" if allowed else "this root may not make any"),
    ]
    usable = probes.usable_qdiscs() if allowed else frozenset()
    for name, (_, module, purpose) in QDISCS.items():
        state = "ok" if name in usable else "missing" if "required" in purpose else "absent"
        note = (
            purpose
            if name in usable
            else f"{purpose}; kernel module {module} (package linux-modules-extra or the like)"
        )
        findings.append(Finding(state, f"qdisc {name}", note))
    datapath = DATAPATHS[ovs_daemons.find_datapath()]
    findings.append(Finding("ok", "Open vSwitch", f"{probes.open_vswitch_version()}, {datapath}"))
    return findings
