"""What the algorithms are known for: bytes, steps and messages, against the closed forms of the literature."""

from collections import Counter
from collections.abc import Iterator
from itertools import permutations
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traffic
from traffic import Layout, Schedule, TrafficError
from traffic.check import verify
from traffic.collectives.double_binary_tree import double_binary_tree_all_reduce
from traffic.collectives.in_network import in_network_all_reduce
from traffic.collectives.parameter_server import parameter_server_all_reduce
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


# -- HB domains -----------------------------------------------------------------------------------------------------

DOMAINS = [(1, 1), (1, 4), (4, 1), (2, 2), (2, 3), (3, 2), (3, 5), (5, 3), (8, 4)]
every_size = pytest.mark.parametrize(("m", "g"), DOMAINS)


def in_domains(m: int, g: int, *, shuffled: bool = True) -> Layout:
    """m domains of g ranks, in order or at random."""
    ranks = np.random.default_rng(1).permutation(m * g) if shuffled else np.arange(m * g)
    return Layout(m * g, tuple(map(tuple, ranks.reshape(m, g).tolist())))


def inside_and_along_rails(schedule: Schedule, layout: Layout, count: int) -> tuple[list[int], list[int]]:
    """Elements that each rank sends inside its domain, and along its rail; nothing goes any other way."""
    domain, rail = (
        {r: i for i, ranks in enumerate(groups) for r in ranks} for groups in (layout.domains, layout.rails)
    )
    inside, along = [0] * layout.n_ranks, [0] * layout.n_ranks
    for src, dst, n in zip(
        schedule.src.tolist(), schedule.dst.tolist(), schedule.elements(count).tolist(), strict=True
    ):
        assert domain[src] == domain[dst] or rail[src] == rail[dst]
        (inside if domain[src] == domain[dst] else along)[src] += n
    return inside, along


@every_size
def test_hierarchical_all_reduce(m: int, g: int) -> None:
    layout = in_domains(m, g)
    made = traffic.schedule("all_reduce", "hierarchical", layout)
    verify(made)
    assert inside_and_along_rails(made, layout, m * g * 10) == (
        [2 * (g - 1) * m * 10] * (m * g),
        [2 * (m - 1) * 10] * (m * g),
    )
    assert steps(made) == 2 * (g - 1) + 2 * (m - 1)
    assert sum(sent(made)) == 2 * (m * g - 1) * COUNT


@every_size
@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather"])
def test_rail_rings_cross_between_domains_on_rails_that_share_the_load(collective: str, m: int, g: int) -> None:
    """What an edge of a ring carries, n - 1 blocks (twice in an all-reduce), leaves a domain on every rail once. Of an odd number
    of domains of two ranks alone, one edge in each ring changes rails."""
    layout, n = in_domains(m, g), m * g
    made = traffic.schedule(collective, "rail-ring", layout)
    verify(made)
    times, block = 2 if collective == "all_reduce" else 1, 10 if m > 1 else 10 * g
    count = n * g * 10
    if m % 2 == 0 or m == 1 or g != 2:
        inside, along = inside_and_along_rails(made, layout, count)
        assert along == [times * (n - 1) * block if m > 1 else 0] * n
        assert inside == [times * (n - 1) * (block * (g - 1) if m > 1 else block)] * n
    else:
        with pytest.raises(AssertionError):
            inside_and_along_rails(made, layout, count)
    assert steps(made) == times * (n - 1)
    assert len({made.channel[i] for i in range(len(made))}) == (g if m > 1 else min(1, len(made)))


def test_a_rail_ring_without_domains_is_the_ring() -> None:
    rail, plain = (traffic.schedule("all_reduce", name, 5) for name in ("rail-ring", "ring"))
    assert [rail.src.tolist(), rail.dst.tolist(), rail.first_chunk.tolist()] == [
        plain.src.tolist(), plain.dst.tolist(), plain.first_chunk.tolist(),
    ]  # fmt: skip


@every_size
@pytest.mark.parametrize("shuffled", [False, True])
def test_pxn_all_to_all(m: int, g: int, shuffled: bool) -> None:
    """Blocks of 10 elements: g for each other domain along the rail, and as many to each rank of one's own domain as there
    are domains."""
    layout, n = in_domains(m, g, shuffled=shuffled), m * g
    made = traffic.schedule("all_to_all", "hierarchical", layout)
    verify(made)
    assert inside_and_along_rails(made, layout, 3 * n * 10) == ([(g - 1) * m * 10] * n, [(n - g) * 10] * n)


