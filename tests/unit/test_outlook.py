"""Predictions without a schedule, against those with one where both can be made."""

from typing import Any

import numpy as np
import pytest

from controller import policy
from controller.many_flows import table_of
from lab.model.outlined import owner_pairs, split_evenly
from lab.planning.experiment import load
from lab.planning.forecast import forecast_of
from lab.planning.outlook import EVEN, HASHED, Outlooks, is_large
from lab.planning.plan import plan
from lab.planning.scale import Scale
from topologies import Refused, topology

RAILS = "rail-optimised:servers=4,gpus_per_server=4,spines=2"
SLOWER = Scale(40_000, 1)
SIZE = {"min_bytes": 2**26, "max_bytes": 2**26}


def both(**settings: Any) -> tuple[Any, Any]:
    """(without a schedule, with one, at slower links, so that what software takes is little)."""
    e = load(None, {**SIZE, **settings})
    (found,) = Outlooks(e).all()
    p = plan(e)
    return found.found, forecast_of(p, SLOWER).prediction(p.sizes(SLOWER)[0], SLOWER)


@pytest.mark.parametrize(
    "settings",
    [
        {"topology": "spine-leaf:spines=3,leaves=4,hosts_per_leaf=4", "algorithm": "ring"},
        {"topology": "fat-tree:k=4", "algorithm": "halving-doubling", "placement": "random"},
        {"topology": "dragonfly", "algorithm": "ring", "placement": "strided"},
        {"topology": RAILS, "algorithm": "hierarchical"},
        {"topology": "fat-tree:k=4", "algorithm": "ring", "transport": "rocev2", "qps": 4, "placement": "random"},
    ],
)
def test_bytes_on_every_link_are_those_of_the_schedule(settings: dict[str, Any]) -> None:
    """But for what the last frames of messages leave room for."""
    outlined, scheduled = both(collective="all_reduce", **settings)
    used = {intf: n for intf, n in scheduled.bytes_by_intf.items() if n}
    assert outlined.model == HASHED
    assert outlined.bytes_by_intf == pytest.approx(used, rel=2e-3)
    # In step and without the switches' latency, and without the burst that every link lets pass at once.
    assert outlined.seconds == pytest.approx(SLOWER.hardware_s(scheduled.seconds), rel=0.15)


@pytest.mark.parametrize("fabric", ["spine-leaf:spines=1,leaves=4,hosts_per_leaf=4", "rail-optimised:spines=1"])
def test_an_all_to_all_without_a_choice_of_path_is_exact(fabric: str) -> None:
    outlined, scheduled = both(collective="all_to_all", algorithm="pairwise", topology=fabric)
    assert outlined.model == HASHED
    assert outlined.bytes_by_intf == pytest.approx(scheduled.bytes_by_intf, rel=2e-3)


def test_an_all_to_all_with_a_choice_is_split_evenly_and_says_so() -> None:
    """16 hosts, 4 a leaf: 4 x 12 of 16 messages over two uplinks."""
    outlined, _ = both(collective="all_to_all", topology="spine-leaf:spines=2,leaves=4,hosts_per_leaf=4")
    up, nic = (outlined.bytes_by_intf[intf] for intf in ("leaf1-eth5", "h1-eth0"))
    assert outlined.model == EVEN
    assert up / nic == pytest.approx(4 * 12 / 2 / 15)


def test_an_even_split_follows_the_number_of_paths() -> None:
    """A fat-tree of k = 4 between two pods: half over each aggregation switch, a quarter over each core."""
    fabric = topology("fat-tree:k=4").build()
    table = table_of(policy("ecmp"), fabric)
    assert table is not None
    demand = np.zeros((8, 8))
    demand[0, 7] = 1.0
    carried, chose = split_evenly(table, demand)
    assert chose
    assert sorted(carried[carried > 0].tolist()) == [0.25] * 8 + [0.5] * 4


def test_pairs_of_switches_have_the_product_of_their_ranks() -> None:
    assert owner_pairs(np.array([0, 0, 1, 2]), 3, 5.0).tolist() == [[0, 10, 10], [10, 0, 5], [10, 5, 0]]


def test_what_is_too_large_for_a_schedule() -> None:
    assert is_large(load(None, {"topology": "fat-tree:k=42"}))
    assert not is_large(load(None, {"topology": "fat-tree:k=42", "ranks": 1024}))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"algorithm": "double-binary-tree"}, "all_reduce by double-binary-tree"),
        ({"routing": "per-flow"}, "paths are known by ecmp, ecmp-polarised and single-path only"),
        ({"scale": Scale(8000, 64)}, "leave --scale out"),
        ({"collective": "permutation", "algorithm": None}, "permutation is not for more than 1024 ranks"),
        ({"channels": 2}, "--channels is not for more than 1024 ranks"),
    ],
)
def test_what_it_cannot_say_it_refuses(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(Refused, match=text):
        Outlooks(load(None, {"collective": "all_reduce", "topology": "spine-leaf", **settings}))
