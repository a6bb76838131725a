"""One run, inside its sandbox. `run` reads as a table of contents; `lab.measuring.row` measures one row of it."""

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from controller.demand import Demand
from lab import terminal
from lab.errors import LabError
from lab.machine import probes
from lab.machine.bringup import Lab, lab_up
from lab.machine.sandbox import COMMAND_NAME, INIT_NAME, Terminated, host_processes
from lab.measuring import cpu
from lab.measuring.capturing import capturing
from lab.measuring.live import View, live
from lab.measuring.monitor import Monitor
from lab.measuring.observed import frame_s
from lab.measuring.row import RowMeasurement
from lab.measuring.switching import all_the_time
from lab.planning import sending
from lab.planning.announcing import to_announce
from lab.planning.capture_points import CapturePoint
from lab.planning.forecast import Forecast, stated
from lab.planning.helpers import told
from lab.planning.plan import Plan, endpoints
from lab.planning.scale import Scale
from lab.planning.site import Site
from lab.progress import Progress
from lab.reporting import nccl, results
from lab.rows import DATAPATHS, NO_PREDICTION, Output, RunRecord, json_value
from topologies import Fabric
from topologies.describe import describe
from topologies.errors import one_line
from topologies.link_sampler import LinkSampler
from topologies.tcp import Tcp
from traffic import TRANSPORTS
from traffic.transport import Transport

INVALID, FAILED, INTERRUPTED, TERMINATED = 1, 3, 130, 143


def run(
    expected: Forecast,
    scale: Scale,
    *,
    folder: Path | None,
    output: Output,
    progress: Progress,
    points: Sequence[CapturePoint] = (),
) -> int:
    """The whole run; returns the exit status. The folder is written after every row: an interrupted run keeps its rows.
    points: where frames are captured."""
    plan = expected.plan
    record = new_record(plan, scale, _as_resolved(plan, scale))
    record.roofline = str(plan.cut)
    if expected.untimed:
        record.notes = [f"{NO_PREDICTION}{expected.untimed}"]
    if folder is None:
        name, collective = plan.fabric.name, plan.collective
        folder = results.new_folder(Path("results"), name, collective, datetime.now().astimezone())
    record.prediction_sha256 = results.write_prediction(folder, stated(expected, scale))
    with (
        ending() as how,
        _lab(plan, scale, progress) as lab,
        _transport(expected, scale, lab) as transport,
        capturing(lab, points, folder),
        watched(lab) as monitor,
    ):
        found = {"datapath": lab.datapath, **delays(plan, lab), **spread(plan, scale), **transport.settings()}
        record.machine = {**record.machine, **found}
        if output == "table":
            terminal.show(*nccl.preamble(record), *(f"# {note}" for note in record.notes), *nccl.header())
        of_all = len(plan.sizes(scale)) * plan.experiment.iterations * (2 if plan.experiment.in_place else 1)
        with live(progress, View(lab, monitor, record, of_all, frame_s(plan, scale))) as shown:
            for size in plan.sizes(scale):
                row = RowMeasurement(expected, scale, lab, transport, monitor, record, shown).measure(size)
                shown.done()
                if output == "table":
                    terminal.show(*nccl.row_lines(row))
                results.write(folder, record)
        record.complete = True
        how.status = INVALID if any(row.verdict == "invalid" for row in record.rows) else 0
    progress.done()
    written = conclude(record, how, partial(_write, folder, record))
    _say(record, folder if written else None, output, how.status)
    return how.status


def _write(folder: Path, record: RunRecord) -> None:
    """The data first: whatever becomes of the report, `run_topo.py report` makes it again."""
    results.write(folder, record)
    results.write_report(folder)


@dataclass
class Ending:
    """How a run ended: its exit status, and what failed."""

    status: int = FAILED
    failures: list[Exception] = field(default_factory=list)


@contextmanager
def ending() -> Iterator[Ending]:
    """Of the block, which sets the status as its last act; else what ended it does, and is kept where it is a failure."""
    how = Ending()
    try:
        yield how
    except KeyboardInterrupt:
        how.status = INTERRUPTED
    except Terminated:
        how.status = TERMINATED
    except Exception as error:
        how.failures.append(error)


def conclude(record: RunRecord, how: Ending, write: Callable[[], None]) -> bool:
    """Writes what the run has, and says what failed. Whether the folder could be written."""
    record.ended = datetime.now().astimezone().isoformat(timespec="seconds")
    written = True
    try:
        write()
    except LabError as error:
        how.status, written = FAILED, False
        how.failures.append(error)
    if how.failures:
        terminal.warn(*dict.fromkeys(f"run_topo.py: found: {_found(one)}" for one in record.findings))
    complain(*how.failures)
    return written


def _found(finding: Mapping[str, Any]) -> str:
    return f"{finding['kind']} {finding['element']}: {finding['detail']}"


def prompt(plan: Plan, scale: Scale) -> int:
    """`run_topo.py cli`: the fabric, its controller, and Mininet's prompt."""
    from mininet.cli import CLI
    from mininet.log import setLogLevel

    emulated = scale.fabric(plan.fabric)
    setLogLevel("info")
    try:
        with _lab(plan, scale, Progress()) as lab, all_the_time(plan, scale):
            terminal.show(
                f"{len(emulated.hosts)} hosts, {len(emulated.switches)} switches; rates / {scale.rate_scale:g}; "
                f"{DATAPATHS[lab.datapath]}. Try:",
                *_suggestions(emulated),
            )
            CLI(lab.net)
    except Terminated:
        return TERMINATED
    except Exception as error:
        complain(error)
        return FAILED
    return 0


