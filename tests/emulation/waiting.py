"""Tests poll for a condition with a deadline and never sleep."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], deadline_s: float, what: str | Callable[[], str]) -> T:
    """The first true value of `condition`. what: to be said when the deadline passes, or makes that text then."""
    end = time.monotonic() + deadline_s
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.02)
    return value
