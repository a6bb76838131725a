"""Every scheduler; and each against what it promises, by brute force, by sum or by another's formula."""

from collections import Counter
from itertools import combinations, permutations, product
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from controller.circuits.conformance import check_file, check_scheduler
from controller.circuits.cost import break_even_bytes, drain_us, worth_changing
from controller.circuits.rotation import rotations
from controller.circuits.schedulers import SCHEDULERS, scheduler, slices_of
from controller.circuits.schedulers.multi_uplink import best_circuits
from controller.circuits.schedulers.opera import waits_for_circuit
from controller.circuits.schedulers.ring_permutations import strides
from controller.circuits.slices import DemandMatrix, Matching, Parameters, Slice, demand_matrix
from controller.circuits.stuffing import decompose, quick_stuff
from lab.commands.check import check_file as check_command
from topologies.errors import Refused


def drawn(n: int, seed: int, density: float = 1.0) -> DemandMatrix:
    random = np.random.default_rng(seed)
    return demand_matrix(random.integers(1, 10**6, (n, n)) * (random.random((n, n)) < density))


def carried(slices: tuple[Slice, ...], demand: DemandMatrix, parameters: Parameters) -> DemandMatrix:
    """[source, target]: what the circuits can carry in the days of the slices, with a night at the start of each."""
    total = np.zeros_like(demand)
    for one in slices:
        per_uplink = (one.length_us - parameters.dark_us) * parameters.rate_mbps / 8
        for uplink in range(parameters.uplinks):
            for i, j in enumerate(one.matchings[uplink % len(one.matchings)]):
                if j is not None:
                    total[i, j] += int(per_uplink)
    return total


@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler_conforms(name: str) -> None:
    assert check_scheduler(SCHEDULERS[name]) == []


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(Refused) as refused:
        scheduler("hungry")
    assert str(refused.value) == (
        "unknown scheduler 'hungry': choose from birkhoff-von-neumann, edmonds, hotspot, hungarian, multi-uplink, opera, "
        "ring-permutations, round-robin, solstice, static"
    )


# -- stuffing and decomposition -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "density"), [(2, 1.0), (5, 0.3), (8, 1.0), (16, 0.2), (16, 0.0)])
def test_stuffing_makes_all_sums_the_largest_one(n: int, density: float) -> None:
    demand = drawn(n, seed=n, density=density)
    stuffed = quick_stuff(demand)
    largest = max(demand.sum(axis=0).max(), demand.sum(axis=1).max())
    assert (stuffed.sum(axis=0) == largest).all() and (stuffed.sum(axis=1) == largest).all()
    assert (stuffed >= demand).all()


def test_stuffing_prefers_entries_that_are_there() -> None:
    """Rows lack 2, 1, 0 of 4; columns 2, 1, 0: all of it fits on top of what is there."""
    demand = demand_matrix([[9, 2, 0], [1, 9, 2], [1, 1, 9]])  # what stays at an end does not count
    assert demand.tolist() == [[0, 2, 0], [1, 0, 2], [1, 1, 0]]
    stuffed = quick_stuff(demand)
    assert stuffed.sum(axis=0).tolist() == stuffed.sum(axis=1).tolist() == [3, 3, 3]
    assert np.count_nonzero(stuffed) == np.count_nonzero(demand) + 1


@pytest.mark.parametrize(("n", "density"), [(2, 1.0), (5, 0.5), (8, 1.0), (16, 0.2), (24, 1.0)])
def test_terms_sum_back_to_the_stuffed_matrix(n: int, density: float) -> None:
    stuffed = quick_stuff(drawn(n, seed=n, density=density))
    terms = decompose(stuffed)
    total = np.zeros_like(stuffed)
    for columns, weight in terms:
        assert sorted(columns) == list(range(n)) and weight > 0
        total[range(n), columns] += weight
    assert (total == stuffed).all()
    # Johnson, Dulmage and Mendelsohn 1960.
    assert len(terms) <= n * n - 2 * n + 2


