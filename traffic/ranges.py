"""Many runs of consecutive numbers as one array: rows of a table of lists that stand one after the other in memory."""

import numpy as np
from numpy.typing import NDArray


def ranges(starts: NDArray[np.integer], counts: NDArray[np.integer]) -> NDArray[np.int64]:
    """The numbers starts[0] .. starts[0] + counts[0] - 1, then those from starts[1], and so on."""
    if (counts == 1).all():
        return starts.astype(np.int64)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    numbers: NDArray[np.int64] = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return numbers
