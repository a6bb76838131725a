"""Few, long slices for most of the demand, and the packet network for the rest (Liu et al., "Scheduling Techniques for Hybrid
Circuit/Packet Networks", CoNEXT 2015).

The demand is stuffed; then slices are cut off as long as there is a permutation of entries that all exceed a threshold, which
is halved when there is none left. It ends when the packet network can carry what is left in the time that the slices
take; without one, when nothing is left.
"""

import numpy as np
import numpy.typing as npt

from controller.circuits.serving import Unserved
from controller.circuits.slices import DemandMatrix, Parameters, Slice
from controller.circuits.stuffing import quick_stuff


def solstice(demand: DemandMatrix, parameters: Parameters) -> tuple[Slice, ...]:
    stuffed, unserved = quick_stuff(demand), Unserved(demand)
    rows = np.arange(len(demand))
    slices: list[Slice] = []
    elapsed_us = 0.0
    threshold = 1 << max(int(stuffed.max()).bit_length() - 1, 0)
    while unserved.most_at_an_end * 8 > parameters.packet_mbps * elapsed_us:
        columns = _big_slice(stuffed, threshold)
        if (columns < 0).any():
            threshold //= 2
            continue
        n_bytes = int(stuffed[rows, columns].min())
        stuffed[rows, columns] -= n_bytes
        matching = unserved.serve(columns, n_bytes)
        if any(j is not None for j in matching):
            slices.append(parameters.slice_for(matching, n_bytes))
            elapsed_us += slices[-1].length_us
    return tuple(slices)


def _big_slice(stuffed: DemandMatrix, threshold: int) -> npt.NDArray[np.int32]:
    """By row, the column of as many entries not below the threshold as a matching can have; -1 where it has none."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    columns: npt.NDArray[np.int32] = maximum_bipartite_matching(csr_array(stuffed >= threshold), perm_type="column")
    return columns
