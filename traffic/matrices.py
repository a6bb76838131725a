"""Matrices for all_to_all_v: how much each rank has for each. Pure."""

from traffic.layout import Ranks

# Elements a rank has in all: enough that shares are exact to a millionth, and 2^31 is not reached with 1024 ranks.
_WHOLE = 1_000_000
_ELEMENT_BYTES = 4


def hot_pairs(n_ranks: int, hot_share: float) -> tuple[Ranks, ...]:
    """(n, n) bytes: of what a rank sends, `hot_share` goes to the rank that stands half of the ranks further, as from the
    tokens of one rank to a favoured expert, and the rest evenly to all others. On the diagonal stands what a rank keeps of an
    even all-to-all, 1/n. All rows and columns have one sum: only who sends to whom is uneven."""
    n, further = n_ranks, n_ranks // 2
    keeps = _WHOLE // n
    to_others = _WHOLE - keeps
    hot = round(to_others * hot_share) if n > 2 else to_others
    other = (to_others - hot) // (n - 2) if n > 2 else 0
    # What does not divide evenly goes to the hot one.
    hot = to_others - other * (n - 2)
    by_distance = [keeps if d == 0 else hot if d == further else other for d in range(n)]
    return tuple(tuple(_ELEMENT_BYTES * by_distance[(to - rank) % n] for to in range(n)) for rank in range(n))
