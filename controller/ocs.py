"""Changes the circuits of real optical switches: carries out `circuits.changing`, and measures how long circuits were dark."""

import logging
import time
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from controller.circuits.changing import CrossConnects, Phase, check_bijective, reconfiguration, rules_of
from controller.circuits.device import MOST_OF_REQUESTED, Manner
from controller.circuits.plan_file import circuits_from_data, texts_of
from controller.circuits.routing import Circuits, OverCircuits, Ways
from controller.circuits.uplinks import uplinks
from controller.plan_runner import PlanRunner
from controller.ryu_compat import hub
from topologies.errors import EmulationError, Refused
from topologies.gate import Gate
from topologies.shaping import OCS_ROLE

if TYPE_CHECKING:
    from controller.app import FabricApp

log = logging.getLogger("controller")

# Packet switches confirm within milliseconds; one that does not for so long has gone.
_SETTLE_S, _POLL_S = 10.0, 0.001
# Without a frame for so long a link is out of use; some milliseconds are what a frame takes through a busy machine's switches.
_QUIET_S = 0.01
_REMEMBERED = 20_000


@dataclass(frozen=True)
class Light:
    """One cross-connect: the dark before it, and from when until when light passed. achieved_us: from the switch's
    confirmation that what its ports had before is torn down, or from the beginning where they had nothing, until it confirmed
    this one: not less than requested_us. up_s, down_s: confirmed, on CLOCK_MONOTONIC, which all processes share; down_s:
    None = it is still up."""

    change: int
    ocs: str
    source: int
    target: int
    requested_us: float
    achieved_us: float
    up_s: float
    down_s: float | None = None

    @property
    def is_met(self) -> bool:
        return self.achieved_us <= MOST_OF_REQUESTED * self.requested_us


