"""The drafts' figures against values calculated by hand."""

import math
from typing import Any

import pandas as pd
import pytest

from lab.kpis import busbw_efficiency_percent, busbw_gbit_s, interference_factor, overlap_fraction
from lab.kpis.convergence import convergence
from lab.kpis.losses import drop_ppm, ecn_marking_percent, rate_per_s
from lab.kpis.ports import deepest, packets_sent_by, queue_depths, s_fabric, sent_by_link
from lab.kpis.summary import TITLES, summary
from lab.rows import ITERATION_COLUMNS, IterationRecord
from tests.unit.lab_samples import row


def links(*lines: tuple[Any, ...], columns: str = "at_s link kind bytes_sent") -> pd.DataFrame:
    return pd.DataFrame(list(lines), columns=columns.split())


# -- numbers ----------------------------------------------------------------------------------------------------------


def test_bus_bandwidth_in_the_drafts_unit() -> None:
    """An all-reduce of 1 GB over 8 in 35 ms: 8 x 1e9 x 1.75 / 0.035 = 400 Gbit/s; NICs of 400: 100 %."""
    assert busbw_gbit_s(1e9, 1.75, 0.035) == pytest.approx(400)
    assert busbw_efficiency_percent(360, 400) == pytest.approx(90)
    assert math.isnan(busbw_efficiency_percent(360, 0))


def test_interference_is_a_ratio_of_completion_times() -> None:
    assert interference_factor(0.06, 0.04) == pytest.approx(1.5)
    assert math.isnan(interference_factor(0.06, 0))


@pytest.mark.parametrize(("jct", "fraction"), [(0.14, 0.0), (0.10, 1.0), (0.12, 0.5)])
def test_overlap_of_100_ms_of_computing_and_40_of_communication(jct: float, fraction: float) -> None:
    assert overlap_fraction(jct, 0.10, 0.04) == pytest.approx(fraction)


def test_without_communication_there_is_nothing_to_overlap() -> None:
    assert math.isnan(overlap_fraction(0.1, 0.1, 0.0))


def test_rates_and_shares_of_packets() -> None:
    assert drop_ppm(3, 1_500_000) == pytest.approx(2)
    assert rate_per_s(90, 4.5) == pytest.approx(20)
    assert ecn_marking_percent(25, 1000) == pytest.approx(2.5)
    assert all(math.isnan(x) for x in (drop_ppm(1, 0), rate_per_s(1, 0.0), ecn_marking_percent(0, 0)))


def test_convergence_of_a_failure_under_load() -> None:
    """500 packets lost of 10 000 a second stand for 50 ms; the iteration took 0.13 s where 0.1 is usual."""
    steady = [0.1, 0.1, 0.09, 0.11]
    found = convergence(steady, 0.13, packets_lost=500, offered_packets_s=10_000)
    assert (found.packets_lost, found.zero_impact) == (500, False)
    assert (found.loss_duration_s, found.steady_s, found.overhead_s) == pytest.approx((0.05, 0.1, 0.03))
    assert convergence(steady, 0.11, packets_lost=0, offered_packets_s=10_000).zero_impact
    with pytest.raises(ValueError, match="no steady iteration"):
        convergence([], 0.1, packets_lost=0, offered_packets_s=1)


# -- port counters ----------------------------------------------------------------------------------------------------


def test_bytes_across_the_nic_and_inside_a_server_stand_apart() -> None:
    """h1 sends 100 and h2 300 over NICs in 2 iterations, h1 80 inside its server: 400 / 2 / 2 = 100, and 20."""
    seen = links(
        (0.0, "h1->leaf1", "scale-out", 50), (1.0, "h1->leaf1", "scale-out", 150),
        (0.0, "h2->leaf1", "scale-out", 0), (1.0, "h2->leaf1", "scale-out", 300),
        (0.0, "h1->nvs1", "scale-up", 0), (1.0, "h1->nvs1", "scale-up", 80),
        (0.0, "leaf1->h1", "scale-out", 0), (1.0, "leaf1->h1", "scale-out", 999),
    )  # fmt: skip
    found = s_fabric(seen, ["h1", "h2"], 2)
    assert (found.s_fabric, found.intra_server) == (100, 20)
    assert sent_by_link(seen)["leaf1->h1"] == 999


def test_packets_that_were_not_sampled_are_no_number() -> None:
    seen = links((0.0, "h1->leaf1", "scale-out", 0), (1.0, "h1->leaf1", "scale-out", 5))
    assert math.isnan(packets_sent_by(seen, ["h1"]))
    assert packets_sent_by(seen.assign(packets_sent=[7, 19]), ["h1"]) == 12
    assert math.isnan(packets_sent_by(seen.assign(packets_sent=math.nan), ["h1"]))