@pytest.mark.parametrize("name", ["birkhoff-von-neumann", "solstice"])
@pytest.mark.parametrize("density", [0.3, 1.0])
def test_all_demand_is_carried_where_there_is_no_packet_network(name: str, density: float) -> None:
    demand, parameters = drawn(9, seed=3, density=density), Parameters(uplinks=2)
    slices = slices_of(SCHEDULERS[name], demand, parameters)
    # A slice of half a byte less on each of two uplinks is rounded down.
    assert (carried(slices, demand, parameters) >= demand - 2 * len(slices)).all()


def test_birkhoff_von_neumann_takes_as_long_as_the_fullest_end() -> None:
    """Without dark time that is the least that any schedule can take."""
    demand, parameters = drawn(7, seed=1), Parameters(dark_us=0.0)
    slices = slices_of(SCHEDULERS["birkhoff-von-neumann"], demand, parameters)
    fullest = max(demand.sum(axis=0).max(), demand.sum(axis=1).max())
    assert sum(one.length_us for one in slices) == pytest.approx(fullest * 8 / parameters.rate_mbps)


def test_solstice_needs_one_slice_for_a_permutation_and_fewer_than_birkhoff_for_more() -> None:
    shift = demand_matrix(np.roll(np.eye(8), 3, axis=1) * 10**6)
    (only,) = slices_of(SCHEDULERS["solstice"], shift, Parameters())
    assert only.matchings == (tuple((i + 3) % 8 for i in range(8)),)
    # 10^6 bytes over 100 Gbit/s are 80 us, after 20 of dark.
    assert only.length_us == pytest.approx(100.0)
    demand, parameters = drawn(16, seed=2), Parameters(packet_mbps=10_000.0)
    few, many = (len(slices_of(SCHEDULERS[name], demand, parameters)) for name in ("solstice", "birkhoff-von-neumann"))
    assert few < many / 4


def test_solstice_leaves_to_the_packet_network_what_it_can_carry_meanwhile() -> None:
    demand, parameters = drawn(12, seed=5), Parameters(packet_mbps=20_000.0)
    slices = slices_of(SCHEDULERS["solstice"], demand, parameters)
    rest = np.maximum(demand - carried(slices, demand, parameters), 0)
    elapsed_us = sum(one.length_us for one in slices)
    most = max(rest.sum(axis=0).max(), rest.sum(axis=1).max())
    assert 0 < most * 8 / parameters.packet_mbps <= elapsed_us


# -- matchings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(2, 8))
def test_hungarian_is_the_best_of_all_permutations(n: int) -> None:
    for seed in range(3):
        demand = drawn(n, seed, density=0.7)
        (only,) = slices_of(SCHEDULERS["hungarian"], demand, Parameters())
        best = max(sum(int(demand[i, j]) for i, j in enumerate(p)) for p in permutations(range(n)))
        assert sum(demand[i, j] for i, j in only.circuits) == best
        assert all(demand[i, j] > 0 for i, j in only.circuits)


def pairings(ends: list[int]) -> list[list[tuple[int, int]]]:
    """All sets of disjoint pairs."""
    if len(ends) < 2:
        return [[]]
    first, *others = ends
    alone = pairings(others)
    return alone + [[(first, j), *rest] for j in others for rest in pairings([k for k in others if k != j])]


@pytest.mark.parametrize("n", range(2, 8))
def test_edmonds_is_the_best_of_all_pairings_and_goes_both_ways(n: int) -> None:
    for seed in range(3):
        demand = drawn(n, seed, density=0.7)
        (only,) = slices_of(SCHEDULERS["edmonds"], demand, Parameters())
        best = max(sum(int(demand[i, j] + demand[j, i]) for i, j in pairs) for pairs in pairings(list(range(n))))
        assert sum(demand[i, j] for i, j in only.circuits) == best
        assert {(j, i) for i, j in only.circuits} == set(only.circuits)


