"""What is left of a demand while circuits carry it: of bytes, or of anything that is counted between ends."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from controller.circuits.slices import DemandMatrix, Matching, without_idle


class Unserved:
    """rest: [source, target]: what no matching so far has carried."""

    def __init__(self, demand: DemandMatrix) -> None:
        self.rest = demand.copy()
        self._rows = np.arange(len(demand))

    def serve(self, columns: Sequence[int] | npt.NDArray[np.int32], n: int) -> Matching:
        """Each circuit carries so much, or what is left. The matching of those that carry anything."""
        matching = without_idle(columns, self.rest)
        self.rest[self._rows, columns] = np.maximum(self.rest[self._rows, columns] - n, 0)
        return matching

    @property
    def most_at_an_end(self) -> int:
        """What the end that has most still has to send or to receive."""
        return int(max(self.rest.sum(axis=0).max(), self.rest.sum(axis=1).max()))
