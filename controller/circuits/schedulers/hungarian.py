"""The circuits that carry the most demand, one way each: maximum-weight bipartite matching (Kuhn, "The Hungarian method for the
assignment problem", 1955; solved as Crouse 2016 does, by scipy)."""

from controller.circuits.slices import DemandMatrix, Parameters, Slice, without_idle


def hungarian(demand: DemandMatrix, parameters: Parameters) -> tuple[Slice, ...]:
    # Here, because names of schedulers are shown where scipy, half a second, is not needed.
    from scipy.optimize import linear_sum_assignment

    _, columns = linear_sum_assignment(demand, maximize=True)
    return (Slice((without_idle(columns, demand),), parameters.slice_us),)
