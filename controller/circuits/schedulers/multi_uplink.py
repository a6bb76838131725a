"""The circuits that carry the most demand in a day when every end has several: a b-matching, in which a pair may have more than
one circuit.

The k-th circuit of a pair carries what the k - 1 before it have left, so later ones are worth less, and a linear program
finds the best set; its corners are whole numbers, because the matrix of a bipartite graph is totally unimodular (Hoffman and
Kruskal 1956). A graph of circuits with u at every end is u matchings, one for each uplink (König 1916).
"""

import numpy as np

from controller.circuits.serving import Unserved
from controller.circuits.slices import DemandMatrix, Parameters, Slice
from controller.circuits.stuffing import decompose, quick_stuff


def multi_uplink(demand: DemandMatrix, parameters: Parameters) -> tuple[Slice, ...]:
    circuits = best_circuits(demand, parameters.uplinks, parameters.day_bytes)
    unserved = Unserved(circuits)
    terms = decompose(quick_stuff(circuits))
    matchings = [unserved.serve(columns, 1) for columns, weight in terms for _ in range(weight)]
    unused = [(None,) * len(demand)] * (parameters.uplinks - len(matchings))
    return (Slice((*matchings, *unused), parameters.slice_us),)


def best_circuits(demand: DemandMatrix, uplinks: int, day_bytes: int) -> DemandMatrix:
    """[source, target]: how many circuits join them."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    n = len(demand)
    # One variable for each circuit that a pair can fill at least in part.
    left = [np.maximum(demand - k * day_bytes, 0) for k in range(uplinks)]
    pairs = np.concatenate([np.argwhere(one > 0) for one in left])
    if not len(pairs):
        return np.zeros_like(demand)
    gains = np.concatenate([np.minimum(one, day_bytes)[one > 0] for one in left])
    variables = np.arange(len(pairs))
    ends = coo_array(
        (np.ones(2 * len(pairs)), (np.concatenate([pairs[:, 0], n + pairs[:, 1]]), np.concatenate([variables] * 2))),
        shape=(2 * n, len(pairs)),
    )
    # Gains as shares of a full day: the solver's tolerances are absolute.
    solved = linprog(-gains / day_bytes, A_ub=ends, b_ub=np.full(2 * n, uplinks), bounds=(0, 1), method="highs-ds")
    circuits = np.zeros_like(demand)
    np.add.at(circuits, tuple(pairs.T), np.rint(solved.x).astype(np.int64))
    return circuits
