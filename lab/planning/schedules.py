"""Which schedule an experiment asks for: a collective's, by an algorithm that has paths, in channels and slices; a workload's."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import traffic
from lab.errors import LabError
from lab.planning.circuits import optical
from lab.planning.experiment import Experiment
from lab.planning.helpers import Helpers
from lab.planning.interfaces import Interfaces, interfaces
from lab.planning.reach import fitting, require_paths, ways_found
from lab.planning.site import Site
from lab.planning.workload import Workload, workload
from topologies import Fabric, unknown
from topologies.units import format_size
from traffic import Demand, Schedule, TrafficError
from traffic.collectives.rail_ring import NAME as RAIL_RING
from traffic.contracts import buffer_ratio
from traffic.layout import Layout
from traffic.matrices import hot_pairs
from traffic.placement import hb_domains
from traffic.split import with_channels

# Of one message: more cost the replay more than they gain.
MAX_SLICES = 64


def schedule_of(chosen: Site, helpers: Helpers | None, own: Schedule | None = None) -> Schedule:
    """The user's own, or as asked; unasked the collective's own: of HB domains one that stays on their rails."""
    e, fabric, hosts, at = chosen.experiment, chosen.fabric, chosen.hosts, chosen.interfaces
    layout = Layout(chosen.ranks, hb_domains(fabric, chosen.members))
    if helpers:
        layout = replace(layout, parents=helpers.parents, n_servers=len(helpers.at))
    if e.hot_share is not None:
        layout = replace(layout, matrix=hot_pairs(chosen.ranks, e.hot_share))
    schedule = own or _found(e.collective, e.algorithm, layout, fabric, hosts, at, _demand(e))
    # Paths over circuits are those of the plan that is made for the schedule.
    if chosen.optical is None:
        require_paths(e.collective, schedule, layout, fabric, hosts, at)
    return with_channels(schedule, e.channels) if e.channels > 1 else schedule


def slices_of(e: Experiment, schedule: Schedule) -> int:
    """As many as the largest message of the largest size needs."""
    if e.slice_bytes is None:
        return 1
    whole = schedule.natural_count or schedule.n_chunks
    largest_bytes = float(schedule.elements(whole).max() / whole * buffer_ratio(schedule)) * e.max_bytes
    slices = max(1, math.ceil(largest_bytes / e.slice_bytes))
    if slices > MAX_SLICES:
        raise LabError(
            f"--slice-bytes {format_size(e.slice_bytes)} cuts a message of {format_size(largest_bytes)} into {slices} slices, "
            f"more than {MAX_SLICES}: use --slice-bytes {format_size(math.ceil(largest_bytes / MAX_SLICES))} or more"
        )
    return slices


def _found(
    collective: str,
    algorithm: str | None,
    layout: Layout,
    fabric: Fabric,
    hosts: Sequence[str],
    at: Interfaces,
    demand: Demand | None = None,
) -> Schedule:
    schedule = traffic.schedule(collective, algorithm, layout, demand)
    if algorithm is None and at.domains:
        if not ways_found(schedule, fabric, hosts, at):
            return next(fitting(collective, layout, fabric, hosts, at), schedule)
        if len(layout.domains) > 1 and RAIL_RING in traffic.COLLECTIVES.get(collective, {}):
            # As NCCL's rings are; one of ranks in order leaves each domain by one NIC. Not of domains of different sizes.
            with suppress(TrafficError):
                return traffic.schedule(collective, RAIL_RING, layout)
    return schedule


def workload_of(e: Experiment, fabric: Fabric, hosts: Sequence[str]) -> Workload:
    """Its collectives by the algorithm that was asked for, those that do not know it by their own, each told the HB domains
    of its group."""
    known = [name for name, algorithms in traffic.COLLECTIVES.items() if e.algorithm in algorithms]
    if e.algorithm is not None and not known:
        raise LabError(unknown("algorithm", e.algorithm, {a for c in traffic.COLLECTIVES.values() for a in c}))

    def algorithm(collective: str, group: tuple[int, ...]) -> Schedule:
        there = [hosts[rank] for rank in group]
        at = interfaces(fabric, there)
        named = e.algorithm if collective in known else None
        return _found(collective, named, Layout(len(group), at.domains), fabric, there, at)

    made = workload(e, len(hosts), algorithm)
    at = interfaces(fabric, hosts)
    if optical(e, fabric) is None:
        require_paths(made.name, made.planned.schedule, Layout(len(hosts), at.domains), fabric, hosts, at)
    return made


def _demand(e: Experiment) -> Demand:
    return Demand(e.flows_per_host, e.group_size, e.group_shift, e.seed)