def test_pxn_sends_one_message_for_each_other_domain() -> None:
    made = traffic.schedule("all_to_all", "hierarchical", in_domains(4, 8, shuffled=False))
    along_rails = (made.src // 8 != made.dst // 8) & (made.src == 3)
    assert made.dst[along_rails].tolist() == [11, 19, 27]
    assert made.n_chunks_sent[along_rails].tolist() == [8, 8, 8]


@pytest.mark.parametrize("collective", ["all_reduce", "all_to_all"])
def test_domains_of_different_sizes_are_refused(collective: str) -> None:
    with pytest.raises(TrafficError) as caught:
        traffic.schedule(collective, "hierarchical", Layout(3, ((0, 1), (2,))))
    assert str(caught.value) == (
        "HB domains of 1, 2 ranks: hierarchical needs equally many in each; use as many ranks in every domain, "
        "or another algorithm"
    )


# -- few steps, many bytes ------------------------------------------------------------------------------------------


@every_count
def test_recursive_doubling_sends_whole_buffers_in_log_n_steps(n: int) -> None:
    made, core = traffic.schedule("all_reduce", "recursive-doubling", n), 1 << (n.bit_length() - 1)
    extra, copies = n - core, made.n_chunks
    # Data, and a place for what comes in each step.
    assert copies == 1 + log2(core)
    assert sum(sent(made, copies * COUNT)) == (core * log2(core) + 2 * extra) * COUNT
    # Each exchange is followed by an addition at home.
    assert steps(made) == 2 * log2(core) + 2 * (extra > 0)


@pytest.mark.parametrize("n_servers", [1, 2, 3])
@every_count
def test_parameter_servers_receive_what_all_workers_send(n: int, n_servers: int) -> None:
    made = parameter_server_all_reduce(n, n_servers)
    verify(made)
    shares = [n * share for share in parts(n_servers)]
    assert (made.n_ranks, made.n_members) == (n + n_servers, n)
    assert sent(made) == received(made) == [COUNT] * n + shares
    # Push, add up, pull: no server sends before it has everything.
    assert steps(made) == 3


@every_count
def test_a_server_beside_every_worker_sends_what_the_ring_sends(n: int) -> None:
    made = traffic.schedule("all_reduce", "parameter-server-sharded", n)
    assert sent(made, n * 10) == received(made, n * 10) == [2 * (n - 1) * 10] * n
    assert len(made.connections) == n * (n - 1)


def test_no_server_is_refused() -> None:
    with pytest.raises(TrafficError, match=r"^0 parameter servers: use one or more$"):
        parameter_server_all_reduce(4, 0)


# -- in the network -------------------------------------------------------------------------------------------------

# Eight ranks below two leaf reducers (8, 9), and those below a third (10).
TWO_LEVELS = [8, 8, 8, 8, 9, 9, 9, 9, 10, 10, ROOT]


@pytest.mark.parametrize("n_chunks", [1, 4])
def test_every_link_of_an_aggregation_tree_carries_the_buffer_once_each_way(n_chunks: int) -> None:
    made = in_network_all_reduce(8, TWO_LEVELS, n_chunks)
    verify(made)
    assert steps(made) == 2 * 2 + n_chunks - 1
    load: Counter[tuple[int, int]] = Counter()
    for src, dst, n in zip(made.src.tolist(), made.dst.tolist(), made.elements(COUNT).tolist(), strict=True):
        load[src, dst] += n
    up = [(child, parent) for child, parent in enumerate(TWO_LEVELS) if parent != ROOT]
    assert load == dict.fromkeys([*up, *((b, a) for a, b in up)], COUNT)


@every_count
def test_ranks_below_reducers_send_and_receive_the_buffer_once(n: int) -> None:
    made = traffic.schedule("all_reduce", "in-network", n)
    assert sent(made) == received(made) == [COUNT] * n + [n * COUNT]


@pytest.mark.parametrize(
    ("parents", "text"),
    [
        ([ROOT, 0], "ranks [0] are parents: only reducers, 2 and up, stand above others"),
        ([2, 2, 3, 2], "the parents [2, 2, 3, 2] are no tree: one rank has the parent -1, and all others are below it"),
        (
            [2, 3, ROOT, ROOT],
            "the parents [2, 3, -1, -1] are no tree: one rank has the parent -1, and all others are below it",
        ),
    ],
)
def test_what_is_no_aggregation_tree_is_refused(parents: list[int], text: str) -> None:
    with pytest.raises(TrafficError) as caught:
        in_network_all_reduce(2, parents)
    assert str(caught.value) == text


# -- all-to-all -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["pairwise", "pairwise-xor", "direct"])
@every_count
def test_all_to_all_sends_a_block_to_every_other_rank(algorithm: str, n: int) -> None:
    made = traffic.schedule("all_to_all", algorithm, n)
    # Input and output, n blocks each; what n does not divide stays unused.
    assert sent(made, 2 * COUNT) == received(made, 2 * COUNT) == [(n - 1) * (COUNT // n)] * n
    wire = ~made.is_local
    assert sorted(zip(made.src[wire].tolist(), made.dst[wire].tolist(), strict=True)) == list(permutations(range(n), 2))
    if algorithm == "direct":
        assert steps(made) == 1
    else:
        # To one rank at a time, and from one.
        assert n - 1 <= steps(made) < (n if algorithm == "pairwise" else 1 << ceil(log2(n)))


def test_pairs_of_a_step() -> None:
    shift, xor = (traffic.schedule("all_to_all", a, 8) for a in ("pairwise", "pairwise-xor"))
    assert shift.dst[shift.src == 5].tolist() == [5, 6, 7, 0, 1, 2, 3, 4]
    assert xor.dst[xor.src == 5].tolist() == [5, 4, 7, 6, 1, 0, 3, 2]


@pytest.mark.parametrize("algorithm", ["pairwise", "direct"])
@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.tuples(*[st.integers(0, 5000)] * n), min_size=n, max_size=n)))
@settings(max_examples=20)
def test_all_to_all_v_moves_what_the_matrix_says(algorithm: str, matrix: list[tuple[int, ...]]) -> None:
    """In elements of 4 bytes, rounded up; what stays at home is on no wire."""
    n = len(matrix)
    made = traffic.schedule("all_to_all_v", algorithm, Layout(n, matrix=tuple(matrix)))
    verify(made)
    elements = [[ceil(b / 4) * (r != d) for d, b in enumerate(row)] for r, row in enumerate(matrix)]
    count = made.natural_count
    assert count is not None
    assert sent(made, count) == [sum(row) for row in elements]
    assert received(made, count) == [sum(column) for column in zip(*elements, strict=True)]


