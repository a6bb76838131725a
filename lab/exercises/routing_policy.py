"""Lab 7: a routing policy of the student's own, destination modulo k: checked as rules, without a switch."""

from collections import Counter
from collections.abc import Mapping

from controller import policy
from controller.conformance import check_policy
from controller.dataplane import DataPlane, DataPlaneError
from controller.flow import TCP, Flow
from controller.policy import Policy, rules_of
from lab.exercises.answers import Answers, Judge
from lab.exercises.evidence import Wrong
from topologies.errors import Refused
from topologies.spine_leaf import SpineLeaf

_K = 4
_FABRIC = SpineLeaf(spines=_K, leaves=4, hosts_per_leaf=_K).build()
# (source, destination), as numbers of hosts
_Pair = tuple[int, int]


def _own(answers: Answers, key: str) -> Policy:
    try:
        return policy(str(answers.given(key)))
    except Refused as refusal:
        raise Wrong(str(refusal)) from None


def _reaches(answers: Answers) -> str:
    mine = _own(answers, "policy")
    if findings := check_policy(mine, {"spine-leaf": _FABRIC}):
        raise Wrong(f"{len(findings)} findings, first: {findings[0]}")
    _check_shifts(mine)
    _check_failures(mine)
    return (
        f"{_K * 4} hosts reach each other; no two flows of any shift share a link; a failure moves no more than it must"
    )


def _check_shifts(mine: Policy) -> None:
    """A shift sends from host i to host i + s: by destination modulo k no link between switches gets two of its flows."""
    n, plane = len(_FABRIC.hosts), _plane(mine)
    for shift in range(1, n):
        loads = Counter(intf for i in range(n) for intf in _switch_links(plane, (i, (i + shift) % n)))
        intf, most = loads.most_common(1)[0]
        if most > 1:
            way = _FABRIC.label(_FABRIC.link_of(intf))
            raise Wrong(
                f"in a shift by {shift}, {most} flows share {way}: hosts of one leaf must differ in their spine"
            )


def _check_failures(mine: Policy) -> None:
    """Only flows that used the dead link may move. Each uplink of the first leaf stands for those of all."""
    before = _ways(mine, frozenset())
    for link in _FABRIC.links_at(_FABRIC.switch_of(_FABRIC.hosts[0].name)):
        if any(_FABRIC.node(port.node).is_host for port in link.ports):
            continue
        own = {port.intf for port in link.ports}
        after = _ways(mine, frozenset({link.index}))
        for pair, way in before.items():
            if not own & set(way) and after[pair] != way:
                source, target = (f"h{i + 1}" for i in pair)
                raise Wrong(
                    f"with {_FABRIC.label(link)} down, {source} -> {target} moved, though its way was alive: keep it"
                )


def _ways(mine: Policy, down: frozenset[int]) -> Mapping[_Pair, list[str]]:
    plane, n = _plane(mine, down), len(_FABRIC.hosts)
    return {(i, j): _switch_links(plane, (i, j)) for i in range(n) for j in range(n) if i != j}


def _plane(mine: Policy, down: frozenset[int] = frozenset()) -> DataPlane:
    try:
        return DataPlane(_FABRIC, rules_of(mine, _FABRIC, down), down)
    except Refused as refusal:
        raise Wrong(str(refusal)) from None


def _switch_links(plane: DataPlane, pair: _Pair) -> list[str]:
    """The interfaces between switches on the way."""
    source, target = (_FABRIC.scale_out_port(_FABRIC.hosts[i].name).ip or "" for i in pair)
    try:
        path = plane.path(Flow(source, target, proto=TCP, src_port=50000, dst_port=50001))
    except DataPlaneError as error:
        raise Wrong(str(error)) from None
    return [port.intf for port in path[1:-1]]


def _run(answers: Answers) -> str:
    run = answers.run("run", routing=str(answers.given("policy"))).trusted()
    ecmp = answers.run("ecmp", routing="ecmp")
    gain = ecmp.number("time_s") / run.number("time_s")
    return f"measured: {run.number('jct_ratio'):.2f} times the roofline, {gain:.2f} times as fast as ecmp"


def _ecmp(answers: Answers) -> str:
    run = answers.run("ecmp", routing="ecmp").trusted()
    return f"measured: {run.number('jct_ratio'):.2f} times the roofline"


def _weakness(answers: Answers) -> str:
    return answers.choice(
        "weak_traffic",
        "all to hosts of one number modulo k",
        {
            "any shift": "the check has just walked all of them: no two flows share a link",
            "a ring": "that is the shift by one",
            "none": "nothing that does not look at load is best for every traffic: choose destinations that meet in one spine",
        },
        "everything then crosses one spine, and always will: what a hash gets wrong once, this gets wrong each time",
    )


QUESTIONS: dict[str, Judge] = {
    "policy": _reaches,
    "ecmp": _ecmp,
    "run": _run,
    "weak_traffic": _weakness,
}
