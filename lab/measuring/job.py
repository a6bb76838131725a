"""A program of the user's own on the ranks' hosts: what is started, with which environment, and what is said of its end. Pure.

Without MPI every rank is a process of the program. With it the program is MPI's launcher: it runs once, on rank 0's host, and
starts the ranks through an agent that stands where it would use ssh.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from lab.planning.site import Site
from lab.rows import Level, LinkTotal
from topologies import Fabric
from topologies.units import format_rate

# torchrun's own default.
MASTER_PORT = 29500
TIMED_OUT = 124  # as timeout(1) says it
_SIGNALLED = 128  # as shells say it

# Of what computes, whatever it takes: in a real cluster it takes nothing from the switches. It is what is left of the CPU.
_NICENESS = 10


@dataclass(frozen=True)
class Job:
    """command: the program and its arguments; mpi: the program is an MPI launcher; timeout_s: None = none."""

    command: tuple[str, ...]
    mpi: bool = False
    timeout_s: float | None = None

    @property
    def name(self) -> str:
        return Path(self.command[0]).name


@dataclass(frozen=True)
class Process:
    """label: what its lines of output begin with; '' = nothing."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    label: str


@dataclass(frozen=True)
class Outcome:
    """codes: exit status by process, 128 + n of one that signal n ended, None of one that was ended because another had
    failed or time was up."""

    codes: tuple[int | None, ...]
    seconds: float
    timed_out: bool

    @property
    def status(self) -> int:
        """The worst, that is the highest; 124 when time was up."""
        return TIMED_OUT if self.timed_out else max((code for code in self.codes if code is not None), default=0)


def exit_status(returncode: int) -> int:
    """Of subprocess's returncode."""
    return _SIGNALLED - returncode if returncode < 0 else returncode


# -- what is started ------------------------------------------------------------------------------------------------


def processes(job: Job, site: Site, folder: Path, base: Mapping[str, str]) -> list[Process]:
    """folder: where the files of `mpi_files` are; base: the user's own environment."""
    if job.mpi:
        launcher = {**_polite(base), **mpi_environment(site, folder)}
        return [Process(entering(site.hosts[0], job.command), launcher, "")]
    width = len(str(site.ranks - 1))
    return [
        Process(entering(host, job.command), {**_polite(base), **rank_environment(site, rank)}, f"[{rank:>{width}}] ")
        for rank, host in enumerate(site.hosts)
    ]


def entering(host: str, command: Sequence[str]) -> tuple[str, ...]:
    """The command inside a host: its interfaces, a /sys that shows them (UCX looks there), and a host name of its own, by which
    programs tell who shares memory with whom. Every word replaces the one before, so the process is the program at last."""
    named = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host)
    return ("nice", "-n", str(_NICENESS), "ip", "netns", "exec", host, *named, *command)


def rank_environment(site: Site, rank: int) -> dict[str, str]:
    """What torchrun sets, for one rank a host, and the interface for gloo and for NCCL ('=': this one, not a prefix)."""
    port = site.fabric.scale_out_port(site.hosts[rank])
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(site.ranks),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": str(site.fabric.scale_out_port(site.hosts[0]).ip),
        "MASTER_PORT": str(MASTER_PORT),
        "GLOO_SOCKET_IFNAME": port.intf,
        "NCCL_SOCKET_IFNAME": f"={port.intf}",
    }


def _polite(base: Mapping[str, str]) -> dict[str, str]:
    """All ranks share this machine's cores: as torchrun does, one thread each unless the user says otherwise."""
    return {"OMP_NUM_THREADS": "1", **base}


def mpi_environment(site: Site, folder: Path) -> dict[str, str]:
    """Open MPI 4 and MPICH (Hydra, UCX): hosts, the agent, TCP over the scale-out network and nothing beside it.

    Without the latter the ranks would find each other's memory, since all are on one machine, and no frame would be sent.
    """
    network = str(scale_out_network(site))
    agent = str(folder / "agent")
    return {
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_orte_default_hostfile": str(folder / "hosts.openmpi"),
        "OMPI_MCA_orte_tag_output": "1",
        "OMPI_MCA_oob_tcp_if_include": network,
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,tcp",
        "OMPI_MCA_btl_tcp_if_include": network,
        # Every daemon takes the machine for its own: all would bind their ranks to its first core, and poll there.
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": agent,
        # The first rank's, too, is started by the agent.
        "HYDRA_LAUNCHER_AUTOFORK": "0",
        "HYDRA_HOST_FILE": str(folder / "hosts.hydra"),
        "UCX_TLS": "tcp,self",
    }


