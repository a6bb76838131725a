"""The labs of docs/labs without a machine: each passes its check with the solution and fails it without, and says why.

The solutions' numbers were worked out by hand; the checks compute theirs from closed forms, fabrics and rules.
"""

import argparse
import csv
import json
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from controller import policy
from controller.conformance import check_policy
from lab.cli import COMMANDS, main
from lab.exercises import EXERCISES, check_answers
from lab.exercises.answers import LABS, Answers, Finding
from lab.exercises.evidence import Wrong
from lab.exercises.polarisation import cores_used
from lab.planning.experiment import load
from tests.results_folder import COLUMNS
from topologies.fat_tree import FatTree

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = LABS.parents[1]
MIB = 2**20
# Of folders, not of thoughts: the key's answer is given.
RUNS = {
    "1-first-all-reduce": {"run"},
    "2-ecmp-collisions": {"one_queue_pair", "sixteen_queue_pairs"},
    "3-polarisation": {"ecmp", "polarised"},
    "4-adversarial-traffic": {"minimal", "valiant"},
    "5-rails": {"run"},
    "6-circuits": {"stay", "change_64m", "change_256m"},
    "7-routing-policy": {"ecmp", "run"},
    "8-link-failure": {"run"},
    "9-loss-and-ecn": {"go_back_n", "selective", "dcqcn", "no_congestion_control"},
}


def answers_of(lab: str, file: str) -> dict[str, Any]:
    values = tomllib.loads((LABS / lab / file).read_text())
    assert values.pop("lab") == lab
    return values


def commands_of(lab: str) -> list[list[str]]:
    """The commands of its README, each as a list of words without `sudo` and `python3`."""
    text = (LABS / lab / "README.md").read_text()
    found = re.findall(r"^ {4,8}(?:sudo )?python3 (run_topo\.py.*)$", text, re.MULTILINE)
    assert found
    return [shlex.split(line) for line in found]


ROW = {"time_s": 0.001, "jct_ratio": 1.1, "busbw_gbytes_s": 48, "wrong": 0, "verdict": "ok"}


# -- results folders as a run writes them ---------------------------------------------------------------------------------


def folder(
    path: Path,
    lab: str,
    file: str = "experiment.toml",
    *,
    rows: Mapping[int, Mapping[str, object]] | None = None,
    sent: Mapping[str, tuple[str, list[int]]] | None = None,
    **settings: object,
) -> None:
    """rows: size in bytes -> columns; sent: direction of a link -> its kind, and its counter over time, every second."""
    path.mkdir(parents=True)
    experiment = load(LABS / lab / file, settings)
    resolved = json.loads(json.dumps(asdict(experiment), default=str))
    if experiment.circuits:
        resolved["routing"] = f"circuits:{experiment.circuits}"
    manifest = {"experiment": resolved}
    (path / "manifest.json").write_text(json.dumps(manifest))
    with (path / "results.csv").open("w", newline="") as out:
        writer = csv.DictWriter(out, COLUMNS, restval="")
        writer.writeheader()
        for size, columns in (rows or {experiment.min_bytes: {}}).items():
            writer.writerow({**ROW, "size_bytes": size, **columns})
    samples = [
        {"at_s": float(i), "intf": f"i{n}", "link": link, "kind": kind, "bytes_sent": count}
        for n, (link, (kind, counts)) in enumerate((sent or {"h1->leaf1": ("scale-out", [0, 1])}).items())
        for i, count in enumerate(counts)
    ]
    pd.DataFrame(samples).to_parquet(path / "links.parquet")


def total(kind: str, **by_link: int) -> dict[str, tuple[str, list[int]]]:
    return {link.replace("_", "->"): (kind, [0, n]) for link, n in by_link.items()}


