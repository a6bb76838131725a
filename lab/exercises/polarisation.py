"""Lab 3: two stages that decide by the same hash. Fat trees; the rules are walked with many flows, as a switch would."""

from functools import cache

from controller import policy_for, rules_of
from controller.dataplane import DataPlane
from controller.flow import UDP, Flow
from lab.exercises.answers import Answers, Judge
from lab.exercises.evidence import Run, Wrong
from topologies.fat_tree import FatTree

_FLOWS = 64


@cache
def cores_used(policy: str, k: int) -> frozenset[str]:
    """The cores that flows from the first host to the last can pass, whatever their ports."""
    fabric = FatTree(k).build()
    plane = DataPlane(fabric, rules_of(policy_for(policy, fabric), fabric))
    first, last = (fabric.scale_out_port(fabric.hosts[i].name).ip or "" for i in (0, -1))
    flows = (Flow(first, last, proto=UDP, src_port=49152 + i, dst_port=4791) for i in range(_FLOWS * k))
    passed = {port.node for flow in flows for port in plane.path(flow)}
    return frozenset(switch.name for switch in fabric.switches if switch.role == "core" and switch.name in passed)


def _cores_used(answers: Answers) -> str:
    return answers.number(
        "cores_used",
        len(cores_used("ecmp-polarised", 4)),
        "who took uplink i at the edge takes uplink i at the aggregation: k / 2 of the (k / 2)^2 cores",
        "follow the flows that took the first uplink at the edge: they are all at one aggregation switch, and all have hashed to "
        "'first'",
        {4: "that is how many there are: with independent hashes all of them are used"},
    )


def _cores_used_of_16(answers: Answers) -> str:
    return answers.number(
        "cores_used_of_16",
        len(cores_used("ecmp-polarised", 8)),
        "k / 2 of (k / 2)^2: the larger the fabric, the more of it stands idle",
        "the same argument with four uplinks at each stage",
        {8: "half of them is right for k = 4 only"},
    )


def _ecmp(answers: Answers) -> str:
    run = answers.run("ecmp", routing="ecmp").trusted()
    return f"measured: {run.number('jct_ratio'):.2f} times the roofline over {len(_busy_cores(run))} cores"


def _polarised(answers: Answers) -> str:
    run = answers.run("polarised", routing="ecmp-polarised").trusted()
    slower = run.number("time_s") / answers.run("ecmp", routing="ecmp").number("time_s")
    if slower <= 1:
        raise Wrong(f"{run.folder} was not slower than ecmp: that is not what half of the cores give: repeat both")
    return f"measured: {slower:.2f} times as long as with ecmp, over {len(_busy_cores(run))} cores"


def _idle_cores(answers: Answers) -> str:
    run = answers.run("polarised", routing="ecmp-polarised")
    cores = {link.partition("->")[0] for link in run.sent if link.startswith("core")}
    idle = cores - _busy_cores(run)
    named = {name.strip() for name in str(answers.given("idle_cores")).split(",")}
    if named == idle:
        return "no flow's hash leads there, so no traffic ever will"
    if strange := sorted(named - cores):
        raise Wrong(f"{strange[0]!r} is no core: write them as core1, core2, from {', '.join(sorted(cores))}")
    raise Wrong(f"{', '.join(sorted(named))}: in the run's report, which core's links carried nothing all the time?")


def _busy_cores(run: Run) -> set[str]:
    """Those that sent as much as 1 % of the fullest."""
    by_core: dict[str, int] = {}
    for link, n_bytes in run.sent.items():
        core = link.partition("->")[0]
        if core.startswith("core"):
            by_core[core] = by_core.get(core, 0) + n_bytes
    return {core for core, n_bytes in by_core.items() if n_bytes > max(by_core.values()) / 100}


def _cure(answers: Answers) -> str:
    return answers.choice(
        "cure",
        "another seed at every switch",
        {
            "more flows": "every flow hashes alike at both stages, however many there are",
            "a better hash function": "the best function gives the same result for the same input and the same seed",
        },
        "the stages then decide independently: `ecmp` takes the switch's datapath id as the basis of its hash",
    )


QUESTIONS: dict[str, Judge] = {
    "cores_used": _cores_used,
    "cores_used_of_16": _cores_used_of_16,
    "ecmp": _ecmp,
    "polarised": _polarised,
    "idle_cores": _idle_cores,
    "cure": _cure,
}
