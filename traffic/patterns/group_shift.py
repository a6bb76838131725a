"""Group shift: the ranks of group i send to the same place in group i + s.

With the groups of a dragonfly and s = 1 its adversarial pattern: all of a group's minimal paths share one global link (Kim et
al., Technology-Driven, Highly-Scalable Dragonfly Topology, ISCA 2008).
"""

from traffic.errors import TrafficError
from traffic.pattern import Demand, Flows, each


def group_shift(n_ranks: int, demand: Demand) -> Flows:
    """Raises TrafficError unless the ranks are whole groups and the shift leads to another one."""
    size, shift = demand.group_size, demand.group_shift
    if size is None or n_ranks % size or n_ranks == size:
        raise TrafficError(_sizes_text(n_ranks, size))
    groups = n_ranks // size
    if shift % groups == 0:
        allowed = "1" if groups == 2 else f"1 to {groups - 1}"
        raise TrafficError(f"group_shift {shift} over {groups} groups ends where it begins: use {allowed}")
    return each(((src, (src + shift * size) % n_ranks) for src in range(n_ranks)), demand.flows_per_host)


def _sizes_text(n_ranks: int, size: int | None) -> str:
    allowed = ", ".join(str(d) for d in range(1, n_ranks) if n_ranks % d == 0)
    if size is None:
        return f"group_shift needs a group_size: {n_ranks} ranks make groups of {allowed}"
    return f"group_size {size} does not cut {n_ranks} ranks into two or more whole groups: use {allowed}"
