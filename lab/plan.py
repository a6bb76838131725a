"""From an experiment to a plan: what the ranks send, computed or refused without root, before anything is made."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

import traffic
from lab.errors import LabError
from lab.experiment import SETTINGS, Experiment
from lab.interfaces import Interfaces, interfaces
from lab.reach import b_acc_mbps, by_level, fitting, require_paths, switches_crossed, ways_found
from lab.roofline import Computing, Cut, busiest_interface, worst_cut
from lab.scale import MIN_FRAMES_PER_STEP, Load, Scale, frames_per_step
from lab.site import Site, require_shapeable, site
from lab.wire import FRAMES_PER_ACK, Sends
from lab.workload import Workload, workload
from topologies import Fabric, unknown
from topologies.units import format_size
from traffic import Demand, Schedule
from traffic.check import verify
from traffic.contracts import buffer_ratio
from traffic.conventions import ELEMENT_BYTES, buffer_elements, bus_factor, sizes
from traffic.layout import Layout
from traffic.transport import Endpoint

# Of the replay engine, for one send.
_BYTES_PER_SEND = 100
# What the kernel holds at both ends of a connection: its buffers follow the congestion window, and so the link's queue.
_BYTES_PER_CONNECTION = 2**18
# Settings that say nothing without a workload.
_OF_WORKLOADS = ("split", "training", "stragglers", "jobs", "device_flops", "efficiency")
# Of a workload's bytes, in its smallest messages: those decide nothing, and their frames are not counted.
_NEGLIGIBLE_SHARE = 0.01


@dataclass(frozen=True)
class Size:
    """One row of the sweep. size_bytes: the hardware's, as nccl-tests prints it; emulated_bytes: what stands for it here;
    count: float32 elements of a rank's buffer, which for a pattern has room for what arrives as well."""

    size_bytes: int
    emulated_bytes: int
    count: int


