"""The labs of docs/labs: what each of them asks, and how an answer is judged. The truth is computed here, from closed forms and
from fabrics and their rules; what a run shows is read from its folder.

To add a lab: a folder in docs/labs with README.md, experiment.toml, answers.toml and solution.toml, a file here with QUESTIONS,
key -> judge, and a line in EXERCISES.
"""

from collections.abc import Mapping

from lab.errors import LabError
from lab.exercises import (
    adversarial,
    circuits,
    collisions,
    first_all_reduce,
    link_failure,
    loss,
    polarisation,
    rails,
    routing_policy,
)
from lab.exercises.answers import Finding, Judge, judged, read_answers
from topologies import unknown

EXERCISES: Mapping[str, Mapping[str, Judge]] = {
    "1-first-all-reduce": first_all_reduce.QUESTIONS,
    "2-ecmp-collisions": collisions.QUESTIONS,
    "3-polarisation": polarisation.QUESTIONS,
    "4-adversarial-traffic": adversarial.QUESTIONS,
    "5-rails": rails.QUESTIONS,
    "6-circuits": circuits.QUESTIONS,
    "7-routing-policy": routing_policy.QUESTIONS,
    "8-link-failure": link_failure.QUESTIONS,
    "9-loss-and-ecn": loss.QUESTIONS,
}


def check_answers(path: str) -> list[Finding]:
    """What is right and wrong in an answers file. Raises LabError for one that is of no lab."""
    answers = read_answers(path)
    if answers.lab not in EXERCISES:
        raise LabError(f"{path}: {unknown('lab', answers.lab, EXERCISES)}")
    return judged(answers, EXERCISES[answers.lab])
