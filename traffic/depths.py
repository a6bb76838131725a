"""How deep each node of a directed graph lies, by numpy: graphs of schedules have millions of edges. Pure."""

import numpy as np
from numpy.typing import NDArray

from traffic.ranges import ranges


def depths(before: NDArray[np.int64], after: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """(n,) the longest way to each node along the edges before[k] -> after[k]; -1 = on a cycle, or behind one.

    Kahn's algorithm ("Topological sorting of large networks", 1962), a level at a time.
    """
    successors = after[np.argsort(before, kind="stable")]
    n_successors = np.bincount(before, minlength=n)
    first = np.cumsum(n_successors) - n_successors
    missing = np.bincount(after, minlength=n)
    depth = np.full(n, -1)
    free, level = np.flatnonzero(missing == 0), 0
    while len(free):
        depth[free] = level
        level += 1
        reached, times = np.unique(successors[ranges(first[free], n_successors[free])], return_counts=True)
        missing[reached] -= times
        free = reached[missing[reached] == 0]
    return depth
