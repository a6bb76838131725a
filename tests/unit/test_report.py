"""The report's text: what it says, and that it says it from the folder's own numbers."""

import math
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from lab.errors import LabError
from lab.measuring.sharing import group_balances
from lab.reporting import recorded, report, results
from lab.reporting.answer import answer, main_row
from lab.rows import LinkTotal, RunRecord
from tests.unit.lab_samples import record, row
from tests.unit.report_samples import rotor_run, whole_run
from topologies import topology
from topologies.describe import describe


class _Links(HTMLParser):
    """Collects what a browser would load, and checks that every tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [
            v or "" for k, v in attrs if k in ("src", "href", "xlink:href") and not (v or "").startswith(("#", "data:"))
        ]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_tells_what_rocev2_counted() -> None:
    rows = row(), row(transport="rocev2", dropped_fabric=3220, out_of_order=4731, naks=138, cnps=244, timeouts=15)
    texts = [report.html(record(r)) for r in rows]
    assert ["CNPs" in text for text in texts] == [False, True]
    marked = report.html(record(row(ecn_seen=1000, ecn_marked=25)))
    assert "CNPs" in marked and ">2.5%</td>" in marked
    assert all(f">{n:,}</td>" in texts[1] for n in (3220, 4731, 138, 244, 15))


def test_the_report_is_whole_and_opens_offline() -> None:
    totals = [
        LinkTotal(2**28, "leaf1-eth5", "leaf1->spine1", "scale-out", 900, 1000.0, 0, 0.9),
        LinkTotal(2**28, "h1-eth0", "h1->leaf1", "scale-out", 5, 5.0, 0, 0.1),
    ]
    bad = row(verdict="invalid", reason="<b>CPU-limited</b>; x")
    rows = (row(size_bytes=2**28), replace(bad, in_place=None))
    text = report.html(record(*rows, link_totals=totals))
    parser = _Links()
    parser.feed(text)
    assert parser.loaded == [] and parser.open == []
    assert "&lt;b&gt;CPU-limited" in text and "did not complete" in text
    assert "leaf1 → spine1" in text and "90.0%" in text


def test_the_report_shows_links_inside_hb_domains_apart() -> None:
    network = LinkTotal(2**30, "s1g1-eth0", "s1g1->leaf1", "scale-out", 1_000, 1000.0, 0, 0.9)
    inside = LinkTotal(2**30, "s1g1-eth1", "s1g1->hb1", "scale-up", 7_000, 7000.0, 0, 0.95)
    fabric = describe(topology("rail-only").build())
    text = report.html(record(row(), fabric=fabric, link_totals=[network, inside]))
    outside_part, inside_part = text.split("Busiest links of the network")[1].split("Busiest links inside HB domains")
    assert "s1g1 → leaf1" in outside_part and "hb1" not in outside_part
    assert "s1g1 → hb1" in inside_part and "leaf1" not in inside_part.split("</section>")[0]
    assert "All together 1,000 bytes" in outside_part and "All together 7,000 bytes" in inside_part


def said(run: RunRecord) -> str:
    row_ = main_row(run.rows)
    totals = [t for t in run.link_totals if row_ and t.size_bytes == row_.size_bytes]
    found = answer(run, row_, totals, None)
    return " ".join((found.headline, *found.sentences, found.reason))


def test_the_answer_says_how_long_and_how_far_from_what_was_computed() -> None:
    text = said(record(row()))
    assert "16 ranks ran all_reduce (ring) over TCP on spine-leaf: 16 hosts, 6 switches, NICs of 400Gbit" in text
    assert "At 1GiB an iteration took 41 ms (mean of 3, CV 1.0%); busbw is 49.10 GB/s." in text
    assert "That is 1.018 times the roofline of 40.27 ms (excellent: at most 1.05)" in text
    # 41 / 40.7
    assert "1.007 times the prediction of 40.7 ms, which explains it" in text
    assert "The bottleneck is h1 → leaf1" in text and "It is the link of rank 0 itself" in text


def test_the_answer_names_what_shares_a_bottleneck_between_switches() -> None:
    """Three flows on two links: all on one are 2.0 times the mean, which one draw in four gives."""
    fabric = topology("spine-leaf").build()
    up = next(own for own, far, _ in fabric.neighbours("leaf1") if far.node == "spine1")
    total = LinkTotal(2**30, up.intf, "leaf1->spine1", "scale-out", 900, 900.0, 0, 0.97)
    found = group_balances(fabric, [[up]] * 3, {up.intf: 900.0}, size_bytes=2**30)
    text = said(record(row(bottleneck="leaf1->spine1"), balance=found, link_totals=[total]))
    assert "The bottleneck is leaf1 → spine1: of all links it has most to send for its rate" in text
    assert "and the counters saw it at 97.0% of its rate" in text
    assert (
        "It is one of 2 parallel links of leaf1, which 3 flows share: the busiest carries 2.00 times the mean, as chance"
        in text
    )


def test_the_answer_to_an_invalid_run_is_no_result() -> None:
    text = said(record(row(verdict="invalid", reason="CPU-limited")))
    assert text.startswith("Verdict invalid: the emulator was in the way; this is no result of the network.")
    assert "says more of this machine than of the network" in text and "1GiB is invalid: CPU-limited." in text


def test_of_several_rows_the_largest_that_may_be_believed_is_told_of() -> None:
    rows = row(size_bytes=2**20), row(size_bytes=2**25), row(size_bytes=2**30, verdict="invalid")
    assert main_row(rows) is rows[1]
    assert main_row(rows[2:]) is rows[2] and main_row([]) is None


def test_without_a_prediction_the_answer_says_why() -> None:
    text = said(
        record(row(predicted_s=math.nan, bottleneck=""), notes=["no prediction: circuits change while it runs"])
    )
    assert "there is no prediction to compare with" in text and "because circuits change while it runs." in text


def test_a_folder_gives_back_the_record_that_was_written(tmp_path: Path) -> None:
    run = rotor_run()
    results.write(tmp_path, run)
    read = recorded.read(tmp_path)
    # As text, in which a value that does not exist is equal to itself.
    assert str(read.rows) == str(run.rows)
    assert read.iterations == run.iterations and read.link_totals == run.link_totals
    assert read.circuits == run.circuits and read.circuit_totals == run.circuit_totals and read.hosts == run.hosts
    for ours, theirs in ((read.spans[0], run.spans[0]), (read.links[0], run.links[0])):
        for name, value in vars(theirs).items():
            assert np.array_equal(getattr(ours, name), value), name


def test_the_spans_of_several_rows_are_told_apart(tmp_path: Path) -> None:
    run = whole_run(sizes=(2**20, 2**21, 2**22))
    results.write(tmp_path, run)
    read = recorded.read(tmp_path)
    assert [(s.size_bytes, len(s.rank)) for s in read.spans] == [(s.size_bytes, len(s.rank)) for s in run.spans]


def test_the_same_folder_makes_the_same_report(tmp_path: Path) -> None:
    results.write(tmp_path, whole_run())
    first = results.write_report(tmp_path).read_bytes()
    assert results.write_report(tmp_path).read_bytes() == first


def test_what_is_no_runs_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        LabError, match=r"^'.*/manifest.json' cannot be read: No such file .*: name a folder that a run has written$"
    ):
        recorded.read(tmp_path)
    (tmp_path / "manifest.json").write_text('{"experiment": {}}')
    with pytest.raises(LabError, match=r"does not say complete, fabric, .*: name a folder"):
        recorded.read(tmp_path)
    (tmp_path / "manifest.json").write_text('{"program": {}}')
    with pytest.raises(LabError, match="is of a program that `exec` ran, which has no rows to report"):
        recorded.read(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(LabError, match="is not JSON"):
        recorded.read(tmp_path)


def test_a_table_that_was_cut_off_is_refused_in_one_line(tmp_path: Path) -> None:
    results.write(tmp_path, record(row()))
    file = tmp_path / "results.parquet"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(LabError, match=r"^'.*/results.parquet' cannot be read: [^\n]+$"):
        recorded.read(tmp_path)


def test_a_folder_of_an_older_run_has_no_spans_and_no_balance(tmp_path: Path) -> None:
    results.write(tmp_path, whole_run())
    for name in ("spans", "balance", "link_totals"):
        (tmp_path / f"{name}.parquet").unlink()
    text = results.write_report(tmp_path).read_text()
    assert "Timeline of ranks" not in text and "No link counters were recorded" in text


@pytest.mark.slow
def test_the_report_of_1024_links_is_small_and_quick(tmp_path: Path) -> None:
    """The bound is 10 s; CPU time, since the machine may be busy."""
    run = whole_run("spine-leaf:spines=16,leaves=32,hosts_per_leaf=16", (2**30,))
    assert len(run.fabric["graph"]["links"]) == 1024
    results.write(tmp_path, run)
    began = time.process_time()
    report_ = results.write_report(tmp_path)
    assert time.process_time() - began < 10
    assert report_.stat().st_size < 5_000_000


def test_what_was_found_wrong_stands_first_with_its_place() -> None:
    found = {
        "size_bytes": 2**30,
        "kind": "slow link",
        "element": "leaf1->spine2 (leaf1-eth3)",
        "detail": "25Mbit, 50Mbit asked",
    }
    run = record(row(verdict="invalid", reason="slow link leaf1->spine2"), findings=[found])
    assert said(run).startswith(
        "Verdict invalid: this is no result of the network. First found wrong: slow link leaf1 → spine2"
    )
    text = report.html(run)
    assert ">slow link</td>" in text and ">25Mbit, 50Mbit asked</td>" in text
