"""Does a policy do what a policy must? The same questions for ours and for a user's own file, without a switch.

Every pair of hosts is reached, without loop and never back out of the ingress port; every equal-cost link is used if
the policy says that it spreads; each single link failure that leaves a way is survived; the rules stay few.
"""

import inspect
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from controller.dataplane import DataPlane, DataPlaneError, Dropped, Hairpin, Loop
from controller.flow import UDP, Flow
from controller.match import is_in
from controller.policy import Policy, PolicyError, fits, is_multipath, parse_policy, rules_of
from controller.routing import (
    Adjacency,
    NextHops,
    adjacency,
    attached,
    distances,
    next_hops,
    prefixes,
    switch_of_address,
)
from controller.rules import SwitchRules
from topologies import TOPOLOGIES, user_code
from topologies.fabric import Fabric, Link

# Bounds on work, so that a check of a large fabric ends: above them it samples, always the same pairs and failures.
MAX_PAIRS = 4000
MAX_FAILURES = 256
PAIRS_PER_FAILURE = 40
PAIRS_SPREAD = 30
# One where a single table forwards; a pipeline of tables has a rule or more per destination in each.
RULES_PER_DESTINATION = 12
# Flows per equal-cost link: with 32 the chance that a fair hash leaves one of them out is below 1e-12.
FLOWS_PER_LINK = 32

Rules = Mapping[str, SwitchRules]
# (source address, destination address)
Pair = tuple[str, str]
# (check, text)
Answer = tuple[str, str]
_T = TypeVar("_T")


@dataclass(frozen=True, order=True)
class Finding:
    """What is wrong: `check` names the question, `fabric` where it was asked, `text` the answer and an example."""

    check: str
    fabric: str
    text: str

    def __str__(self) -> str:
        return f"{self.check} on {self.fabric}: {self.text}"


def check_file(spec: str) -> dict[str, list[Finding]]:
    """Findings for each policy of './mine.py', or for the one named by './mine.py:NAME'; an empty list is a pass."""
    fabrics = default_fabrics()
    if user_code.is_file(spec):
        return {spec.rpartition(":")[2]: check_policy(parse_policy(spec, {}), fabrics)}
    return {name: check_policy(policy, fabrics) for name, policy in policies_in(spec).items()}


def policies_in(path: str) -> dict[str, Policy]:
    """What looks like a policy in a Python file: functions defined there whose first parameters are fabric and down."""
    module = user_code.load_module(path, "policy")
    return {name: value for name, value in vars(module).items() if _is_policy(value, module.__name__)}


def _is_policy(value: object, module: str) -> bool:
    if not inspect.isfunction(value) or value.__module__ != module or value.__name__.startswith("_"):
        return False
    return list(inspect.signature(value).parameters)[:2] == ["fabric", "down"]


def default_fabrics() -> dict[str, Fabric]:
    """Every registered topology with its default parameters."""
    return {name: topology().build() for name, topology in TOPOLOGIES.items()}


def check_policy(policy: Policy, fabrics: Mapping[str, Fabric]) -> list[Finding]:
    """All findings on the fabrics that the policy fits, in their order; none means that it conforms."""
    return [x for name, fabric in fabrics.items() if fits(policy, fabric) for x in _check(policy, name, fabric)]


def _check(policy: Policy, name: str, fabric: Fabric) -> Iterator[Finding]:
    try:
        rules = rules_of(policy, fabric)
        for check, text in _questions(policy, fabric, rules):
            yield Finding(check, name, text)
    except PolicyError as error:
        yield Finding("rules", name, str(error))


def _questions(policy: Policy, fabric: Fabric, rules: Rules) -> Iterator[Answer]:
    if rules != rules_of(policy, fabric):
        yield "repeatable", "two calls with the same arguments gave different rules"
    yield from _too_many(fabric, rules)
    ends = _Ends(fabric)
    walks = _walk(fabric, rules, frozenset(), _sample(ends.pairs, MAX_PAIRS))
    yield from walks.answers("")
    if is_multipath(policy):
        yield from _unused(fabric, rules, ends)
    for link in _sample(_failures(fabric), MAX_FAILURES):
        asked = [*_sample(walks.over[link.index], PAIRS_PER_FAILURE), *_sample(ends.pairs, PAIRS_PER_FAILURE)]
        yield from _after_failure(policy, fabric, link, ends.joined(asked, link))


def _too_many(fabric: Fabric, rules: Rules) -> Iterator[Answer]:
    """Rules grow with the hosts on a switch and the prefixes of the fabric, not with all hosts."""
    n_prefixes = len(prefixes(fabric))
    for switch, its_rules in rules.items():
        destinations = len(attached(fabric, switch)) + n_prefixes
        if len(its_rules.flows) > RULES_PER_DESTINATION * destinations:
            yield "rule-count", f"{switch} has {len(its_rules.flows)} rules for {destinations} hosts and prefixes"
        if len(its_rules.groups) > n_prefixes:
            yield "rule-count", f"{switch} has {len(its_rules.groups)} groups for {n_prefixes} prefixes"


