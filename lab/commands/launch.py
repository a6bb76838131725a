"""From an experiment to a sandbox: everything that is checked, measured or opened before the first namespace is made."""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from lab import terminal
from lab.errors import LabError
from lab.machine import probes, relay, sandbox
from lab.machine.sandbox import REST_PORT, Sandbox
from lab.measuring.job import Job
from lab.planning.capture_points import capture_points
from lab.planning.experiment import Experiment
from lab.planning.fitting import fitted, shortened
from lab.planning.forecast import forecast_of, require_short_ways
from lab.planning.plan import Plan, plan
from lab.planning.scale import Budget, Scale, choose_scale
from lab.planning.sending import of_a_program, tcp_congestion_control
from lab.planning.site import Site, require_shapeable, site
from lab.planning.values import controller_address
from lab.progress import Progress
from lab.rows import Output
from topologies.units import format_size

_RUN_IS_PRIVATE = "a run sees an empty /run of its own"


def run(
    experiment: Experiment, *, out: str | None, output: Output, publish: int | None, pcap: str | None = None
) -> int:
    """`run_topo.py [EXPERIMENT.toml]`. output: what stands on standard output; pcap: where frames are captured."""
    planned = plan(experiment)
    points = [] if pcap is None else capture_points(pcap, planned.fabric)
    folder = results_folder(out)
    doors = _ready(planned, publish)
    require_writable(folder or Path("results").resolve())
    progress = Progress()
    asked, (planned, scale) = planned, _fitted(planned, progress)
    if fewer := shortened(asked, planned, scale):
        progress.done()
        terminal.warn(f"run_topo.py: {fewer}")
    largest = format_size(planned.sizes(scale)[-1].emulated_bytes)
    probes.require_memory(planned.memory_bytes(scale), f"{planned.ranks} ranks x {largest}")
    expected = forecast_of(planned, scale)
    require_short_ways(expected, scale)
    from lab.measuring import run as the_run

    job = partial(the_run.run, expected, scale, folder=folder, output=output, progress=progress, points=points)
    return _in_sandbox(job, planned, f"run {planned.collective}", doors)


def cli(experiment: Experiment, *, publish: int | None) -> int:
    """`run_topo.py cli`."""
    planned = plan(experiment)
    doors = _ready(planned, publish)
    scale = _scale(planned, Progress())
    from lab.measuring import run as the_run

    return _in_sandbox(
        partial(the_run.prompt, planned, scale), planned, f"cli {planned.collective}", doors, interactive=True
    )


def execute(experiment: Experiment, job: Job, *, out: str | None, publish: int | None) -> int:
    """`run_topo.py exec`."""
    _require_program(job.command[0])
    experiment = of_a_program(experiment)
    chosen = site(experiment)
    if experiment.scale is not None and experiment.scale.size_scale != 1:
        raise LabError(
            f"--scale {experiment.scale} divides sizes, but a program's bytes are its own: "
            f"use --scale {experiment.scale.rate_scale:g}:1 for the rates alone"
        )
    require_shapeable(chosen)
    folder = results_folder(out)
    doors = _ready(chosen, publish)
    require_writable(folder or Path("results").resolve())
    progress = Progress()
    scale = _scale(chosen, progress)
    from lab.measuring import execute as the_execution

    run_it = partial(the_execution.execute, chosen, scale, job, folder=folder, progress=progress)
    return _in_sandbox(run_it, chosen, f"exec {job.name}", doors)


def _require_program(name: str) -> None:
    if shutil.which(name):
        return
    if not name:
        raise LabError("the program's name is empty: write it behind --, as in -- python3 train.py")
    if not Path(name).exists():
        where = "" if "/" in name else f" on PATH ({os.environ.get('PATH', '')})"
        raise LabError(
            f"program {name!r} is not found{where}: install it, or write its path, such as ./{Path(name).name}"
        )
    raise LabError(f"program {name!r} is not executable: chmod +x it, or name its interpreter: -- python3 {name}")


def _ready(planned: Site, publish: int | None) -> list[Callable[[Sandbox], None]]:
    """Refuse what this machine cannot do; return the doors to open once the sandbox stands."""
    experiment, fabric = planned.experiment, planned.fabric
    probes.require_root()
    probes.require_tools()
    probes.require_capabilities()
    probes.require_congestion_control(tcp_congestion_control(experiment))
    probes.require_network_size(len(fabric.hosts), len(fabric.links))
    probes.require_open_files(len(fabric.hosts), sum(len(fabric.ports_of(s.name)) for s in fabric.switches))
    doors: list[Callable[[Sandbox], None]] = []
    if experiment.controller:
        address = controller_address(experiment.controller)
        relay.require_listening(address)
        doors.append(relay.controller_door(address))
    if publish is not None:
        doors.append(relay.published_port(publish, REST_PORT))
    return doors


