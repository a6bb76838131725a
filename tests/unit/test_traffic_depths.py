"""Depths of graphs small enough to see."""

import numpy as np
import pytest

from traffic.depths import depths


@pytest.mark.parametrize(
    ("edges", "n", "expected"),
    [
        ([], 0, []),
        ([], 2, [0, 0]),
        ([(0, 1), (1, 2), (0, 2)], 3, [0, 1, 2]),
        # The same edge twice.
        ([(0, 1), (0, 1), (1, 2)], 3, [0, 1, 2]),
        # 1 and 2 wait for each other, 3 for 2; 4 for nobody.
        ([(0, 1), (1, 2), (2, 1), (2, 3)], 5, [0, -1, -1, -1, 0]),
    ],
)
def test_the_longest_way_counts_and_cycles_have_none(edges: list[tuple[int, int]], n: int, expected: list[int]) -> None:
    before, after = (np.array(column, dtype=np.int64) for column in (zip(*edges, strict=True) if edges else ([], [])))
    assert depths(before, after, n).tolist() == expected
