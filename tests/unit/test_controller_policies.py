"""Every policy on every topology; and the spreading that the default promises, computed with the real hash."""

from collections import Counter
from pathlib import Path

import pytest

from controller import POLICIES, Policy, PolicyError, fits, multipath, policy, rules_of
from controller.actions import Bundle, Output
from controller.conformance import FLOWS_PER_LINK, check_file, check_policy
from controller.dataplane import DataPlane
from controller.flow import TCP, UDP, Flow
from controller.match import Match
from controller.rules import FlowRule, SwitchRules
from tests.unit.controller_fabrics import address, link_between, three_tier, two_rails
from topologies import TOPOLOGIES
from topologies.dragonfly import Dragonfly
from topologies.errors import Refused
from topologies.fabric import Fabric
from topologies.fat_tree import FatTree
from topologies.spine_leaf import SpineLeaf
from topologies.torus import Torus

EXTRA: dict[str, Fabric] = {
    "three-tier in the small": three_tier(),
    "two rails": two_rails(),
    "one switch": SpineLeaf(spines=0, leaves=1, hosts_per_leaf=3).build(),
    "parallel cables": SpineLeaf(spines=2, leaves=3, hosts_per_leaf=2, links_per_pair=2).build(),
}


# With every link failed in turn, the default sizes take seconds where paths are searched for pair by pair.
SMALL = {"dragonfly": Dragonfly(a=3, p=1, h=1, g=4).build(), "torus": Torus("3x3").build()}


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("name", POLICIES)
def test_policy_conforms_on_registered_topology(name: str, topology: str) -> None:
    fabric = SMALL[topology] if topology in SMALL else TOPOLOGIES[topology]().build()
    assert check_policy(POLICIES[name], {topology: fabric}) == []


def test_valiant_conforms_on_a_dragonfly_of_the_default_size() -> None:
    assert check_policy(POLICIES["valiant"], {"dragonfly": Dragonfly().build()}) == []


@pytest.mark.parametrize("fabric", EXTRA)
@pytest.mark.parametrize("name", POLICIES)
def test_policy_conforms_on_unusual_fabric(name: str, fabric: str) -> None:
    assert check_policy(POLICIES[name], {fabric: EXTRA[fabric]}) == []


def taken(fabric: Fabric, chosen: Policy, down: frozenset[int], n: int = 256) -> list[str]:
    """The uplink that each of n UDP flows from h1 to the last host takes; they differ in source port only."""
    plane = DataPlane(fabric, rules_of(chosen, fabric, down), down)
    ends = address(fabric, "h1"), address(fabric, fabric.hosts[-1].name)
    return [plane.path(Flow(*ends, UDP, 20000 + i, 4791))[1].intf for i in range(n)]


def uplink_down(fabric: Fabric, *spines: str) -> frozenset[int]:
    return frozenset(link_between(fabric, "leaf1", spine).index for spine in spines)


def test_256_udp_flows_spread_over_two_spines() -> None:
    counts = Counter(taken(SpineLeaf(spines=2, leaves=2).build(), policy("ecmp"), frozenset()))
    assert len(counts) == 2 and all(abs(n - 128) <= 24 for n in counts.values())


def test_only_the_dead_links_flows_move_and_they_come_back() -> None:
    fabric = SpineLeaf(spines=4, leaves=2).build()
    down = uplink_down(fabric, "spine2")
    before = taken(fabric, policy("ecmp"), frozenset())
    during = taken(fabric, policy("ecmp"), down)
    dead = "leaf1-eth6"
    assert before.count(dead) > 40 and dead not in during
    assert all(a == b for a, b in zip(before, during, strict=True) if a != dead)
    assert taken(fabric, policy("ecmp"), frozenset()) == before


def test_the_switch_alone_moves_the_same_flows_as_the_controller() -> None:
    fabric = SpineLeaf(spines=4, leaves=2).build()
    down = uplink_down(fabric, "spine3")
    old_rules = DataPlane(fabric, rules_of(policy("ecmp"), fabric), down)
    ends = address(fabric, "h1"), address(fabric, "h8")
    alone = [old_rules.path(Flow(*ends, UDP, 20000 + i, 4791))[1].intf for i in range(256)]
    assert alone == taken(fabric, policy("ecmp"), down)


