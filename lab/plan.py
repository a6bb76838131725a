"""From an experiment to a plan: everything that can be computed or refused without root, before anything is made."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

import controller
import traffic
from lab.errors import LabError
from lab.experiment import Experiment
from lab.predictor import FRAMES_PER_ACK, Sends, levels, mss_bytes
from lab.scale import MIN_FRAMES_PER_STEP, Load, Scale, frames_per_step
from topologies import Fabric, Topology, topology, unknown, user_code
from topologies.conformance import check_fabric
from topologies.describe import Distances
from topologies.impairments import Impairments
from topologies.tiers import hb_domains
from topologies.topology import build
from topologies.units import format_size
from traffic import Demand, Schedule
from traffic.check import verify
from traffic.conventions import ELEMENT_BYTES, buffer_elements, bus_factor, sizes
from traffic.placement import place
from traffic.transport import Endpoint

# Schedules grow with the ranks squared: a ring of these has two million sends.
MAX_RANKS = 1024
# Of the replay engine, for one send.
_BYTES_PER_SEND = 100
# What the kernel holds at both ends of a connection: its buffers follow the congestion window, and so the link's queue.
_BYTES_PER_CONNECTION = 2**18
# Of those that cannot be reached, in a refusal.
_PAIRS_NAMED = 3


@dataclass(frozen=True)
class Size:
    """One row of the sweep. size_bytes: the hardware's, as nccl-tests prints it; emulated_bytes: what stands for it here;
    count: float32 elements of a rank's buffer, which for a pattern has room for what arrives as well."""

    size_bytes: int
    emulated_bytes: int
    count: int