def _after_failure(policy: Policy, fabric: Fabric, link: Link, pairs: list[Pair]) -> Iterator[Answer]:
    down = frozenset({link.index})
    walks = _walk(fabric, rules_of(policy, fabric, down), down, pairs)
    yield from walks.answers(f" with {fabric.label(link)} down")


# -- walking --------------------------------------------------------------------------------------------------------


class _Walks:
    """What walking many pairs gave: errors by check, and the pairs that crossed each link."""

    def __init__(self, n_pairs: int) -> None:
        self.n_pairs = n_pairs
        self.errors: dict[str, list[str]] = defaultdict(list)
        self.over: dict[int, list[Pair]] = defaultdict(list)

    def answers(self, when: str) -> Iterator[Answer]:
        for check, texts in self.errors.items():
            yield check, f"{len(texts)} of {self.n_pairs} pairs{when}, first {texts[0]}"


def _walk(fabric: Fabric, rules: Rules, down: frozenset[int], pairs: list[Pair]) -> _Walks:
    plane, walks = DataPlane(fabric, rules, down), _Walks(len(pairs))
    for pair in pairs:
        try:
            paths = plane.paths(next(_flows(pair, 1)))
        except DataPlaneError as error:
            walks.errors[_CHECK_OF[type(error)]].append(str(error))
            continue
        for index in {fabric.link_of(port.intf).index for path in paths for port in path}:
            walks.over[index].append(pair)
    return walks


_CHECK_OF: dict[type[DataPlaneError], str] = {Dropped: "reachable", Hairpin: "no-hairpin", Loop: "no-loop"}


# -- spreading ------------------------------------------------------------------------------------------------------


def _unused(fabric: Fabric, rules: Rules, ends: "_Ends") -> Iterator[Answer]:
    """Links of shortest paths that many flows of a pair leave empty; one pair stands for its two switches."""
    plane, hops = DataPlane(fabric, rules), next_hops(fabric)
    by_switches = {(ends.switch[a], ends.switch[b]): (a, b) for a, b in ends.pairs}
    for (source, _), pair in _sample(list(by_switches.items()), PAIRS_SPREAD):
        expected = _equal_cost(fabric, hops, source, pair[1])
        flows = _flows(pair, FLOWS_PER_LINK * len(expected))
        with suppress(DataPlaneError):  # reported by the walk over all pairs
            if idle := sorted(_idle(plane, flows, expected)):
                way = f"from {pair[0]} to {pair[1]}"
                yield "multipath", f"{len(idle)} equal-cost links idle {way}: {', '.join(idle[:4])}"


def _idle(plane: DataPlane, flows: Iterable[Flow], expected: set[str]) -> set[str]:
    """Those of the expected interfaces that no flow can leave by."""
    idle = set(expected)
    for flow in flows:
        idle.difference_update(port.intf for path in plane.paths(flow) for port in path)
        if not idle:
            break
    return idle


def _equal_cost(fabric: Fabric, hops: NextHops, source: str, address: str) -> set[str]:
    """Egress interfaces on all shortest paths from the switch to the address's owner."""
    prefix = next((p for p in hops[source] if is_in(address, p)), None)
    intfs: set[str] = set()
    todo, done = [source], set()
    while todo:
        switch = todo.pop()
        if switch in done:
            continue
        done.add(switch)
        ports = {port.number: port for port in fabric.ports_of(switch)}
        ways = [ports[number] for number in hops[switch].get(prefix or "", ())]
        intfs.update(port.intf for port in ways)
        todo.extend(fabric.peer(port).node for port in ways)
    return intfs


# -- pairs and failures ---------------------------------------------------------------------------------------------


class _Ends:
    """The addresses of a fabric: the switch of each, and the ordered pairs between which there is a way."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self.switch = switch_of_address(fabric)
        island = _islands(adjacency(fabric))
        self.pairs = [
            (a, b) for a, s in self.switch.items() for b, t in self.switch.items() if a != b and island[s] == island[t]
        ]

    def joined(self, pairs: list[Pair], without: Link) -> list[Pair]:
        """Those of the pairs, each once, that still have a way without the link."""
        island = _islands(adjacency(self._fabric, frozenset({without.index})))
        return [(a, b) for a, b in dict.fromkeys(pairs) if island[self.switch[a]] == island[self.switch[b]]]


def _islands(graph: Adjacency) -> dict[str, str]:
    """switch -> one switch of its connected part, the same for all of that part."""
    island: dict[str, str] = {}
    for switch in graph:
        if switch not in island:
            island.update(dict.fromkeys(distances(graph, switch), switch))
    return island


def _failures(fabric: Fabric) -> list[Link]:
    """Links between switches that are routed over: a host's only link leaves no way."""
    graph = adjacency(fabric)
    return [x for x in fabric.links if x.kind != "circuit" and x.a.node in graph and x.b.node in graph]


def _sample(items: list[_T], n: int) -> list[_T]:
    return items if len(items) <= n else random.Random(0).sample(items, n)


def _flows(pair: Pair, n: int) -> Iterator[Flow]:
    """n flows that differ in source port, as the queue pairs of a RoCE connection do."""
    return (Flow(*pair, proto=UDP, src_port=49152 + i, dst_port=4791) for i in range(n))
