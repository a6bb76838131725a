"""From an experiment to a plan: what the ranks send, computed or refused without root, before anything is made."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

import traffic
from controller import policy
from controller.circuits.plan import Plan as CircuitPlan
from controller.circuits.slices import DemandMatrix
from controller.policy import Announced, is_multipath, rules_of
from lab.errors import LabError
from lab.model.wire import Sends, over_queue_pairs
from lab.planning import imports, sending
from lab.planning.experiment import SETTINGS, Experiment
from lab.planning.interfaces import interfaces
from lab.planning.reach import b_acc_mbps, by_level, switches_crossed
from lab.planning.roofline import Computing, Cut, busiest_interface, worst_cut
from lab.planning.scale import MIN_FRAMES_PER_STEP, Load, Scale, frames_per_step
from lab.planning.schedules import schedule_of, slices_of, workload_of
from lab.planning.site import Site, require_shapeable, site, with_helpers_of
from lab.planning.workload import Workload
from topologies import Fabric
from topologies.helpers import REDUCER
from topologies.units import format_size
from traffic import Schedule
from traffic.check import verify
from traffic.contracts import buffer_ratio
from traffic.conventions import BY_TRAFFIC, ELEMENT_BYTES, buffer_elements, bus_factor, sizes
from traffic.split import with_slices
from traffic.transport import Endpoint, WireFlow

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
    """What the ranks send. b_acc_mbps: an accelerator's scale-out NIC rates together; slices: that a message is cut into;
    workload: what the schedule is made of, where it is no collective's."""

    schedule: Schedule
    b_acc_mbps: float
    slices: int = 1
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
        return np.concatenate([src[chosen], len(self.hosts) + dst[chosen]]).astype(np.int64)

    @cached_property
    def egress(self) -> NDArray[np.int64]:
        """(sends,) the interface that each leaves by, as `interfaces` counts them."""
        return self.interfaces.of_sends(self.schedule.src, self.schedule.dst)[0].astype(np.int64)

    @cached_property
    def demand(self) -> DemandMatrix:
        """[from, to] of the ends that circuits join: bytes of the largest size with their headers, hardware units."""
        return self.demand_of(self._asked_bytes[-1])

    def demand_of(self, size_bytes: int) -> DemandMatrix:
        assert self.optical
        s, framing = self.schedule, self.framing
        on_the_wire = self._shares * size_bytes * framing.frame_bytes / framing.payload_bytes
        remote = ~s.is_local
        return self.optical.demand(self.hosts, s.src[remote], s.dst[remote], on_the_wire[remote])

    def circuits_for(self, size_bytes: int) -> CircuitPlan | None:
        """Where circuits change while it runs: what they do for this size."""
        if self.circuits is None or len(self.circuits.slices) == 1:
            return None
        assert self.optical
        return self.optical.plan(self.demand_of(size_bytes))

    @cached_property
    def switches(self) -> NDArray[np.float64]:
        """(sends,) that each crosses; inf where it has no path."""
        if self.optical:
            remote = ~self.schedule.is_local
            crossed = np.zeros(len(remote))
            crossed[remote] = self.crossed(self.schedule.src[remote], self.schedule.dst[remote])
            return crossed
        return switches_crossed(self.fabric, self.hosts, self.schedule, self.interfaces)

    @cached_property
    def cut(self) -> Cut | Computing:
        """What the roofline is made of. Where the flows are given, the interface that is busy for longest; of a
        workload that, or what it takes on a network that takes no time."""
        if not self.is_pattern and not self.workload and self.experiment.collective not in BY_TRAFFIC:
            members = interfaces(self.fabric, self.members)
            in_network = traffic.HELPERS.get(self.algorithm) == REDUCER
            return worst_cut(self.experiment.collective, members, self.b_acc_mbps, in_network=in_network)
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
        whole = Sends(
            connections=s.connections,
            connection=s.connection,
            n_bytes=self.message_bytes(count),
            dep_start=s.dep_start,
            deps=s.deps.astype(np.int64),
            waits_to_leave=s.waits_to_leave,
            calc_s=(s.calc_ns * (time_dilation / 1e9)).astype(np.float64),
            framing=self.framing,
        )
        return over_queue_pairs(whole, self.experiment.qps)

    def message_bytes(self, count: int) -> NDArray[np.int64]:
        """(sends,) payload of each, with `count` elements in the buffer."""
        return self.schedule.elements(count) * ELEMENT_BYTES

    def frames_per_step(self, size: Size) -> float:
        """Full frames in the smallest message of a step, as emulated."""
        return frames_per_step(size.emulated_bytes * self._smallest_share, self.framing.payload_bytes, Scale())

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
        least = format_size(MIN_FRAMES_PER_STEP * self.framing.payload_bytes * scale.size_scale / self._smallest_share)
        return f"use {least} or more, or a smaller size_scale"

    @cached_property
    def _smallest_share(self) -> float:
        """Of nccl-tests' size, that the smallest message carries; in a workload, whose messages are of many sizes, the
        smallest of those that matter. Slices follow each other, as frames of a message do."""
        shares = np.sort(self._shares[self._shares > 0])
        negligible = _NEGLIGIBLE_SHARE * shares.sum() if self.workload else 0.0
        return float(shares[np.searchsorted(np.cumsum(shares), negligible)]) * self.slices

    @property
    def timed(self) -> float:
        """What all iterations of all sizes take, in times of one of the largest."""
        e = self.experiment
        iterations = e.iterations * (2 if e.in_place else 1) + e.warmup_iterations
        return sum(self._asked_bytes) / self._asked_bytes[-1] * iterations

    @cached_property
    def load(self) -> Load:
        """What the collective asks of the switches while every interface that it uses runs at its rate, where it asks most:
        inside the servers frames come many times as fast as over the NICs."""
        largest = self._asked_bytes[-1]
        sent = self._shares * largest
        frame_hops = sent / self.framing.payload_bytes * (1 + 1 / self.framing.frames_per_ack) * self.switches
        levels_s, hops = by_level(self.schedule, self.interfaces, sent, frame_hops)
        # A workload's levels are no steps of time: what overlaps is in several.
        one_s = float(levels_s.sum())
        if self.workload:
            one_s = max(self.workload.played_s(self.interfaces), self.cut.seconds(largest))
        return Load(
            frame_hops_per_s=float((hops / levels_s).max()),
            traffic_s=one_s * self.timed,
            step_bytes=self._asked_bytes[0] * self._smallest_share,
            rate_mbps=self.nic_mbps,
            mss=self.framing.payload_bytes,
            fastest_mbps=float(self.interfaces.mbps[np.unique(self.egress)].max()),
        )


