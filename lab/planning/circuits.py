"""Which circuits an experiment has: from its settings, its fabric and what its ranks send to a plan, in hardware units. Pure.

A plan with one slice is set before the first packet and stays: nothing is dark, and every path is known. One with several
begins with each iteration and goes round until that is over, so that all iterations see the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.circuits.device import OcsDevice, parse_device
from controller.circuits.plan import Plan, PlannedSlice, check_plan, planned
from controller.circuits.plan_file import read_plan, texts_of
from controller.circuits.routing import HOP_LIMIT, Circuits, Ways, edges_of
from controller.circuits.schedulers import SCHEDULERS, scheduler, slices_of
from controller.circuits.slices import DemandMatrix, Parameters, demand_matrix
from controller.circuits.uplinks import Uplink, Uplinks, check_radix, uplinks
from lab.errors import LabError
from lab.planning.experiment import Experiment
from topologies import Fabric, Port, Refused, unknown, user_code
from topologies.shaping import OCS_ROLE
from topologies.units import parse_duration_us

# A static matching that joins all leaves and is made for the default collective; the kind of device that is deployed
# (Palomar, a 3D-MEMS switch: H. Liu et al., "Lightwave Fabrics", SIGCOMM 2023).
DEFAULT_CIRCUITS, DEFAULT_DARK, DEFAULT_IN_THE_DARK = "ring-permutations", "3d-mems", "drop"
# A tenth of the time is dark, as in RotorNet; of a device that takes no time, an arbitrary length.
_SLICES_OF_DARK, _SLICE_US = 10.0, 1000.0
_PARAMETERS = ("slice", "guardband")


@dataclass(frozen=True)
class Optical:
    """A fabric's optical switches and what an experiment wants of them. source: as the setting `circuits` was written; asked: the
    plan that it names, which may leave slices to a scheduler."""

    fabric: Fabric
    joined: Uplinks
    device: OcsDevice
    in_the_dark: str
    source: str
    asked: Plan

    def demand(self, hosts: Sequence[str], src: NDArray[Any], dst: NDArray[Any], n_bytes: NDArray[Any]) -> DemandMatrix:
        """[from, to] of the ends that circuits join: bytes. src, dst: (sends,) ranks; n_bytes: (sends,); hosts: rank -> name."""
        end_of = {uplink.switch: uplink.end for its in self.joined.of for uplink in its}
        ends = np.array([end_of.get(self.fabric.switch_of(host), -1) for host in hosts])
        n = len(self.joined.ends)
        outside = (ends[src] >= 0) & (ends[dst] >= 0) & (ends[src] != ends[dst])
        place = ends[src[outside]] * n + ends[dst[outside]]
        return demand_matrix(np.bincount(place, n_bytes[outside], n * n).reshape(n, n))

    def plan(self, demand: DemandMatrix) -> Plan:
        """With slices. Refuses slices that are too short, and traffic, or its acknowledgements, that none of them gives a way."""
        found = self.asked if self.asked.slices else self._scheduled(demand)
        dark_us = 0.0 if len(found.slices) == 1 else self.device.longest_dark_us
        check_plan(found, self.fabric, dark_us, demand + demand.T, f"circuits {self.source}")
        return found

    def _scheduled(self, demand: DemandMatrix) -> Plan:
        parameters = self.parameters
        slices = slices_of(scheduler(str(self.asked.scheduler)), demand, parameters)
        if not slices:
            # Nothing is sent from end to end, and it wants no circuits.
            slices = slices_of(SCHEDULERS["static"], demand, parameters)
        return replace(self.asked, slices=planned(slices, self.joined), scheduler=None)

    @property
    def parameters(self) -> Parameters:
        """What a scheduler is told."""
        dark_us = self.device.longest_dark_us + self.asked.guardband_us
        uplink = self.joined.of[0][0]
        (rate_mbps,) = {
            link.rate_mbps for own, _, link in self.fabric.neighbours(uplink.switch) if own.number == uplink.port
        }
        return Parameters(
            rate_mbps=rate_mbps,
            uplinks=self.joined.per_end,
            dark_us=dark_us,
            slice_us=self.asked.slice_us or _SLICES_OF_DARK * dark_us or _SLICE_US,
            packet_mbps=_packet_mbps(self.fabric, self.joined),
        )

    def to_begin_with(self, plan: Plan, demand: DemandMatrix) -> Circuits:
        """Circuits over which every pair with demand has a way at once, for connections are made before the plan begins.
        Refused where there are none."""
        # They stay until the plan begins, however long that is.
        long = replace(self, asked=Plan()).parameters
        static = planned(slices_of(SCHEDULERS["static"], demand, long), self.joined)
        pairs = self._pairs(demand + demand.T)
        for one in (*plan.slices, *static):
            if not pairs & set(Ways(self.fabric, one.circuits).unreachable):
                return one.circuits
        raise LabError(
            f"circuits {self.source}: no set of circuits gives all that exchange traffic a way of at most {HOP_LIMIT} circuits "
            "at the same time, so connections cannot be made: use more uplinks, fewer leaves, or a hybrid (ocs-leaf:spines=2)"
        )

    # -- what it looks like from its cables -----------------------------------------------------------------------------

    @cached_property
    def _at(self) -> Mapping[tuple[str, int], Uplink]:
        return {(uplink.ocs, uplink.ocs_port): uplink for its in self.joined.of for uplink in its}

    def cable_at(self, ocs: str, port: int) -> str:
        """'leaf1:5': the other end of the cable in a port of an optical switch."""
        uplink = self._at[ocs, port]
        return f"{uplink.switch}:{uplink.port}"

    def egress(self, ocs: str, port: int) -> str:
        """The interface there."""
        return next(own.intf for own, _, _ in self.fabric.neighbours(ocs) if own.number == port)

    @cached_property
    def circuit_intfs(self) -> tuple[frozenset[str], frozenset[str]]:
        """Of the packet switches toward the optical ones, and the other way."""
        ends = {True: set[str](), False: set[str]()}
        for link in self.fabric.links:
            if link.kind == "circuit":
                for port in link.ports:
                    ends[self.fabric.node(port.node).role == OCS_ROLE].add(port.intf)
        return frozenset(ends[False]), frozenset(ends[True])

    @cached_property
    def packet_intfs(self) -> frozenset[str]:
        """By which ends reach a packet network that leads to others."""
        ends = [{uplink.switch for uplink in its} for its in self.joined.of]
        return frozenset(own.intf for its in ends for own, _ in _packet_ports(self.fabric, its))

    def _pairs(self, demand: DemandMatrix) -> set[tuple[str, str]]:
        """(from, to) of the packet switches whose ends have demand."""
        switches = [{uplink.switch for uplink in its} for its in self.joined.of]
        return {(a, b) for i, j in np.argwhere(demand > 0) for a in switches[int(i)] for b in switches[int(j)]}


def optical(e: Experiment, fabric: Fabric) -> Optical | None:
    """None where the fabric has no optical switch, or the controller is the user's own. Refuses settings without a meaning."""
    if e.controller or not any(switch.role == OCS_ROLE for switch in fabric.switches):
        _refuse_circuits(e, fabric)
        return None
    if e.routing != Experiment.routing:
        raise LabError(
            f"--routing {e.routing} is not for {fabric.name}, where routes follow the circuits: leave it out and use --circuits"
        )
    joined = uplinks(fabric)
    device = parse_device(e.dark or DEFAULT_DARK)
    check_radix(fabric, device)
    source = e.circuits or DEFAULT_CIRCUITS
    return Optical(fabric, joined, device, e.in_the_dark or DEFAULT_IN_THE_DARK, source, parse_circuits(source, fabric))


