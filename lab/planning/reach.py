"""What lies between ranks that speak to each other: how many switches, in which network, and whether there is a way at all."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

import traffic
from lab.errors import LabError
from lab.model.wire import levels
from lab.planning.interfaces import Interfaces, scale_up_hops
from topologies import Fabric
from topologies.describe import Distances
from traffic import Layout, Schedule, TrafficError

FORWARDING = "hierarchical"
# Of those that cannot be reached, in a refusal.
_PAIRS_NAMED = 3


def switches_crossed(fabric: Fabric, hosts: Sequence[str], schedule: Schedule, at: Interfaces) -> NDArray[np.float64]:
    """(sends,) switches on the shortest path of each, in the network that it uses; inf where there is none."""
    src, dst = schedule.src, schedule.dst
    crossed = Distances(fabric).links_between(hosts, src, dst) + 1
    inside = at.inside(src, dst)
    crossed[inside] = scale_up_hops(fabric, at, src[inside], dst[inside])
    crossed[schedule.is_local] = 0
    return crossed


def ways_found(schedule: Schedule, fabric: Fabric, hosts: Sequence[str], at: Interfaces) -> bool:
    """Whether every send of it has a path."""
    return bool(np.isfinite(switches_crossed(fabric, hosts, schedule, at)).all())


def fitting(
    collective: str, layout: Layout, fabric: Fabric, hosts: Sequence[str], at: Interfaces
) -> Iterator[Schedule]:
    """By the collective's algorithms that find a way between all that they let speak, the one made for HB domains first."""
    algorithms = traffic.COLLECTIVES.get(collective, {})
    for name in sorted(algorithms, key=lambda name: name != FORWARDING):
        with suppress(TrafficError):
            schedule = traffic.schedule(collective, name, layout)
            if schedule.n_ranks == layout.n_ranks and ways_found(schedule, fabric, hosts, at):
                yield schedule


def require_paths(
    collective: str, schedule: Schedule, layout: Layout, fabric: Fabric, hosts: Sequence[str], at: Interfaces
) -> None:
    """Refuses a schedule with a send that has no path, naming pairs, and algorithms without such."""
    lost = ~np.isfinite(switches_crossed(fabric, hosts, schedule, at))
    if not lost.any():
        return
    pairs = list(dict.fromkeys(zip(schedule.src[lost], schedule.dst[lost], strict=True)))
    named = ", ".join(f"{hosts[a]} -> {hosts[b]}" for a, b in pairs[:_PAIRS_NAMED])
    in_use = {(src, dst) for src, dst, _ in schedule.connections}
    what = (
        f"{collective} by {schedule.algorithm} has {len(pairs)} of {len(in_use)} pairs that "
        f"the scale-out network of {fabric.name} does not join, first {named}"
    )
    found = [other.algorithm for other in fitting(collective, layout, fabric, hosts, at)]
    if found:
        *others, last = found
        names = f"{', '.join(others)} or {last}" if others else last
        raise LabError(f"{what}: use --algorithm {names}, or another --topology")
    raise LabError(f"{what}: use another --topology, --placement or --collective")


def by_level(
    schedule: Schedule, at: Interfaces, sent: NDArray[np.float64], frame_hops: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(levels,) each, of those with bytes or computing: seconds, with nothing slower than the ranks' interfaces, and frames x
    switches. sent: (sends,) bytes."""
    found = levels(schedule.dep_start, schedule.deps.astype(np.int64))
    found = [level for level in found if sent[level].any() or schedule.calc_ns[level].any()]
    seconds = [
        max(at.busy_s(schedule.src[level], schedule.dst[level], sent[level]).max(), schedule.calc_ns[level].max() / 1e9)
        for level in found
    ]
    return np.array(seconds), np.array([frame_hops[level].sum() for level in found])


def b_acc_mbps(fabric: Fabric, hosts: Sequence[str]) -> float:
    """An accelerator's NIC rates together: the smallest rank's, since a collective ends with its slowest."""
    return min(sum(link.rate_mbps for link in fabric.links_at(h) if link.kind != "scale-up") for h in hosts)
