"""One collective by several algorithms: which are run, and the table of all."""

import json
from typing import Any

import pytest

from lab import algorithms
from lab.experiment import Experiment, load
from topologies import Refused
from traffic import COLLECTIVES


def asked(**settings: Any) -> Experiment:
    return load(None, {"min_bytes": "64M", "max_bytes": "64M"} | settings)


def chosen(**settings: Any) -> tuple[list[str | None], dict[str, str]]:
    found, left_out = algorithms.each(asked(**settings))
    return [one.algorithm for one in found], left_out


def test_one_name_or_none_is_not_several() -> None:
    assert not algorithms.are_several(asked())
    assert not algorithms.are_several(asked(algorithm="ring"))
    assert algorithms.are_several(asked(algorithm="ring,direct"))
    assert algorithms.are_several(asked(algorithm="all"))


def test_names_are_run_in_their_order_and_once() -> None:
    assert chosen(collective="all_gather", algorithm="direct, ring,direct") == (["direct", "ring"], {})


def test_all_are_all_that_the_fabric_can_run() -> None:
    names, left_out = chosen(algorithm="all")
    assert {*names, *left_out} == COLLECTIVES["all_reduce"].keys()
    assert left_out == {"hierarchical": "spine-leaf has no HB domains to forward in"}


def test_on_rails_that_nothing_joins_the_others_are_left_out_with_their_pairs() -> None:
    names, left_out = chosen(algorithm="all", topology="rail-only")
    assert "hierarchical" in names and "ring" in left_out
    assert left_out["ring"].startswith(
        "all_reduce by ring has 4 of 16 pairs that the scale-out network of rail-only does not"
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"algorithm": "ring,rnig"}, "unknown algorithm of all_reduce 'rnig'"),
        ({"algorithm": "ring,"}, "unknown algorithm of all_reduce ''"),
        ({"algorithm": "all", "collective": "all_reduced"}, "unknown collective 'all_reduced'"),
        ({"algorithm": "all", "collective": "incast"}, "unknown algorithm of incast 'all'"),
        ({"algorithm": "ring,double-binary-tree", "topology": "rail-only"}, "all_reduce by ring has 4 of 16 pairs"),
    ],
)
def test_what_was_asked_for_by_name_is_refused(settings: dict[str, str], words: str) -> None:
    with pytest.raises(Refused, match=words):
        chosen(**settings)


def test_the_table_is_sorted_by_size_and_time() -> None:
    names = ("size_bytes", "algorithm", "time_s", "busbw_gbytes_s", "jct_ratio", "predicted_s", "verdict")
    values = (
        (2**20, "slow", "0.003", 1, 3, "", "ok"),
        (2**20, "fast", "0.001", 3, 1, 0.001, "degraded"),
        (2**10, "slow", "0.002", 1, 2, 0.002, "ok"),
    )
    rows = [dict(zip(names, row, strict=True)) for row in values]
    head, *lines = algorithms.table(rows)
    assert [line.split()[1:4] for line in lines] == [
        ["1KiB", "slow", "2000.0"], ["1MiB", "fast", "1000.0"], ["1MiB", "slow", "3000.0"],
    ]  # fmt: skip
    assert [line.split()[-2:] for line in lines] == [["2000.0", "ok"], ["1000.0", "degraded"], ["nan", "ok"]]
    assert head.split()[:3] == ["#", "size", "algorithm"]


def test_predictions_as_json_are_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    algorithms.predict(asked(algorithm="ring,parameter-server"), as_json=True)
    ring, server = json.loads(capsys.readouterr().out)
    assert (ring["algorithm"], server["algorithm"]) == ("ring", "parameter-server")
    # n^2 / (n - 1) for 16 ranks (serial phases), within the headers' and the latency's part.
    assert server["predicted_s"] / ring["predicted_s"] == pytest.approx(256 / 15, rel=0.05)
