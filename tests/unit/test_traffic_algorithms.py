"""What the algorithms are known for: bytes, steps and messages, against the closed forms of the literature."""

from math import ceil, log2

import numpy as np
import pytest

import traffic
from traffic import Schedule
from traffic.check import verify
from traffic.collectives.double_binary_tree import double_binary_tree_all_reduce
from traffic.collectives.hierarchical import hierarchical_all_reduce
from traffic.races import order
from traffic.trees import ROOT, double_binary, levels

RANKS = [*range(2, 18), 32, 64]
POWERS = [2, 4, 8, 16, 32, 64]
# Elements that no number of chunks here divides.
COUNT = 1_000_003

every_count = pytest.mark.parametrize("n", RANKS)
every_power = pytest.mark.parametrize("n", POWERS)


def steps(schedule: Schedule) -> int:
    return len(order(schedule).start) - 1


def sent(schedule: Schedule, count: int = COUNT) -> list[int]:
    return [int(n) for n in schedule.sent_per_rank(count)]


def received(schedule: Schedule, count: int = COUNT) -> list[int]:
    return [int(n) for n in schedule.received_per_rank(count)]


def parts(n: int, count: int = COUNT) -> list[int]:
    """Elements of each of n parts: the first count mod n have one more."""
    return [count // n + (r < count % n) for r in range(n)]


# -- halving and doubling -------------------------------------------------------------------------------------------

both_orders = pytest.mark.parametrize("algorithm", ["halving-doubling", "doubling-halving"])


@both_orders
@every_power
def test_halving_doubling_takes_two_log_n_steps_and_sends_what_the_ring_sends(algorithm: str, n: int) -> None:
    made = traffic.schedule("all_reduce", algorithm, n)
    assert steps(made) == 2 * log2(n)
    assert len(made) == 2 * log2(n) * n
    assert sent(made, n * 1000) == received(made, n * 1000) == [2 * (n - 1) * 1000] * n
    # The ring takes 2(n-1) steps: what it loses against this is 2(n - 1 - log2 n) times the latency, whatever the size.
    assert steps(traffic.schedule("all_reduce", "ring", n)) - steps(made) == 2 * (n - 1 - log2(n))


@both_orders
@every_count
def test_ranks_beyond_a_power_of_two_cost_two_steps_and_two_buffers_each(algorithm: str, n: int) -> None:
    made, core = traffic.schedule("all_reduce", algorithm, n), 1 << (n.bit_length() - 1)
    extra = n - core
    assert steps(made) == 2 * log2(core) + 2 * (extra > 0)
    assert sum(sent(made)) == 2 * (n - 1) * COUNT
    for r in range(1, 2 * extra, 2):
        assert sent(made)[r] == received(made)[r] == COUNT


@pytest.mark.parametrize(("algorithm", "distances"), [("halving-doubling", [4, 2, 1]), ("doubling-halving", [1, 2, 4])])
def test_the_two_orders_differ_in_how_far_the_large_messages_go(algorithm: str, distances: list[int]) -> None:
    """8 ranks, 800 elements: half, a quarter and an eighth of the buffer, and back."""
    made = traffic.schedule("all_reduce", algorithm, 8)
    of_rank_5 = made.src == 5
    assert (made.dst[of_rank_5] ^ 5).tolist() == distances + distances[::-1]
    assert made.elements(800)[of_rank_5].tolist() == [400, 200, 100, 100, 200, 400]


def test_halving_doubling_of_eight_ranks_is_48_messages() -> None:
    assert len(traffic.schedule("all_reduce", "halving-doubling", 8)) == 48


@pytest.mark.parametrize("algorithm", ["ring", "halving", "direct"])
@every_count
def test_reduce_scatter_sends_all_but_one_share(algorithm: str, n: int) -> None:
    made = traffic.schedule("reduce_scatter", algorithm, n)
    assert sum(sent(made)) == (n - 1) * COUNT
    if algorithm == "direct":
        assert sent(made) == [COUNT - own for own in parts(n)]
        assert received(made) == [(n - 1) * own for own in parts(n)]


@pytest.mark.parametrize("algorithm", ["ring", "doubling", "direct"])
@every_count
def test_all_gather_brings_each_rank_all_but_its_own_share(algorithm: str, n: int) -> None:
    made = traffic.schedule("all_gather", algorithm, n)
    assert received(made) == [COUNT - own for own in parts(n)]
    if algorithm == "direct":
        assert sent(made) == [(n - 1) * own for own in parts(n)]


@every_power
def test_halves_of_halving_doubling(n: int) -> None:
    for collective, algorithm in (("reduce_scatter", "halving"), ("all_gather", "doubling")):
        made = traffic.schedule(collective, algorithm, n)
        assert steps(made) == log2(n)
        assert sent(made, n * 10) == [(n - 1) * 10] * n


def test_direct_is_one_step_and_a_message_for_each_pair() -> None:
    for collective in ("reduce_scatter", "all_gather"):
        made = traffic.schedule(collective, "direct", 7)
        assert (steps(made), len(made), len(made.connections)) == (1, 42, 42)


# -- double binary tree ---------------------------------------------------------------------------------------------


def test_parents_and_children_as_nccl_has_them() -> None:
    """The example in NCCL's src/graph/trees.cc: fourteen ranks."""
    first, _ = double_binary(14)
    assert first[12] == 8 and np.flatnonzero(first == 12).tolist() == [10, 13]
    assert first[8] == 0 and np.flatnonzero(first == 8).tolist() == [4, 12]
    assert first[0] == ROOT


@pytest.mark.parametrize("n", range(2, 65))
def test_a_rank_has_children_in_one_tree_only(n: int) -> None:
    """But for exactly one rank where their number is odd; in no tree has a rank more than two."""
    first, second = double_binary(n)
    with_children = [set(t[t != ROOT].tolist()) for t in (first, second)]
    assert len(with_children[0] & with_children[1]) == n % 2
    for tree in (first, second):
        assert sum(map(len, levels(tree))) == n
        assert len(levels(tree)) - 1 == ceil(log2(n))
        assert np.bincount(tree[tree != ROOT]).max() <= 2


@pytest.mark.parametrize("n_chunks", [1, 3])
@every_count
def test_double_binary_tree(n: int, n_chunks: int) -> None:
    made = double_binary_tree_all_reduce(n, n_chunks)
    verify(made)
    assert len(made) == 4 * (n - 1) * n_chunks
    assert steps(made) == 2 * ceil(log2(n)) + n_chunks - 1
    assert sum(sent(made)) == 2 * (n - 1) * COUNT
    # As much as it receives: each edge of a tree carries its half both ways.
    assert sent(made) == received(made)
    halves = 2 * n_chunks * 10
    assert max(sent(made, halves)) <= 2 * halves
    assert min(sent(made, halves)) >= halves


# -- hierarchical ---------------------------------------------------------------------------------------------------

DOMAINS = [(m, g) for m in range(1, 6) for g in range(1, 6)] + [(8, 8)]


@pytest.mark.parametrize(("m", "g"), DOMAINS)
def test_hierarchical_all_reduce(m: int, g: int) -> None:
    """m domains of g ranks, placed at random."""
    domains = np.random.default_rng(1).permutation(m * g).reshape(m, g)
    made = hierarchical_all_reduce(domains)
    verify(made)
    domain, rail = np.empty(m * g, int), np.empty(m * g, int)
    domain[domains], rail[domains] = np.arange(m)[:, None], np.arange(g)
    inside = domain[made.src] == domain[made.dst]
    assert (rail[made.src] == rail[made.dst])[~inside].all()
    count = m * g * 10
    along_rails = np.bincount(made.src[~inside], made.elements(count)[~inside], m * g)
    assert along_rails.tolist() == [2 * (m - 1) * 10] * (m * g)
    assert sent(made, count) == [2 * (g - 1) * m * 10 + 2 * (m - 1) * 10] * (m * g)
    assert steps(made) == 2 * (g - 1) + 2 * (m - 1)
    assert sum(sent(made)) == 2 * (m * g - 1) * COUNT