def test_multi_uplink_is_the_best_of_all_sets_of_circuits() -> None:
    """Three ends with two uplinks each: 0, 1 or 2 circuits for each of the six ordered pairs."""
    pairs = list(permutations(range(3), 2))
    for seed in range(5):
        demand, day_bytes = drawn(3, seed), 300_000
        best = 0
        for counts in product(range(3), repeat=6):
            ends = Counter(e for (i, j), c in zip(pairs, counts, strict=True) for e in [("from", i), ("to", j)] * c)
            if max(ends.values(), default=0) <= 2:
                best = max(best, sum(min(int(demand[p]), c * day_bytes) for p, c in zip(pairs, counts, strict=True)))
        found = best_circuits(demand, uplinks=2, day_bytes=day_bytes)
        assert np.minimum(demand, found * day_bytes).sum() == best


def test_multi_uplink_with_one_uplink_and_long_days_is_hungarian() -> None:
    demand, parameters = drawn(12, seed=4), Parameters(slice_us=10**6)
    one, other = (slices_of(SCHEDULERS[name], demand, parameters)[0] for name in ("multi-uplink", "hungarian"))
    assert sum(demand[i, j] for i, j in one.circuits) == sum(demand[i, j] for i, j in other.circuits)


def test_multi_uplink_gives_a_heavy_pair_several_circuits() -> None:
    """In a day of 180 us a circuit of 100 Gbit/s carries 2.25 MB: three circuits for 6 MB, one each for the others."""
    demand = demand_matrix([[0, 6 * 10**6, 10**6], [10**6, 0, 0], [0, 10**6, 0]])
    (only,) = slices_of(SCHEDULERS["multi-uplink"], demand, Parameters(uplinks=4))
    assert Counter(only.circuits) == {(0, 1): 3, (0, 2): 1, (1, 0): 1, (2, 1): 1}


def test_hotspot_gives_circuits_to_the_large_and_leaves_the_small_to_packets() -> None:
    """10 Gbit/s of packets carry 250 kB in 200 us: the pair with less than its share of that needs no circuit."""
    demand = np.zeros((6, 6))
    demand[0, 1], demand[2, 3], demand[4, 5] = 2_000_000, 400_000, 200_000
    parameters = Parameters(packet_mbps=10_000.0)
    (only,) = slices_of(SCHEDULERS["hotspot"], demand_matrix(demand), parameters)
    assert set(only.circuits) == {(0, 1), (1, 0), (2, 3), (3, 2)}
    with pytest.raises(Refused, match="hotspot leaves most pairs to a packet network: use a fabric that has one"):
        slices_of(SCHEDULERS["hotspot"], demand_matrix(demand), Parameters())


# -- demand-oblivious -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(2, 17))
def test_rotations_join_every_ordered_pair_once(n: int) -> None:
    found = rotations(n)
    assert len(found) == n - 1
    pairs = Counter((i, j) for matching in found for i, j in enumerate(matching))
    assert pairs == Counter(permutations(range(n), 2))
    if n % 2 == 0:
        assert all(matching[j] == i for matching in found for i, j in enumerate(matching) if j is not None)


@pytest.mark.parametrize(
    ("n", "uplinks", "n_slices"), [(8, 1, 7), (9, 1, 8), (9, 2, 4), (9, 8, 1), (8, 3, 3), (4, 8, 1)]
)
def test_round_robin_joins_every_pair_in_a_cycle(n: int, uplinks: int, n_slices: int) -> None:
    slices = slices_of(SCHEDULERS["round-robin"], drawn(n, 0), Parameters(uplinks=uplinks))
    assert len(slices) == n_slices
    counts = Counter(pair for one in slices for pair in one.circuits)
    assert set(counts) == set(permutations(range(n), 2))
    if n_slices * uplinks == n - 1:
        assert set(counts.values()) == {1}


def test_direct_all_to_all_takes_n_minus_1_slots_and_dark_times() -> None:
    """(n - 1)(slot + dark), and the day's share is the duty cycle."""
    parameters = Parameters(dark_us=20.0, slice_us=200.0)
    slices = slices_of(SCHEDULERS["round-robin"], drawn(16, 0), parameters)
    assert sum(one.length_us for one in slices) == pytest.approx(15 * (180.0 + 20.0))
    assert parameters.day_us / parameters.slice_us == pytest.approx(0.9)


