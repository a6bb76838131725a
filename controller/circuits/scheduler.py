"""What a scheduler is: a pure function from demand to slices; and how its name is read.

solstice               a registered name
./mine.py:SCHEDULER    a function in a user's own file
"""

import math
from collections.abc import Callable, Mapping

from controller.circuits.slices import DemandMatrix, Parameters, Slice, check_matching, check_outlasts_dark
from topologies import user_code
from topologies.errors import Refused


class SchedulerError(Refused):
    """What a scheduler has returned is no schedule."""


Scheduler = Callable[[DemandMatrix, Parameters], tuple[Slice, ...]]


def parse_scheduler(spec: str, registry: Mapping[str, Scheduler]) -> Scheduler:
    """The scheduler that a text form names; refuses with the known names."""
    return user_code.function(spec, "scheduler", registry, "(demand, parameters) -> slices")


def slices_of(scheduler: Scheduler, demand: DemandMatrix, parameters: Parameters) -> tuple[Slice, ...]:
    """The scheduler's slices, checked. Raises Refused: a user's own scheduler may do anything."""
    what = f"scheduler {getattr(scheduler, '__name__', str(scheduler))}"
    slices = user_code.call(what, lambda: scheduler(demand, parameters))
    try:
        return _checked(slices, len(demand), parameters)
    except Refused as refusal:
        raise SchedulerError(f"{what}: {refusal}") from None


def _checked(slices: object, n: int, parameters: Parameters) -> tuple[Slice, ...]:
    if not isinstance(slices, tuple) or not all(isinstance(one, Slice) for one in slices):
        raise Refused("must return a tuple of Slice")
    for number, one in enumerate(slices, 1):
        if not one.matchings or parameters.uplinks % len(one.matchings):
            raise Refused(
                f"slice {number} has {len(one.matchings)} matchings, which cannot be spread evenly over "
                f"{parameters.uplinks} uplinks"
            )
        if not math.isfinite(one.length_us):
            raise Refused(f"slice {number} has no end")
        check_outlasts_dark(one.length_us, parameters.dark_us, f"slice {number}")
        for matching in one.matchings:
            check_matching(matching, n)
    return slices
