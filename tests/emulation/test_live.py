"""The picture of a run on a terminal; and what stands there without it."""

import re
from pathlib import Path

import pytest

from tests.emulation.commands import fabric, sizes, terminal
from tests.emulation.test_run import rows

SMALL = (*fabric(spines=1, hosts_per_leaf=2), *sizes("500K", iterations=6))


@pytest.fixture(autouse=True)
def a_terminal_that_can_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")


def test_the_picture_shows_the_run_and_leaves_the_table_alone(tmp_path: Path) -> None:
    with terminal(*SMALL, "--out", "out", cwd=tmp_path) as run:
        run.says("hottest links", 60)
        run.says("verdict so far", 30)
        shown = run.says("results: ", 60)
        assert run.ended() in (0, 1)
    # What was drawn is taken away line by line (ECMA-48: erase in line) before the row is written.
    (line,) = [text for text in shown.splitlines() if re.search(r"512000\s+128000", text)]
    assert "hottest" not in line.rpartition("\x1b[2K")[2]
    assert len(rows(tmp_path / "out")) == 1
    # A run that is killed could not bring a hidden cursor back.
    assert "\x1b[?25l" not in shown


def test_ctrl_c_ends_the_picture_and_the_run(tmp_path: Path) -> None:
    with terminal(*SMALL, "--out", "out", cwd=tmp_path) as run:
        run.says("hottest links", 60)
        run.press("\x03")
        run.says("rows kept", 60)
        assert run.ended() == 130


def test_a_terminal_that_cannot_draw_has_the_plain_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with terminal(*SMALL, "--out", "out", cwd=tmp_path) as run:
        shown = run.says("results: ", 90)
        assert run.ended() in (0, 1)
    assert "iteration 6/6" in shown and "hottest links" not in shown
