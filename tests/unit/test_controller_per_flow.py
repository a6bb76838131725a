"""per-flow: how full the fullest link gets, against brute force and ECMP; failures; announcing and withdrawing flows."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from controller import POLICIES, rules_of
from controller.dataplane import DataPlane
from controller.demand import MAX_DEMANDS, Demand, from_plain, merged, to_plain, without
from controller.flow import ICMP, UDP, Flow
from controller.placement import Candidates, peak_load, place
from controller.policies.per_flow import PerFlow
from controller.policy import Announced, Policy
from controller.rules import SwitchRules
from controller.state import State
from controller.update import plan
from lab.planning.announcing import to_announce
from lab.planning.experiment import Experiment
from lab.planning.forecast import forecast
from lab.planning.plan import endpoints
from lab.planning.plan import plan as planned
from tests.unit.controller_fabrics import address, jellyfish, link_between, ring
from tests.unit.test_controller_process import controller
from tests.unit.test_controller_update import loops, mixtures
from topologies.errors import Refused
from topologies.fabric import Fabric
from topologies.spine_leaf import SpineLeaf
from traffic import TRANSPORTS

NIC_MBPS = 400_000.0


def demand(fabric: Fabric, a: str, b: str, rate_mbps: float = NIC_MBPS, port: int = 49152) -> Demand:
    return Demand(Flow(address(fabric, a), address(fabric, b), UDP, port, 4791), rate_mbps)


def permutation(fabric: Fabric, seed: int) -> tuple[Demand, ...]:
    """Every host sends to one other, every host receives from one."""
    names = [host.name for host in fabric.hosts]
    random.Random(seed).shuffle(names)
    return tuple(demand(fabric, a, b, port=49152 + 7 * i) for i, (a, b) in enumerate(pairwise([*names, names[0]])))


def fullest(fabric: Fabric, policy: Policy, demands: Sequence[Demand], down: frozenset[int] = frozenset()) -> float:
    """Walking every flow: the load of the fullest link between switches, 1 = its rate."""
    plane, load = DataPlane(fabric, rules_of(policy, fabric, down), down), Counter[str]()
    for wanted in demands:
        for port in plane.path(wanted.flow)[1:-1]:
            load[port.intf] += wanted.rate_mbps / fabric.link_of(port.intf).rate_mbps  # type: ignore[assignment]
    return max(load.values())


@pytest.mark.parametrize("n", [4, 8])
def test_n_flows_over_n_spines_have_an_uplink_each_where_ecmp_collides(n: int) -> None:
    fabric = SpineLeaf(spines=n, leaves=2, hosts_per_leaf=n).build()
    flows = [demand(fabric, f"h{i + 1}", f"h{n + i + 1}", port=49152 + 7 * i) for i in range(n)]
    assert fullest(fabric, POLICIES["ecmp"], flows) >= 2
    assert fullest(fabric, PerFlow().announced(fabric, tuple(flows)), flows) == pytest.approx(1)


@pytest.mark.parametrize("seed", range(5))
def test_a_permutation_fits_a_full_spine_leaf_without_collision(seed: int) -> None:
    """It always does: a regular bipartite multigraph has an edge colouring with as many colours as its degree (König)."""
    fabric = SpineLeaf(spines=6, leaves=6, hosts_per_leaf=6).build()
    flows = permutation(fabric, seed)
    assert fullest(fabric, PerFlow().announced(fabric, flows), flows) == pytest.approx(1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("fabric", [SpineLeaf(spines=3, leaves=3, hosts_per_leaf=2).build(), jellyfish(6, 3)])
def test_the_fullest_link_is_as_empty_as_the_best_of_all_placements_leaves_it(fabric: Fabric, seed: int) -> None:
    rng = random.Random(seed)
    pairs = [rng.sample([host.name for host in fabric.hosts], 2) for _ in range(4)]
    flows = [demand(fabric, a, b, rng.choice((1, 2, 3, 5)) * 1e5, port=i) for i, (a, b) in enumerate(pairs)]
    ways = [Candidates(fabric).of(x.flow) for x in flows]
    best = min(
        peak_load(fabric, flows, dict(zip((x.flow for x in flows), paths, strict=True))) for paths in product(*ways)
    )
    assert peak_load(fabric, flows, place(fabric, flows)) == pytest.approx(best)


def test_other_flows_go_by_ecmp_and_rules_are_one_per_flow_and_switch() -> None:
    fabric = SpineLeaf(spines=2, leaves=2, hosts_per_leaf=2).build()
    told = PerFlow().announced(
        fabric, (demand(fabric, "h1", "h3"), demand(fabric, "h2", "h4"), demand(fabric, "h1", "h2"))
    )
    more = {
        name: len(rules.flows) - len(rules_of(POLICIES["ecmp"], fabric)[name].flows)
        for name, rules in rules_of(told, fabric).items()
    }
    # Of two flows the leaf and one spine each; none within a leaf, none at the last switch.
    assert more == {"leaf1": 2, "leaf2": 0, "spine1": 1, "spine2": 1}
    assert told.summary() == {"flows": 3, "placed": 3, "peak_load": 1.0}
    planes = [DataPlane(fabric, rules_of(policy, fabric)) for policy in (told, POLICIES["ecmp"])]
    others = [Flow(address(fabric, "h1"), address(fabric, "h3"), UDP, port, 4791) for port in range(100)]
    assert all(planes[0].path(flow) == planes[1].path(flow) for flow in others)


def test_after_a_failure_only_flows_of_that_link_move_and_to_where_there_is_room() -> None:
    fabric = SpineLeaf(spines=4, leaves=2, hosts_per_leaf=3).build()
    flows = [demand(fabric, f"h{i}", f"h{i + 3}", port=i) for i in (1, 2, 3)]
    told = PerFlow().announced(fabric, tuple(flows))
    spine_of = {
        down: {x: DataPlane(fabric, rules_of(told, fabric, down), down).path(x.flow)[2].node for x in flows}
        for down in [frozenset[int](), *(frozenset({x.index}) for x in fabric.links if x.b.node.startswith("spine"))]
    }
    before = spine_of.pop(frozenset())
    for down, after in spine_of.items():
        dead = next(p.node for p in fabric.links[min(down)].ports if p.node.startswith("spine"))
        assert all(after[x] == spine for x, spine in before.items() if spine != dead)
        # Three flows, three spines left.
        assert len(set(after.values())) == 3 and dead not in after.values()


@pytest.mark.parametrize("fabric", [jellyfish(8, 3), ring(5)])
def test_placed_flows_arrive_before_and_after_every_failure(fabric: Fabric) -> None:
    """Without loop, and never back out of the port they came in by: the walk raises on both."""
    flows = permutation(fabric, 1)
    told = PerFlow().announced(fabric, flows)
    for link in (None, *(x for x in fabric.links if not fabric.node(x.a.node).is_host)):
        fullest(fabric, told, flows, frozenset({link.index} if link else ()))


RING, JELLYFISH = ring(5), jellyfish(6, 3)
_ENDS = [host.name for host in JELLYFISH.hosts]


@pytest.mark.parametrize(
    ("fabric", "pairs"),
    [
        # The shortest paths of all three have one link in common.
        (RING, [("h0", "h1"), ("h0", "h2"), ("h4", "h1")]),
        (JELLYFISH, [(a, b) for a in _ENDS[:3] for b in _ENDS if a != b]),
    ],
)
def test_no_state_on_the_way_has_a_loop_when_flows_come_go_and_fail_over(
    fabric: Fabric, pairs: list[tuple[str, str]]
) -> None:
    flows = tuple(demand(fabric, a, b) for a, b in pairs)
    told, link = PerFlow().announced(fabric, flows), link_between(fabric, *_first_edge(fabric))
    # Some go the long way round.
    assert any(len(path) > len(Candidates(fabric).of(flow)[0]) for flow, path in told.paths.items())
    down = frozenset({link.index})
    untold, intact, broken = rules_of(PerFlow(), fabric), rules_of(told, fabric), rules_of(told, fabric, down)
    changes = [(untold, intact, frozenset[int]()), (intact, untold, frozenset[int]()), (intact, broken, down)]
    for old, new, dead in [*changes, (broken, intact, frozenset[int]())]:
        states = mixtures(old, plan(fabric, old, new))
        assert states[-1] == new
        assert [loop for state in states for loop in loops(fabric, state, dead)] == []


def _first_edge(fabric: Fabric) -> tuple[str, str]:
    link = next(x for x in fabric.links if not any(fabric.node(p.node).is_host for p in x.ports))
    return link.a.node, link.b.node


def test_flows_in_json_survive_and_wrong_ones_are_refused_in_one_line() -> None:
    known = Demand(Flow("198.18.0.1", "198.18.0.9", UDP, 49152, 4791), 1000.0)
    assert from_plain([to_plain(known)]) == (known,)
    # A protocol without ports has one flow between two hosts.
    assert from_plain([{**to_plain(known), "proto": ICMP}])[0].flow == Flow("198.18.0.1", "198.18.0.9", ICMP)
    for wrong, text in (
        ({"flows": 1}, "flows must be a list"),
        ([7], "it needs src_ip, dst_ip, proto, src_port, dst_port, rate_mbps"),
        ([{**to_plain(known), "dst_ip": "h9"}], "it needs src_ip"),
        ([{**to_plain(known), "src_port": 70000}], "ports 0..65535"),
        ([{**to_plain(known), "rate_mbps": 0}], "must be a positive number"),
        ([{**to_plain(known), "rate_mbps": float("nan")}], "must be a positive number"),
    ):
        with pytest.raises(Refused, match=text) as refusal:
            from_plain(wrong)
        assert "\n" not in str(refusal.value)


def test_a_flow_is_announced_once_and_there_is_a_bound() -> None:
    one = Demand(Flow("198.18.0.1", "198.18.0.9"), 1.0)
    more = Demand(one.flow, 5.0)
    other = Demand(Flow("198.18.0.1", "198.18.0.9", ICMP), 1.0)
    assert merged((one, other), (more,)) == (more, other)
    assert without((one, other), (more,)) == (other,)
    many = [Demand(Flow("198.18.0.1", "198.18.0.9", UDP, i), 1.0) for i in range(MAX_DEMANDS + 1)]
    assert len(merged((), many[1:])) == MAX_DEMANDS
    with pytest.raises(Refused, match=f"{MAX_DEMANDS + 1} flows: at most {MAX_DEMANDS}"):
        merged((), many)


def test_an_announcement_changes_the_target_of_a_policy_that_heeds_it_and_is_refused_by_others() -> None:
    fabric = SpineLeaf(spines=2, leaves=2, hosts_per_leaf=1).build()
    state = State(fabric, POLICIES["per-flow"])
    before = state.target
    assert state.announce((demand(fabric, "h1", "h2"),)) == {"flows": 1, "placed": 1, "peak_load": 1.0}
    assert state.target != before
    state.announce(())
    assert state.target == before
    with pytest.raises(Refused, match=r"no host of the fabric has the address 198\.18\.0\.77"):
        state.announce((Demand(Flow(address(fabric, "h1"), "198.18.0.77"), 1.0),))
    assert state.target == before
    with pytest.raises(Refused, match="such as per-flow"):
        State(fabric, POLICIES["ecmp"]).announce(())


def test_a_file_of_flows_is_refused_by_a_policy_that_places_none(tmp_path: Path) -> None:
    (tmp_path / "fabric.json").write_text(SpineLeaf().build().to_json())
    (tmp_path / "flows.json").write_text('[{"src_ip": "198.18.0.1"}]')
    files = ["--fabric", str(tmp_path / "fabric.json"), "--flows", str(tmp_path / "flows.json")]
    placing = ", ".join(sorted(name for name, policy in POLICIES.items() if isinstance(policy, Announced)))
    assert controller(*files) == (
        2,
        f"controller: --flows: policy ecmp places no announced flows: choose from {placing}\n",
    )
    status, text = controller(*files, "--policy", "per-flow")
    assert status == 2 and "it needs src_ip, dst_ip" in text and text.count("\n") == 1


def test_a_run_announces_its_own_flows_at_what_a_nic_can_send() -> None:
    def announced(**settings: Any) -> tuple[Demand, ...]:
        made = planned(Experiment(topology="spine-leaf:spines=2,leaves=2,hosts_per_leaf=2", **settings))
        return to_announce(made, made.fabric)

    assert announced(routing="ecmp") == ()
    ring_flows = announced(routing="per-flow", collective="all_reduce", algorithm="ring")
    assert [x.rate_mbps for x in ring_flows] == [NIC_MBPS] * 4
    pattern = announced(routing="per-flow", collective="permutation", algorithm=None, flows_per_host=2)
    assert [x.rate_mbps for x in pattern] == [NIC_MBPS / 2] * 8


def test_rules_of_the_policy_untold_are_those_of_ecmp() -> None:
    fabric = SpineLeaf().build()
    untold: dict[str, SwitchRules] = rules_of(POLICIES["per-flow"], fabric)
    assert untold == rules_of(POLICIES["ecmp"], fabric)


def test_a_run_expects_its_flows_where_the_controller_will_place_them() -> None:
    """Four flows each way over four spines: every uplink carries one."""
    made = planned(
        Experiment(
            topology="spine-leaf:spines=4,leaves=2,hosts_per_leaf=4",
            routing="per-flow",
            collective="group_shift",
            group_size=4,
        )
    )
    flows = TRANSPORTS["tcp"].plan(endpoints(made, made.fabric), made.schedule.connections)
    ways = forecast(made, made.fabric, flows).paths.values()
    assert len(flows) == 8 and len({list(way)[1].intf for way in ways}) == 8
