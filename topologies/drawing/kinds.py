"""Which placing shows a fabric's structure, decided by the graph: its tiers, its groups and its long-haul links."""

from topologies.drawing.clusters import place_clusters
from topologies.drawing.grid import grid_sizes, place_grid
from topologies.drawing.layout import Layout
from topologies.drawing.rows import place_rows
from topologies.drawing.sites import place_sites, sites
from topologies.fabric import Fabric
from topologies.tiers import scale_out_links, tiers

WIDTH = 1120.0
# Two sites fill the width; more make the picture wider.
_SITE_WIDTH = 520.0


def place(fabric: Fabric) -> Layout:
    """Sites side by side, each placed like a fabric of its own."""
    parts = sites(fabric)
    if len(parts) < 2:
        return _place_one(fabric, WIDTH)
    return place_sites(fabric, [(border, _place_one(site, _SITE_WIDTH)) for border, site in parts])


def _place_one(fabric: Fabric, width: float) -> Layout:
    if not _has_peers(fabric):
        return place_rows(fabric, width)
    grouped = any(switch.group is not None for switch in fabric.switches)
    sizes = None if grouped else grid_sizes(fabric)
    return place_grid(fabric, sizes) if sizes else place_clusters(fabric)


def _has_peers(fabric: Fabric) -> bool:
    """Links within a tier: a dragonfly or a torus, where 'up' means nothing."""
    tier = tiers(fabric)
    return any(tier.get(x.a.node) == tier.get(x.b.node) for x in scale_out_links(fabric))
