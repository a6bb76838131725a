"""UGAL: how shares follow measured load, and where they settle; links are loaded by walking flows on the fake data plane."""

from collections import Counter, defaultdict
from math import inf
from statistics import mean

import pytest

from controller import POLICIES, Policy, rules_of
from controller.dataplane import DataPlane
from controller.detour import CHOICE, DESTINATION, SLOTS
from controller.flow import UDP, Flow
from controller.loads import loads
from controller.policies.ugal import Ugal, next_detours
from controller.policy import Reactive
from controller.rules import SwitchRules
from controller.state import State
from tests.unit.controller_fabrics import address
from topologies.dragonfly import Dragonfly
from topologies.fabric import Fabric

# Balanced: a p = 8 hosts per group, 7 groups to detour through.
FABRIC = Dragonfly(a=4, p=2, h=2, g=9).build()
FLOWS_PER_HOST = 8


def pattern(shift: int | None) -> list[Flow]:
    """Host k of group i sends to host k of group i + shift; None: to as many hosts all over the fabric."""
    hosts = [address(FABRIC, host.name) for host in FABRIC.hosts]
    n = len(hosts)
    return [
        Flow(a, hosts[(i + (8 * shift if shift else 8 * (1 + q) + i % 5)) % n], UDP, 49152 + 31 * i + q, 4791)
        for i, a in enumerate(hosts)
        for q in range(FLOWS_PER_HOST)
    ]


def offered(policy: Policy, flows: list[Flow]) -> tuple[dict[str, float], list[list[str]]]:
    """Egress interface -> what it is asked to carry, in host rates; and the interfaces on every flow's way."""
    plane = DataPlane(FABRIC, rules_of(policy, FABRIC))
    ways = [[port.intf for port in plane.path(flow)] for flow in flows]
    load: dict[str, float] = defaultdict(float)
    for way in ways:
        for intf in way:
            load[intf] += 1 / FLOWS_PER_HOST
    return load, ways


def throughput(policy: Policy, flows: list[Flow]) -> float:
    """A host's mean rate, in host rates, when every link gives all its flows the same."""
    load, ways = offered(policy, flows)
    return mean(1 / max(1.0, *(load[intf] for intf in way)) for way in ways)


def settled(flows: list[Flow], n_readings: int = 8) -> Ugal:
    policy = Ugal()
    for _ in range(n_readings):
        load, _ = offered(policy, flows)
        policy = policy.react(FABRIC, frozenset(), {intf: min(1.0, x) for intf, x in load.items()})
    return policy


def test_under_adversarial_traffic_it_detours_and_is_as_good_as_valiant() -> None:
    flows = pattern(shift=1)
    ugal = settled(flows)
    # One link against seven ways of two links each: 7/9 of a pair's flows go by detours, 6.2 of 8 slots.
    assert all(abs(ugal.detours[i, (i + 1) % 9] - SLOTS * 7 / 9) <= 1 for i in range(9))
    minimal, valiant = (throughput(POLICIES[name], flows) for name in ("minimal", "valiant"))
    assert minimal == pytest.approx(1 / 8)
    assert throughput(ugal, flows) >= 0.9 * max(minimal, valiant)


def test_under_uniform_traffic_it_stays_minimal() -> None:
    flows = pattern(shift=None)
    ugal = settled(flows, 6)
    minimal, valiant = (throughput(POLICIES[name], flows) for name in ("minimal", "valiant"))
    assert minimal > valiant
    assert throughput(ugal, flows) >= 0.9 * minimal


@pytest.mark.parametrize(
    ("n", "minimal", "detoured", "then"),
    [
        (0, 0.3, 0.0, 0),  # room
        (0, 1.0, 0.2, 1),  # full, and detours are not
        (0, 1.0, 0.95, 0),  # all full: detours would make it worse
        (3, 1.0, 1.0, 4),  # all full by its own detours: toward the fair share
        (6, 1.0, 1.0, 6),  # 6 of 8 is the fair share of 9 groups, 7/9
        (6, 0.7, 0.75, 6),  # as busy as each other
        (6, 0.7, 0.9, 5),
        (6, 0.2, 0.1, 5),  # the rush is over
        (8, 1.0, 0.0, 8),
        (0, 1.0, inf, 0),  # no detour left
        (3, 1.0, inf, 2),
    ],
)
def test_a_share_moves_by_one_step_at_most(n: int, minimal: float, detoured: float, then: int) -> None:
    assert next_detours(n, minimal, detoured, n_groups=9) == then


def test_a_step_moves_an_eighth_of_a_pairs_flows_and_no_others() -> None:
    hosts = [address(FABRIC, name) for name in ("h1", "h9", "h17")]
    before, after = (DataPlane(FABRIC, rules_of(Ugal(d), FABRIC)) for d in ({(0, 1): 3}, {(0, 1): 4}))
    moved = Counter[str]()
    n = 800
    for port in range(20000, 20000 + n):
        for to in hosts[1:]:
            flow = Flow(hosts[0], to, UDP, port, 4791)
            moved[to] += before.path(flow) != after.path(flow)
    # Binomial, 800 flows at 1/8: 100, with a standard deviation of 9.4.
    assert moved[hosts[2]] == 0 and abs(moved[hosts[1]] - 100) <= 42


def test_from_the_start_everything_is_minimal() -> None:
    flows = pattern(shift=1)[::7]
    planes = [DataPlane(FABRIC, rules_of(POLICIES[name], FABRIC)) for name in ("ugal", "minimal")]
    assert all(planes[0].path(flow) == planes[1].path(flow) for flow in flows)
    rules = rules_of(POLICIES["ugal"], FABRIC)["g1r1"]
    minimal = [f for f in rules.flows if f.table == CHOICE and f.match.reg1 is not None]
    assert len(minimal) == 8 * SLOTS and all(str(f.end) == f"goto_table:{DESTINATION}" for f in minimal)


def test_loads_are_shares_of_the_links_rate() -> None:
    fabric = Dragonfly(a=1, p=1, h=1, g=2).build().with_links(rate_mbps=100.0)
    (intf, other, *_) = sorted(port.intf for link in fabric.links for port in link.ports)
    # 100 Mbit/s for half a second are 6.25 MB; a counter that went back says nothing.
    measured = loads(fabric, {intf: 1000, other: 500}, {intf: 1000 + 3_125_000, other: 0}, elapsed_s=0.5)
    assert measured == {intf: pytest.approx(0.5)}


def test_a_reaction_changes_the_target_and_an_equal_one_does_not() -> None:
    class Once:
        period_s = 1.0

        def __init__(self, reacted: bool) -> None:
            self.reacted = reacted

        def __call__(self, fabric: Fabric, down: frozenset[int]) -> dict[str, SwitchRules]:
            return POLICIES["valiant" if self.reacted else "minimal"](fabric, down)

        def react(self, fabric: Fabric, down: frozenset[int], measured: object) -> "Reactive":
            return self if self.reacted else Once(True)

        def summary(self) -> dict[str, object]:
            return {}

    state = State(FABRIC, Once(False))
    before = state.target
    assert state.measured({}) and state.target != before
    after = state.target
    assert not state.measured({}) and state.target is after
    assert not State(FABRIC, POLICIES["minimal"]).measured({})
