"""The report's text: what it says, and that it says it from the folder's own numbers."""

from dataclasses import replace
from html.parser import HTMLParser

from lab.reporting import report
from lab.rows import LinkTotal
from tests.unit.lab_samples import record, row
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


def test_the_report_of_512_hosts_stays_small() -> None:
    fabric = topology("spine-leaf:spines=16,leaves=32,hosts_per_leaf=16").build()
    totals = [
        LinkTotal(2**30, p.intf, fabric.direction(p), link.kind, 5, 5.0, 0, 0.1)
        for link in fabric.links
        for p in link.ports
    ]
    assert len(report.html(record(row(), fabric=describe(fabric), link_totals=totals))) < 500_000
