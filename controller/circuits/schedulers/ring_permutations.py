"""Rings for all-reduce, of different strides, so that other traffic has short ways too (TotientPerms and SelectPermutations of
TopoOpt; Wang et al., "TopoOpt: Co-optimizing Network Topology and Parallelization Strategy", NSDI 2023).

A stride is prime to the number of ends, so that each ring visits all; the strides are the possible ones that are nearest to
1, x, x^2, ..., with x the root of that number, as the fingers of a Chord table are.
"""

from math import gcd

from controller.circuits.slices import DemandMatrix, Parameters, Slice


def ring_permutations(demand: DemandMatrix, parameters: Parameters) -> tuple[Slice, ...]:
    """One ring for each uplink; again from the first where there are more uplinks than rings."""
    n = len(demand)
    chosen = strides(n, parameters.uplinks)
    rings = [tuple((i + stride) % n for i in range(n)) for stride in chosen]
    return (Slice(tuple(rings[k % len(rings)] for k in range(parameters.uplinks)), parameters.slice_us),)


def strides(n: int, how_many: int) -> list[int]:
    """
    >>> strides(16, 3)
    [1, 3, 7]
    """
    possible = [stride for stride in range(1, n) if gcd(stride, n) == 1]
    chosen: list[int] = []
    for k in range(min(how_many, len(possible))):
        wanted = n ** (k / how_many)
        chosen.append(min((s for s in possible if s not in chosen), key=lambda s: (abs(s - wanted), s)))
    return chosen
