"""HB domains on real links: which interface every byte leaves by, and what never meets the spines.

NICs at 20 Mbit/s, scale-up links at nine times that, two servers of two accelerators. A busy machine may make a row less than
`ok`; what is asserted here does not depend on the load.
"""

import csv
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.emulation.commands import run_topo, sizes

MTU = 9000
SIZE = 480_000
OPTIONS = ("--scale", "1", "--link-rate", "20Mbit", *sizes(str(SIZE)))


def measured(tmp_path: Path, *options: str) -> tuple[dict[str, str], pd.DataFrame]:
    """The row, all elements of it right, and the timed iteration's bytes by link direction, with the link's kind."""
    done = run_topo(*options, *OPTIONS, "--out", str(tmp_path / "out"), cwd=tmp_path)
    assert done.status in (0, 1), done.err
    with (tmp_path / "out" / "results.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["wrong"], row["iterations"]) == ("0", "1")
    assert "where the schedule sends" not in row["reason"]
    samples = pd.read_parquet(tmp_path / "out" / "links.parquet").groupby(["link", "kind"])["bytes_sent"]
    return row, (samples.max() - samples.min()).reset_index()


def carried(links: pd.DataFrame, link: str) -> int:
    (n_bytes,) = links.loc[links["link"] == link, "bytes_sent"]
    return int(n_bytes)


def of_kind(links: pd.DataFrame, kind: str) -> int:
    return int(links.loc[links["kind"] == kind, "bytes_sent"].sum())


def as_planned(row: dict[str, str], payload: float, *, acks: float | None = None) -> Any:
    """Wire bytes of a payload in one direction and of acknowledgements of another, by default an equal one."""
    mss = MTU - 20 - 32
    n_bytes = payload * (MTU + 14) / mss + (payload if acks is None else acks) / mss * 66 / 2
    return pytest.approx(n_bytes, abs=0.05 * n_bytes + (2 + int(row["retransmits"])) * (MTU + 14))


def test_inside_a_domain_no_nic_carries_a_byte(tmp_path: Path) -> None:
    """A ring of the two ranks of a server: each sends S over its scale-up interface."""
    topology = "rail-optimised:servers=2,gpus_per_server=2,spines=1"
    row, links = measured(tmp_path, "--topology", topology, "--ranks", "2")
    assert of_kind(links, "scale-out") == 0
    for link in ("s1g1->hb1", "s1g2->hb1", "hb1->s1g1", "hb1->s1g2"):
        assert carried(links, link) == as_planned(row, SIZE)
    assert carried(links, "s2g1->hb2") == 0
    assert "hb1" in row["bottleneck"]
    assert float(row["roofline_s"]) == pytest.approx(SIZE * 8 / 180e6)


def test_a_ring_leaves_each_server_by_one_nic(tmp_path: Path) -> None:
    """s1g1 -> s1g2 -> s2g1 -> s2g2 -> s1g1: 1.5 S on every edge, every second edge inside a server; acknowledgements go back
    by the way the data came."""
    topology = "rail-optimised:servers=2,gpus_per_server=2,spines=1"
    row, links = measured(tmp_path, "--topology", topology, "--algorithm", "ring")
    payload = 1.5 * SIZE
    for link in ("s1g1->hb1", "hb1->s1g2", "s2g1->hb2", "s1g2->leaf2", "leaf1->s2g1", "s2g2->leaf2", "leaf1->s1g1"):
        assert carried(links, link) == as_planned(row, payload, acks=0)
    for link in ("s1g2->hb1", "hb2->s2g1", "s1g1->leaf1", "leaf2->s1g2"):
        assert carried(links, link) == as_planned(row, 0, acks=payload)
    assert carried(links, "leaf2->spine1") == as_planned(row, 2 * payload, acks=0)


def test_unasked_a_ring_for_each_rail_puts_no_byte_on_the_spines(tmp_path: Path) -> None:
    """Of two rings with half of the buffer each, 0.75 S on every edge: each NIC is the way out in one of them."""
    row, links = measured(tmp_path, "--topology", "rail-optimised:servers=2,gpus_per_server=2,spines=1")
    assert row["algorithm"] == "rail-ring"
    assert links.loc[links["link"].str.contains("spine"), "bytes_sent"].sum() == 0
    for host, leaf, hb in (("s1g1", "leaf1", "hb1"), ("s1g2", "leaf2", "hb1"), ("s2g1", "leaf1", "hb2")):
        assert carried(links, f"{host}->{leaf}") == as_planned(row, 0.75 * SIZE)
        assert carried(links, f"{leaf}->{host}") == as_planned(row, 0.75 * SIZE)
        assert carried(links, f"{host}->{hb}") == as_planned(row, 0.75 * SIZE)


@pytest.mark.parametrize("fabric", ["rail-optimised", "rail-only"])
def test_hierarchical_puts_no_byte_on_the_spines(tmp_path: Path, fabric: str) -> None:
    """S/2 each way inside the server, before and after S/2 round the two ranks of a rail."""
    options = ("--algorithm", "hierarchical") if fabric == "rail-optimised" else ()
    row, links = measured(tmp_path, "--topology", f"{fabric}:servers=2,gpus_per_server=2", *options)
    assert row["algorithm"] == "hierarchical"
    assert links.loc[links["link"].str.contains("spine"), "bytes_sent"].sum() == 0
    for host, leaf, hb in (("s1g1", "leaf1", "hb1"), ("s2g2", "leaf2", "hb2")):
        assert carried(links, f"{host}->{leaf}") == as_planned(row, SIZE / 2)
        assert carried(links, f"{leaf}->{host}") == as_planned(row, SIZE / 2)
        assert carried(links, f"{host}->{hb}") == as_planned(row, SIZE)
        assert carried(links, f"{hb}->{host}") == as_planned(row, SIZE)
    assert float(row["roofline_s"]) == pytest.approx(SIZE * 8 / 40e6)


def test_an_all_to_all_over_rail_only_is_forwarded_inside_the_servers(tmp_path: Path) -> None:
    """PXN: each rank sends half of its blocks to the other server, all by its own rail: S/2 over every NIC, whichever GPU they
    are of."""
    row, links = measured(tmp_path, "--topology", "rail-only:servers=2,gpus_per_server=2", "--collective", "all_to_all")
    assert row["algorithm"] == "hierarchical"
    for host, leaf in (("s1g1", "leaf1"), ("s1g2", "leaf2"), ("s2g1", "leaf1"), ("s2g2", "leaf2")):
        assert carried(links, f"{host}->{leaf}") == as_planned(row, SIZE / 2)
        assert carried(links, f"{leaf}->{host}") == as_planned(row, SIZE / 2)
