"""`describe --compare`: one table of fabrics, their smaller siblings, and what the command line refuses."""

import json
from math import isclose
from pathlib import Path

import pytest

from lab import cli
from topologies import topology
from topologies.comparison import Terms, compare, compare_text
from topologies.miniature import miniature
from topologies.sizing import SIZERS, Want, sized

TERMS = Terms(Want(2048, 64))
ASKED = ("--accelerators", "2048", "--radix", "64")


def test_spine_leaf_of_2048_by_hand() -> None:
    """64 leaves and 32 spines: 2048 copper cables, 2048 fibres with two transceivers each."""
    (row,) = compare(["spine-leaf"], TERMS)
    assert (row["switches"], row["cables"]) == (96, {"dac": 2048, "fibre": 2048})
    assert (row["cable_ends"], row["transceivers"], row["surplus_hosts"]) == (8192, 4096, 0)
    assert (row["bisection_gbps"], row["bisection_share"], row["diameter"]) == (1024 * 400, 1.0, 2)
    assert row["cost"] == 2048 * (1200 + 100 + 50) + 4096 * 500 + 3 * 2048 * 400
    assert row["topology"] == "spine-leaf:spines=32,leaves=64,hosts_per_leaf=32,links_per_pair=1"


def test_a_fabric_that_cannot_be_so_large_stays_with_its_reason_and_maximum() -> None:
    rows = compare(["spine-leaf", "fat-tree"], Terms(Want(4096, 64)))
    assert rows[0] == {
        "fabric": "spine-leaf", "max_accelerators": 2048, "reason": "two tiers of radix 64: at most 2048 accelerators",
    }  # fmt: skip
    text = compare_text(rows, Terms(Want(4096, 64)))
    assert "spine-leaf: not possible: two tiers of radix 64: at most 2048 accelerators" in text
    assert rows[1]["switches"] == 4 * 64 + 64


def test_the_table_is_aligned_and_names_its_units_and_sources() -> None:
    text = compare_text(compare(SIZERS, TERMS), TERMS)
    title, head, units, *lines = text.splitlines()
    table = lines[: lines.index("")]
    assert "2048 accelerators" in title and "radix 64" in title
    assert all(unit in units for unit in ("(M$)", "(kW)", "(Tbit/s)", "(1/year)"))
    assert {len(line) for line in table} == {len(units)}
    assert head.index("cost") + 4 == units.index("(M$)") + 4
    assert text.splitlines()[-1].startswith("# prices, powers and failure rates: ")


def test_a_name_given_twice_is_one_row() -> None:
    assert len(compare(["torus", "torus"], TERMS)) == 1


@pytest.mark.parametrize("fabric", SIZERS)
def test_a_miniature_can_be_built_and_names_what_it_lost(fabric: str) -> None:
    large = sized(fabric, Want(2048, 64))
    small = miniature(large, 32)
    assert small is not None
    made = topology(small.size.text)
    assert 16 <= len(made.build().hosts) <= 48
    share, kept = small.size.bisection_share, "oversubscription" not in small.not_kept
    assert share is not None and large.bisection_share is not None
    assert kept == isclose(share, large.bisection_share, rel_tol=0.01)
    assert "radix" in small.not_kept


@pytest.mark.parametrize("fabric", ["spine-leaf", "fat-tree", "rail-optimised", "rail-only", "superpod", "ocs-leaf"])
def test_a_miniature_of_a_fabric_at_full_bisection_has_it_too(fabric: str) -> None:
    small = miniature(sized(fabric, Want(2048, 64)), 32)
    assert small is not None and small.size.bisection_share == 1


def test_a_miniature_spine_leaf_keeps_its_tiers_in_proportion() -> None:
    small = miniature(sized("spine-leaf", Want(2048, 64)), 32)
    assert small is not None
    assert small.size.text == "spine-leaf:spines=4,leaves=8,hosts_per_leaf=4,links_per_pair=1"
    assert small.not_kept == {"path diversity": (32, 4), "radix": (64, 8)}


# -- the command line -----------------------------------------------------------------------------------------------


def test_compare_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["describe", "--compare", "fat-tree", "torus", *ASKED, "--miniature", "32", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["fabric"] for row in rows] == ["fat-tree", "torus"]
    assert rows[0]["miniature"]["topology"] == "fat-tree:k=4"


def test_prices_and_rate_reach_the_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    prices = tmp_path / "mine.toml"
    prices.write_text("[dsp]\nusd = 0\n")
    asked = ["describe", "--compare", "spine-leaf", *ASKED, "--link-rate", "800Gbit", "--prices", str(prices)]
    assert cli.main(asked) == 0
    said = capsys.readouterr().out
    assert "800 Gbit/s links" in said and said.rstrip().endswith(str(prices))


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--compare", "clos", *ASKED], ["'clos'", *SIZERS]),
        (["--compare", "torus"], ["--accelerators", "--radix"]),
        (["--compare", "torus", "--accelerators", "1", "--radix", "8"], ["--accelerators 1", "2 or more"]),
        (["--compare", "torus", *ASKED, "--hb-domain", "0"], ["--hb-domain 0"]),
        (["--compare", "torus", *ASKED, "--optics", "lasers"], ["'lasers'", "dsp", "lpo", "cpo"]),
        (["--compare", "torus", *ASKED, "--miniature", "1"], ["--miniature 1", "8"]),
        (["--compare", "torus", *ASKED, "--topology", "torus"], ["--topology", "--compare"]),
        (["--compare", "torus", *ASKED, "--prices", "nosuch.toml"], ["nosuch.toml", "No such file"]),
        (["--radix", "64"], ["--radix", "--compare"]),
        (["--optics", "lasers"], ["'lasers'", "dsp"]),
    ],
)
def test_refused_in_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], wanted: list[str]) -> None:
    assert cli.main(["describe", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert [word for word in wanted if word not in said.err] == [], said.err