def _require_paths_to_spread_over(e: Experiment, fabric: Fabric) -> None:
    routing = policy(e.routing)
    if isinstance(routing, Announced):
        raise LabError(
            f"--spread {e.spread} leaves the source ports that {e.routing} places flows by: use --routing ecmp"
        )
    if not is_multipath(routing) and not any(rules.hashes for rules in rules_of(routing, fabric).values()):
        raise LabError(
            f"--spread {e.spread} spreads nothing: {e.routing} gives every destination one path; use --routing ecmp"
        )


def plan(experiment: Experiment) -> Plan:
    """Refuses, as topologies.Refused, whatever cannot be run as asked."""
    own = None if experiment.schedule is None else imports.read(experiment.schedule)
    if own:
        experiment = imports.as_experiment(experiment, own)
    _check_experiment(experiment)
    chosen = site(experiment)
    sending.require_possible(experiment, chosen.nic_mbps)
    if experiment.spread != "flow":
        _require_paths_to_spread_over(experiment, chosen.fabric)
    if chosen.ranks < 2:
        raise LabError(f"{chosen.ranks} rank has nobody to send to: a collective needs 2 or more")
    chosen, helpers = with_helpers_of(chosen)
    fabric, hosts = chosen.fabric, chosen.hosts
    job = None if experiment.workload is None else workload_of(experiment, fabric, hosts)
    whole = job.planned.schedule if job else schedule_of(chosen, helpers, own)
    slices = 1 if job else slices_of(experiment, whole)
    schedule = with_slices(whole, slices) if slices > 1 else whole
    verify(schedule)
    planned = Plan(
        experiment, chosen.topology, fabric, hosts, schedule, b_acc_mbps(fabric, chosen.members), slices, job
    )
    planned.sizes(experiment.scale or Scale())
    if planned.optical and planned.circuits:
        planned.optical.to_begin_with(planned.circuits, planned.demand)
    require_shapeable(planned)
    # More connections than a host has ports for are refused here.
    wire_flows(planned, fabric)
    return planned


def endpoints(planned: Site, emulated: Fabric, netns: Mapping[str, str] | None = None) -> list[Endpoint]:
    """Rank by rank, where its sockets are."""
    at = planned.interfaces
    found = []
    for rank, host in enumerate(planned.hosts):
        ip, scale_up = str(emulated.scale_out_port(host).ip), emulated.scale_up_port(host)
        inside = (int(at.domain[rank]), scale_up.ip) if scale_up else (None, None)
        found.append(Endpoint(rank, host, ip, netns[host] if netns else None, *inside))
    return found


def wire_flows(planned: Plan, emulated: Fabric) -> list[WireFlow]:
    """What the transport will open: for each connection as many as it has queue pairs, in a row."""
    e = planned.experiment
    flows: list[WireFlow] = traffic.TRANSPORTS[e.transport].plan(
        endpoints(planned, emulated), planned.schedule.connections, **sending.plan_options(e)
    )
    return flows


def _check_experiment(e: Experiment) -> None:
    if e.max_bytes < e.min_bytes:
        low, high = format_size(e.min_bytes), format_size(e.max_bytes)
        raise LabError(f"-e {high} is below -b {low}: use -e {low} or more, or a smaller -b")
    _check_pattern(e)
    _check_workload(e)


def _check_pattern(e: Experiment) -> None:
    """A setting that would be ignored is a misunderstanding."""
    if e.collective in traffic.PATTERNS and (e.channels > 1 or e.slice_bytes is not None):
        raise LabError(
            f"--channels and --slice-bytes are not for {e.collective}, whose flows are apart: use --flows-per-host, or "
            f"--collective {', '.join(traffic.COLLECTIVES)}"
        )
    if e.flows_per_host != 1 and e.collective not in traffic.PATTERNS:
        raise LabError(
            f"--flows-per-host {e.flows_per_host} is not for {e.collective}, whose algorithm says who sends to whom: "
            f"use it with {', '.join(traffic.PATTERNS)}"
        )
    if (e.group_size, e.group_shift) != (None, 1) and e.collective != "group_shift":
        raise LabError(f"--group-size and --group-shift are not for {e.collective}: use --collective group_shift")
    if e.hot_share is not None and e.collective != "all_to_all_v":
        raise LabError(f"--hot-share is not for {e.collective}: use --collective all_to_all_v")


def _check_workload(e: Experiment) -> None:
    for key in _OF_WORKLOADS:
        setting = SETTINGS[key]
        if e.workload is None and getattr(e, setting.field) != getattr(Experiment, setting.field):
            raise LabError(f"{setting.option} is not for {e.collective}: use it with --workload MODEL")
