"""Has the controller carry out a plan of circuits for as long as something runs, and reads what came of it. An edge."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from controller import client
from lab.machine.sandbox import REST_PORT
from lab.planning.circuits import plan_data
from lab.planning.scale import Scale
from lab.planning.site import Site

_REST = f"http://127.0.0.1:{REST_PORT}"


class Switching:
    """late_us: how much later than planned a slice has begun, at most; error: why a plan was given up; history: of every
    cross-connect that a change has set, as GET /circuits/history has it; complete: whether the controller still knew all."""

    def __init__(self, longest_dark_us: float) -> None:
        # A plan that is ended first completes the change that is under way.
        self._timeout_s = client.TIMEOUT_S + longest_dark_us / 1e6
        self.late_us = 0.0
        self.error: str | None = None
        self.complete = True
        self._known: dict[tuple[int, str, int], dict[str, Any]] = {}

    @contextmanager
    def carrying_out(self, data: dict[str, Any]) -> Iterator[None]:
        """data: what a plan file holds. The circuits of the last slice stay."""
        client.start_plan(_REST, data, self._timeout_s)
        try:
            yield
        finally:
            told = client.stop_plan(_REST, self._timeout_s)
            self.late_us = max(self.late_us, told["late_us"])
            self.error = self.error or told["error"]
            self._read()

    @property
    def history(self) -> list[dict[str, Any]]:
        return list(self._known.values())

    def _read(self) -> None:
        """After each plan, because the controller remembers the last ones only."""
        told = client.circuit_history(_REST, self._timeout_s)
        last = max((change for change, _, _ in self._known), default=0)
        # A change that only tears down sets nothing; plans have none such, but for slices without circuits.
        self.complete = self.complete and min((one["change"] for one in told), default=0) <= last + 1
        self._known.update({(one["change"], one["ocs"], one["source"]): one for one in told})


def switching(site: Site, scale: Scale) -> Switching | None:
    """None where circuits stay as they were set to begin with, or there are none."""
    if not site.optical or not site.circuits or len(site.circuits.slices) == 1:
        return None
    return Switching(site.optical.device.dilated(scale.time_dilation).longest_dark_us)


def all_the_time(site: Site, scale: Scale) -> AbstractContextManager[None]:
    """The site's plan, round and round, for what is not measured iteration by iteration."""
    made = switching(site, scale)
    if made is None or not site.optical or not site.circuits:
        return nullcontext()
    return made.carrying_out(plan_data(site.circuits.dilated(scale.time_dilation), site.optical.joined))
