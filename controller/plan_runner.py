"""Carries out a plan on real optical switches: slice after slice, each at its time."""

import logging
import time
from typing import TYPE_CHECKING, Any

from controller.circuits.plan import Plan, check_plan
from controller.circuits.plan_file import plan_from_data
from controller.ryu_compat import hub
from topologies.errors import EmulationError, Refused

if TYPE_CHECKING:
    from controller.app import FabricApp
    from controller.ocs import CircuitChanger

log = logging.getLogger("controller")


class PlanRunner:
    """One plan at a time; the circuits of its last slice stay. `late_us`: how much later than planned a slice has begun, at
    most: a slice begins when the change to it is sent, and not before the one before it is over."""

    def __init__(self, app: "FabricApp", changer: "CircuitChanger", longest_dark_us: float) -> None:
        self._app = app
        self._changer = changer
        self._longest_dark_us = longest_dark_us
        self._plan: Plan | None = None
        self.begun = 0
        self.late_us = 0.0
        self.error: str | None = None

    def start(self, data: Any) -> dict[str, Any]:
        """data: what a plan file holds. Takes the place of a plan that is running. Raises Refused."""
        if not isinstance(data, dict):
            raise Refused("a plan must be an object with slices")
        fabric = self._app.state.fabric
        plan = plan_from_data(data, fabric)
        if plan.scheduler:
            raise Refused("a scheduler needs the demand: send the slices that it has made of it")
        check_plan(plan, fabric, self._longest_dark_us)
        self._plan, self.begun, self.late_us, self.error = plan, 0, 0.0, None
        hub.spawn(self._carry_out, plan)
        return self.summary()

    def stop(self) -> dict[str, Any]:
        """The circuits that are set stay. A change that is under way is completed first, so that the next plan finds none."""
        self._plan = None
        self._changer.wait()
        return self.summary()

    def summary(self) -> dict[str, Any]:
        plan = self._plan
        return {
            "running": plan is not None,
            "slices_begun": self.begun,
            "late_us": round(self.late_us, 1),
            "duty_cycle": plan.duty_cycle(self._longest_dark_us) if plan else None,
            "error": self.error,
        }

    def _carry_out(self, plan: Plan) -> None:
        begins = time.monotonic()
        n_slices = None if plan.cycles is None else plan.cycles * len(plan.slices)
        while plan is self._plan and (n_slices is None or self.begun < n_slices):
            one = plan.slices[self.begun % len(plan.slices)]
            self.late_us = max(self.late_us, (time.monotonic() - begins) * 1e6)
            self.begun += 1
            try:
                self._changer.set(one.circuits)
            except EmulationError as error:
                self.error = str(error)
                log.warning("plan given up: %s", error)
                break
            begins += one.length_us / 1e6
            hub.sleep(max(begins - time.monotonic(), 0.0))
        if plan is self._plan:
            self._plan = None
