"""The one exception family a user meets.

`Refused` is an answer, not an accident: the command line prints its text as one line and leaves with status 2,
before anything was created. Each package derives its own class from it.
"""

from collections.abc import Iterable


def one_line(text: str) -> str:
    """What others wrote (a user's exception, the name of a file) may have several."""
    return " ".join(text.splitlines())


class Refused(ValueError):
    """A request that cannot be met: the text, one line, names the value, what is allowed and what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


class TopologyError(Refused):
    """A fabric that cannot be described or built."""


def unknown(what: str, value: str, known: Iterable[str]) -> str:
    """The text for an unknown name or key: it lists the known ones."""
    return f"unknown {what} {value!r}: choose from {', '.join(sorted(known))}"


def last_line(text: str) -> str:
    """What a program said last, in its log or on stderr: as a rule, why it ended."""
    return (text.strip().splitlines() or ["it said nothing"])[-1]


class EmulationError(Exception):
    """The machine did not do what was asked of it: the text, one line, names the item and what the kernel or the switch
    said."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))
