"""A program of the user's own over the fabric, inside its sandbox: `run_topo.py exec`. What a run does, but for who sends."""

import os
import resource
import time
from collections import Counter
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

from lab import terminal
from lab.machine.bringup import Lab
from lab.machine.sandbox import RUN_DIR
from lab.measuring import processes
from lab.measuring.diagnosis import as_dicts
from lab.measuring.job import Job, Result, hosts_file, mpi_files, summary
from lab.measuring.job import processes as of_job
from lab.measuring.monitor import Monitor
from lab.measuring.observed import Before, frame_s, switch_queue_frames
from lab.measuring.rank_watch import RankWatch
from lab.measuring.run import INVALID, conclude, delays, ending, lab_of, new_record, spread, watched
from lab.measuring.switching import all_the_time
from lab.measuring.verdict import judge
from lab.planning.experiment import NOT_OF_THE_TRAFFIC, SETTINGS
from lab.planning.scale import Scale
from lab.planning.site import Site
from lab.progress import Progress
from lab.reporting import results
from lab.rows import RunRecord
from topologies import namespaces, syscalls
from traffic.transport import TransportCounters

_HOSTS = Path("/etc/hosts")
# Of TCP, by file of /proc/net: RFC 4022's, and Linux's own count of those that its receivers kept for others to come first.
_SEGMENTS = {"snmp": ("OutSegs", "RetransSegs"), "netstat": ("TCPOFOQueue",)}


def execute(site: Site, scale: Scale, job: Job, *, folder: Path | None, progress: Progress) -> int:
    """Returns the worst exit status of the job's processes; where that is 0 but the fabric was not as asked, 1."""
    asked = site.experiment.to_dict()
    settings = {SETTINGS[key].field: asked[SETTINGS[key].field] for key in NOT_OF_THE_TRAFFIC}
    record = new_record(site, scale, settings | site.resolved)
    if folder is None:
        folder = results.new_folder(Path("results"), site.fabric.name, f"exec-{job.name}", datetime.now().astimezone())
    result = None
    with ending() as how:
        with lab_of(site, scale, progress) as lab, watched(lab) as monitor:
            record.machine = {**record.machine, "datapath": lab.datapath, **delays(site, lab), **spread(site, scale)}
            progress.step(f"{site.ranks} ranks of {job.name}")
            progress.done()
            result = _measured(site, scale, job, lab, monitor, record)
        record.complete = True
        how.status = result.status or (INVALID if result.verdict == "invalid" else 0)
    progress.done()
    program = result.to_dict() if result else {"command": job.command, "mpi": job.mpi}
    written = conclude(record, how, partial(results.write_job, folder, record, program))
    if result:
        terminal.warn(*summary(result, record.link_totals, scale.fabric(site.fabric)))
    if written:
        terminal.warn(f"results: {folder}")
    return how.status


def _measured(site: Site, scale: Scale, job: Job, lab: Lab, monitor: Monitor, record: RunRecord) -> Result:
    _furnish(site)
    started = of_job(job, site, RUN_DIR, os.environ)
    before, used_s = Before(lab, site, monitor, lambda: _of_tcp(site)), _children_s()
    began = time.monotonic()
    watch = RankWatch(site.hosts)
    try:
        with all_the_time(site, scale):
            outcome = processes.run(
                started, timeout_s=job.timeout_s, lifeline=lab.daemons.lifeline.fileno(), started=watch.watch
            )
    finally:
        ranks = watch.close()
    busy = (began, time.monotonic())
    used_s = _children_s() - used_s
    seen = before.after()
    window, lost = seen.window, seen.losses
    seen.keep(record, outcome.seconds, size_bytes=0, planned={})
    # Of those who have ended, what they used since they were last looked at is not among the lab's.
    unseen_s = max(0.0, used_s - window.ranks_s)
    diagnoses = seen.diagnosed(ranks=ranks, other_cores=max(0.0, window.other_cores - unseen_s / outcome.seconds))
    record.findings += as_dicts(diagnoses)
    evidence = replace(
        seen.evidence(diagnoses),
        # A program may compute on every core; what that takes from the switches shows in their waiting.
        idle_share=None,
        switch_queue_frames=switch_queue_frames(lab, window, [busy], frame_s(site, scale)),
        segments=float(lost.transport.segments),
    )
    verdict = judge(evidence)
    at_hosts, counted = lost.at_hosts(lab.fabric), window.bytes_by_intf()
    return Result(
        command=job.command,
        mpi=job.mpi,
        exit_codes=outcome.codes,
        status=outcome.status,
        timed_out=outcome.timed_out,
        wall_s=outcome.seconds,
        bytes_sent=sum(counted.get(port.intf, 0) for h in lab.fabric.hosts for port in lab.fabric.ports_of(h.name)),
        segments=lost.transport.segments,
        retransmits=lost.transport.retransmits,
        dropped_fabric=lost.in_all - at_hosts,
        dropped_host=at_hosts,
        verdict=verdict.level,
        reason=verdict.reason,
    )


def _furnish(site: Site) -> None:
    """What the processes read: the hosts' names, and MPI's files."""
    for name, text in {"hosts": hosts_file(site.fabric), **mpi_files(site)}.items():
        (RUN_DIR / name).write_text(text)
    (RUN_DIR / "agent").chmod(0o755)
    if _HOSTS.exists():
        syscalls.mount(str(RUN_DIR / "hosts"), _HOSTS, "none", syscalls.MS_BIND)


def _of_tcp(site: Site) -> TransportCounters:
    """Of all hosts, since they exist."""

    def read(_: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for file, wanted in _SEGMENTS.items():
            lines = Path(f"/proc/thread-self/net/{file}").read_text().splitlines()
            names, values = (line.split()[1:] for line in lines if line.startswith(("Tcp:", "TcpExt:")))
            found.update({name: int(n) for name, n in zip(names, values, strict=True) if name in wanted})
        return found

    hosts = [host.name for host in site.fabric.hosts]
    n = sum(namespaces.each(zip(hosts, hosts, strict=True), read), Counter[str]())
    return TransportCounters(n["RetransSegs"], n["OutSegs"], out_of_order=n["TCPOFOQueue"])


def _children_s() -> float:
    """CPU time of children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
