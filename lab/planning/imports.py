"""A schedule of the user's own in a collective's place, read from its file."""

from dataclasses import replace
from glob import escape
from pathlib import Path

from lab.errors import LabError
from lab.planning.experiment import OWN_SIZE, Experiment
from traffic import Schedule
from traffic.contracts import buffer_ratio
from traffic.conventions import ELEMENT_BYTES
from traffic.formats import READERS_OF_RANKS, read_schedule, split_spec
from traffic.formats.source import MAX_FILE_BYTES, MAX_RANKS, Source


def read(spec: str) -> Schedule:
    """'goal:FILE' or 'FILE.goal'. The schedule's algorithm is the file's name. Raises Refused, naming file and line."""
    format_, file = split_spec(spec)
    path = Path(file).expanduser()
    paths = _of_ranks(path) if format_ in READERS_OF_RANKS else [path]
    return read_schedule(format_, [Source(each.name, _data(each)) for each in paths])


def _of_ranks(path: Path) -> list[Path]:
    """Rank by rank, NAME.0.et, NAME.1.et, ..., of which `path` names the first, or is NAME or NAME.et."""
    name = path.name.removesuffix(".et").removesuffix(".0")
    found = sorted(path.parent.glob(f"{escape(name)}.*.et"))
    numbers = {each.name[len(name) + 1 : -3] for each in found}
    wanted = [path.parent / f"{name}.{rank}.et" for rank in range(max(1, min(len(found), MAX_RANKS + 1)))]
    for rank, each in enumerate(wanted):
        if str(rank) not in numbers:
            raise LabError(
                f"schedule {str(path)!r}: there is no {each.name}: a trace has a file for each rank, from 0 on"
            )
    return wanted


def _data(path: Path) -> bytes:
    try:
        with path.open("rb") as opened:
            return opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise LabError(f"schedule {str(path)!r}: cannot be read: {error.strerror}") from None


def as_experiment(e: Experiment, schedule: Schedule) -> Experiment:
    """What the file says takes the place of the settings: collective, ranks, and sizes where none are asked for."""
    if e.ranks not in (None, schedule.n_ranks):
        raise LabError(
            f"--ranks {e.ranks}: {schedule.algorithm} has {schedule.n_ranks} ranks: leave it out, or use --ranks "
            f"{schedule.n_ranks}"
        )
    if e.workload is not None:
        raise LabError(
            f"workload {e.workload!r} and schedule {e.schedule!r} both say what is sent: leave one of them out"
        )
    if schedule.natural_count is not None and not own_bytes(schedule):
        raise LabError(f"{schedule.algorithm} sends messages of 0 bytes alone: a run needs one with more")
    e = replace(e, collective=schedule.collective, algorithm=None, ranks=schedule.n_ranks, channels=1, slice_bytes=None)
    if e.min_bytes == OWN_SIZE:
        size = own_bytes(schedule)
        e = replace(e, min_bytes=size, max_bytes=size)
    return e


def own_bytes(schedule: Schedule) -> int:
    """nccl-tests' size of the schedule as its file has it."""
    if schedule.natural_count is None:
        raise LabError(f"{schedule.algorithm} says no sizes: use -b and -e")
    return int(schedule.natural_count / buffer_ratio(schedule)) * ELEMENT_BYTES
