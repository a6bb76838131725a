"""Output that nobody takes costs the text and nothing else."""

import os
import sys

import pytest

from lab import terminal


def test_a_reader_who_has_enough_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        terminal.write("one\n", stream)
        terminal.write("two\n", stream)
    assert capsys.readouterr() == ("", "")


def test_a_full_disk_is_told_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        terminal.show("one")
        terminal.show("two")
    assert capsys.readouterr().err == "run_topo.py: No space left on device: the rest of the output is lost\n"


def test_a_full_standard_error_is_nobody_s_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        terminal.warn("one", "two")