def all_runs(results: Path) -> None:
    """Every run that the labs ask for, as it comes out where the network does what it should."""
    folder(results / "lab1", "1-first-all-reduce")
    uneven = {"leaf1_spine1": 100, "leaf1_spine2": 200, "leaf1_spine3": 0, "leaf1_spine4": 0}
    even = {f"leaf2_spine{i}": 100 for i in range(1, 5)}
    lab2 = "2-ecmp-collisions"
    folder(results / "lab2-1qp", lab2, rows={128 * MIB: {"time_s": 0.0054}}, sent=total("scale-out", **uneven, **even))
    fair = total("scale-out", **dict.fromkeys(uneven, 100), **even)
    folder(results / "lab2-16qp", lab2, rows={128 * MIB: {"time_s": 0.0029}}, sent=fair, qps="16")
    lab3, cores = "3-polarisation", {f"core{i}_agg1": 100 for i in range(1, 5)}
    folder(results / "lab3-ecmp", lab3, sent=total("scale-out", **cores))
    half = {**cores, "core2_agg1": 0, "core3_agg1": 0}
    slow = {128 * MIB: {"time_s": 0.002}}
    folder(results / "lab3-polarised", lab3, rows=slow, sent=total("scale-out", **half), routing="ecmp-polarised")
    lab4 = "4-adversarial-traffic"
    folder(results / "lab4-minimal", lab4, rows=slow, sent=total("global", g1r1_g2r1=1000))
    folder(results / "lab4-valiant", lab4, sent=total("global", g1r1_g2r1=0, g1r1_g3r1=2000), routing="valiant")
    inside = {**total("scale-up", s1g1_hb1=1010), **total("scale-out", s1g1_leaf1=1000)}
    folder(results / "lab5", "5-rails", sent=inside)
    lab6 = "6-circuits"
    both = {64 * MIB: {"time_s": 0.0037}, 256 * MIB: {"time_s": 0.0149}}
    folder(results / "lab6-stay", lab6, rows=both, circuits=f"docs/labs/{lab6}/stay.toml")
    for size, time_s in ((64, 0.0054), (256, 0.0110)):
        plan, only, rows = f"docs/labs/{lab6}/change.toml", f"{size}M", {size * MIB: {"time_s": time_s}}
        folder(results / f"lab6-change-{size}m", lab6, rows=rows, circuits=plan, min_bytes=only, max_bytes=only)
    lab7 = "7-routing-policy"
    folder(results / "lab7-ecmp", lab7, rows={64 * MIB: {"time_s": 0.002}})
    folder(results / "lab7-mine", lab7, routing=f"docs/labs/{lab7}/solution.py:d_mod_k")
    folder(results / "lab8", "8-link-failure", rows={256 * MIB: {"verdict": "invalid"}}, sent=FAILED)
    lab9 = "9-loss-and-ecn"
    lossy = {"retransmits": 4000, "dropped_fabric": 200}
    folder(results / "lab9-gbn", lab9, rows={256 * MIB: lossy})
    folder(results / "lab9-selective", lab9, rows={256 * MIB: {**lossy, "retransmits": 100}}, reliability="selective")
    incast = {"retransmits": 900, "dropped_fabric": 0, "dropped_host": 0, "cnps": 40}
    folder(results / "lab9-dcqcn", lab9, "incast.toml", rows={64 * MIB: incast})
    drops = {64 * MIB: {**incast, "dropped_fabric": 300, "cnps": 0}}
    folder(results / "lab9-none", lab9, "incast.toml", rows=drops, congestion_control="none")


