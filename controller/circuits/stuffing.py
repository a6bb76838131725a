"""Stuffing a demand matrix until all its rows and columns have the same sum, and taking it apart into permutations.

Only such a matrix is a sum of permutations (Birkhoff 1946, von Neumann 1953). What is put on the diagonal is an end that
has no circuit.
"""

import numpy as np

from controller.circuits.bipartite import PerfectMatching
from controller.circuits.slices import DemandMatrix


def quick_stuff(demand: DemandMatrix) -> DemandMatrix:
    """Adds as little to each row as reaches the largest sum there is, to entries that are not zero first, so that few new
    ones are made (QuickStuff; Liu et al., "Scheduling Techniques for Hybrid Circuit/Packet Networks", CoNEXT 2015)."""
    stuffed = demand.copy()
    rows, columns = stuffed.sum(axis=1), stuffed.sum(axis=0)
    largest = max(rows.max(), columns.max())
    lacking_rows, lacking_columns = [int(largest - x) for x in rows], [int(largest - x) for x in columns]
    for entries in (np.argwhere(demand > 0), np.argwhere(demand == 0)):
        for i, j in entries.tolist():
            if added := min(lacking_rows[i], lacking_columns[j]):
                stuffed[i, j] += added
                lacking_rows[i] -= added
                lacking_columns[j] -= added
    return stuffed


def decompose(stuffed: DemandMatrix) -> list[tuple[list[int], int]]:
    """(column of each row, weight) of permutations whose weighted sum is the matrix. Each takes away at least one entry,
    so there are at most n^2 - 2 n + 2 of them."""
    rest, terms = stuffed.copy(), []
    rows = np.arange(len(rest))
    matching = PerfectMatching(rest > 0)
    while rest.any():
        columns = list(matching.column_of)
        values = rest[rows, columns]
        weight = int(values.min())
        rest[rows, columns] = values - weight
        terms.append((columns, weight))
        for row in np.flatnonzero(values == weight).tolist():
            matching.remove(row, columns[row])
    return terms
