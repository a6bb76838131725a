"""What lies between ranks that speak to each other: how many switches, in which network, and whether there is a way at all."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import traffic
from lab.errors import LabError
from lab.interfaces import Interfaces, scale_up_hops
from lab.wire import levels
from topologies import Fabric
from topologies.describe import Distances
from topologies.tiers import hb_domains
from traffic import Schedule

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


def require_paths(
    collective: str, schedule: Schedule, crossed: NDArray[np.float64], fabric: Fabric, hosts: Sequence[str]
) -> None:
    """Refuses a schedule with a send that has no path, naming pairs. crossed: as `switches_crossed` gives it."""
    lost = ~np.isfinite(crossed)
    if not lost.any():
        return
    pairs = list(dict.fromkeys(zip(schedule.src[lost], schedule.dst[lost], strict=True)))
    named = ", ".join(f"{hosts[a]} -> {hosts[b]}" for a, b in pairs[:_PAIRS_NAMED])
    in_use = {(src, dst) for src, dst, _ in schedule.connections}
    what = (
        f"{collective} by {schedule.algorithm} has {len(pairs)} of {len(in_use)} pairs that "
        f"the scale-out network of {fabric.name} does not join, first {named}"
    )
    if not hb_domains(fabric):
        raise LabError(f"{what}: use another --placement or --collective")
    if schedule.algorithm != FORWARDING and FORWARDING in traffic.COLLECTIVES.get(collective, {}):
        raise LabError(f"{what}: use --algorithm {FORWARDING}, which forwards inside the HB domains, or rail-optimised")
    raise LabError(f"{what}, and it forwards nothing inside the HB domains: use rail-optimised")


def by_level(
    schedule: Schedule, at: Interfaces, sent: NDArray[np.float64], frame_hops: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(levels,) each, of those with bytes: seconds, with nothing slower than the ranks' interfaces, and frames x switches.
    sent: (sends,) bytes."""
    found = levels(schedule.dep_start, schedule.deps.astype(np.int64))
    found = [level for level in found if sent[level].any()]
    seconds = [at.busy_s(schedule.src[level], schedule.dst[level], sent[level]).max() for level in found]
    return np.array(seconds), np.array([frame_hops[level].sum() for level in found])


def b_acc_mbps(fabric: Fabric, hosts: Sequence[str]) -> float:
    """An accelerator's NIC rates together: the smallest rank's, since a collective ends with its slowest."""
    return min(sum(link.rate_mbps for link in fabric.links_at(h) if link.kind != "scale-up") for h in hosts)
