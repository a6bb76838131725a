"""A whole run, as a user starts it: what it says of the machine it was on."""

import csv
import json
import re
from pathlib import Path

from tests.emulation.commands import run_topo


def test_the_default_run_is_on_the_kernel_s_datapath(tmp_path: Path) -> None:
    """An emulated CPU's row may be invalid; its figures are shown, not asserted."""
    done = run_topo("--out", "out", cwd=tmp_path, deadline_s=900)
    print(done.out)
    assert done.status in (0, 1), done.err
    assert re.search(r"^# Open vSwitch .*, kernel datapath$", done.out, re.MULTILINE)
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["machine"]["datapath"] == "system"
    with (tmp_path / "out" / "results.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["wrong"] == "0"


def test_doctor_finds_what_the_kernel_has(tmp_path: Path) -> None:
    done = run_topo("doctor", cwd=tmp_path, deadline_s=600)
    assert done.status == 0
    assert re.search(r"^ok +qdisc netem ", done.out, re.MULTILINE)
    assert re.search(r"^ok +Open vSwitch .*, kernel datapath$", done.out, re.MULTILINE)
