"""Where an experiment's ranks are: its fabric and their hosts, whatever they will send. Pure."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

import controller
from controller.circuits.device import MOST_OF_REQUESTED
from controller.circuits.plan import Plan as CircuitPlan
from controller.circuits.plan_file import texts_of
from controller.circuits.slices import DemandMatrix
from lab.errors import LabError
from lab.planning import sending
from lab.planning.circuits import Optical, SetUp, bridges_crossed, device_text, optical
from lab.planning.experiment import Experiment
from lab.planning.helpers import Helpers, helpers_of, role_needed
from lab.planning.interfaces import Interfaces, interfaces
from lab.planning.scale import Load, Scale
from topologies import Fabric, Topology, topology, user_code
from topologies.conformance import check_fabric
from topologies.describe import Distances
from topologies.impairments import Impairments
from topologies.rails import HB_RATE
from topologies.topology import build
from traffic.framing import Framing
from traffic.placement import place

# Schedules grow with the ranks squared: a ring of these has two million sends.
MAX_RANKS = 1024
# What a change of circuits takes beside the dark: routes, and a busy machine.
_SOFTWARE_US = 100_000.0


@dataclass(frozen=True)
class Site:
    """Where an experiment's ranks are. fabric: in hardware units; hosts: rank -> host name, an algorithm's helpers last."""

    experiment: Experiment
    topology: Topology
    fabric: Fabric
    hosts: tuple[str, ...]

    @cached_property
    def members(self) -> tuple[str, ...]:
        return tuple(host for host in self.hosts if not self.fabric.node(host).is_helper)

    @property
    def ranks(self) -> int:
        """Helpers do not count."""
        return len(self.members)

    @property
    def helpers(self) -> tuple[str, ...]:
        return self.hosts[self.ranks :]

    @property
    def framing(self) -> Framing:
        """Of the transport."""
        return sending.framing(self.experiment)

    def impairments(self, scale: Scale) -> Impairments:
        """What the machine's links do to frames, every time multiplied as the scale says."""
        e = self.experiment
        return Impairments(
            loss=e.loss_percent / 100,
            jitter_us=e.jitter_us * scale.time_dilation,
            ecn_threshold_us=None if e.ecn_threshold_us is None else e.ecn_threshold_us * scale.time_dilation,
            seed=e.seed,
            queue_frames=e.queue_frames,
            hold_us=self._hold_us(scale),
        )

    def _hold_us(self, scale: Scale) -> float | None:
        """The dark, with what software may add to it."""
        if not self.optical or self.optical.in_the_dark != "hold":
            return None
        return self.optical.device.longest_dark_us * scale.time_dilation * MOST_OF_REQUESTED + _SOFTWARE_US

    @property
    def has_delays(self) -> bool:
        """Some link has a delay, asked for or the topology's own."""
        return any(link.delay_us > 0 for link in self.fabric.links)

    @cached_property
    def optical(self) -> Optical | None:
        """What the experiment wants of the fabric's optical switches; None where it has none, or they are not ours to set."""
        return optical(self.experiment, self.fabric)

    @property
    def routing(self) -> str:
        """As the results call it."""
        return f"circuits:{self.optical.source}" if self.optical else self.experiment.routing

    @property
    def resolved(self) -> dict[str, str]:
        """Settings whose value the fabric decides."""
        if not self.optical:
            return {}
        return {
            "routing": self.routing,
            "circuits": self.optical.source,
            "dark": self.optical.device.name,
            "in_the_dark": self.optical.in_the_dark,
        }

    @cached_property
    def demand(self) -> DemandMatrix:
        """[from, to] of the ends that circuits join, where there are any: what a program sends is not known, so every rank
        sends as much to every other."""
        assert self.optical
        src, dst = np.divmod(np.arange(self.ranks**2), self.ranks)
        return self.optical.demand(self.hosts, src, dst, np.full(len(src), 1e9))

    @cached_property
    def circuits(self) -> CircuitPlan | None:
        """Where there are optical switches: what they are to do."""
        return self.optical.plan(self.demand) if self.optical else None

    def set_up(self, scale: Scale) -> SetUp | None:
        """What the controller is told of circuits, every time multiplied as the scale says."""
        if not self.optical or not self.circuits:
            return None
        return SetUp(
            device_text(self.optical.device.dilated(scale.time_dilation)),
            self.optical.in_the_dark,
            self.experiment.seed,
            tuple(texts_of(self.optical.to_begin_with(self.circuits, self.demand), self.optical.joined)),
        )

    def crossed(self, src: NDArray[np.signedinteger[Any]], dst: NDArray[np.signedinteger[Any]]) -> NDArray[np.float64]:
        """(sends,) switches between ranks, over the network outside their HB domains; inf where there is no way."""
        if self.circuits:
            return bridges_crossed(self.fabric, self.circuits.slices, self.hosts, src, dst)
        return Distances(self.fabric).links_between(self.hosts, src.astype(np.int32), dst.astype(np.int32)) + 1

    @property
    def nic_mbps(self) -> float:
        """The fastest NIC of a rank."""
        return float(self.nic_mbps_by_rank.max())

    @property
    def nic_mbps_by_rank(self) -> NDArray[np.float64]:
        return self.interfaces.mbps[: self.ranks]

    @cached_property
    def interfaces(self) -> Interfaces:
        return interfaces(self.fabric, self.hosts)

    @cached_property
    def load(self) -> Load:
        """While every rank sends at its NIC's rate to the one half-way round: whatever a program does, switches see little more.
        Its bytes are its own: no size is to be divided."""
        src = np.arange(self.ranks)
        crossed = self.crossed(src, (src + self.ranks // 2) % self.ranks)
        frames_per_s = (
            self.nic_mbps_by_rank * 1e6 / 8 / self.framing.payload_bytes * (1 + 1 / self.framing.frames_per_ack)
        )
        return Load(
            frame_hops_per_s=float((frames_per_s * np.where(np.isfinite(crossed), crossed, 0)).sum()),
            traffic_s=0.0,
            step_bytes=math.inf,
            rate_mbps=self.nic_mbps,
            mss=self.framing.payload_bytes,
        )


def site(experiment: Experiment, most_ranks: int = MAX_RANKS) -> Site:
    """The fabric and the ranks' places on it. Refuses, as topologies.Refused, what cannot be built as asked."""
    if experiment.loss_percent == 100:
        raise LabError("loss 100% lets nothing through: use less")
    made = _topology(experiment)
    fabric = _fabric(experiment, made)
    _check_jitter(experiment, fabric)
    _ask_policy(experiment, fabric)
    ranks = len(fabric.accelerators) if experiment.ranks is None else experiment.ranks
    if ranks > most_ranks:
        raise LabError(f"{ranks} ranks are too many to plan for: use --ranks {most_ranks} or fewer")
    hosts = tuple(place(fabric, ranks, experiment.placement, experiment.seed))
    return Site(experiment, made, fabric, hosts)


def with_helpers_of(chosen: Site) -> tuple[Site, Helpers | None]:
    """The site with hosts for the algorithm's helpers, if it needs any, and what those are."""
    e = chosen.experiment
    helpers = helpers_of(e, chosen.fabric, chosen.members)
    if helpers is None:
        return chosen, None
    fabric = helpers.attached(chosen.fabric, e.delay_us or 0.0)
    _ask_policy(e, fabric)
    attached = (node.name for node in fabric.helpers[-len(helpers.at) :])
    return replace(chosen, fabric=fabric, hosts=(*chosen.members, *attached)), helpers


def require_shapeable(chosen: Site) -> None:
    """Refuses a scale at which some link cannot be shaped."""
    if chosen.experiment.scale is not None:
        chosen.experiment.scale.fabric(chosen.fabric)


def fabric_of(experiment: Experiment) -> Fabric:
    """The experiment's fabric, in hardware units, with the algorithm's helpers."""
    if role_needed(experiment):
        return with_helpers_of(site(experiment))[0].fabric
    return _fabric(experiment, _topology(experiment))


def _topology(experiment: Experiment) -> Topology:
    return topology(experiment.topology)


def _fabric(experiment: Experiment, made: Topology) -> Fabric:
    fabric = build(made)
    if user_code.is_file(experiment.topology):
        _require_usable(experiment.topology, fabric)
    # An HB rate that somebody wrote is meant; the topology's own stands for its ratio to the NICs' rate.
    keep = f"{HB_RATE}=" in experiment.topology
    return fabric.with_links(
        rate_mbps=experiment.link_rate_mbps, delay_us=experiment.delay_us or 0.0, keep_scale_up=keep
    )


def _require_usable(spec: str, fabric: Fabric) -> None:
    """A user's own may be anything; ours are tested."""
    what = f"topology {spec!r}"
    if found := user_code.call(what, lambda: check_fabric(fabric)):
        raise LabError(f"{what}: {found[0]}; `run_topo.py check` tests all of it")


def _ask_policy(experiment: Experiment, fabric: Fabric) -> None:
    """Refuses one that does not fit the fabric. A user's own is asked for its rules at once; ours are when paths are computed."""
    chosen = controller.policy_for(experiment.routing, fabric)
    if user_code.is_file(experiment.routing):
        controller.rules_of(chosen, fabric)


def _check_jitter(e: Experiment, fabric: Fabric) -> None:
    least = min((link.delay_us for link in fabric.links if link.kind != "scale-up"), default=0.0)
    if e.jitter_us > least:
        raise LabError(
            f"jitter {e.jitter_us:g}us is more than the delay of some link, {least:g}us: use a --delay that is as long or longer"
        )
