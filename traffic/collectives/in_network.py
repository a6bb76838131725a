"""In-network reduction (as SHARP does): reducers in the switches add up what comes from below and pass it on; the sum comes back.

Every rank sends S once and receives it once, each link of the tree carries S each way: T = 2 depth alpha + S/B when streamed
in chunks, which is why the bus bandwidth, 2(n-1)/n of the algorithm's, may be above the rate of the links (Graham et al., 2016).
"""

from collections.abc import Sequence

import numpy as np

from traffic.collectives.defaults import PIPELINE_CHUNKS
from traffic.columns import ColumnBuilder
from traffic.errors import TrafficError
from traffic.layout import Layout
from traffic.schedule import Schedule
from traffic.trees import ROOT, all_reduce_along


def in_network_all_reduce(n_ranks: int, parents: Sequence[int], n_chunks: int = PIPELINE_CHUNKS) -> Schedule:
    """parents: the parent of every rank, of the reducers too, which are ranks n_ranks and up; ROOT for the one on top.

    Raises TrafficError where that is no tree, or a rank stands above others.
    """
    tree = np.array(parents, dtype=np.int64)
    above = sorted({parent for parent in parents if 0 <= parent < n_ranks})
    if above:
        raise TrafficError(f"ranks {above} are parents: only reducers, {n_ranks} and up, stand above others")
    columns = ColumnBuilder("all_reduce", "in-network", len(tree), n_chunks, n_members=n_ranks)
    all_reduce_along(columns, tree, np.arange(n_chunks))
    return columns.build()


def reducer_tree_all_reduce(layout: Layout) -> Schedule:
    """Along the layout's tree; without one all ranks are below one reducer, as on one switch."""
    n = layout.n_ranks
    return in_network_all_reduce(n, layout.parents or ([*[n] * n, ROOT] if n > 1 else [ROOT]))
