"""Sizes of the fabrics with optical circuit switches: an OCS has a fixed number of ports, and each must reach every leaf or
group."""

from topologies.ocs_dragonfly import OcsDragonfly
from topologies.ocs_leaf import OcsLeaf
from topologies.sizing.direct import balanced
from topologies.sizing.size import Size, Unreachable, Want

# Palomar, a 3D-MEMS switch (H. Liu et al., "Lightwave Fabrics", SIGCOMM 2023).
OCS_PORTS = 136
_NOTE = "bisection and diameter with circuits set for them"


def ocs_leaf(want: Want) -> Size:
    """Leaves with as many uplinks as hosts, an equal number of them to every OCS; no packet spine.

    Bisection: circuits set for the split. Diameter: 1 where every two leaves can have a circuit. Doubling adds as many
    leaves, each with cables to every OCS: free ports take them, else uplinks move to as many more OCS as thin the trunks.
    """
    half = want.radix // 2
    leaves = max(2, -(-want.accelerators // half)) if half else 0
    if not 2 <= leaves <= OCS_PORTS:
        most = OCS_PORTS * half
        raise Unreachable(f"{OCS_PORTS} leaves of radix {want.radix}, as many as an OCS has ports", most)
    uplinks = -(-want.accelerators // leaves)
    trunk = _trunk(uplinks, leaves)
    thinner = _trunk(uplinks, 2 * leaves)
    found = OcsLeaf(leaves, hosts_per_leaf=uplinks, uplinks=uplinks, ocs=uplinks // trunk)
    return Size(
        "ocs-leaf",
        {"leaves": leaves, "hosts_per_leaf": uplinks, "uplinks": uplinks, "ocs": found.ocs},
        hosts=leaves * uplinks,
        switches=leaves,
        cables={"in-rack": leaves * uplinks, "circuit": leaves * uplinks},
        bisection_links=leaves * uplinks // 2,
        diameter=1 if leaves - 1 <= uplinks else None,
        path_diversity=None,
        radix=2 * uplinks,
        moved=leaves * uplinks * (trunk - thinner) // trunk if thinner else None,
        ocs=found.ocs,
        shape={"leaves per OCS": leaves / found.ocs},
        note=_NOTE,
    )


def _trunk(uplinks: int, leaves: int) -> int:
    """The most cables of a leaf to each OCS that its ports allow; 0: not even one."""
    return max((t for t in range(1, OCS_PORTS // leaves + 1) if uplinks % t == 0), default=0)


def ocs_dragonfly(want: Want) -> Size:
    """As the dragonfly, with all a h global ports of a group on OCS, two on each.

    Bisection: circuits set for the split. Doubling adds as many groups, whose cables take free ports of every OCS: none
    moves, light is switched instead; there is no doubling beyond their ports.
    """
    most_groups = OCS_PORTS // 2
    found = min(balanced(want, most_groups), key=lambda d: (d.a * d.groups, d.closed_form().links), default=None)
    if found is None:
        most = max(
            (2 * h * h * min(2 * h * h + 1, most_groups) for h in range(1, (want.radix + 1) // 4 + 1)), default=0
        )
        raise Unreachable(f"{most_groups} groups of radix {want.radix}, with two of an OCS's ports each", most)
    g, slots = found.groups, found.a * found.h
    form = OcsDragonfly(found.a, found.p, found.h, g).closed_form()
    local = found.a * (found.a - 1) // 2 * g
    return Size(
        "ocs-dragonfly",
        {"a": found.a, "p": found.p, "h": found.h, "g": g},
        hosts=form.hosts,
        switches=found.a * g,
        cables={"in-rack": form.hosts, "local": local, "circuit": g * slots},
        bisection_links=min(slots * (g // 2), form.hosts // 2),
        diameter=2 if slots // (g - 1) >= found.a else 3,
        path_diversity=None,
        radix=4 * found.h - 1,
        moved=0 if 2 * g <= min(most_groups, slots + 1) else None,
        ocs=form.switches - found.a * g,
        shape={"a / h": found.a / found.h, "p / h": found.p / found.h, "groups": g},
        note=_NOTE,
    )