FAILED = {
    "leaf1->spine1": ("scale-out", [0, 10, 20, *[25] * 8]),
    "leaf2->spine1": ("scale-out", [0, 10, 20, *[26] * 8]),
    "leaf1->spine2": ("scale-out", list(range(0, 220, 20))),
    "leaf2->spine2": ("scale-out", list(range(0, 220, 20))),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    all_runs(path)
    return path


@pytest.fixture
def here(tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a student's: the repository's docs, and results of all runs."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    shutil.copytree(runs, tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said_of(lab: str, key: str, answers: Mapping[str, Any]) -> str:
    """What is said of one answer that is wrong."""
    with pytest.raises(Wrong) as told:
        EXERCISES[lab][key](Answers(lab, answers))
    return str(told.value)


def wrong(findings: list[Finding]) -> dict[str, str]:
    return {f.key: f.text for f in findings if not f.is_right}


# -- every lab --------------------------------------------------------------------------------------------------------------


def test_every_folder_is_a_lab_with_all_its_parts() -> None:
    assert {p.name for p in LABS.iterdir() if p.is_dir()} == set(EXERCISES)
    index = (LABS / "README.md").read_text()
    for lab, questions in EXERCISES.items():
        assert list(answers_of(lab, "answers.toml")) == list(answers_of(lab, "solution.toml")) == list(questions)
        assert f"({lab}/README.md)" in index
        text = (LABS / lab / "README.md").read_text()
        assert f"run_topo.py check docs/labs/{lab}/answers.toml" in text
        for key in questions.keys() - RUNS[lab] - {"policy"}:
            assert f"`{key}`" in text, f"{lab}: its README does not ask {key}"


@pytest.mark.parametrize("lab", EXERCISES)
def test_the_solution_passes(here: Path, lab: str) -> None:
    assert wrong(check_answers(f"docs/labs/{lab}/solution.toml")) == {}


@pytest.mark.parametrize("lab", EXERCISES)
def test_what_is_not_answered_is_not_right(here: Path, lab: str) -> None:
    missing = {key for key, value in answers_of(lab, "answers.toml").items() if value == ""}
    found = wrong(check_answers(f"docs/labs/{lab}/answers.toml"))
    assert missing
    assert {key for key, text in found.items() if text == "no answer yet"} == missing


@pytest.mark.parametrize("lab", EXERCISES)
def test_each_answer_can_be_wrong(here: Path, lab: str) -> None:
    """A number a fifth too large, another word, a folder that is not there."""
    solution = answers_of(lab, "solution.toml")
    for key, value in solution.items():
        other = value * 1.2 if isinstance(value, (int, float)) else f"not-{value}"
        assert len(said_of(lab, key, {**solution, key: other})) > 10


@pytest.mark.parametrize("lab", EXERCISES)
def test_a_run_that_proves_nothing_does_not_pass(here: Path, lab: str) -> None:
    """An invalid row, but where the failure that is planted makes it so; and a run of something else."""
    solution = answers_of(lab, "solution.toml")
    for key in RUNS[lab]:
        results = here / solution[key]
        if lab != "8-link-failure":
            table = (results / "results.csv").read_text()
            (results / "results.csv").write_text(table.replace(",ok,", ",invalid,"))
            assert "the emulator was in the way" in said_of(lab, key, solution)
            (results / "results.csv").write_text(table)
        manifest = json.loads((results / "manifest.json").read_text())
        manifest["experiment"] |= {"placement": "random"}
        (results / "manifest.json").write_text(json.dumps(manifest))
        assert "placement = random, the lab asks for contiguous" in said_of(lab, key, solution)


@pytest.mark.parametrize(
    ("lab", "command"), [(lab, command) for lab in EXERCISES for command in commands_of(lab)], ids=str
)
def test_commands_are_understood_and_name_what_exists(lab: str, command: list[str]) -> None:
    name, rest = (command[1], command[2:]) if command[1] in COMMANDS else ("run", command[1:])
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    COMMANDS[name][1](parser)
    arguments = parser.parse_args(rest)
    for word in rest:
        if word.startswith("docs/labs"):
            assert (ROOT / word.partition(":")[0]).exists()
            assert word.startswith(f"docs/labs/{lab}/")
    if name == "run":
        assert arguments.out in answers_of(lab, "answers.toml").values() or "vm" in arguments.out


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("manifest.json", "{", "cannot be read"),
        ("manifest.json", "{}", "cannot be read"),
        ("links.parquet", "", "cannot be read"),
        ("results.csv", "size_bytes,verdict\n", "ended before it had measured anything"),
        ("results.csv", "size_bytes,verdict,wrong\n268435456,ok,0\n", "has no busbw_gbytes_s"),
        ("results.csv", None, "no results there"),
    ],
)
def test_a_folder_that_is_not_whole(here: Path, file: str, text: str | None, said: str) -> None:
    damaged = here / "results" / "lab1" / file
    damaged.unlink()
    if text is not None:
        damaged.write_text(text)
    assert said in said_of("1-first-all-reduce", "run", answers_of("1-first-all-reduce", "solution.toml"))


# -- what is said of wrong answers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lab", "key", "answer", "said"),
    [
        ("1-first-all-reduce", "bus_factor", 0.75, "reduce-scatter is followed by all-gather"),
        ("1-first-all-reduce", "ideal_us", 5369, "that is the time of S"),
        ("1-first-all-reduce", "busbw", 31.96, "that is algbw"),
        ("2-ecmp-collisions", "p_no_collision", 0.90625, "the chance of a collision"),
        ("3-polarisation", "cure", "more flows", "every flow hashes alike"),
        ("4-adversarial-traffic", "valiant_share", 1.6667, "each link carries both halves"),
        ("5-rails", "unjoined_pairs", 72, "ordered pairs"),
        ("6-circuits", "duty_cycle", 200 / 220, "includes its dark"),
        ("8-link-failure", "leaf2_is_told_by", "its own port", "has its carrier"),
        ("9-loss-and-ecn", "useful_go_back_n", 0.715, "packets that are sent again are lost, too"),
        ("1-first-all-reduce", "bus_factor", "one and a half", "is not a number"),
        ("2-ecmp-collisions", "ring_gains", "maybe", "answer with one of no, yes"),
    ],
)
def test_a_common_mistake_is_named(here: Path, lab: str, key: str, answer: object, said: str) -> None:
    assert said in said_of(lab, key, {**answers_of(lab, "solution.toml"), key: answer})


