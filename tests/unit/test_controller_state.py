"""What the controller concludes from what its switches tell it."""

import pytest

from controller import POLICIES, PolicyError, rules_of
from controller.rules import SwitchRules
from controller.state import State
from tests.unit.controller_fabrics import link_between
from topologies.fabric import Fabric
from topologies.spine_leaf import SpineLeaf

FABRIC = SpineLeaf(spines=2, leaves=2, hosts_per_leaf=1).build()
ALL_PORTS = {s.name: [p.number for p in FABRIC.ports_of(s.name)] for s in FABRIC.switches}


def connected(*switches: str) -> State:
    state = State(FABRIC, POLICIES["ecmp"])
    for switch in switches:
        state.reported(switch, SwitchRules(), ALL_PORTS[switch])
    return state


def confirm(state: State) -> None:
    stages = state.stages()
    state.sent({s for stage in stages for s in stage}, state.target)


def test_it_has_converged_when_every_switch_has_confirmed() -> None:
    state = connected("leaf1", "leaf2", "spine1")
    confirm(state)
    before = state.is_converged
    state.reported("spine2", SwitchRules(), ALL_PORTS["spine2"])
    confirm(state)
    assert (before, state.is_converged, state.stages()) == (False, True, [])


def test_a_switch_that_still_has_its_rules_is_sent_nothing() -> None:
    state = State(FABRIC, POLICIES["ecmp"])
    for switch, rules in rules_of(POLICIES["ecmp"], FABRIC).items():
        state.reported(switch, rules, ALL_PORTS[switch])
    assert state.stages() == [] and state.is_converged


def test_a_link_is_down_while_either_end_says_so() -> None:
    state = connected(*ALL_PORTS)
    link = link_between(FABRIC, "leaf1", "spine1")
    state.port("leaf1", link.here("leaf1").number, up=False)
    state.port("spine1", link.here("spine1").number, up=False)
    assert state.down == {link.index}
    assert state.target == rules_of(POLICIES["ecmp"], FABRIC, frozenset({link.index}))
    state.port("leaf1", link.here("leaf1").number, up=True)
    assert state.down == {link.index}
    state.port("spine1", link.here("spine1").number, up=True)
    assert state.down == frozenset()


def test_a_port_that_a_switch_does_not_have_is_dead_and_one_of_no_link_does_not_matter() -> None:
    state = State(FABRIC, POLICIES["ecmp"])
    state.reported("spine1", SwitchRules(), [1, 0xFFFFFFFE])
    assert state.down == {link_between(FABRIC, "leaf2", "spine1").index}
    state.port("spine1", 0xFFFFFFFE, up=False)
    assert len(state.down) == 1


def test_a_switch_that_is_gone_is_filled_again_when_it_is_back() -> None:
    state = connected(*ALL_PORTS)
    confirm(state)
    state.gone("leaf1")
    assert not state.is_converged and state.stages() == [] and state.down == frozenset()
    state.reported("leaf1", SwitchRules(), ALL_PORTS["leaf1"])
    assert {s for stage in state.stages() for s in stage} == {"leaf1"}


def test_ids_are_the_fabrics_and_others_unknown() -> None:
    state = State(FABRIC, POLICIES["ecmp"])
    assert {state.switch_of(s.dpid or 0) for s in FABRIC.switches} == set(ALL_PORTS)
    assert state.switch_of(0xFF) is None


def test_a_policy_that_fails_later_is_an_error_not_a_crash() -> None:
    def fragile(fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
        assert not down, "only for an intact fabric"
        return POLICIES["ecmp"](fabric, down)

    state = State(FABRIC, fragile)
    assert state.target
    state.port("leaf1", 2, up=False)
    with pytest.raises(PolicyError, match="policy fragile failed: AssertionError: only for an intact fabric"):
        state.stages()
