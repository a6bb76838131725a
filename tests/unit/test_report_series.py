"""Load of links over time, from counters that are written down here."""

import numpy as np
import pytest

from lab.reporting.series import link_series
from lab.rows import IterationRecord, LinkSamples

# 80 Mbit/s are 10^6 bytes in a tenth of a second.
RATES = {"a": 80.0, "b": 160.0}


def iteration(started_s: float, seconds: float, size: int = 8) -> IterationRecord:
    return IterationRecord("all_reduce", "ring", size, False, 0, started_s, seconds, seconds / 100, 0, 0, 1.0, 1.0)


def samples(n: int, per_sample: tuple[int, int], start_s: float = 5.0) -> LinkSamples:
    sent = np.arange(n)[:, None] * np.array(per_sample)
    return LinkSamples(start_s + np.arange(n) / 10, ("a", "b"), ("h1->leaf1", "leaf1->h1"), ("scale-out",) * 2, sent)


def test_load_is_bytes_over_rate_and_time_is_the_hardwares() -> None:
    """A link of 80 Mbit/s sends 10^6 bytes every tenth of a second: full. One of 160 sends as many: half."""
    found = link_series(
        samples(21, (1_000_000, 1_000_000)), [iteration(5.0, 2.0)], RATES, size_bytes=8, time_dilation=100.0
    )
    assert found is not None
    assert found.load == pytest.approx(np.array([[1.0] * 20, [0.5] * 20]))
    assert found.edge_s[0] == 0 and found.edge_s[-1] == pytest.approx(0.02)
    assert np.array(found.iterations) == pytest.approx(np.array([[0.0, 0.02]]))
    assert found.hottest(1) == [0] and found.mean == pytest.approx([1.0, 0.5])


def test_only_the_rows_own_window_is_read() -> None:
    """Two sizes one after the other: the second's counters begin a second later."""
    rows = [iteration(5.0, 1.0), iteration(6.0, 1.0, size=16)]
    found = link_series(samples(21, (500_000, 0)), rows, RATES, size_bytes=16, time_dilation=1.0)
    assert found is not None and found.edge_s[0] == pytest.approx(0) and found.edge_s[-1] == pytest.approx(1.0)
    assert found.mean == pytest.approx([0.5, 0.0])


def test_a_late_reading_makes_no_burst() -> None:
    """200 samples, one of which came 90 ms late: what the next one counts in 10 ms is no nine-fold load."""
    seen = samples(201, (1_000_000, 0))
    at_s = seen.at_s.copy()
    at_s[100] += 0.09
    late = LinkSamples(at_s, seen.intfs, seen.links, seen.kinds, seen.bytes_sent)
    found = link_series(late, [iteration(5.0, 20.0)], RATES, size_bytes=8, time_dilation=1.0)
    assert found is not None and found.load[0].max() < 1.5
    assert found.load[0].mean() == pytest.approx(1.0)


def test_without_samples_or_rates_there_is_no_series() -> None:
    rows = [iteration(5.0, 1.0)]
    assert link_series(samples(2, (1, 1)), rows, RATES, size_bytes=8, time_dilation=1.0) is None
    assert link_series(samples(9, (1, 1)), rows, {}, size_bytes=8, time_dilation=1.0) is None
    assert link_series(samples(9, (1, 1)), rows, RATES, size_bytes=99, time_dilation=1.0) is None