def test_the_command_prints_every_answer_and_what_is_left(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "docs/labs/1-first-all-reduce/solution.toml"]) == 0
    assert capsys.readouterr().out.endswith("passed: 5 of 5\n")
    assert main(["check", "docs/labs/1-first-all-reduce/answers.toml"]) == 1
    said = capsys.readouterr().out
    assert "WRONG  bus_factor   no answer yet\n" in said and said.endswith("not passed: 1 of 5 are right\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('lab = "10-lunch"', "unknown lab '10-lunch': choose from 1-first-all-reduce"),
        ("bus_factor = 1.5", "unknown lab ''"),
        (
            'lab = "1-first-all-reduce"\nbusfactor = 1.5',
            "has no question 'busfactor': its questions are bus_factor, ideal_us",
        ),
        ("lab = 1-first", "not TOML"),
    ],
)
def test_a_file_that_answers_no_lab_is_refused(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "answers.toml").write_text(text)
    assert main(["check", str(tmp_path / "answers.toml")]) == 2
    refusal = capsys.readouterr().err
    assert said in refusal and refusal.count("\n") == 1


# -- single labs --------------------------------------------------------------------------------------------------------------


def test_one_hash_at_both_stages_leaves_all_but_a_diagonal_idle() -> None:
    """k / 2 of the (k / 2)^2 cores."""
    assert cores_used("ecmp-polarised", 4) == {"core1", "core4"}
    assert len(cores_used("ecmp-polarised", 8)) == 4
    assert len(cores_used("ecmp", 4)) == 4
    assert len(cores_used("ecmp", 8)) == 16


POLICIES = {
    "ports[number // 4 % len(ports)] or ports[0] or ports[1]": "hosts of one leaf must differ in their spine",
    "[p for p in ports if p][number % len([p for p in ports if p])]": "moved, though its way was alive",
    "ports[number % len(ports)]": "has no port None",
    "99": "port 99",
}


@pytest.mark.parametrize("choice", POLICIES)
def test_a_policy_that_is_not_right_is_told_what_it_does(here: Path, choice: str) -> None:
    text = (LABS / "7-routing-policy" / "my_policy.py").read_text()
    body = re.sub(r"return next\(port for port in ports .*", f"return {choice}", text)
    assert body != text
    (here / "mine.py").write_text(body)
    lab = "7-routing-policy"
    answers = {**answers_of(lab, "solution.toml"), "policy": "./mine.py:d_mod_k"}
    found = said_of(lab, "policy", answers)
    print(found)
    assert POLICIES[choice] in found


def test_the_template_s_policy_is_not_right(here: Path) -> None:
    lab = "7-routing-policy"
    found = wrong(check_answers(f"docs/labs/{lab}/answers.toml"))
    assert "hosts of one leaf must differ in their spine" in found["policy"]


@pytest.mark.parametrize(
    ("link", "counts", "said"),
    [
        ("leaf1->spine1", list(range(0, 110, 10)), "carried traffic to the end"),
        ("leaf2->spine1", list(range(0, 110, 10)), "leaf2 went on sending to spine1"),
        ("leaf2->spine2", [0, 1, *[2] * 9], "spine2 was given up as well"),
    ],
)
def test_a_link_that_did_not_fail_as_asked(here: Path, link: str, counts: list[int], said: str) -> None:
    folder(here / "other", "8-link-failure", sent={**FAILED, link: ("scale-out", counts)})
    lab = "8-link-failure"
    answers = {**answers_of(lab, "solution.toml"), "run": "other"}
    assert said in said_of(lab, "run", answers)


def test_the_solution_s_policy_conforms_on_a_fat_tree_too(here: Path) -> None:
    mine = policy("docs/labs/7-routing-policy/solution.py:d_mod_k")
    assert check_policy(mine, {"fat-tree": FatTree(4).build()}) == []