def _fitted(planned: Plan, progress: Progress) -> tuple[Plan, Scale]:
    """The scale, and the plan with what there is time for at it."""
    sharing, scale = 1 + sandbox.other_loads(), planned.experiment.scale
    if scale is None:
        planned, scale = fitted(planned, _budget(planned, sharing, progress))
    _warn_of_load(planned, scale, sharing)
    _require_delays(planned, scale, progress)
    return planned, scale


def _scale(site: Site, progress: Progress) -> Scale:
    """Of traffic that is not known before."""
    e, sharing = site.experiment, 1 + sandbox.other_loads()
    scale = e.scale or choose_scale(site.load, _budget(site, sharing, progress), e.time_limit_s)
    _warn_of_load(site, scale, sharing)
    _require_delays(site, scale, progress)
    return scale


def _delayed_by_hop(site: Site) -> bool:
    return site.has_delays and (site.experiment.jitter_us > 0 or "netem" not in probes.usable_qdiscs())


def _require_delays(site: Site, scale: Scale, progress: Progress) -> None:
    """Refuses those that cannot be made at the scale."""
    from lab.machine import hop_budget
    from topologies import wires

    emulated = scale.fabric(site.fabric)
    if _delayed_by_hop(site):
        wires.require_hop(emulated, site.impairments(scale).jitter_us)
        hop_budget.measured(site.experiment.mtu, progress=progress)


def _warn_of_load(planned: Site, scale: Scale, sharing: int) -> None:
    """Where it is known what the machine carries; it is not measured for this."""
    from lab.machine import budget

    known = budget.known(planned.experiment.mtu)
    if known is None:
        return
    asked, carries = planned.load.frame_hops_per_s / scale.rate_scale, known.frame_hops_per_s / sharing
    if asked > carries:
        shared = f", shared by {sharing} labs" if sharing > 1 else ""
        terminal.warn(
            f"run_topo.py: the switches are asked for {asked:,.0f} frames/s at full rate, this machine carries {carries:,.0f}"
            f"{shared}: expect CPU-limited rows, or use --scale auto"
        )


def _budget(site: Site, sharing: int, progress: Progress) -> Budget:
    """What the machine carries, measured if it is not known. sharing: labs that divide it among them."""
    from lab.machine import budget, hop_budget

    e = site.experiment
    known = budget.measured(e.mtu, progress=progress)
    if _delayed_by_hop(site) and e.delay_us:
        # With a delay on every link a frame crosses the hop once a link, which is at most twice a switch.
        carried = hop_budget.measured(e.mtu, progress=progress) / 2
        known = replace(known, frame_hops_per_s=min(known.frame_hops_per_s, carried))
    return replace(known, frame_hops_per_s=known.frame_hops_per_s / sharing)


def results_folder(out: str | None) -> Path | None:
    """The folder that --out names, None = none. Refuses one that no run may write."""
    if out is None:
        return None
    if not out:
        raise LabError(
            "--out '' names no folder: write one, or leave it out for results/<date>-<topology>-<collective>"
        )
    folder = Path(out).expanduser().resolve()
    if folder.is_relative_to("/run"):
        raise LabError(f"--out {out}: {_RUN_IS_PRIVATE}, nothing written there would stay: choose another folder")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LabError(f"--out {out}: exists and is not an empty folder: choose another")
    return folder


def require_writable(folder: Path) -> None:
    """Before the run, because after it the results would be lost."""
    nearest = next(f for f in (folder, *folder.parents) if f.exists())
    try:
        tempfile.TemporaryDirectory(dir=nearest).cleanup()
    except OSError as error:
        raise LabError(
            f"results cannot be written to {folder}: {nearest}: {error.strerror}: choose another folder with --out"
        ) from None


def _in_sandbox(
    job: Callable[[], int],
    planned: Site,
    doing: str,
    doors: list[Callable[[Sandbox], None]],
    *,
    interactive: bool = False,
) -> int:
    def outside(made: Sandbox) -> None:
        for door in doors:
            door(made)

    about = sandbox.about(fabric=planned.experiment.topology, doing=doing)
    return sandbox.run(job, about=about, interactive=interactive, outside=outside)