def test_without_a_matrix_all_blocks_are_alike() -> None:
    made = traffic.schedule("all_to_all_v", "direct", 4)
    assert sent(made, 80) == received(made, 80) == [30] * 4


# -- one root -------------------------------------------------------------------------------------------------------

few_counts = pytest.mark.parametrize("n", [2, 3, 5, 8, 13, 16])


def rooted(collective: str, algorithm: str, n: int) -> Iterator[tuple[int, Schedule]]:
    for root in sorted({0, n // 3, n - 1}):
        made = traffic.schedule(collective, algorithm, Layout(n, root=root))
        verify(made)
        assert made.root == root
        yield root, made


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@few_counts
def test_broadcast_and_reduce_move_every_other_ranks_buffer_once(collective: str, n: int) -> None:
    # Up the tree all children of a rank may come at a time; down it they are served one by one.
    binomial = ceil(log2(n)) if collective == "broadcast" else int(log2(n))
    for algorithm, deep in (("ring", n - 2 + 8), ("binomial", binomial), ("direct", 1)):
        for root, made in rooted(collective, algorithm, n):
            assert steps(made) == deep
            sends, receives = (sent, received) if collective == "broadcast" else (received, sent)
            assert receives(made) == [COUNT * (r != root) for r in range(n)]
            if algorithm == "direct":
                assert sends(made)[root] == (n - 1) * COUNT
            if algorithm == "ring":
                assert sends(made) == [COUNT * ((r + 1) % n != root) for r in range(n)]


@pytest.mark.parametrize("collective", ["gather", "scatter"])
@few_counts
def test_gather_and_scatter_move_a_part_along_its_way(collective: str, n: int) -> None:
    """Binomial: as many times as the distance from the root has bits set."""
    for root, made in rooted(collective, "direct", n):
        at_root = received(made)[root] if collective == "gather" else sent(made)[root]
        assert at_root == sum(sent(made)) == COUNT - parts(n)[root]
        assert steps(made) == 1
    for root, made in rooted(collective, "binomial", n):
        assert sum(sent(made)) == sum(size * ((r - root) % n).bit_count() for r, size in enumerate(parts(n)))
        if root == 0:
            assert (len(made), steps(made)) == (n - 1, ceil(log2(n)) if collective == "scatter" else int(log2(n)))


def test_a_binomial_broadcast_serves_the_largest_subtree_first() -> None:
    """The textbook's rounds, root 0 of 8: 0 -> 4; 0 -> 2, 4 -> 6; 0 -> 1, 2 -> 3, 4 -> 5, 6 -> 7."""
    made = traffic.schedule("broadcast", "binomial", 8)
    in_order = order(made)
    rounds = [
        sorted(zip(made.src[sends].tolist(), made.dst[sends].tolist(), strict=True))
        for sends in np.split(in_order.by_level, in_order.start[1:-1])
    ]
    assert rounds == [[(0, 4)], [(0, 2), (4, 6)], [(0, 1), (2, 3), (4, 5), (6, 7)]]


@every_count
def test_sendrecv_shifts_the_buffer_by_one_rank(n: int) -> None:
    made = traffic.schedule("sendrecv", "direct", n)
    assert made.connections == [(r, (r + 1) % n, 0) for r in range(n)]
    assert sent(made, 2 * COUNT) == received(made, 2 * COUNT) == [COUNT] * n


# -- large ones -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("collective", "algorithm", "n_sends"),
    [
        ("all_reduce", "parameter-server-sharded", 2 * 256 * 255 + 256),
        ("all_gather", "direct", 256 * 255),
        ("all_to_all", "direct", 256 * 256),
        # 32 blocks to each of seven others and 32 kept, one for each domain; and a message to each other domain.
        ("all_to_all", "hierarchical", 256 * 8 * 32 + 256 * 31),
    ],
)
def test_sends_of_large_schedules(collective: str, algorithm: str, n_sends: int) -> None:
    assert len(traffic.schedule(collective, algorithm, in_domains(32, 8, shuffled=False))) == n_sends
