"""The report in a real browser: no script fails, the pictures are there, nothing overlaps, the numbers are results.csv's."""

import csv
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from lab.reporting import recorded, report, results
from lab.rows import RunRecord
from tests.unit import browser
from tests.unit.report_samples import rotor_run, whole_run

pytestmark = pytest.mark.needs("chromium")

# Shared by both questions. Texts of one picture must not cut each other; half a pixel of rounding is none.
_PICTURES = """
  const visible = t => t.textContent.trim() && getComputedStyle(t).visibility != "hidden";
  const box = e => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
  const cut = (a, b) => Math.min(a[2], b[2]) - Math.max(a[0], b[0]) > 1 && Math.min(a[3], b[3]) - Math.max(a[1], b[1]) > 2;
  const pictures = [...document.querySelectorAll("figure svg")].map(svg => {
    const texts = [...svg.querySelectorAll("text")].filter(visible).map(t => [t.textContent.trim(), box(t)]);
    const whole = box(svg), over = [], outside = [];
    texts.forEach(([a, p], i) => texts.slice(i + 1).forEach(([b, q]) => { if (cut(p, q)) over.push([a, b]); }));
    texts.forEach(([a, p]) => {
      if (p[0] < whole[0] - 2 || p[1] < whole[1] - 2 || p[2] > whole[2] + 2 || p[3] > whole[3] + 2) outside.push(a);
    });
    const shapes = [...svg.querySelectorAll("path, rect, line, image, use")].filter(s => {
      const r = s.getBoundingClientRect(); return r.width > 0 || r.height > 0; });
    return {name: svg.closest("figure").id, width: whole[2] - whole[0], height: whole[3] - whole[1], texts: texts.length,
            shapes: shapes.length, over, outside};
  });
  const wider = document.documentElement.scrollWidth - document.documentElement.clientWidth;
"""
_NUMBERS = (
    _PICTURES
    + """
  const rows = [...document.querySelectorAll("#results tbody tr")].map(tr =>
    [...tr.querySelectorAll("td[data-column]")].map(td => [td.dataset.column, td.dataset.value, td.textContent.trim()]));
  const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
  const head = [...document.querySelectorAll("#results th")].map(th => th.textContent);
  const sections = [...document.querySelectorAll("section")].map(s => s.id);
  return {pictures, wider, rows, head, twice: ids.filter((id, i) => ids.indexOf(id) != i), sections,
          answer: document.getElementById("answer").innerText};
"""
)
_SLIDER = (
    _PICTURES
    + """
  const slider = document.getElementById("circuit-time");
  const lit = () => [...document.querySelectorAll("path.circuit")].filter(p => getComputedStyle(p).display != "none"
    && p.classList.contains("lit")).length;
  const at = t => { slider.value = t; slider.dispatchEvent(new Event("input"));
    return [lit(), document.getElementById("circuit-count").textContent,
            document.getElementById("circuit-cursor").getBoundingClientRect().left]; };
  return {pictures, wider, min: +slider.min, max: +slider.max, before: lit(), at: [at(0.0001), at(0.010), at(0.021), at(0.0225)]};
"""
)


def made(record: RunRecord, folder: Path) -> str:
    results.write(folder, record)
    return report.html(recorded.read(folder))


def require_readable(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    assert told["wrong"] == [] and told["loaded"] == []
    found = told["found"]
    assert found["wider"] <= 0
    for picture in found["pictures"]:
        assert picture["over"] == [] and picture["outside"] == [], picture["name"]
        assert picture["width"] > 900 and picture["height"] > 100 and picture["shapes"] > 5, picture
        assert picture["texts"] > 3, picture
    return {picture["name"]: picture for picture in found["pictures"]}


def test_a_run_is_readable_and_its_numbers_are_those_of_the_table(tmp_path: Path) -> None:
    record = whole_run()
    page = made(record, tmp_path)
    told = browser.ask(page, _NUMBERS, tmp_path)
    pictures = require_readable(told)
    assert pictures.keys() == {
        "fabric-drawn", "bandwidth-over-size", "links-over-time", "balance-by-switch", "ranks-over-time",
    }  # fmt: skip
    found = told["found"]
    assert found["twice"] == []
    assert found["sections"] == [
        "results", "fabric", "bandwidth", "links", "balance", "ranks", "anomalies", "scaling", "manifest",
    ]  # fmt: skip
    assert "Verdict degraded (1 of 2 rows)" in found["answer"] and "Rank 8 (h9) computes" in found["answer"]
    table = list(csv.DictReader(StringIO((tmp_path / "results.csv").read_text())))
    assert len(found["rows"]) == len(table) == 2
    unit_s = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
    (unit,) = {text.split("(")[1].rstrip(")") for text in found["head"] if text.startswith(("time", "P", "roof"))}
    for cells, line in zip(found["rows"], table, strict=True):
        assert len(cells) > 12
        for column, value, text in cells:
            assert value == line[column]
            if column.endswith("_s") and "gbytes" not in column:
                assert float(text) * unit_s[unit] == pytest.approx(float(value), rel=1e-3)
            elif column in ("algbw_gbytes_s", "busbw_gbytes_s", "jct_ratio"):
                assert float(text) == pytest.approx(float(value), rel=1e-3)
            elif column == "verdict":
                assert text == value


def test_the_slider_lights_the_circuits_of_its_moment(tmp_path: Path) -> None:
    """2.5 s slices at a dilation of 125 are 20 ms, their first 0.8 ms dark; one circuit of the second is dark for 3.2 ms."""
    told = browser.ask(made(rotor_run(), tmp_path), _SLIDER, tmp_path)
    pictures = require_readable(told)
    assert {"circuits-in-the-fabric", "circuits-over-time"} <= pictures.keys()
    found = told["found"]
    assert (found["min"], found["max"]) == (0, pytest.approx(6 * 2.5 / 125, rel=1e-6))
    assert found["before"] == 4
    (dark, dark_text, at_begin), (light, text, later), (three, waiting, _), (still_three, _, _) = found["at"]
    assert (dark, light, three, still_three) == (0, 4, 3, 3)
    assert dark_text == "0.10 ms: 0 lit, 4 dark" and text == "10.00 ms: 4 lit, 0 dark"
    assert waiting == "21.00 ms: 3 lit, 1 dark"
    assert later > at_begin


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["dragonfly", "rail-only", "fat-tree", "superpod"])
def test_other_fabrics_are_readable(spec: str, tmp_path: Path) -> None:
    require_readable(browser.ask(made(whole_run(spec, (2**30,)), tmp_path), _NUMBERS, tmp_path))