def test_the_deepest_queue_is_named_with_its_95th_percentile() -> None:
    """Of 20 readings 1000..20000 the 19th smallest is 19000; leaf2's only reading is 4000; nulls were not readings."""
    lines = [(i / 10, "leaf1->h1", 1000 * (i + 1)) for i in range(20)]
    seen = links(*lines, (0.0, "leaf2->h2", 4000), (0.1, "leaf2->h2", None), columns="at_s link queue_bytes")
    depths = queue_depths(seen)
    assert depths.to_numpy().tolist() == [["leaf1->h1", 19000, 20000], ["leaf2->h2", 4000, 4000]]
    worst = deepest(depths)
    assert (worst.link, worst.p95_bytes, worst.max_bytes) == ("leaf1->h1", 19000, 20000)


def test_queues_that_were_not_sampled_are_no_number() -> None:
    assert math.isnan(deepest(queue_depths(links())).max_bytes)


# -- a run's summary --------------------------------------------------------------------------------------------------


def iteration(size: int, i: int, started_s: float, time_s: float) -> IterationRecord:
    return IterationRecord("all_reduce", "ring", size, False, i, started_s, time_s * 100, time_s, 0, 0, 1.0, 1.0)


def table(*iterations: IterationRecord) -> pd.DataFrame:
    return pd.DataFrame(
        [[getattr(i, n) for n in ITERATION_COLUMNS] for i in iterations], columns=list(ITERATION_COLUMNS)
    )


def test_a_summary_of_two_sizes() -> None:
    """Of 1 GB over 16 ranks, factor 1.875: 8 x 1.875 / 0.04 = 375 Gbit/s, and 300 in 0.05 s; sizes / 10, times x 100."""
    results = pd.DataFrame(
        [
            row(
                size_bytes=10**9, emulated_bytes=10**8, size_scale=10.0, time_s=0.045, algbw_gbytes_s=1 / 0.045,
                busbw_gbytes_s=1.875 / 0.045, jct_ratio=1.2, retransmits=18, dropped_fabric=2, ecn_seen=200, ecn_marked=5,
                delivered=0.9999,
            ).columns(),
            row(size_bytes=2 * 10**9, verdict="invalid").columns(),
        ]
    )  # fmt: skip
    iterations = table(
        iteration(10**9, 0, 1.0, 0.04), iteration(10**9, 1, 5.0, 0.05), iteration(2 * 10**9, 0, 30.0, 0.1)
    )
    seen = links(
        (1.0, "h1->leaf1", "scale-out", 0, 0, 0.0), (10.0, "h1->leaf1", "scale-out", 320, 1000, 7.0),
        (30.0, "h1->leaf1", "scale-out", 9_999, 5000, 900.0), columns="at_s link kind bytes_sent packets_sent queue_bytes",
    )  # fmt: skip
    found = summary(results, iterations, seen, hosts=["h1", "h2"], nic_gbit=400.0)
    assert list(found.columns) == list(TITLES)
    first = found.iloc[0]
    assert (first["n"], first["jct_mean_s"], first["jct_p50_s"], first["jct_p99_s"]) == pytest.approx(
        (2, 0.045, 0.05, 0.05)
    )
    # Population deviation 0.005 of 0.045.
    assert first["cv_percent"] == pytest.approx(100 / 9)
    assert first["busbw_gbit_s"] == pytest.approx(8 * 1.875 / 0.045)
    assert (first["busbw_p50_gbit_s"], first["busbw_p99_gbit_s"]) == pytest.approx((300, 375))
    assert first["busbw_efficiency_percent"] == pytest.approx(8 * 1.875 / 0.045 / 4)
    # 320 bytes here are 3200 of the hardware's, over two hosts and two iterations; the other size's counter is not in it.
    assert (first["s_fabric"], first["queue_max_bytes"]) == (800, 7)
    assert first["packet_drop_ppm"] == pytest.approx(100)
    assert first["fabric_drop_ppm"] == pytest.approx(2000)
    # 18 in 4 + 5 emulated seconds.
    assert first["retransmissions_per_s"] == pytest.approx(2)
    assert first["ecn_marking_percent"] == pytest.approx(2.5)
    invalid = found.iloc[1]
    assert invalid["jct_mean_s"] == pytest.approx(0.1) and math.isnan(invalid["busbw_gbit_s"])
    assert math.isnan(invalid["s_fabric"])
