"""Which host each rank runs on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import topology
from topologies.builder import FabricBuilder
from traffic.errors import TrafficError
from traffic.placement import PLACEMENTS, place

FABRIC = topology("spine-leaf:spines=2,leaves=3,hosts_per_leaf=4").build()


def test_contiguous_fills_leaf_after_leaf() -> None:
    assert place(FABRIC, 6, "contiguous") == ["h1", "h2", "h3", "h4", "h5", "h6"]


def test_strided_goes_round_the_leaves() -> None:
    assert place(FABRIC, 7, "strided") == ["h1", "h5", "h9", "h2", "h6", "h10", "h3"]


def test_strided_neighbours_share_no_leaf() -> None:
    hosts = place(FABRIC, 12, "strided")
    leaves = [FABRIC.switch_of(h) for h in hosts]
    assert all(a != b for a, b in zip(leaves, leaves[1:] + leaves[:1], strict=True))


def test_strided_goes_on_with_the_leaves_that_have_hosts_left() -> None:
    b = FabricBuilder("uneven", {})
    for leaf, names in (("left", ("a", "b", "c")), ("right", ("d",))):
        switch = b.switch(leaf, "leaf")
        for name in names:
            b.link(b.host(name, f"198.18.0.{ord(name)}"), switch, "scale-out")
    assert place(b.build(), 4, "strided") == ["a", "d", "b", "c"]


def test_random_is_the_same_for_the_same_seed_only() -> None:
    assert place(FABRIC, 12, "random", 1) == place(FABRIC, 12, "random", 1)
    assert place(FABRIC, 12, "random", 1) != place(FABRIC, 12, "random", 2)


@pytest.mark.parametrize("placement", PLACEMENTS)
@given(n_ranks=st.integers(0, 12), seed=st.integers())
def test_every_rank_has_a_host_of_its_own(placement: str, n_ranks: int, seed: int) -> None:
    hosts = place(FABRIC, n_ranks, placement, seed)
    assert len(hosts) == len(set(hosts)) == n_ranks
    assert set(hosts) <= {h.name for h in FABRIC.hosts}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_more_ranks_than_hosts_are_refused_with_both_numbers(placement: str) -> None:
    with pytest.raises(TrafficError, match=r"^13 ranks do not fit on 12 hosts: use at most 12$"):
        place(FABRIC, 13, placement)


def test_an_unknown_placement_lists_the_known_ones() -> None:
    with pytest.raises(TrafficError, match="unknown placement 'spread': choose from contiguous, random, strided"):
        place(FABRIC, 2, "spread")
