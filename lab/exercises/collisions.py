"""Lab 2: flows that a hash puts on one link. 4 spines, 2 leaves of 4 hosts."""

from math import factorial
from statistics import fmean

from lab.exercises.answers import Answers, Judge
from lab.exercises.evidence import Run, Wrong

_SPINES = 4


def _p_no_collision(answers: Answers) -> str:
    # All ways to give four flows different uplinks, among all ways: 4! / 4^4.
    return answers.number(
        "p_no_collision",
        factorial(_SPINES) / _SPINES**_SPINES,
        "4! / 4^4: ten times in eleven at least two of four flows share an uplink",
        "the second flow avoids the first with 3/4, the third both with 2/4, the fourth with 1/4",
        {1 - 24 / 256: "that is the chance of a collision", 0.25: "that is two flows' chance to meet"},
    )


def _slowdown(answers: Answers) -> str:
    return answers.number(
        "slowdown_of_two",
        2.0,
        "each gets half of the link, and the step waits for the slowest",
        "two flows share one link, each could fill it: how long does the slower one take?",
        {1.25: "that is the mean flow: the step ends with the slowest"},
    )


def _one(answers: Answers) -> str:
    run = answers.run("one_queue_pair", qps="1").trusted()
    return (
        f"measured: {run.number('jct_ratio'):.2f} times the roofline, fullest uplink {_fullest(run):.2f} times the mean"
    )


def _sixteen(answers: Answers) -> str:
    run = answers.run("sixteen_queue_pairs", qps="16").trusted()
    before = answers.run("one_queue_pair", qps="1").number("time_s")
    if run.number("time_s") >= before:
        raise Wrong(
            f"{run.folder} took longer than with one queue pair: that is not what links so loaded give: repeat both"
        )
    return f"measured: {before / run.number('time_s'):.2f} times as fast, fullest uplink {_fullest(run):.2f} times the mean"


def _fullest_uplink(answers: Answers) -> str:
    return answers.number(
        "fullest_uplink",
        _fullest(answers.run("one_queue_pair", qps="1")),
        "as the links' counters have it",
        "in the run with one queue pair, take the leaf whose uplinks differ most: the fullest one's bytes over the mean of all "
        "four (results.csv has it as mmr)",
        within=0.05,
    )


def _fullest(run: Run) -> float:
    """The fullest uplink over the mean of its leaf's, of the leaf where that is most."""
    by_leaf = [[n for link, n in run.sent.items() if link.startswith(f"{leaf}->spine")] for leaf in ("leaf1", "leaf2")]
    return max(max(uplinks) / fmean(uplinks) for uplinks in by_leaf)


def _ring(answers: Answers) -> str:
    return answers.choice(
        "ring_gains",
        "no",
        {
            "yes": "a ring through 8 hosts in order leaves each leaf with one flow: there is nothing for it to collide with"
        },
        "one flow leaves each leaf: it has the uplinks to itself",
    )


QUESTIONS: dict[str, Judge] = {
    "p_no_collision": _p_no_collision,
    "slowdown_of_two": _slowdown,
    "one_queue_pair": _one,
    "fullest_uplink": _fullest_uplink,
    "sixteen_queue_pairs": _sixteen,
    "ring_gains": _ring,
}
