"""adaptive: elephants that share a link separate and then stay; links are loaded by walking flows on the fake data plane."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest

from controller import POLICIES, rules_of
from controller.dataplane import DataPlane
from controller.demand import Demand
from controller.flow import UDP, Flow
from controller.loads import Loads
from controller.policies.adaptive import HOLD_READINGS, Adaptive
from controller.policy import Announced, Reactive
from controller.state import State
from tests.unit.controller_fabrics import address, link_between
from topologies.errors import Refused
from topologies.fabric import Fabric, Link
from topologies.fat_tree import FatTree
from topologies.spine_leaf import SpineLeaf

NIC_MBPS = 400_000.0
FABRIC = SpineLeaf(spines=4, leaves=2, hosts_per_leaf=4).build()
NONE_DOWN = frozenset[int]()


def ways(fabric: Fabric, policy: Adaptive, down: frozenset[int] = NONE_DOWN) -> dict[Demand, list[str]]:
    plane = DataPlane(fabric, rules_of(policy, fabric, down), down)
    return {demand: [port.intf for port in plane.path(demand.flow)] for demand in policy.demands}


def loads(fabric: Fabric, taken: dict[Demand, list[str]]) -> Loads:
    """Every flow sends what it wants, or its equal part of the most shared link on its way."""
    n_flows = Counter(intf for way in taken.values() for intf in way)
    load: dict[str, float] = defaultdict(float)
    for demand, way in taken.items():
        rate_mbps = min(demand.rate_mbps, *(fabric.link_of(intf).rate_mbps / n_flows[intf] for intf in way))
        for intf in way:
            load[intf] += rate_mbps / fabric.link_of(intf).rate_mbps
    return load


def decided(fabric: Fabric, policy: Adaptive, n: int, down: frozenset[int] = NONE_DOWN) -> list[Adaptive]:
    """The policy after 1 to n readings."""
    result = []
    for _ in range(n):
        policy = policy.react(fabric, down, loads(fabric, ways(fabric, policy, down)))
        result.append(policy)
    return result


def on_one_uplink(n: int, rate_mbps: float = NIC_MBPS) -> list[Demand]:
    """n flows, each from and to a host of its own, which ECMP puts on the first uplink."""
    plane, found = DataPlane(FABRIC, rules_of(POLICIES["ecmp"], FABRIC)), []
    for i in range(n):
        ends = address(FABRIC, f"h{i + 1}"), address(FABRIC, f"h{i + 5}")
        flows = (Flow(*ends, UDP, port, 4791) for port in range(49152, 49352))
        found.append(Demand(next(f for f in flows if plane.path(f)[1].intf == "leaf1-eth5"), rate_mbps))
    return found


def told(demands: Sequence[Demand]) -> Adaptive:
    return Adaptive().announced(FABRIC, tuple(demands))


def uplinks(policy: Adaptive) -> list[str]:
    return [way[1] for way in ways(FABRIC, policy).values()]


def test_two_elephants_on_one_uplink_separate_within_two_readings_and_stay() -> None:
    start = told(on_one_uplink(2))
    assert len(set(uplinks(start))) == 1
    history = decided(FABRIC, start, 20 + HOLD_READINGS)
    assert len(set(uplinks(history[1]))) == 2
    assert all(later == history[1] for later in history[1:])
    assert history[-1].summary()["moves"] == 1


def test_four_elephants_get_an_uplink_each_one_move_a_reading() -> None:
    history = decided(FABRIC, told(on_one_uplink(4)), 20)
    assert [sum(policy.moves.values()) for policy in history[:4]] == [1, 2, 3, 3]
    assert len(set(uplinks(history[2]))) == 4 and history[-1] == history[2]
    assert set(history[-1].moves.values()) == {1}


def test_links_with_room_and_elephants_alone_on_theirs_stay() -> None:
    for start in (told(on_one_uplink(2, rate_mbps=0.4 * NIC_MBPS)), told(on_one_uplink(1)), told([])):
        assert all(policy == start for policy in decided(FABRIC, start, 20))


def test_mice_stay() -> None:
    """A hundred flows that fill a link together: none is a tenth of it."""
    (one,) = on_one_uplink(1)
    plane = DataPlane(FABRIC, rules_of(POLICIES["ecmp"], FABRIC))
    ports = (Flow(one.flow.src_ip, one.flow.dst_ip, UDP, port, 4791) for port in range(10000, 20000))
    mice = [Demand(f, 0.01 * NIC_MBPS) for f in ports if plane.path(f)[1].intf == "leaf1-eth5"][:100]
    start = told(mice)
    assert loads(FABRIC, ways(FABRIC, start))["leaf1-eth5"] == pytest.approx(1)
    assert all(policy == start for policy in decided(FABRIC, start, 5))


def test_a_flow_that_has_moved_stays_for_a_while_whatever_is_measured() -> None:
    """Every uplink in use seems full and all others empty: who always follows that goes round and round."""
    policy, moved_at = told(on_one_uplink(2)), []
    for reading in range(3 * HOLD_READINGS):
        now = policy.react(FABRIC, NONE_DOWN, dict.fromkeys(uplinks(policy), 1.0))
        moved_at += [reading] if now != policy else []
        policy = now
    assert moved_at == [0]


def test_held_flows_wait_until_their_time_is_over() -> None:
    demands = tuple(on_one_uplink(2))
    held = Adaptive(demands, moved_at=dict.fromkeys((demand.flow for demand in demands), 0))
    hot = {uplinks(held)[0]: 1.0}
    history: list[Adaptive] = []
    for _ in range(HOLD_READINGS + 1):
        history.append((history or [held])[-1].react(FABRIC, NONE_DOWN, hot))
    assert all(policy == held for policy in history[:-1]) and sum(history[-1].moves.values()) == 1


def test_a_hot_link_to_a_host_moves_nobody() -> None:
    """Incast: all flows end at one host, and no other path helps."""
    ends = address(FABRIC, "h8")
    flows = [Demand(Flow(address(FABRIC, f"h{i}"), ends, UDP, 49152 + 7 * i, 4791), NIC_MBPS) for i in (1, 2, 3, 4)]
    start = told(flows)
    last = ways(FABRIC, start)[flows[0]][-1]
    assert loads(FABRIC, ways(FABRIC, start))[last] == pytest.approx(1)
    assert start.react(FABRIC, NONE_DOWN, {last: 1.0}) == start


def test_on_a_fat_tree_it_ends_with_less_on_the_fullest_link_and_does_not_oscillate() -> None:
    fabric = FatTree(k=4).build()
    hosts = [address(fabric, host.name) for host in fabric.hosts]
    demands = tuple(Demand(Flow(a, hosts[(i + 4) % 16], UDP, 49152 + i, 4791), NIC_MBPS) for i, a in enumerate(hosts))
    start = Adaptive().announced(fabric, demands)
    history = decided(fabric, start, 30)

    def slowest(policy: Adaptive) -> float:
        """A flow's rate when every link gives all its flows the same, in NIC rates."""
        taken = ways(fabric, policy)
        n_flows = Counter(intf for way in taken.values() for intf in way)
        return min(1 / max(n_flows[intf] for intf in way) for way in taken.values())

    assert slowest(history[-1]) > slowest(start)
    assert all(policy == history[19] for policy in history[19:])