def test_a_third_spine_takes_a_third_from_the_other_two() -> None:
    fabric = SpineLeaf(spines=3, leaves=2).build()
    two = taken(fabric, policy("ecmp"), uplink_down(fabric, "spine2"), 600)
    three = taken(fabric, policy("ecmp"), frozenset(), 600)
    assert all(abs(n - 200) <= 40 for n in Counter(three).values())
    moved = {b for a, b in zip(two, three, strict=True) if a != b}
    assert moved == {"leaf1-eth6"}


def test_a_far_failure_moves_only_the_flows_through_that_spine() -> None:
    fabric = SpineLeaf(spines=4, leaves=2).build()
    before = taken(fabric, policy("ecmp"), frozenset())
    during = taken(fabric, policy("ecmp"), frozenset({link_between(fabric, "leaf2", "spine2").index}))
    assert "leaf1-eth6" in before and "leaf1-eth6" not in during
    assert all(a == b for a, b in zip(before, during, strict=True) if a != "leaf1-eth6")


def test_one_basis_for_all_polarises_and_one_per_switch_does_not() -> None:
    fabric = three_tier()
    ends = address(fabric, "leftA1"), address(fabric, "rightA1")

    def cores(name: str) -> set[str]:
        plane = DataPlane(fabric, rules_of(policy(name), fabric))
        return {plane.path(Flow(*ends, UDP, 20000 + i, 4791))[2].intf for i in range(256)}

    assert len(cores("ecmp")) == 4
    assert len(cores("ecmp-polarised")) < 4


@pytest.mark.parametrize("proto", [TCP, UDP])
def test_all_cores_of_a_fat_tree_carry_a_quarter_and_half_of_them_nothing_when_polarised(proto: int) -> None:
    """256 flows from pod to pod that differ in source port alone: 64 +- 3 standard deviations (6.9) on each of four cores. With
    one hash for both tiers the second repeats the first's choice: two cores of four, half of the flows on each."""
    fabric = FatTree(4).build()
    ends = address(fabric, "h1"), address(fabric, "h5")

    def through(name: str) -> list[int]:
        plane = DataPlane(fabric, rules_of(policy(name), fabric))
        ways = (plane.path(Flow(*ends, proto, 20000 + i, 5001)) for i in range(256))
        return sorted(Counter(fabric.peer(way[2]).node for way in ways).values())

    assert len(through("ecmp")) == 4 and all(43 <= n <= 85 for n in through("ecmp"))
    assert len(through("ecmp-polarised")) == 2 and all(104 <= n <= 152 for n in through("ecmp-polarised"))


def test_pairs_a_stride_apart_share_a_path_unless_their_ports_differ() -> None:
    """A property of the symmetric hash that whoever chooses source ports has to know."""
    fabric = SpineLeaf(spines=4, leaves=2, hosts_per_leaf=4).build()
    plane = DataPlane(fabric, rules_of(policy("ecmp"), fabric))
    pairs = [(address(fabric, f"h{i}"), address(fabric, f"h{i + 4}")) for i in (1, 2, 3)]
    same = {plane.path(Flow(*pair, UDP, 49152, 4791))[1].intf for pair in pairs}
    varied = {plane.path(Flow(*pair, UDP, 49152 + 7 * i, 4791))[1].intf for i, pair in enumerate(pairs)}
    assert len(same) == 1 and len(varied) > 1


def test_basis_is_the_datapath_id_and_rules_stay_few() -> None:
    fabric = SpineLeaf(spines=2, leaves=8, hosts_per_leaf=4).build()
    rules = rules_of(policy("ecmp"), fabric)
    for leaf in (s for s in fabric.switches if s.role == "leaf"):
        assert len(rules[leaf.name].flows) == 4 + 7
        assert {f.end.basis for f in rules[leaf.name].flows if isinstance(f.end, Bundle)} == {leaf.dpid}
    assert len(rules["spine1"].flows) == 8


def test_every_data_rule_is_far_above_a_table_miss() -> None:
    for name, chosen in POLICIES.items():
        for fabric in (SpineLeaf().build(), Dragonfly(a=3, p=1, h=1, g=4).build()):
            if fits(chosen, fabric):
                assert min(f.priority for r in rules_of(chosen, fabric).values() for f in r.flows) >= 1000, name


def test_select_groups_spell_out_weight_and_watch_port() -> None:
    rules = rules_of(policy("ecmp-group"), SpineLeaf(spines=2).build())
    assert {b.weight for r in rules.values() for g in r.groups for b in g.buckets} == {1}
    assert rules["leaf1"].groups[0].ports == (5, 6)


