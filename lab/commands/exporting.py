"""The schedule of an experiment, written for others' programs."""

from lab.commands import describing
from lab.errors import LabError
from lab.planning.experiment import Experiment
from lab.planning.plan import plan
from lab.planning.scale import Scale
from topologies import unknown
from traffic.formats import WRITERS


def write(e: Experiment, format_: str, file: str | None) -> None:
    """To the file, or to the terminal."""
    text = exported(e, format_)
    if file is None:
        print(text, end="")
    else:
        describing.write(file, text)


def exported(e: Experiment, format_: str) -> str:
    """What a run would send at its smallest size, in hardware units. Raises Refused."""
    if format_ not in WRITERS:
        raise LabError(unknown("format", format_, WRITERS))
    planned = plan(e)
    return WRITERS[format_](planned.schedule, planned.sizes(Scale())[0].count)
