"""How large each fabric has to be: for a number of accelerators and a switch radix, the smallest instance by closed form.

No graph is built, so that 32 768 accelerators take milliseconds. Smallest means the fewest switches, then cables. To add a
fabric: a function Want -> Size, and a line in SIZERS.
"""

from collections.abc import Callable

from topologies.errors import TopologyError, unknown
from topologies.sizing.circuits import ocs_dragonfly, ocs_leaf
from topologies.sizing.direct import dragonfly, torus
from topologies.sizing.rails import rail_only, rail_optimised, superpod
from topologies.sizing.size import Size, Unreachable, Want
from topologies.sizing.trees import fat_tree, multi_dc, spine_leaf, three_tier

SIZERS: dict[str, Callable[[Want], Size]] = {
    "dragonfly": dragonfly,
    "fat-tree": fat_tree,
    "multi-dc": multi_dc,
    "ocs-dragonfly": ocs_dragonfly,
    "ocs-leaf": ocs_leaf,
    "rail-only": rail_only,
    "rail-optimised": rail_optimised,
    "spine-leaf": spine_leaf,
    "superpod": superpod,
    "three-tier": three_tier,
    "torus": torus,
}


def sized(fabric: str, want: Want) -> Size:
    """The smallest instance; raises Unreachable where there is none."""
    if fabric not in SIZERS:
        raise TopologyError(unknown("fabric", fabric, SIZERS))
    return SIZERS[fabric](want)


__all__ = ["SIZERS", "Size", "Unreachable", "Want", "sized"]