@dataclass(frozen=True)
class Site:
    """Where an experiment's ranks are. fabric: in hardware units; hosts: rank -> host name."""

    experiment: Experiment
    topology: Topology
    fabric: Fabric
    hosts: tuple[str, ...]

    @property
    def ranks(self) -> int:
        return len(self.hosts)

    @property
    def mss(self) -> int:
        return mss_bytes(self.experiment.mtu)

    def impairments(self, scale: Scale) -> Impairments:
        """What the machine's links do to frames, every time multiplied as the scale says."""
        e = self.experiment
        return Impairments(
            loss=e.loss_percent / 100,
            jitter_us=e.jitter_us * scale.time_dilation,
            ecn_threshold_us=None if e.ecn_threshold_us is None else e.ecn_threshold_us * scale.time_dilation,
            seed=e.seed,
        )

    @property
    def has_delays(self) -> bool:
        """Some link has a delay, asked for or the topology's own."""
        return any(link.delay_us > 0 for link in self.fabric.links)

    @property
    def nic_mbps(self) -> float:
        """The fastest NIC of a rank."""
        return float(self.nic_mbps_by_rank.max())

    @cached_property
    def nic_mbps_by_rank(self) -> NDArray[np.float64]:
        return np.array([self.fabric.link_of(self.fabric.scale_out_port(h).intf).rate_mbps for h in self.hosts])

    @cached_property
    def load(self) -> Load:
        """While every rank sends at its NIC's rate to the one half-way round: whatever a program does, switches see little more.
        Its bytes are its own: no size is to be divided."""
        src = np.arange(self.ranks)
        crossed = Distances(self.fabric).links_between(self.hosts, src, (src + self.ranks // 2) % self.ranks) + 1
        frames_per_s = self.nic_mbps_by_rank * 1e6 / 8 / self.mss * (1 + 1 / FRAMES_PER_ACK)
        return Load(
            frame_hops_per_s=float((frames_per_s * np.where(np.isfinite(crossed), crossed, 0)).sum()),
            traffic_s=0.0,
            step_bytes=math.inf,
            rate_mbps=self.nic_mbps,
            mss=self.mss,
        )


@dataclass(frozen=True)
class Plan(Site):
    """What the ranks send. b_acc_mbps: an accelerator's scale-out NIC rates together."""

    schedule: Schedule
    b_acc_mbps: float

    @property
    def algorithm(self) -> str:
        return self.schedule.algorithm

    @property
    def is_pattern(self) -> bool:
        return self.experiment.collective in traffic.PATTERNS

    @cached_property
    def algo_factor(self) -> float:
        """busbw / algbw of the collective, whatever the algorithm; of a pattern, the flows of the busiest NIC's direction
        over those of a sender."""
        if self.is_pattern:
            busiest = max(np.bincount(ranks).max() for ranks in (self.schedule.src, self.schedule.dst))
            return float(busiest / self.experiment.flows_per_host)
        return bus_factor(self.experiment.collective, self.ranks)

    def sizes(self, scale: Scale) -> tuple[Size, ...]:
        """The rows of the sweep. Refuses a smallest size of which nothing is left."""
        e = self.experiment
        rows = []
        for size in sizes(e.min_bytes, e.max_bytes, e.step_factor):
            elements, emulated = self._elements(size), self._elements(scale.emulated_bytes(size))
            if not elements or not emulated:
                raise LabError(self._too_small(size, scale))
            count = emulated * self.schedule.n_chunks // self._size_chunks
            rows.append(Size(elements * ELEMENT_BYTES, emulated * ELEMENT_BYTES, count))
        return tuple(rows)

    def _elements(self, size_bytes: int) -> int:
        """float32 elements of nccl-tests' size: a buffer, or in a pattern what one host's flows send, all equally much."""
        if self.is_pattern:
            return size_bytes // ELEMENT_BYTES // self._size_chunks * self._size_chunks
        return buffer_elements(self.experiment.collective, size_bytes, self.ranks)

    @property
    def _size_chunks(self) -> int:
        """Chunks that make up nccl-tests' size."""
        return self.experiment.flows_per_host if self.is_pattern else self.schedule.n_chunks

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

    def sends(self, count: int) -> Sends:
        """The schedule with bytes, for the predictor. count: emulated elements."""
        s = self.schedule
        return Sends(
            connections=s.connections,
            connection=s.connection,
            n_bytes=self.message_bytes(count),
            dep_start=s.dep_start,
            deps=s.deps.astype(np.int64),
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
        pairs, pair = np.unique(s.src.astype(np.int64) * s.n_ranks + s.dst, return_inverse=True)
        beside = np.zeros(len(pairs), np.int64)
        np.maximum.at(beside, pair, np.where(s.reduce, s.elements(size.count), 0))
        values = self.ranks * size.count + int(beside.sum())
        held = values * ELEMENT_BYTES + size.count * (ELEMENT_BYTES + 1)
        return held + len(s) * _BYTES_PER_SEND + len(pairs) * _BYTES_PER_CONNECTION

    def smallest_unquantised(self, scale: Scale) -> str:
        """The smallest size whose every message has enough frames, to write into a reason."""
        return format_size(MIN_FRAMES_PER_STEP * self.mss * scale.size_scale / self._smallest_share)

    @cached_property
    def _smallest_share(self) -> float:
        """Of nccl-tests' size, that one message carries."""
        return float(self.schedule.n_chunks_sent.min()) / self._size_chunks

    @cached_property
    def load(self) -> Load:
        """What the collective asks of the switches while every NIC runs at its rate."""
        e = self.experiment
        largest = e.max_bytes
        sent = self.schedule.n_chunks_sent / self._size_chunks * largest
        one_s = _duration_s(self.schedule, sent, self.nic_mbps_by_rank)
        frame_hops = float((sent / self.mss * (1 + 1 / FRAMES_PER_ACK) * _switches(self)).sum())
        swept = sum(sizes(e.min_bytes, e.max_bytes, e.step_factor))
        iterations = e.iterations * (2 if e.in_place else 1) + e.warmup_iterations
        return Load(
            frame_hops_per_s=frame_hops / one_s,
            traffic_s=one_s * swept / largest * iterations,
            step_bytes=e.min_bytes * self._smallest_share,
            rate_mbps=self.nic_mbps,
            mss=self.mss,
        )


def site(experiment: Experiment) -> Site:
    """The fabric and the ranks' places on it. Refuses, as topologies.Refused, what cannot be built as asked."""
    if experiment.loss_percent == 100:
        raise LabError("loss 100% lets nothing through: use less")
    made = _topology(experiment)
    fabric = _fabric(experiment, made)
    _check_jitter(experiment, fabric)
    _ask_policy(experiment, fabric)
    ranks = len(fabric.hosts) if experiment.ranks is None else experiment.ranks
    if ranks > MAX_RANKS:
        raise LabError(f"{ranks} ranks are too many to plan for: use --ranks {MAX_RANKS} or fewer")
    hosts = tuple(place(fabric, ranks, experiment.placement, experiment.seed))
    if experiment.scale is not None:
        experiment.scale.fabric(fabric)
    return Site(experiment, made, fabric, hosts)


def plan(experiment: Experiment) -> Plan:
    """Refuses, as topologies.Refused, whatever cannot be run as asked."""
    _check_experiment(experiment)
    if experiment.transport not in traffic.TRANSPORTS:
        raise LabError(unknown("transport", experiment.transport, traffic.TRANSPORTS))
    chosen = site(experiment)
    ranks, fabric, hosts = chosen.ranks, chosen.fabric, chosen.hosts
    if ranks < 2:
        raise LabError(f"{ranks} rank has nobody to send to: a collective needs 2 or more")
    schedule = traffic.schedule(experiment.collective, experiment.algorithm, ranks, _demand(experiment))
    verify(schedule)
    planned = Plan(experiment, chosen.topology, fabric, hosts, schedule, _b_acc_mbps(fabric, hosts))
    _switches(planned)
    planned.sizes(experiment.scale or Scale())
    # More connections than a host has ports for are refused here.
    traffic.TRANSPORTS[experiment.transport].plan(endpoints(planned, fabric), schedule.connections)
    return planned


def endpoints(planned: Plan, emulated: Fabric, netns: Mapping[str, str] | None = None) -> list[Endpoint]:
    """Rank by rank, where its sockets are."""
    return [
        Endpoint(rank, host, str(emulated.scale_out_port(host).ip), netns[host] if netns else None)
        for rank, host in enumerate(planned.hosts)
    ]


def fabric_of(experiment: Experiment) -> Fabric:
    """The experiment's fabric, in hardware units."""
    return _fabric(experiment, _topology(experiment))


def _topology(experiment: Experiment) -> Topology:
    return topology(experiment.topology)


def _fabric(experiment: Experiment, made: Topology) -> Fabric:
    fabric = build(made)
    if user_code.is_file(experiment.topology):
        _require_usable(experiment.topology, fabric)
    return fabric.with_links(rate_mbps=experiment.link_rate_mbps, delay_us=experiment.delay_us or 0.0)


def _require_usable(spec: str, fabric: Fabric) -> None:
    """A user's own may be anything; ours are tested."""
    what = f"topology {spec!r}"
    if found := user_code.call(what, lambda: check_fabric(fabric)):
        raise LabError(f"{what}: {found[0]}; `run_topo.py check` tests all of it")


def _ask_policy(experiment: Experiment, fabric: Fabric) -> None:
    """A user's own is asked for its rules at once; ours are when paths are computed."""
    chosen = controller.policy(experiment.routing)
    if user_code.is_file(experiment.routing):
        controller.rules_of(chosen, fabric)


def _check_experiment(e: Experiment) -> None:
    if e.max_bytes < e.min_bytes:
        low, high = format_size(e.min_bytes), format_size(e.max_bytes)
        raise LabError(f"-e {high} is below -b {low}: use -e {low} or more, or a smaller -b")
    _check_pattern(e)


def _check_jitter(e: Experiment, fabric: Fabric) -> None:
    least = min((link.delay_us for link in fabric.links if link.kind != "scale-up"), default=0.0)
    if e.jitter_us > least:
        raise LabError(
            f"jitter {e.jitter_us:g}us is more than the delay of some link, {least:g}us: use a --delay that is as long or longer"
        )


def _check_pattern(e: Experiment) -> None:
    """A setting that would be ignored is a misunderstanding."""
    if e.flows_per_host != 1 and e.collective not in traffic.PATTERNS:
        raise LabError(
            f"--flows-per-host {e.flows_per_host} is not for {e.collective}, whose algorithm says who sends to whom: "
            f"use it with {', '.join(traffic.PATTERNS)}"
        )
    if (e.group_size, e.group_shift) != (None, 1) and e.collective != "group_shift":
        raise LabError(f"--group-size and --group-shift are not for {e.collective}: use --collective group_shift")


def _demand(e: Experiment) -> Demand:
    return Demand(e.flows_per_host, e.group_size, e.group_shift, e.seed)


def _b_acc_mbps(fabric: Fabric, hosts: Sequence[str]) -> float:
    """The smallest rank's, since a collective ends with its slowest."""
    return min(sum(link.rate_mbps for link in fabric.links_at(h) if link.kind != "scale-up") for h in hosts)


def _duration_s(schedule: Schedule, sent: NDArray[np.float64], nic_mbps: NDArray[np.float64]) -> float:
    """With nothing slower than the NICs: level after level, each as long as its busiest NIC. sent: (sends,) bytes."""
    byte_s = 8 / (nic_mbps * 1e6)
    n, total = schedule.n_ranks, 0.0
    for level in levels(schedule.dep_start, schedule.deps.astype(np.int64)):
        out = np.bincount(schedule.src[level], sent[level], n)
        into = np.bincount(schedule.dst[level], sent[level], n)
        total += float((np.maximum(out, into) * byte_s).max())
    return total


def _switches(planned: Plan) -> NDArray[np.float64]:
    """(sends,) switches on the shortest path of each send. Refuses a pair without one."""
    s, fabric = planned.schedule, planned.fabric
    distances = Distances(fabric)
    crossed = distances.links_between(planned.hosts, s.src, s.dst) + 1
    lost = ~np.isfinite(crossed)
    if lost.any():
        raise LabError(_unreachable(planned, list(dict.fromkeys(zip(s.src[lost], s.dst[lost], strict=True)))))
    return crossed


def _unreachable(planned: Plan, pairs: Sequence[tuple[int, int]]) -> str:
    hosts, fabric = planned.hosts, planned.fabric
    named = ", ".join(f"{hosts[a]} -> {hosts[b]}" for a, b in pairs[:_PAIRS_NAMED])
    in_use = {(src, dst) for src, dst, _ in planned.schedule.connections}
    what = (
        f"{planned.experiment.collective} by {planned.algorithm} has {len(pairs)} of {len(in_use)} pairs that "
        f"the scale-out network of {fabric.name} does not join, first {named}"
    )
    if hb_domains(fabric):
        return f"{what}: it takes a schedule that forwards inside the HB domains (hierarchical); use rail-optimised"
    return f"{what}: use another --placement or --collective"
