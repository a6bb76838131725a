"""Closed forms against published constants, and against the schedules that they are of."""

from itertools import pairwise

import numpy as np
import pytest

import traffic
from lab.model.closed_forms import _FORMS, closed_form, cut_through, direct_on_ring, store_and_forward
from traffic.contracts import buffer_ratio
from traffic.races import order

# 1 MiB over 50 GiB/s, in whole nanoseconds as ASTRA-sim counts them.
SERIALISATION_NS, ALPHA_NS = 2**20 * 10**9 // (50 * 2**30), 500


def test_constants_of_astra_sims_congestion_aware_model() -> None:
    """Fully connected; a switch, two hops; 1 to 4 on a ring of 16; all-gather on it by messages to all."""
    assert store_and_forward(1, ALPHA_NS, SERIALISATION_NS) == 20_031
    assert store_and_forward(2, ALPHA_NS, SERIALISATION_NS) == 40_062
    assert store_and_forward(3, ALPHA_NS, SERIALISATION_NS) == 60_093
    assert direct_on_ring(16, ALPHA_NS, SERIALISATION_NS) == 704_116


def test_constants_of_astra_sims_congestion_unaware_model() -> None:
    """A ring, 3 hops; fully connected; a switch. Then 1 MiB along the dimensions of 200, 100 and 50 GiB/s with 50, 500 and
    2000 ns: a ring's hop, a fully connected one, a switch's two."""
    assert cut_through(3, ALPHA_NS, SERIALISATION_NS) == 21_031
    assert cut_through(1, ALPHA_NS, SERIALISATION_NS) == 20_031
    assert cut_through(2, ALPHA_NS, SERIALISATION_NS) == 20_531
    by_rate = [2**20 * 10**9 // (rate * 2**30) for rate in (200, 100, 50)]
    assert [cut_through(*x) for x in zip((1, 1, 2), (50, 500, 2000), by_rate, strict=True)] == [4_932, 10_265, 23_531]


@pytest.mark.parametrize("n", [2, 5, 6, 8, 16])
def test_messages_to_all_on_a_ring_link_by_link(n: int) -> None:
    """Event by event: a link serves in the order of arrival, those of one rank by distance, clockwise in a tie."""
    alpha, serialisation = 3, 10
    free, last = [0] * n, 0
    # (when it comes, distance left, link)
    waiting = sorted((0, d, link) for link in range(n) for d in range(1, n // 2 + 1))
    while waiting:
        at, left, link = waiting.pop(0)
        free[link] = max(free[link], at) + serialisation
        arrives = free[link] + alpha
        last = max(last, arrives)
        if left > 1:
            waiting = sorted([*waiting, (arrives, left - 1, (link + 1) % n)], key=lambda x: x[0])
    assert direct_on_ring(n, alpha, serialisation) == last


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 13, 16])
@pytest.mark.parametrize(("collective", "algorithm"), _FORMS)
def test_steps_and_shares_are_those_of_the_schedule(collective: str, algorithm: str, n: int) -> None:
    """Steps: levels of dependency and of order on a connection. Share: level by level what the busiest rank sends or receives."""
    s = traffic.schedule(collective, algorithm, n)
    form = closed_form(collective, algorithm, n)
    if form is None:
        assert algorithm == "recursive-doubling" and n & (n - 1)
        return
    o = order(s)
    by_level = [o.by_level[a:b] for a, b in pairwise(o.start.tolist())]
    remote = [level[~s.is_local[level]] for level in by_level if (~s.is_local[level]).any()]
    assert form.steps == len(remote)
    count = 13 * 16 * 15 * 8
    elements = s.elements(int(count * buffer_ratio(s)))
    busy = sum(max(np.bincount(end[level], elements[level], n).max() for end in (s.src, s.dst)) for level in remote)
    # Ranks that have nobody to fold in need not wait for the others that have, which is no longer level by level.
    folds = n & (n - 1) and ("halving" in algorithm or "doubling" in algorithm)
    assert busy / count == pytest.approx(form.share, rel=0.01) or (folds and form.share < busy / count)


def test_there_is_no_form_for_unequal_links() -> None:
    assert closed_form("all_reduce", "hierarchical", 8) is None
    assert str(closed_form("all_reduce", "ring", 8)) == "14 alpha + 1.75 S/B"