def _suggestions(fabric: Fabric) -> tuple[str, str]:
    """What to type first, with names of this fabric."""
    host, other = fabric.hosts[0].name, fabric.hosts[-1].name
    switch = fabric.switch_of(host)
    far = next((far.node for _, far, _ in fabric.neighbours(switch) if not fabric.node(far.node).is_host), host)
    return (
        f"  {host} ping {other}      pingall      links      link {switch} {far} down",
        f"  {host} ip route     sh ovs-ofctl -O OpenFlow13 dump-flows {switch}     exit",
    )


def _lab(plan: Plan, scale: Scale, progress: Progress) -> AbstractContextManager[Lab]:
    return lab_of(plan, scale, progress, to_announce(plan, scale.fabric(plan.fabric)))


def lab_of(
    site: Site, scale: Scale, progress: Progress, announced: Sequence[Demand] = ()
) -> AbstractContextManager[Lab]:
    """The experiment's fabric and controller, up. announced: flows that the policy is told of."""
    e = site.experiment
    return lab_up(
        scale.fabric(site.fabric),
        policy=site.set_up(scale) or e.routing,
        announced=announced,
        mtu=e.mtu,
        addressing=e.addressing,
        controller=e.controller,
        tcp=Tcp(sending.tcp_congestion_control(e), sending.spread_by_hosts(e, scale)),
        impairments=site.impairments(scale),
        progress=progress,
    )


def delays(site: Site, lab: Lab) -> dict[str, Any]:
    """What delays the links, for the manifest."""
    if not site.has_delays:
        return {}
    if not lab.net.uses_hop:
        return {"delays": "netem"}
    return {"delays": "impairment hop", "hop_frames_per_s": lab.hop_frames_per_s}


def spread(site: Site, scale: Scale) -> dict[str, Any]:
    """What the hosts' programs do to TCP's packets, for the manifest."""
    asked = sending.spread_by_hosts(site.experiment, scale)
    if asked.unit == "flow":
        return {}
    gap = {"tcp_flowlet_gap_ns": asked.gap_ns} if asked.unit == "flowlet" else {}
    return {"tcp_spread": asked.unit, "tcp_entropy": asked.entropy, **gap}


@contextmanager
def _transport(expected: Forecast, scale: Scale, lab: Lab) -> Iterator[Transport]:
    plan = expected.plan
    netns = {host: str(lab.net.netns_path(host)) for host in plan.hosts}
    settings = sending.options(plan.experiment, scale, plan.nic_mbps, expected.shapes.values())
    if plan.experiment.transport == sending.TCP:
        settings |= {"windows": expected.windows, "segment_bytes": plan.framing.payload_bytes}
    if plan.experiment.lossless:
        settings["credits_of"] = expected.credits()
    opened = TRANSPORTS[plan.experiment.transport](
        endpoints(plan, lab.fabric, netns), plan.schedule.connections, **settings
    )
    with closing(opened) as transport:
        yield transport


@contextmanager
def watched(lab: Lab) -> Iterator[Monitor]:
    switch_intfs = {port.intf for switch in lab.fabric.switches for port in lab.fabric.ports_of(switch.name)}
    roles = {lab.daemons.switch_pid: cpu.SWITCH, lab.daemons.database.pid: cpu.SWITCH, os.getpid(): cpu.REPLAY}
    if lab.controller:
        roles[lab.controller.pid] = cpu.CONTROLLER
    if hop := lab.net.hop_pid:
        roles[hop] = cpu.HOP
    accounts = cpu.Accounts(roles, host_processes(), init_name=INIT_NAME, command_name=COMMAND_NAME)
    with (
        closing(LinkSampler(lab.fabric)) as links,
        closing(Monitor(links, switch_intfs, lab.daemons.switch_pid, roles, accounts)) as monitor,
    ):
        yield monitor


def _as_resolved(plan: Plan, scale: Scale) -> dict[str, Any]:
    """The experiment, for the manifest and the table, with what followed from it."""
    said: dict[str, Any] = {"collective": plan.collective, "algorithm": plan.algorithm}
    if plan.workload:
        (size,) = plan.sizes(scale)
        said |= {"min_bytes": size.size_bytes, "max_bytes": size.size_bytes}
    return plan.experiment.to_dict() | said | plan.resolved


def new_record(site: Site, scale: Scale, experiment: Mapping[str, Any]) -> RunRecord:
    return RunRecord(
        experiment=experiment,
        fabric=describe(site.fabric),
        scale={**asdict(scale), "time_dilation": scale.time_dilation, "nic_mbps": site.nic_mbps},
        machine={
            "cpu": probes.cpu_model(),
            "cpus": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "open_vswitch": probes.open_vswitch_version(),
        },
        hosts=site.members,
        helpers=told(site.fabric, site.helpers),
        command=tuple(sys.argv),
        started=datetime.now().astimezone().isoformat(timespec="seconds"),
    )


def complain(*failures: Exception) -> None:
    """One line each; what failed twice for one reason is said once."""
    for text in dict.fromkeys(one_line(str(failure)) or type(failure).__name__ for failure in failures):
        terminal.warn(f"run_topo.py: failed and cleaned up: {text}")


def _say(record: RunRecord, folder: Path | None, output: Output, status: int) -> None:
    """folder: where the results are; None where they could not be written."""
    if output == "json":
        rows = [{name: json_value(value) for name, value in row.columns().items()} for row in record.rows]
        terminal.show(json.dumps(rows))
    elif output == "table" and record.rows:
        terminal.show(*nccl.footer(record.rows, record.experiment["collective"]))
    if status in (INTERRUPTED, TERMINATED):
        terminal.warn(f"interrupted: {len(record.rows)} rows kept")
    if folder:
        terminal.warn(f"results: {folder}")
