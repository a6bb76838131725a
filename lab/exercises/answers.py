"""A student's answers to one lab: how they are read, and how one of them is judged.

An answers file is TOML: `lab`, the name of its folder in docs/labs, and a key for each question, "" as long as it is not
answered. A judge returns why an answer is right, or raises Wrong with why it is not.
"""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.exercises.evidence import Run, Wrong, read_run
from lab.planning.experiment import Experiment, load

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LABS = Path(__file__).resolve().parents[2] / "docs" / "labs"
# What readers round away.
_ROUNDED = 0.01


@dataclass(frozen=True)
class Answers:
    """lab: the name of its folder; values: question's key -> what was written."""

    lab: str
    values: Mapping[str, Any]

    def given(self, key: str) -> Any:
        value = self.values.get(key, "")
        if value == "":
            raise Wrong("no answer yet")
        return value

    def number(
        self,
        key: str,
        truth: float,
        why: str,
        hint: str,
        mistakes: Mapping[float, str] | None = None,
        within: float = _ROUNDED,
    ) -> str:
        """why: said when it is right; hint: when it is not; mistakes: what people answer instead -> what to tell them."""
        value = self.given(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise Wrong(f"{value!r} is not a number")
        if math.isclose(value, truth, rel_tol=within):
            return why
        told = [text for mistake, text in (mistakes or {}).items() if math.isclose(value, mistake, rel_tol=within)]
        raise Wrong(f"{value:g}: {told[0] if told else hint}")

    def choice(self, key: str, truth: str, others: Mapping[str, str], why: str) -> str:
        """others: the other answers that can be given -> what to tell those who gave it."""
        value = self.given(key)
        if value == truth:
            return why
        if value in others:
            raise Wrong(f"{value}: {others[value]}")
        raise Wrong(f"{value!r}: answer with one of {', '.join(sorted((truth, *others)))}")

    def run(self, key: str, file: str = "experiment.toml", **settings: object) -> Run:
        """The results folder that was named, of a run of the lab's experiment with these settings changed."""
        return read_run(str(self.given(key)), self.experiment(file, **settings))

    def experiment(self, file: str = "experiment.toml", **settings: object) -> Experiment:
        return load(LABS / self.lab / file, settings)


Judge = Callable[[Answers], str]


@dataclass(frozen=True)
class Finding:
    """What was found of one answer."""

    key: str
    is_right: bool
    text: str


def judged(answers: Answers, questions: Mapping[str, Judge]) -> list[Finding]:
    """One for each question, in their order. Refuses an answer to no question."""
    for key in answers.values:
        if key not in questions:
            raise LabError(f"{answers.lab} has no question {key!r}: its questions are {', '.join(questions)}")
    findings = []
    for key, judge in questions.items():
        try:
            findings.append(Finding(key, True, judge(answers)))
        except Wrong as wrong:
            findings.append(Finding(key, False, str(wrong)))
    return findings


def read_answers(path: str) -> Answers:
    """Raises LabError."""
    try:
        values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    except tomllib.TOMLDecodeError as error:
        raise LabError(f'{path}: not TOML: {error}; text stands in quotes: "leaf1"') from None
    return Answers(str(values.pop("lab", "")), values)
