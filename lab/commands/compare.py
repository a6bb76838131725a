"""`compare`: results side by side, a user's own nccl-tests output among them, and beside what a fabric should give."""

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

import traffic
from lab import terminal
from lab.commands.describing import write
from lab.errors import LabError
from lab.planning.curves import curve
from lab.planning.experiment import MAX_CHANNELS, Experiment, load
from lab.planning.plan import Plan
from lab.planning.reach import FORWARDING
from lab.progress import Progress
from lab.reporting.causes import Hypothesis
from lab.reporting.compare import Expected, compare_text
from lab.reporting.nccl_debug import ours
from lab.reporting.sources import Row, Source, read
from topologies import Refused
from topologies.units import format_rate
from traffic.collectives.rail_ring import NAME as RAIL_RING
from traffic.placement import hb_domains

_MAX_SOURCES = 26
# NCCL sends all-to-all directly; everything else that it does not say is a ring.
_USUAL = {
    "all_to_all": "direct",
    "all_to_all_v": "direct",
    "gather": "direct",
    "scatter": "direct",
    "sendrecv": "direct",
}
# What the model is asked for beside the prediction: enough to hide collisions, few enough to be quick.
_MANY_CHANNELS = 8
# Sizes at which a hypothesis is computed: its curve is nearly a straight line.
_POINTS = 3
# Curves nearer to each other than this are one.
_ALIKE = 0.03
_PARAMETER_SERVERS = ("parameter-server", "parameter-server-sharded")


def run(arguments: argparse.Namespace) -> int:
    """0 when a size could be compared, else 1. Raises Refused."""
    names = [arguments.a, *arguments.others]
    if len(names) > _MAX_SOURCES:
        raise LabError(f"{len(names)} results are more than {_MAX_SOURCES}: compare fewer")
    if len(names) == 1 and arguments.fabric is None:
        raise LabError("one result alone: name another to compare it with, or --fabric NAME|FILE.toml for a prediction")
    sources = [read(Path(name)) for name in names]
    progress = Progress()
    expected = None if arguments.fabric is None else _expected(sources[0], arguments, progress)
    if expected and not sources[0].rows:
        # A log of calls without a table: what was sent is known, how long it took is not.
        unmeasured = {
            size: Row(size, math.nan, math.nan, math.nan, note="not measured") for size in sources[0].log.sizes
        }
        sources[0] = replace(sources[0], rows=unmeasured)
    text, comparable = compare_text(sources, expected)
    progress.done()
    terminal.show(text)
    if arguments.svg:
        from lab.reporting.overlay import svg

        write(arguments.svg, svg(sources, expected.seconds if expected else {}))
    return 0 if comparable else 1


# -- what the fabric should give ------------------------------------------------------------------------------------------


def _expected(source: Source, arguments: argparse.Namespace, progress: Progress) -> Expected:
    asked = _asked(source, arguments)
    sizes = sorted(size for size in (source.rows or source.log.sizes) if size)
    if not sizes:
        raise LabError(f"{source.name!r} names no size that sends anything: there is nothing to predict")
    usual, said = _algorithm(source, asked, arguments.algorithm)
    by_size = {size: _at(source, arguments.algorithm, size) or usual for size in sizes}
    planned, seconds = _predicted(asked, by_size, progress)
    what = (
        f"{asked.collective} of {planned.ranks} ranks on {planned.fabric.name}, {format_rate(planned.nic_mbps)} a NIC"
    )
    how = f"{planned.routing}, {asked.transport} in frames of {asked.mtu}, {asked.channels} channel{'s' * (asked.channels > 1)}"
    about = [f"predicted: {what}, {how}; no latency of software", said]

    def others(of_sizes: Sequence[int]) -> list[Hypothesis]:
        return list(_others(asked, planned, {size: by_size[size] for size in of_sizes}, seconds, progress))

    return Expected(about, seconds, others)


def _predicted(
    asked: Experiment, by_size: Mapping[int, str], progress: Progress, **how: int
) -> tuple[Plan, dict[int, float]]:
    """The plan of the largest size's algorithm, and seconds by size. by_size: size -> algorithm, ascending."""
    sizes = list(by_size)
    progress.step(f"predicting {asked.collective} by {', '.join(dict.fromkeys(by_size.values()))}")
    curves = {name: curve(replace(asked, algorithm=name), sizes, **how) for name in dict.fromkeys(by_size.values())}
    seconds = {size: float(curves[name][1][i]) for i, (size, name) in enumerate(by_size.items())}
    return curves[by_size[sizes[-1]]][0], seconds


