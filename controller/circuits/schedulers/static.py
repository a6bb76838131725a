"""The same circuits all the time: a circulant graph, whatever the demand. What others are measured against."""

from controller.circuits.slices import DemandMatrix, Parameters, Slice


def static(demand: DemandMatrix, parameters: Parameters) -> tuple[Slice, ...]:
    """The k-th uplinks lead 1 end on, 1 back, 2 on, 2 back, ...; with one uplink a ring."""
    n = len(demand)
    shifts = [shift for distance in range(1, n // 2 + 1) for shift in dict.fromkeys((distance, n - distance))]
    around = (shifts[uplink % len(shifts)] for uplink in range(parameters.uplinks))
    matchings = tuple(tuple((i + shift) % n for i in range(n)) for shift in around)
    return (Slice(matchings, parameters.slice_us),)