# -- policies that are wrong ----------------------------------------------------------------------------------------


def empty(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
    return {}


def blind(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
    """Right, until a link fails."""
    return POLICIES["single-path"](fabric, frozenset())


@multipath
def lazy(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
    """Says multipath, uses one."""
    return POLICIES["single-path"](fabric, down)


def catch_all(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
    return {fabric.switches[0].name: SwitchRules((FlowRule(Match(), (Output(1),)),))}


def bouncing(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
    """Spines send everything to the first leaf, which sends it up again."""
    rules = POLICIES["single-path"](fabric, down)
    first = FlowRule(Match(ipv4_dst="198.18.0.0/15"), (Output(1),))
    return {s: SwitchRules((first,)) if s.startswith("spine") else r for s, r in rules.items()}


def verbose(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
    """One rule per host of the fabric and protocol."""
    rules = POLICIES["single-path"](fabric, down)
    more = tuple(FlowRule(Match(ipv4_dst="198.19.0.1", ip_proto=i), (Output(1),)) for i in range(100))
    return {s: SwitchRules((*r.flows, *more)) for s, r in rules.items()}


@pytest.mark.parametrize(
    ("wrong", "checks"),
    [
        (empty, {"reachable"}),
        (blind, {"reachable"}),
        (lazy, {"multipath"}),
        (catch_all, {"rules"}),
        (bouncing, {"no-hairpin"}),
        (verbose, {"rule-count"}),
    ],
)
def test_check_names_what_is_wrong(wrong: Policy, checks: set[str]) -> None:
    findings = check_policy(wrong, {"spine-leaf": SpineLeaf(spines=2, leaves=3, hosts_per_leaf=2).build()})
    assert {f.check for f in findings} >= checks
    assert all(str(f).startswith(f"{f.check} on spine-leaf: ") for f in findings)


def test_a_finding_gives_count_and_example() -> None:
    (first, *_) = check_policy(blind, {"x": SpineLeaf(spines=2, leaves=2, hosts_per_leaf=1).build()})
    assert str(first) == (
        "reachable on x: 2 of 2 pairs with leaf1-spine1 down, first "
        "198.18.0.1:49152->198.18.0.3:4791/17: no live port for ip,nw_dst=198.18.0.2/31 at leaf1"
    )


MINE = """
from controller import POLICIES, multipath

@multipath
def POLICY(fabric, down):
    return POLICIES["ecmp"](fabric, down)

def broken(fabric, down):
    return {"leaf99": None}

def helper(x):
    return x
"""


def test_a_users_file_is_checked_policy_by_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.conformance.default_fabrics", lambda: {"spine-leaf": SpineLeaf().build()})
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    findings = check_file(str(file))
    assert list(findings) == ["POLICY", "broken"]
    assert findings["POLICY"] == []
    assert "leaf99" in str(findings["broken"][0])
    assert check_file(f"{file}:POLICY") == {"POLICY": []}
    assert policy(f"{file}:POLICY")(SpineLeaf().build(), frozenset()) == rules_of(POLICIES["ecmp"], SpineLeaf().build())


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(
        PolicyError, match="unknown policy 'ecpm': choose from adaptive, ecmp, ecmp-group, ecmp-polarised"
    ):
        policy("ecpm")
    with pytest.raises(Refused, match="where the file exists"):
        policy("./nowhere.py:POLICY")


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({"leaf9": SwitchRules()}, "unknown switch 'leaf9': choose from leaf1, leaf2"),
        ({"leaf1": SwitchRules((FlowRule(Match(in_port=1), (Output(77),)),))}, "leaf1 has no port 77"),
        (None, "must return {switch name: SwitchRules}, not NoneType"),
    ],
)
def test_rules_that_do_not_fit_the_fabric_are_refused(rules: dict[str, SwitchRules], text: str) -> None:
    def odd(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
        return rules

    with pytest.raises(PolicyError, match="policy odd"):
        rules_of(odd, SpineLeaf(leaves=2).build())
    with pytest.raises(PolicyError) as refusal:
        rules_of(odd, SpineLeaf(leaves=2).build())
    assert text in str(refusal.value)


def test_enough_flows_are_asked_to_trust_an_idle_link() -> None:
    # The chance that one of 16 equal links stays idle by bad luck.
    assert 16 * (15 / 16) ** (FLOWS_PER_LINK * 16) < 1e-12