def _refuse_circuits(e: Experiment, fabric: Fabric) -> None:
    given = {"--dark": e.dark, "--circuits": e.circuits, "--in-the-dark": e.in_the_dark}
    for option, value in given.items():
        if value is not None:
            why = (
                "which the controller of your own sets"
                if e.controller
                else f"of which {fabric.name} has none: use --topology ocs-leaf or ocs-dragonfly"
            )
            raise LabError(f"{option} {value} is about optical circuits, {why}")


def parse_circuits(text: str, fabric: Fabric) -> Plan:
    """'plan.toml', 'plan.csv', 'solstice', './mine.py:SCHEDULER', each scheduler with ':slice=1ms,guardband=20us'."""
    if Path(text).suffix in (".toml", ".csv"):
        return read_plan(text, fabric)
    path, dot_py, rest = text.rpartition(".py:") if user_code.is_file(text) else ("", "", text)
    name, _, given = rest.partition(":")
    scheduler(f"{path}{dot_py}{name}")
    times = _times(text, given)
    return Plan(
        scheduler=f"{path}{dot_py}{name}", slice_us=times.get("slice"), guardband_us=times.get("guardband", 0.0)
    )


def _times(text: str, given: str) -> dict[str, float]:
    found = {}
    for part in filter(None, given.split(",")):
        key, _, value = part.partition("=")
        if key not in _PARAMETERS:
            raise LabError(f"circuits {text}: {unknown('parameter', key, _PARAMETERS)}")
        try:
            found[key] = parse_duration_us(value)
        except Refused as refusal:
            raise LabError(f"circuits {text}: {key}: {refusal}") from None
    return found