def scale_out_network(site: Site) -> IPv4Network:
    """The smallest that holds all ranks' scale-out addresses; scale-up addresses lie outside it."""
    ips = [str(site.fabric.scale_out_port(host).ip) for host in site.hosts]
    network = IPv4Network(ips[0])
    while not all(IPv4Network(ip).subnet_of(network) for ip in ips):
        network = network.supernet()
    return network


def hosts_file(fabric: Fabric) -> str:
    """For /etc/hosts: no resolver is reached from inside, and programs would wait for one."""
    named = (f"{fabric.scale_out_port(host.name).ip} {host.name}" for host in fabric.hosts)
    return "\n".join(["127.0.0.1 localhost", *named, ""])


def mpi_files(site: Site) -> dict[str, str]:
    """Name -> text, for one folder."""
    enter = " ".join(_quoted(word) for word in entering("$host", ["sh", "-c", "$*"]))
    return {
        "hosts.openmpi": "".join(f"{host} slots=1\n" for host in site.hosts),
        "hosts.hydra": "".join(f"{host}:1\n" for host in site.hosts),
        # As ssh(1): options, a host, and words that the shell there puts together and reads again.
        "agent": "\n".join(
            [
                "#!/bin/sh",
                "# AGENT [-option...] HOST COMMAND...: stands in for ssh between hosts of a lab",
                "while case $1 in -*) true ;; *) false ;; esac do shift; done",
                "host=$1",
                "shift",
                # UCX knows an interface by its name alone, which differs from host to host.
                "case $host in",
                *(f"{host}) export UCX_NET_DEVICES={site.fabric.scale_out_port(host).intf} ;;" for host in site.hosts),
                "esac",
                f"exec {enter}",
                "",
            ]
        ),
    }


def _quoted(word: str) -> str:
    """For the agent, where $host and $* are its own and the rest is as it stands."""
    return f'"{word}"' if word in ("$host", "$*") else f"'{word}'"


# -- what is said of its end ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """For the manifest. bytes_sent: by all hosts, headers included; segments: that TCP sent, retransmits among them; wall_s:
    emulated seconds."""

    command: tuple[str, ...]
    mpi: bool
    exit_codes: tuple[int | None, ...]
    status: int
    timed_out: bool
    wall_s: float
    bytes_sent: int
    segments: int
    retransmits: int
    dropped_fabric: int
    dropped_host: int
    verdict: Level
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def summary(result: Result, totals: Sequence[LinkTotal], fabric: Fabric) -> list[str]:
    """A few lines for people."""
    dropped = f"{result.dropped_fabric} frames in the fabric, {result.dropped_host} at hosts"
    again = f"{result.retransmits} of {result.segments}"
    lines = [
        f"# {_ended(result)} after {result.wall_s:.3g} s",
        f"# hosts sent {result.bytes_sent:,} bytes; dropped: {dropped}; segments sent again: {again}",
    ]
    busiest = max(totals, key=lambda total: total.utilisation, default=None)
    if busiest is not None and result.bytes_sent:
        rate = format_rate(fabric.link_of(busiest.intf).rate_mbps)
        lines.append(
            f"# busiest link {busiest.link}: {busiest.bytes_sent:,} bytes, {busiest.utilisation:.0%} of {rate} all the time"
        )
    lines.append(f"# {result.verdict}{': ' if result.reason else ''}{result.reason}")
    return lines


def _ended(result: Result) -> str:
    if result.timed_out:
        return "time was up: all ended"
    if not result.status:
        return f"{len(result.exit_codes)} process{'es' * (len(result.exit_codes) > 1)} ended with 0"
    worst = result.exit_codes.index(result.status)
    who = "the launcher" if result.mpi else f"rank {worst}"
    return f"{who} ended with {result.status}"
