"""What is drawn of a run, at several widths, without a run."""

import io

import pytest
from rich.console import Console

from lab.measuring.live import Snapshot, drawn
from lab.measuring.verdict import Verdict

SEEN = Snapshot(
    sent_mbps=61.24,
    links_mbps=80.0,
    hottest=[("leaf1->spine1", 19.96, 0.998), ("h1->leaf1", 10.0, 0.5)],
    done=3,
    of_all=12,
    rows=["1MiB ok", "2MiB degraded"],
    verdict=Verdict("invalid", ("CPU-limited: frames waited 20 frame times for the switch thread",)),
)


def text(width: int, seen: Snapshot = SEEN) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False, color_system=None).print(
        drawn("[  4.2 s] iteration 3/6", seen)
    )
    return out.getvalue().splitlines()


def test_everything_is_there_on_a_wide_terminal() -> None:
    lines = text(110)
    assert lines[0] == "[  4.2 s] iteration 3/6"
    assert lines[2] == "hosts send 61.2Mbit of 80Mbit; hottest links:"
    assert lines[3].split() == ["leaf1->spine1", "20Mbit", "100%"]
    assert lines[5] == "verdict so far: invalid: CPU-limited: frames waited 20 frame times for the switch thread"
    assert lines[6] == "rows: 1MiB ok 2MiB degraded"


@pytest.mark.parametrize("width", [20, 30, 60])
def test_a_narrow_terminal_cuts_and_never_wraps(width: int) -> None:
    lines = text(width)
    assert len(lines) == len(text(110)) and all(len(line) <= width for line in lines)


def test_before_anything_was_measured() -> None:
    lines = text(80, Snapshot(0.0, 80.0, [], 0, 0, [], Verdict("ok")))
    assert lines[-1] == "verdict so far: ok"