@pytest.mark.parametrize(("n", "uplinks"), [(8, 3), (8, 4), (9, 3), (16, 3), (10, 4), (13, 2), (12, 11), (4, 5)])
def test_opera_always_joins_all_ends_and_every_pair_directly_once_in_a_cycle(n: int, uplinks: int) -> None:
    slices = slices_of(SCHEDULERS["opera"], drawn(n, 0), Parameters(uplinks=uplinks))
    direct = {pair for one in slices for pair in one.circuits}
    assert direct == set(permutations(range(n), 2))
    for before, after in zip((slices[-1], *slices[:-1]), slices, strict=True):
        turned = [k for k in range(uplinks) if before.matchings[k] != after.matchings[k]]
        assert len(turned) <= 1
        # In the night, without the rotor that turns.
        up = [m for k, m in enumerate(after.matchings) if k not in turned]
        graph = nx.DiGraph([(i, j) for m in up for i, j in enumerate(m)])
        assert set(graph) == set(range(n)) and nx.is_strongly_connected(graph)


def test_opera_refuses_uplinks_that_cannot_join_all() -> None:
    """With two rotors and ends joined in pairs, one rotor alone joins nobody but its pairs."""
    with pytest.raises(Refused) as refused:
        slices_of(SCHEDULERS["opera"], drawn(8, 0), Parameters(uplinks=2))
    assert str(refused.value) == (
        "opera: 2 uplinks do not join 8 ends at all times while one of them turns: use at least 3 uplinks"
    )


def test_opera_lets_messages_from_the_cutoff_on_wait() -> None:
    """15 MB, as in the paper, unless said otherwise."""
    assert waits_for_circuit(15_000_000, Parameters())
    assert not waits_for_circuit(14_999_999, Parameters())
    assert waits_for_circuit(1000, Parameters(cutoff_bytes=1000))


@pytest.mark.parametrize(("n", "uplinks"), [(8, 1), (9, 2), (16, 4), (12, 3), (7, 6)])
def test_ring_permutations_are_different_rings_through_all_ends(n: int, uplinks: int) -> None:
    (only,) = slices_of(SCHEDULERS["ring-permutations"], drawn(n, 0), Parameters(uplinks=uplinks))
    for ring in only.matchings:
        graph = nx.DiGraph(list(enumerate(ring)))
        assert nx.is_strongly_connected(graph) and set(dict(graph.degree).values()) == {2}
    assert len(set(only.matchings)) == uplinks
    assert only.matchings[0] == tuple((i + 1) % n for i in range(n))


def test_strides_are_prime_to_the_number_of_ends_and_spread_like_powers() -> None:
    """Of 12: 1, 5, 7, 11 are possible; of 2 wanted, 1 and the nearest to the root of 12, 3.5."""
    assert strides(12, 2) == [1, 5]
    assert sorted(strides(12, 4)) == sorted(strides(12, 9)) == [1, 5, 7, 11]


@pytest.mark.parametrize(("n", "uplinks"), [(2, 3), (5, 1), (6, 2), (8, 4), (3, 5)])
def test_static_joins_all_ends_always(n: int, uplinks: int) -> None:
    (only,) = slices_of(SCHEDULERS["static"], drawn(n, 0), Parameters(uplinks=uplinks))
    assert nx.is_strongly_connected(nx.DiGraph(only.circuits))


# -- demand-aware against demand-oblivious --------------------------------------------------------------------------