def _packet_mbps(fabric: Fabric, joined: Uplinks) -> float:
    """The least that an end has into a packet network that leads to others."""
    ends = [{uplink.switch for uplink in its} for its in joined.of]
    return min(sum(rate_mbps for _, rate_mbps in _packet_ports(fabric, its)) for its in ends)


def _packet_ports(fabric: Fabric, end: set[str]) -> Iterator[tuple[Port, float]]:
    """(port, its rate) of an end's switches toward packet switches outside it."""
    for switch in sorted(end):
        for own, far, link in fabric.neighbours(switch):
            if link.kind != "circuit" and not fabric.node(far.node).is_host and far.node not in end:
                yield own, link.rate_mbps


# -- as the machine emulates them ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SetUp:
    """What the controller is started with. dark: of the device; circuits: by name, set before the first packet."""

    dark: str
    in_the_dark: str
    seed: int
    circuits: tuple[str, ...]


def device_text(device: OcsDevice) -> str:
    """What `parse_device` reads."""
    return f"{device.switching_us:.3f}us+{device.link_up_us:.3f}us~{device.jitter_us:.3f}us"


def plan_data(plan: Plan, joined: Uplinks) -> dict[str, Any]:
    """What `plan_from_data` reads."""
    data: dict[str, Any] = {
        "guardband": f"{plan.guardband_us:.3f}us",
        "slices": [
            {"circuits": texts_of(one.circuits, joined), "length": f"{one.length_us:.3f}us"} for one in plan.slices
        ],
    }
    return data if plan.cycles is None else data | {"cycles": plan.cycles}


# -- how far it is ------------------------------------------------------------------------------------------------------


def bridges_crossed(
    fabric: Fabric, slices: Sequence[PlannedSlice], hosts: Sequence[str], src: NDArray[Any], dst: NDArray[Any]
) -> NDArray[np.float64]:
    """(sends,) switches on the way of each, optical ones among them, in the slice where they are most; inf where no slice gives
    it a way."""
    switches = [fabric.switch_of(host) for host in hosts]
    walks = [_Walk(fabric, one.circuits) for one in slices]
    known: dict[tuple[str, str], float] = {}

    def most(a: str, b: str) -> float:
        counts = [count for walk in walks if (count := walk.bridges(a, b))]
        return float(max(counts, default=np.inf))

    for a, b in {(switches[i], switches[j]) for i, j in zip(src.tolist(), dst.tolist(), strict=True)}:
        known[a, b] = most(a, b)
    return np.array([known[switches[i], switches[j]] for i, j in zip(src.tolist(), dst.tolist(), strict=True)], float)


class _Walk:
    def __init__(self, fabric: Fabric, circuits: Circuits) -> None:
        self._ways = Ways(fabric, circuits)
        self._over: Mapping[tuple[str, int], tuple[str, bool]] = {
            (edge.switch, edge.port): (edge.peer, edge.is_circuit) for edge in edges_of(fabric, circuits)
        }

    def bridges(self, at: str, to: str) -> int:
        """On the first of the ways; 0 where there is none. No way circles (`controller.circuits.routing`)."""
        count = 1
        while at != to:
            ports = self._ways.ports(at, to)
            if not ports:
                return 0
            at, is_circuit = self._over[at, ports[0]]
            count += 1 + is_circuit
        return count
