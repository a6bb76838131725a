"""The labs of docs/labs on real fabrics: every command of their READMEs does what it says, and the solution passes.

A busy machine may make rows invalid, or a fast run slower than a slow one; the check then says so, and that is no failure of
the lab. What is read off counters must be right all the same.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.cli import main
from lab.exercises import EXERCISES
from lab.exercises.answers import LABS
from tests.emulation.commands import Done, inside, run_topo, started
from tests.emulation.waiting import wait_for

ROOT = LABS.parents[1]
# One iteration shows what is asked; students may take more.
ONCE = ("-n", "1", "-w", "0")
OF_THE_MACHINE = ("the emulator was in the way", "repeat both", "repeat it")
# For the longest of them: links twice as fast as in the file, and half of the bytes.
FASTER = {"6-circuits": ("--scale", "10000:50")}
# The one refusal that a lab asks for.
REFUSED = "--algorithm pairwise"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The repository as a student has it, with results of their own."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "my_policy.py").write_text((LABS / "7-routing-policy" / "solution.py").read_text())
    return tmp_path


def commands_of(lab: str, *, sudo: bool) -> Iterator[tuple[str, ...]]:
    """Those of its README that build a fabric, or those that only compute; without the checks of files still to be written."""
    prefix = "sudo " if sudo else ""
    for line in re.findall(
        rf"^ +{prefix}python3 run_topo\.py (.*)$", (LABS / lab / "README.md").read_text(), re.MULTILINE
    ):
        if not line.startswith(("check", "cli", "shell")):
            yield tuple(shlex.split(line))


def passes(lab: str, here: Path) -> None:
    """The solution's answers, but for what only a quiet machine shows."""
    text = (LABS / lab / "solution.toml").read_text()
    (here / "answers.toml").write_text(text.replace("docs/labs/7-routing-policy/solution.py", "results/my_policy.py"))
    done = run_topo("check", "answers.toml", cwd=here)
    print(done.out)
    assert done.status in (0, 1), done.err
    lines = done.out.splitlines()[:-1]
    assert len(lines) == len(EXERCISES[lab])
    assert [x for x in lines if x.startswith("WRONG") and not any(text in x for text in OF_THE_MACHINE)] == []


def ran(done: Done) -> None:
    assert done.status in (0, 1), done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("lab", [lab for lab in EXERCISES if lab != "8-link-failure"])
def test_a_lab(lab: str, here: Path) -> None:
    for command in commands_of(lab, sudo=True):
        ran(run_topo(*command, *ONCE, *FASTER.get(lab, ()), cwd=here, deadline_s=120))
    passes(lab, here)


def test_a_link_that_fails_in_mid_step(here: Path) -> None:
    lab = "8-link-failure"
    (command,) = commands_of(lab, sudo=True)
    with started(*command, "-n", "4", cwd=here) as run:
        run.says("iteration 2/4", 60)
        # The counters are read ten times a second, and must have seen the link at work.
        wait_for(
            lambda: int(inside(run.lab, "cat /sys/class/net/leaf1-eth3/statistics/tx_bytes")) > 100_000, 20, "traffic"
        )
        ran(run_topo("shell", str(run.lab), "--", "ip", "link", "set", "leaf1-eth3", "down", cwd=here))
        ran(run.ended(120))
    passes(lab, here)


@pytest.mark.parametrize("lab", EXERCISES)
def test_what_needs_no_root(
    lab: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(here)
    for command in commands_of(lab, sudo=False):
        status, said = main(command), capsys.readouterr()
        if REFUSED in " ".join(command):
            assert status == 2 and "144 of 240 pairs" in said.err
        else:
            assert (status, said.err) == (0, ""), command