def test_demand_aware_wins_on_skewed_demand_and_round_robin_on_uniform() -> None:
    """70 % of the bytes on one permutation, 30 % uniform, 7 MB from each of 8 ends. Round-robin's slot of 80 us carries 1 MB,
    made for uniform demand: (n - 1)(slot + dark) = 700 us for that, and 6 cycles for the 5.2 MB of the heavy pairs."""
    n, parameters = 8, Parameters(dark_us=20.0, slice_us=100.0)
    uniform = demand_matrix(np.full((n, n), 10**6))
    skewed = demand_matrix(0.3 * uniform + 0.7 * 7 * 10**6 * np.roll(np.eye(n), 1, axis=1))

    def needed_us(name: str, demand: DemandMatrix) -> float:
        """With cycles repeated until all is carried."""
        cycle = slices_of(SCHEDULERS[name], demand, parameters)
        per_cycle = carried(cycle, demand, parameters) + len(cycle)
        n_cycles = np.ceil(demand / per_cycle).max()
        return float(n_cycles * sum(one.length_us for one in cycle))

    assert needed_us("round-robin", uniform) == pytest.approx(700.0)
    assert needed_us("round-robin", skewed) == pytest.approx(6 * 700.0)
    # 7 MB at 100 Gbit/s are 560 us; the least number of slices is 7.
    assert needed_us("solstice", uniform) >= 700.0 - 0.1
    assert 700.0 - 0.1 <= needed_us("solstice", skewed) < 1000.0


# -- cost -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dark_us", [10.0, 1_000.0, 25_000.0])
def test_the_break_even_size_is_what_the_line_carries_in_the_dark_time(dark_us: float) -> None:
    """A flow with half of 100 Gbit/s: 125 kB at 10 us, 12.5 MB at 1 ms, 312.5 MB at 25 ms."""
    parameters = Parameters(dark_us=dark_us, slice_us=2 * dark_us, packet_mbps=50_000.0)
    size = dark_us * parameters.rate_mbps / 8
    assert break_even_bytes(dark_us, 50_000.0, 100_000.0) == pytest.approx(size)
    none: list[Matching] = [(None, None)]
    wanted: list[Matching] = [(1, None)]
    assert worth_changing(demand_matrix([[0.0, size + 1], [0.0, 0.0]]), none, wanted, parameters)
    assert not worth_changing(demand_matrix([[0.0, size - 1], [0.0, 0.0]]), none, wanted, parameters)


def test_no_circuit_is_worth_what_it_has_already_or_what_is_no_faster() -> None:
    demand = drawn(4, 0)
    around = [(1, 2, 3, 0)]
    assert not worth_changing(demand, around, around, Parameters())
    assert break_even_bytes(10.0, 100_000.0, 100_000.0) == float("inf")


def test_kept_circuits_carry_while_others_are_dark() -> None:
    """1 MB at 100 Gbit/s are 80 us; a new circuit starts 20 us later; with a kept one beside it the two finish together:
    (1 MB + 20 us x 12.5 kB/us) / 25 kB/us = 50 us."""
    demand = demand_matrix([[0, 10**6], [0, 0]])
    parameters, two = Parameters(), Parameters(uplinks=2)
    up, none = (1, None), (None, None)
    assert drain_us(demand, [up], [up], parameters) == pytest.approx(80.0)
    assert drain_us(demand, [none], [up], parameters) == pytest.approx(100.0)
    assert drain_us(demand, [up, none], [up, up], two) == pytest.approx(50.0)
    assert drain_us(demand, [none], [none], parameters) == float("inf")


def test_where_some_demand_has_no_way_the_circuits_that_carry_more_are_worth_it() -> None:
    demand = demand_matrix([[0, 10**4, 10**6], [0, 0, 0], [0, 0, 0]])
    small: list[Matching] = [(1, None, None)]
    large: list[Matching] = [(2, None, None)]
    assert worth_changing(demand, small, large, Parameters())
    assert not worth_changing(demand, large, small, Parameters())


