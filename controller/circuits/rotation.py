"""Matchings that together join every end to every other exactly once: what a rotor switch turns through."""

from controller.circuits.slices import Matching


def rotations(n: int) -> list[Matching]:
    """The n - 1 of them. An even number of ends is joined in pairs (Kirkman's round-robin tournament, 1847), so that
    circuits go both ways; an odd number would leave one out, so each end leads to the s-th after it.

    >>> rotations(4)
    [(3, 2, 1, 0), (2, 3, 0, 1), (1, 0, 3, 2)]
    >>> rotations(3)
    [(1, 2, 0), (2, 0, 1)]
    """
    if n % 2:
        return [tuple((i + shift) % n for i in range(n)) for shift in range(1, n)]
    return [_tournament_round(n, fixed) for fixed in range(n - 1)]


def _tournament_round(n: int, fixed: int) -> Matching:
    """The last end meets `fixed`; the others meet those as far to one side of it as they are to the other."""
    others = n - 1
    partners = [(2 * fixed - i) % others for i in range(others)]
    partners[fixed] = others
    return (*partners, fixed)