@dataclass(frozen=True)
class Plan(Site):
    """What the ranks send. b_acc_mbps: an accelerator's scale-out NIC rates together; workload: what the schedule is made of,
    where it is no collective's."""

    schedule: Schedule
    b_acc_mbps: float
    workload: Workload | None = None

    @property
    def algorithm(self) -> str:
        return self.schedule.algorithm

    @property
    def collective(self) -> str:
        """What a row calls it: a collective, a pattern, or a workload's model."""
        return self.workload.name if self.workload else self.experiment.collective

    @property
    def is_pattern(self) -> bool:
        return self.collective in traffic.PATTERNS

    @cached_property
    def algo_factor(self) -> float:
        """busbw / algbw of the collective, whatever the algorithm; of a pattern, the flows of the busiest interface's
        direction over those of a sender: a NIC, if it uses any. A workload, which computes as well, has neither: nan."""
        if self.workload:
            return math.nan
        if self.is_pattern:
            return float(np.bincount(self._interfaces_of_flows).max() / self.experiment.flows_per_host)
        return bus_factor(self.experiment.collective, self.schedule.n_members)

    @property
    def _interfaces_of_flows(self) -> NDArray[np.int64]:
        """Of a pattern: the number of each direction of an interface, once for each flow; NICs only, if it uses any."""
        src, dst = self.schedule.src, self.schedule.dst
        inside = self.interfaces.inside(src, dst)
        chosen = ~inside if not inside.all() else inside
        return np.concatenate([src[chosen], self.ranks + dst[chosen]]).astype(np.int64)

    @cached_property
    def egress(self) -> NDArray[np.int64]:
        """(sends,) the interface that each leaves by, as `interfaces` counts them."""
        return self.interfaces.of_sends(self.schedule.src, self.schedule.dst)[0].astype(np.int64)

    @cached_property
    def switches(self) -> NDArray[np.float64]:
        """(sends,) that each crosses; inf where it has no path."""
        return switches_crossed(self.fabric, self.hosts, self.schedule, self.interfaces)

    @cached_property
    def cut(self) -> Cut | Computing:
        """What the roofline is made of. Of a pattern, whose flows are given, the interface that is busy for longest; of a
        workload that, or what it takes on a network that takes no time."""
        if not self.is_pattern and not self.workload:
            return worst_cut(self.experiment.collective, self.interfaces, self.b_acc_mbps)
        s = self.schedule
        busiest = busiest_interface(self.interfaces, s.src, s.dst, self._shares)
        if not self.workload:
            return busiest
        computing = Computing(self.workload.computing_s)
        return computing if computing.computing_s > busiest.seconds(self._asked_bytes[0]) else busiest

    def sizes(self, scale: Scale) -> tuple[Size, ...]:
        """The rows of the sweep. Refuses a smallest size of which nothing is left."""
        if self.workload:
            return (self._step(scale),)
        rows = []
        for size in self._asked_bytes:
            elements, emulated = self._elements(size), self._elements(scale.emulated_bytes(size))
            if not elements or not emulated:
                raise LabError(self._too_small(size, scale))
            count = math.ceil(emulated * self._buffer_ratio)
            rows.append(Size(elements * ELEMENT_BYTES, emulated * ELEMENT_BYTES, count))
        return tuple(rows)

    def _step(self, scale: Scale) -> Size:
        """A workload's only row: its size is what the rank that sends most sends."""
        s = self.schedule
        count = scale.emulated_bytes(s.natural_count or 0)
        emulated = int(s.sent_per_rank(count).max())
        if not emulated:
            raise LabError(
                f"at size_scale {scale.size_scale:g} nothing is left to send: use a smaller --scale RATE:SIZE"
            )
        return Size(self._asked_bytes[0], emulated * ELEMENT_BYTES, count)

    @cached_property
    def _asked_bytes(self) -> tuple[int, ...]:
        """The sweep's sizes as they were asked for; a workload's one as it follows from the model."""
        e, s = self.experiment, self.schedule
        if self.workload:
            return (int(s.sent_per_rank(s.natural_count or 0).max()) * ELEMENT_BYTES,)
        return tuple(sizes(e.min_bytes, e.max_bytes, e.step_factor))

    def _elements(self, size_bytes: int) -> int:
        """float32 elements of nccl-tests' size: a buffer, or in a pattern what one host's flows send, all equally much."""
        if self.is_pattern:
            flows = self.experiment.flows_per_host
            return size_bytes // ELEMENT_BYTES // flows * flows
        return buffer_elements(self.experiment.collective, size_bytes, self.schedule.n_members)

    @cached_property
    def _buffer_ratio(self) -> Fraction:
        """Elements of a buffer over those that the size counts: of a pattern, what one host's flows send; of a workload, what
        the rank that sends most sends."""
        if self.workload:
            return Fraction((self.schedule.natural_count or 0) * ELEMENT_BYTES, self._asked_bytes[0])
        if self.is_pattern:
            return Fraction(self.schedule.n_chunks, self.experiment.flows_per_host)
        return buffer_ratio(self.schedule)

    @cached_property
    def _shares(self) -> NDArray[np.float64]:
        """(sends,) of nccl-tests' size that each carries; local operations carry nothing."""
        s = self.schedule
        whole = s.natural_count or s.n_chunks
        shares: NDArray[np.float64] = s.elements(whole) / whole * float(self._buffer_ratio)
        return shares

    def _too_small(self, size: int, scale: Scale) -> str:
        step = 1
        while not self._elements(step):
            step *= 2
        least = format_size(step * scale.size_scale)
        scaled = f" at size_scale {scale.size_scale:g}" if scale.size_scale > 1 else ""
        return (
            f"-b {format_size(size)}{scaled} leaves {self.experiment.collective} over {self.ranks} ranks nothing to send: "
            f"use -b {least} or more" + (", or a smaller --scale RATE:SIZE" if scaled else "")
        )

    def sends(self, count: int, time_dilation: float) -> Sends:
        """The schedule with bytes and emulated times, for the predictor. count: emulated elements."""
        s = self.schedule
        return Sends(
            connections=s.connections,
            connection=s.connection,
            n_bytes=self.message_bytes(count),
            dep_start=s.dep_start,
            deps=s.deps.astype(np.int64),
            waits_to_leave=s.waits_to_leave,
            calc_s=(s.calc_ns * (time_dilation / 1e9)).astype(np.float64),
        )

    def message_bytes(self, count: int) -> NDArray[np.int64]:
        """(sends,) payload of each, with `count` elements in the buffer."""
        return self.schedule.elements(count) * ELEMENT_BYTES

    def frames_per_step(self, size: Size) -> float:
        """Full frames in the smallest message of a step, as emulated."""
        return frames_per_step(size.emulated_bytes * self._smallest_share, self.mss, Scale())

    def memory_bytes(self, scale: Scale) -> int:
        """What the run of the largest size holds: every rank's buffer, one more to compare with and its mask, and for every
        pair that reduces its largest message; then what sends and connections cost."""
        s, size = self.schedule, self.sizes(scale)[-1]
        remote = ~s.is_local
        pairs, pair = np.unique((s.src.astype(np.int64) * s.n_ranks + s.dst)[remote], return_inverse=True)
        beside = np.zeros(len(pairs), np.int64)
        np.maximum.at(beside, pair, np.where(s.reduce, s.elements(size.count), 0)[remote])
        values = s.n_ranks * size.count + int(beside.sum())
        held = values * ELEMENT_BYTES + size.count * (ELEMENT_BYTES + 1)
        return held + len(s) * _BYTES_PER_SEND + len(pairs) * _BYTES_PER_CONNECTION

    def more_frames(self, scale: Scale) -> str:
        """What gives every message enough frames, to write into a reason."""
        if self.workload:
            return "use a longer --time-limit, or fewer iterations, layers or microbatches"
        least = format_size(MIN_FRAMES_PER_STEP * self.mss * scale.size_scale / self._smallest_share)
        return f"use {least} or more, or a smaller size_scale"

    @cached_property
    def _smallest_share(self) -> float:
        """Of nccl-tests' size, that the smallest message carries; in a workload, whose messages are of many sizes, the
        smallest of those that matter."""
        shares = np.sort(self._shares[self._shares > 0])
        negligible = _NEGLIGIBLE_SHARE * shares.sum() if self.workload else 0.0
        return float(shares[np.searchsorted(np.cumsum(shares), negligible)])

    @cached_property
    def load(self) -> Load:
        """What the collective asks of the switches while every interface that it uses runs at its rate, where it asks most:
        inside the servers frames come many times as fast as over the NICs."""
        e, largest = self.experiment, self._asked_bytes[-1]
        sent = self._shares * largest
        frame_hops = sent / self.mss * (1 + 1 / FRAMES_PER_ACK) * self.switches
        levels_s, hops = by_level(self.schedule, self.interfaces, sent, frame_hops)
        # A workload's levels are no steps of time: what overlaps is in several.
        one_s = float(levels_s.sum())
        if self.workload:
            one_s = max(self.workload.played_s(self.interfaces), self.cut.seconds(largest))
        swept = sum(self._asked_bytes)
        iterations = e.iterations * (2 if e.in_place else 1) + e.warmup_iterations
        return Load(
            frame_hops_per_s=float((hops / levels_s).max()),
            traffic_s=one_s * swept / largest * iterations,
            step_bytes=self._asked_bytes[0] * self._smallest_share,
            rate_mbps=self.nic_mbps,
            mss=self.mss,
            fastest_mbps=float(self.interfaces.mbps[np.unique(self.egress)].max()),
        )


