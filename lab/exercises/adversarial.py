"""Lab 4: traffic that a dragonfly's minimal routing cannot carry. a = 3, p = 1, h = 2, g = 7, one link between two groups."""

from lab.exercises.answers import Answers, Judge
from lab.exercises.evidence import Run, Wrong

_A, _P, _G = 3, 1, 7
# Kim, Dally, Scott, Abts, ISCA 2008, section 4.1, for links as fast as NICs: all a p hosts of a group share one global link, or
# by Valiant the g - 2 links to the other groups, each of which carries first halves and second halves of ways.
MINIMAL_SHARE = 1 / (_A * _P)
VALIANT_SHARE = (_G - 2) / (2 * _A * _P)


def _minimal_share(answers: Answers) -> str:
    return answers.number(
        "minimal_share",
        MINIMAL_SHARE,
        "1 / (a p): the group's three hosts share its one link to the next group",
        "all hosts of a group send to the next group: how many are they, and how many links lead there directly?",
    )


def _valiant_share(answers: Answers) -> str:
    return answers.number(
        "valiant_share",
        VALIANT_SHARE,
        "(g - 2) / (2 a p): g - 2 ways by a third group, each link used for first and for second halves",
        "g - 2 third groups; each of their links carries this group's first halves and another group's second halves",
        {
            2 * VALIANT_SHARE: "every packet crosses two global links: each link carries both halves",
            (_G - 1)
            / (2 * _A * _P): "the way over the target group itself is the direct one: Valiant takes a third group",
        },
    )


def _spine_leaf_share(answers: Answers) -> str:
    return answers.number(
        "spine_leaf_share",
        1.0,
        "three uplinks for three hosts, and every leaf reaches every other over all of them: there is no bad neighbour",
        "3 spines, 7 leaves of 3 hosts: how many uplinks do the three hosts of a leaf have, whatever leaf they send to?",
        {MINIMAL_SHARE: "that is the dragonfly's: a leaf reaches every other leaf over all of its uplinks"},
    )


def _minimal(answers: Answers) -> str:
    run = answers.run("minimal", routing="minimal").trusted()
    return f"measured: {run.number('jct_ratio'):.2f} times the roofline; the bound is {1 / MINIMAL_SHARE:.2f}"


def _valiant(answers: Answers) -> str:
    run = answers.run("valiant", routing="valiant").trusted()
    gain = answers.run("minimal", routing="minimal").number("time_s") / run.number("time_s")
    if gain <= 1:
        raise Wrong(f"{run.folder} was not faster than minimal routing: that is not what its links give: repeat both")
    return f"measured: {run.number('jct_ratio'):.2f} times the roofline, {gain:.2f} times as fast as minimal"


def _price(answers: Answers) -> str:
    by_global = [_global_bytes(answers.run(name, routing=name)) for name in ("valiant", "minimal")]
    return answers.number(
        "price",
        by_global[0] / by_global[1],
        "every packet now crosses two global links: the same work costs twice the network",
        "add up what all global links carried in each of the two runs: valiant's bytes over minimal's",
        within=0.1,
    )


def _global_bytes(run: Run) -> int:
    return run.sent_by_kind()["global"]


def _uniform(answers: Answers) -> str:
    return answers.choice(
        "uniform_winner",
        "minimal",
        {
            "valiant": "with uniform_random the direct links are evenly loaded already, and a detour only doubles the load: "
            "compare the two predictions"
        },
        "the direct links are evenly loaded: a detour doubles the load for nothing. Hence UGAL, which chooses by load",
    )


QUESTIONS: dict[str, Judge] = {
    "minimal_share": _minimal_share,
    "valiant_share": _valiant_share,
    "spine_leaf_share": _spine_leaf_share,
    "minimal": _minimal,
    "valiant": _valiant,
    "price": _price,
    "uniform_winner": _uniform,
}