# -- demand ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([[0, 1, 2], [1, 0, 2]], "a demand matrix must be square, with at least 2 rows: it is 2 x 3"),
        ([[5]], "a demand matrix must be square, with at least 2 rows: it is 1 x 1"),
        (7, "a demand matrix must be square, with at least 2 rows: it is a single number"),
        ([[0, 1], [1]], "a demand matrix must be rows of numbers, all of the same length"),
        ([[0, -1], [1, 0]], "demand from 1 to 2 is -1 bytes: it must be 0..2^50"),
        ([[0, 1], [float("nan"), 0]], "demand from 2 to 1 is nan bytes: it must be 0..2^50"),
    ],
)
def test_what_is_no_demand_matrix_is_refused(values: object, text: str) -> None:
    with pytest.raises(Refused) as refused:
        demand_matrix(values)  # type: ignore[arg-type]
    assert str(refused.value) == text


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {"slice_us": 20.0},
            "a slice of 20 us would be over before its circuits are up, after the dark time of 20 us: make it longer",
        ),
        ({"rate_mbps": 0.0}, "1 circuits of 0 Mbit/s: at least one of a positive rate is needed"),
        ({"packet_mbps": -1.0}, "dark_us, packet_mbps and cutoff_bytes cannot be negative"),
        ({"dark_us": float("nan")}, "dark_us=nan must be a finite number"),
    ],
)
def test_parameters_that_cannot_be_meant_are_refused(changed: dict[str, float], text: str) -> None:
    with pytest.raises(Refused) as refused:
        Parameters(**changed)  # type: ignore[arg-type]
    assert str(refused.value) == text


# -- schedulers of a user's own -------------------------------------------------------------------------------------

MINE = """
from controller.circuits.slices import Slice
import random

def SCHEDULER(demand, parameters):
    n = len(demand)
    return (Slice((tuple((i + 1) % n for i in range(n)),), parameters.slice_us),)

def to_itself(demand, parameters):
    return (Slice((tuple(range(len(demand))),), parameters.slice_us),)

def too_short(demand, parameters):
    return (Slice(((1, 0, *[None] * (len(demand) - 2)),), parameters.dark_us),)

def moody(demand, parameters):
    return (Slice(((1, 0, *[None] * (len(demand) - 2)),), parameters.slice_us + random.random()),)

def idle(demand, parameters):
    return ()

def greedy(demand, parameters):
    demand[0, 0] = 1

def helper(demand):
    return demand
"""


def test_a_users_schedulers_are_checked_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    findings = check_file(str(file))
    assert list(findings) == ["SCHEDULER", "to_itself", "too_short", "moody", "idle", "greedy"]
    assert findings["SCHEDULER"] == []
    first = {name: texts[0] for name, texts in findings.items() if texts}
    assert first == {
        "to_itself": "scheduler to_itself: a circuit from 1 to itself, for uniform demand, one uplink",
        "too_short": "scheduler too_short: slice 1 of 20 us would be over before its circuits are up, after the dark time "
        "of 20 us: make it longer, for uniform demand, one uplink",
        "moody": "two calls with the same demand gave different slices, for uniform demand, one uplink",
        "idle": "no slice joins any two ends that have demand, for uniform demand, one uplink",
        "greedy": "refuses everything: scheduler greedy failed: ValueError: assignment destination is read-only",
    }
    assert check_file(f"{file}:SCHEDULER") == {"SCHEDULER": []}
    assert len(slices_of(scheduler(f"{file}:SCHEDULER"), drawn(4, 0), Parameters())) == 1


def test_the_check_command_knows_schedulers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    assert check_command(str(file)) == 1
    assert check_command(f"{file}:SCHEDULER") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == lines[-1] == "scheduler SCHEDULER: passes"
    assert "scheduler moody: fails" in lines


def test_two_ends_on_one_target_are_refused() -> None:
    def twice(demand: DemandMatrix, parameters: Parameters) -> tuple[Slice, ...]:
        return (Slice(((2, 2, None),), parameters.slice_us),)

    with pytest.raises(Refused, match="scheduler twice: circuits from 1 and from 2 to 3 on the same uplink"):
        slices_of(twice, drawn(3, 0), Parameters())


def test_all_pairs_of_ends_are_pairings_of_seven() -> None:
    """Else the brute force above would prove less: the involutions of 7 are 232 (OEIS A000085)."""
    assert len(pairings(list(range(7)))) == 232
    assert len(list(combinations(range(7), 2))) == 21