def plan(experiment: Experiment) -> Plan:
    """Refuses, as topologies.Refused, whatever cannot be run as asked."""
    _check_experiment(experiment)
    if experiment.transport not in traffic.TRANSPORTS:
        raise LabError(unknown("transport", experiment.transport, traffic.TRANSPORTS))
    chosen = site(experiment)
    fabric, hosts = chosen.fabric, chosen.hosts
    if len(hosts) < 2:
        raise LabError(f"{len(hosts)} rank has nobody to send to: a collective needs 2 or more")
    job = None if experiment.workload is None else _workload(experiment, fabric, hosts)
    schedule = job.planned.schedule if job else _schedule(experiment, fabric, hosts)
    verify(schedule)
    planned = Plan(experiment, chosen.topology, fabric, hosts, schedule, b_acc_mbps(fabric, hosts), job)
    planned.sizes(experiment.scale or Scale())
    require_shapeable(planned)
    # More connections than a host has ports for are refused here.
    traffic.TRANSPORTS[experiment.transport].plan(endpoints(planned, fabric), schedule.connections)
    return planned


def _schedule(e: Experiment, fabric: Fabric, hosts: Sequence[str]) -> Schedule:
    """As asked; unasked the collective's own, or where that finds no way between HB domains, one that does."""
    at = interfaces(fabric, hosts)
    layout = Layout(len(hosts), at.domains)
    schedule = _found(e.collective, e.algorithm, layout, fabric, hosts, at, _demand(e))
    if schedule.n_ranks > len(hosts):
        raise LabError(
            f"{e.collective} by {schedule.algorithm} takes {schedule.n_ranks - len(hosts)} more than its {len(hosts)} ranks, and "
            f"helpers have no host here: use another --algorithm"
        )
    require_paths(e.collective, schedule, layout, fabric, hosts, at)
    return schedule


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
    if algorithm is None and at.domains and not ways_found(schedule, fabric, hosts, at):
        return next(fitting(collective, layout, fabric, hosts, at), schedule)
    return schedule