class CircuitChanger:
    """One change at a time; `past()` has the last cross-connects that were set."""

    def __init__(self, app: "FabricApp", manner: Manner) -> None:
        self._app = app
        self._manner = manner
        self._lock = hub.BoundedSemaphore(1)
        self.plan = PlanRunner(app, self, manner.device.longest_dark_us)
        self.n_changes = 0
        self._gone: deque[Light] = deque(maxlen=_REMEMBERED)
        self._shining: dict[tuple[str, int], Light] = {}
        fabric = app.state.fabric
        self.uplinks = uplinks(fabric)
        self._gate = Gate() if manner.in_the_dark == "hold" else None
        # At the other end of the cable in a port of an optical switch.
        self._at_port = {
            (up.ocs, up.ocs_port): next(p.intf for p in fabric.ports_of(up.switch) if p.number == up.port)
            for its in self.uplinks.of
            for up in its
        }
        self._ports = {
            s.name: [p.number for p in fabric.ports_of(s.name)] for s in fabric.switches if s.role == OCS_ROLE
        }

    @property
    def policy(self) -> OverCircuits:
        policy = self._app.state.policy
        assert isinstance(policy, OverCircuits)  # __main__ starts it with this one
        return policy

    def wait(self) -> None:
        """Until no change is under way."""
        with self._lock:
            pass

    def set(self, wanted: Circuits) -> list[Light]:
        """Returns when the circuits are up and all packet switches route over them. Raises Refused, EmulationError."""
        for ocs, its in wanted.items():
            if ocs not in self._ports:
                raise Refused(f"{ocs} is no optical switch of this fabric: choose from {', '.join(self._ports)}")
            check_bijective(ocs, its, self._ports[ocs])
        with self._lock:
            return self._set({ocs: dict(wanted.get(ocs, {})) for ocs in self._ports})

    def _set(self, wanted: Circuits) -> list[Light]:
        present = {ocs: dict(self.policy.set_up.get(ocs, {})) for ocs in self._ports}
        dark_us = self._manner.device.dark_us(self.n_changes, self._manner.seed)
        planned = reconfiguration(
            present,
            wanted,
            dict.fromkeys(self._ports, dark_us),
            make_before_break=self._manner.make_before_break,
        )
        if not planned:
            return []
        if missing := [ocs for ocs in planned if ocs not in self._app.datapaths]:
            raise EmulationError(f"{missing[0]} is not connected: its circuits stay as they are")
        self.n_changes += 1
        kept = {ocs: dict(its.items() & wanted[ocs].items()) for ocs, its in present.items()}
        if self._manner.in_the_dark == "hold":
            self._hold(present, wanted)
        else:
            self._route(kept if self._manner.in_the_dark == "divert" else present)
        torn = {ocs: hub.Event() for ocs in planned}
        threads = [
            hub.spawn(self._carry_out, ocs, phases, dark_us, torn[ocs], raise_error=True)
            for ocs, phases in planned.items()
        ]
        if self._manner.in_the_dark == "drop":
            # Routes change while it is dark, so that new circuits carry from when they are up; before, they would lead to
            # where the old ones went.
            for event in torn.values():
                event.wait()
            self._route(wanted)
        found = [light for thread in threads for light in thread.wait()]
        self._route(None)
        if self._gate:
            self._release(present, wanted)
        late = [light for light in found if not light.is_met]
        if late:
            worst = max(light.achieved_us for light in late)
            log.warning("change %d: dark for %.0f us, %.0f were asked for", self.n_changes, worst, dark_us)
        return found

    def _hold(self, present: Circuits, wanted: Circuits) -> None:
        """What has a way by circuits that come waits before them from now on; what is on its way by those that go gets there."""
        assert self._gate
        ending = [(ocs, i) for ocs, its in present.items() for i in its if i not in wanted[ocs]]
        self._gate.shut(source for source, _ in self._coming(present, wanted))
        self._route(wanted)
        self._await_quiet([self._at_port[at] for at in ending])

    def _release(self, present: Circuits, wanted: Circuits) -> None:
        """Lets go what was held, when its circuit really carries: what was dropped in the dark the optical switch drops from its
        cache for as long as it has not compared that with its rules."""
        assert self._gate
        coming = self._coming(present, wanted)
        self._gate.await_light(coming, _SETTLE_S, hub.sleep)
        self._gate.open(source for source, _ in coming)

    def _coming(self, present: Circuits, wanted: Circuits) -> list[tuple[str, str]]:
        """(the interface that sends into it, the one that receives from it) of each cross-connect to be set."""
        return [
            (self._at_port[ocs, i], self._at_port[ocs, o])
            for ocs, its in wanted.items()
            for i, o in sorted(its.items() - present[ocs].items())
        ]

    def _await_quiet(self, intfs: list[str]) -> None:
        """Until nothing waits in their queues and nothing more has come: a switch's cached flows follow its rules later than it
        confirms them."""
        assert self._gate
        deadline = time.monotonic() + _SETTLE_S
        before = -1
        while time.monotonic() < deadline:
            waiting, passed = self._gate.waiting_and_passed(intfs)
            if not waiting and passed == before:
                return
            before = passed
            hub.sleep(_QUIET_S)
        log.warning("change %d: traffic still took circuits that go", self.n_changes)

    def _carry_out(self, ocs: str, phases: list[Phase], dark_us: float, torn: Any) -> list[Light]:
        """In a green thread for each optical switch: its phases, in time. torn: an event, set when nothing is torn down any
        more."""
        try:
            return self._phases(ocs, phases, dark_us, torn)
        finally:
            torn.set()

    def _phases(self, ocs: str, phases: list[Phase], dark_us: float, torn: Any) -> list[Light]:
        found, now = list[Light](), dict(self.policy.set_up.get(ocs, {}))
        since = time.monotonic()
        for number, phase in enumerate(phases):
            if all(left.operation == "set-up" for left in phases[number:]):
                torn.set()
            _sleep_until(since + phase.wait_us / 1e6)
            self._app.send({ocs: phase.steps}, self._app.datapaths)
            confirmed = time.monotonic()
            if phase.operation == "tear-down":
                now = {i: o for i, o in now.items() if (i, o) not in phase.cross_connects}
                self._went_down(ocs, phase, confirmed)
            else:
                # Another dict: the policy holds the one before.
                now = {**now, **dict(phase.cross_connects)}
                achieved_us = (confirmed - since) * 1e6
                lights = [
                    Light(self.n_changes, ocs, i, o, dark_us, achieved_us, confirmed) for i, o in phase.cross_connects
                ]
                self._shining.update(((ocs, light.source), light) for light in lights)
                found += lights
            since = confirmed
            self._holds(ocs, now)
        return found

    def _went_down(self, ocs: str, phase: Phase, at_s: float) -> None:
        for source, _ in phase.cross_connects:
            # Those that were set from the start were never set by a change.
            if light := self._shining.pop((ocs, source), None):
                self._gone.append(replace(light, down_s=at_s))

    def _holds(self, ocs: str, cross_connects: CrossConnects) -> None:
        """What the switch has confirmed: both sides of the comparison that convergence makes, so that it changes nothing."""
        policy = self.policy
        self._app.state.policy = replace(policy, set_up={**policy.set_up, ocs: cross_connects})
        if ocs in self._app.state.installed:
            self._app.state.installed[ocs] = rules_of(cross_connects)

    def _route(self, circuits: Circuits | None) -> None:
        """Packet switches send over these from now on, None = over all that are set; waits until they have confirmed it."""
        self._app.state.policy = replace(self.policy, routed=circuits)
        self._app.wake()
        deadline = time.monotonic() + _SETTLE_S
        while not self._app.state.is_converged:
            if time.monotonic() > deadline:
                raise EmulationError(f"packet switches have not confirmed their routes after {_SETTLE_S:g} s")
            hub.sleep(_POLL_S)

    # -- for people -------------------------------------------------------------------------------------------------

    def set_by_name(self, texts: Any) -> dict[str, Any]:
        """['leaf1 - leaf2', ...] are all circuits from now on. Raises Refused, in the words of a plan file."""
        found = self.set(circuits_from_data(texts, self.uplinks, "circuits"))
        return {"changed": [_plain(light) for light in found], **self.summary()}

    def summary(self) -> dict[str, Any]:
        set_up = self.policy.set_up
        ways = Ways(self._app.state.fabric, set_up, self._app.state.down, self.policy.hop_limit)
        return {
            "circuits": texts_of(set_up, self.uplinks),
            "unreachable": [list(pair) for pair in ways.unreachable],
            "device": self._manner.device.name,
            "in_the_dark": self._manner.in_the_dark,
            "changes": self.n_changes,
        }

    def past(self) -> list[dict[str, Any]]:
        return [_plain(light) for light in (*self._gone, *self._shining.values())]


def _plain(light: Light) -> dict[str, Any]:
    return {**asdict(light), "met": light.is_met}


def _sleep_until(deadline: float) -> None:
    """epoll's timeouts are whole milliseconds, rounded up: the last one is spent in turns with the other green threads."""
    while (left_s := deadline - time.monotonic()) > 0:
        hub.sleep(max(left_s - 0.001, 0.0))
