"""Hierarchical all-reduce for HB domains of g ranks each, m of them: nothing leaves a domain but along a rail.

Ring reduce-scatter inside each domain; the ranks of one place in their domains (a rail) all-reduce their share of S/g by a
ring; ring all-gather inside. Sent inside by each rank: 2(g-1)/g S in 2(g-1) steps; along its rail: 2(m-1)/m S/g in 2(m-1) steps
(BlueConnect: Cho et al., 2019).
"""

import numpy as np

from traffic.collectives.domains import equal_domains
from traffic.columns import ColumnBuilder
from traffic.layout import Layout
from traffic.rings import pass_around
from traffic.schedule import Schedule


def hierarchical_all_reduce(layout: Layout) -> Schedule:
    """Without HB domains every rank is one by itself: the ring. Raises TrafficError for domains of different sizes."""
    domains = equal_domains(layout, "hierarchical")
    m, g = domains.shape
    columns = ColumnBuilder("all_reduce", "hierarchical", m * g, m * g)
    # The place in the domain owns m chunks, one for each step of its rail's ring.
    owned = pass_around(columns, domains, steps=g - 1, reducing=g - 1, first_block=-1, block_chunks=m)
    owned = pass_around(
        columns,
        domains.T,
        steps=2 * (m - 1),
        reducing=m - 1,
        blocks=np.arange(m * g).reshape(g, m),
        after=None if owned is None else owned.swapaxes(0, 1),
    )
    pass_around(
        columns, domains, steps=g - 1, reducing=0, block_chunks=m, after=None if owned is None else owned.swapaxes(0, 1)
    )
    return columns.build()