def _workload(e: Experiment, fabric: Fabric, hosts: Sequence[str]) -> Workload:
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
    require_paths(made.name, made.planned.schedule, Layout(len(hosts), at.domains), fabric, hosts, at)
    return made


def endpoints(planned: Plan, emulated: Fabric, netns: Mapping[str, str] | None = None) -> list[Endpoint]:
    """Rank by rank, where its sockets are."""
    at = planned.interfaces
    found = []
    for rank, host in enumerate(planned.hosts):
        ip, scale_up = str(emulated.scale_out_port(host).ip), emulated.scale_up_port(host)
        inside = (int(at.domain[rank]), scale_up.ip) if scale_up else (None, None)
        found.append(Endpoint(rank, host, ip, netns[host] if netns else None, *inside))
    return found


def _check_experiment(e: Experiment) -> None:
    if e.max_bytes < e.min_bytes:
        low, high = format_size(e.min_bytes), format_size(e.max_bytes)
        raise LabError(f"-e {high} is below -b {low}: use -e {low} or more, or a smaller -b")
    _check_pattern(e)
    _check_workload(e)


def _check_pattern(e: Experiment) -> None:
    """A setting that would be ignored is a misunderstanding."""
    if e.flows_per_host != 1 and e.collective not in traffic.PATTERNS:
        raise LabError(
            f"--flows-per-host {e.flows_per_host} is not for {e.collective}, whose algorithm says who sends to whom: "
            f"use it with {', '.join(traffic.PATTERNS)}"
        )
    if (e.group_size, e.group_shift) != (None, 1) and e.collective != "group_shift":
        raise LabError(f"--group-size and --group-shift are not for {e.collective}: use --collective group_shift")


def _check_workload(e: Experiment) -> None:
    for key in _OF_WORKLOADS:
        setting = SETTINGS[key]
        if e.workload is None and getattr(e, setting.field) != getattr(Experiment, setting.field):
            raise LabError(f"{setting.option} is not for {e.collective}: use it with --workload MODEL")


def _demand(e: Experiment) -> Demand:
    return Demand(e.flows_per_host, e.group_size, e.group_shift, e.seed)