def _asked(source: Source, arguments: argparse.Namespace) -> Experiment:
    """The fabric's experiment with what the result says of itself."""
    is_file = arguments.fabric.endswith(".toml")
    overrides = {key: getattr(arguments, key) for key in ("link_rate", "routing", "ranks")}
    own = load(*((arguments.fabric, overrides) if is_file else (None, overrides | {"topology": arguments.fabric})))
    collective = source.about.get("collective") or source.log.collective
    if collective is None:
        raise LabError(
            f"{source.name!r} does not say which collective it is of: keep its line '# Collective test starting: ...'"
        )
    if collective not in traffic.COLLECTIVES:
        raise LabError(
            f"{source.name!r} is of {collective}, which no prediction is made for: choose from {', '.join(traffic.COLLECTIVES)}"
        )
    ranks = source.ranks if arguments.ranks is None else own.ranks
    if ranks is None:
        raise LabError(
            f"{source.name!r} does not say how many ranks it is of: keep its lines '#  Rank ...', or give --ranks N"
        )
    channels = min(source.log.channels or own.channels, MAX_CHANNELS)
    return replace(
        own, collective=collective, algorithm=None, ranks=ranks, channels=channels, workload=None, schedule=None
    )


def _at(source: Source, asked: str | None, size: int) -> str | None:
    """Our name of what ran at a size, where that is known and is one of ours."""
    if asked is not None:
        return asked
    theirs = source.log.algorithm(size)
    known = traffic.COLLECTIVES.get(source.about.get("collective") or source.log.collective or "", {})
    name = source.about.get("algorithm") or (ours(theirs) if theirs else None)
    return name if name in known else None


def _algorithm(source: Source, asked: Experiment, given: str | None) -> tuple[str, str]:
    """What is taken for sizes of which the result says nothing, and a sentence on where it is from."""
    usual = _USUAL.get(asked.collective, "ring")
    if given is not None:
        return given, f"algorithm: {given}, as given"
    if "algorithm" in source.about:
        return source.about["algorithm"], f"algorithm: {source.about['algorithm']}, as the result says"
    if source.log.algorithm_at:
        found = ", ".join(dict.fromkeys(source.log.algorithm_at.values()))
        return usual, f"algorithm: as the log says at each size: {found}; {usual} for what is not ours"
    if source.log.forced:
        return ours(source.log.forced) or usual, f"algorithm: {source.log.forced}, by NCCL_ALGO in the log"
    return (
        usual,
        f"algorithm: {usual}, assumed: the output does not say; --algorithm NAME, or NCCL_DEBUG_SUBSYS=TUNING in the run",
    )


def _others(
    asked: Experiment, planned: Plan, by_size: Mapping[int, str], base: Mapping[int, float], progress: Progress
) -> Iterator[Hypothesis]:
    """What else could have made the times: other algorithms, fewer or more connections, the same hash everywhere."""
    for other in traffic.COLLECTIVES[asked.collective]:
        is_ring = other in (FORWARDING, RAIL_RING) and not hb_domains(planned.fabric, planned.members)
        if {other} != set(by_size.values()) and other not in _PARAMETER_SERVERS and not is_ring:
            cause = f"wrong algorithm: as {other} at every size"
            yield from _hypothesis(asked, dict.fromkeys(by_size, other), base, progress, cause)
    if asked.channels > 1:
        cause = "few QPs: as with one connection between two ranks, whose flows collide"
        yield from _hypothesis(replace(asked, channels=1), by_size, base, progress, cause)
    else:
        cause = f"more QPs: as with {_MANY_CHANNELS} connections between two ranks"
        yield from _hypothesis(replace(asked, channels=_MANY_CHANNELS), by_size, base, progress, cause)
    if asked.routing == "ecmp":
        cause = "polarisation: as when every switch hashes alike"
        yield from _hypothesis(replace(asked, routing="ecmp-polarised"), by_size, base, progress, cause)


def _hypothesis(
    asked: Experiment, by_size: Mapping[int, str], base: Mapping[int, float], progress: Progress, cause: str
) -> Iterator[Hypothesis]:
    """None where the fabric cannot do it, or where it would make no difference."""
    with suppress(Refused):
        _, found = _predicted(asked, by_size, progress, points=_POINTS)
        seconds = np.array([found[size] for size in by_size])
        if not np.isnan(seconds).any() and not np.allclose(seconds, [base[size] for size in by_size], rtol=_ALIKE):
            yield Hypothesis(cause, seconds)