@pytest.mark.parametrize("link", [x for x in FABRIC.links if "spine" in x.b.node])
def test_after_a_failure_only_the_flows_of_that_link_move_until_it_is_back(link: Link) -> None:
    policy = decided(FABRIC, told(on_one_uplink(4)), 5)[-1]
    down = frozenset({link.index})
    dead = {port.intf for port in link.ports}
    before, during = ways(FABRIC, policy), ways(FABRIC, policy, down)
    assert all(dead.isdisjoint(way) for way in during.values())
    assert all(during[demand] == way for demand, way in before.items() if dead.isdisjoint(way))


def test_it_says_which_flows_moved_how_often_and_through_what() -> None:
    demands = on_one_uplink(2)
    policy = decided(FABRIC, told(demands), 3)[-1]
    ((flow, path),) = policy.moved.items()
    spine = next(switch for switch, _ in path if switch.startswith("spine"))
    assert policy.summary() == {
        "flows": 2,
        "moves": 1,
        "moved": {str(flow): {"moves": 1, "through": ["leaf1", spine]}},
    }


def test_announcing_keeps_what_has_moved_and_forgets_what_is_withdrawn() -> None:
    demands = on_one_uplink(2)
    policy = decided(FABRIC, told(demands), 1)[-1]
    (moved,) = policy.moved
    more = (*demands, Demand(Flow(address(FABRIC, "h3"), address(FABRIC, "h7")), 1.0))
    assert policy.announced(FABRIC, more).moved == policy.moved
    assert policy.announced(FABRIC, tuple(x for x in demands if x.flow != moved)).moved == {}
    with pytest.raises(Refused, match="no host of the fabric has the address"):
        policy.announced(FABRIC, (Demand(Flow("198.18.0.77", "198.18.0.78"), 1.0),))


def test_readings_that_change_nothing_leave_the_target_as_it_is() -> None:
    assert isinstance(Adaptive(), Reactive) and isinstance(Adaptive(), Announced)
    state = State(FABRIC, Adaptive())
    state.announce(tuple(on_one_uplink(2)))
    target = state.target
    assert not state.measured({}) and state.target is target
    assert state.measured({"leaf1-eth5": 1.0}) and state.target != target
    assert link_between(FABRIC, "leaf1", "spine1").here("leaf1").intf == "leaf1-eth5"
