"""All figures of a run, one line per size, from the tables that it writes.

results: results.csv's columns; iterations: iterations.parquet's; links: links.parquet's. A figure that these do not give is
NaN. Rows whose verdict is invalid have times and no figures: no network made them.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pandas as pd

from lab.kpis.losses import drop_ppm, ecn_marking_percent, rate_per_s
from lab.kpis.ports import deepest, packets_sent_by, queue_depths, s_fabric
from lab.kpis.times import busbw_efficiency_percent, busbw_gbit_s, iteration_stats, overlap_fraction, percentile

# Column -> what the report calls it and its unit.
TITLES: dict[str, str] = {
    "size_bytes": "S (B)", "verdict": "verdict", "n": "iterations", "jct_mean_s": "JCT mean (s)", "jct_p50_s": "P50 (s)",
    "jct_p95_s": "P95 (s)", "jct_p99_s": "P99 (s)", "cv_percent": "CV (%)", "jct_ratio": "JCT Ratio",
    "busbw_gbit_s": "BusBW mean (Gbit/s)", "busbw_p50_gbit_s": "P50 (Gbit/s)", "busbw_p95_gbit_s": "P95 (Gbit/s)",
    "busbw_p99_gbit_s": "P99 (Gbit/s)", "busbw_gbytes_s": "BusBW (GB/s)", "busbw_efficiency_percent": "BusBW efficiency (%)",
    "mmr": "MMR", "jfi": "JFI", "s_fabric": "S_fabric (B)", "intra_server": "intra-server (B)",
    "packet_drop_ppm": "packet drop rate (ppm)",
    "fabric_drop_ppm": "frames dropped in the fabric (ppm)", "retransmissions_per_s": "retransmissions (1/s, emulated)",
    "out_of_order_per_s": "out of order (1/s, emulated)", "ecn_marking_percent": "ECN marking (%)",
    "queue_p95_bytes": "deepest queue, P95 (B)", "queue_max_bytes": "max (B)", "overlap_fraction": "overlap fraction",
}  # fmt: skip


def summary(
    results: "pd.DataFrame", iterations: "pd.DataFrame", links: "pd.DataFrame", *, hosts: Sequence[str], nic_gbit: float
) -> "pd.DataFrame":
    """Columns as in TITLES. hosts: the ranks' names; nic_gbit: an accelerator's line rate. Bytes are the hardware's."""
    spans = _spans(iterations, results["size_bytes"])
    lines = []
    for row in results.to_dict("records"):
        of_size = iterations[iterations["size_bytes"] == row["size_bytes"]]
        seen = links[links["at_s"].between(*spans[row["size_bytes"]])] if row["size_bytes"] in spans else links.iloc[:0]
        lines.append(_line({str(k): v for k, v in row.items()}, of_size, seen, hosts, nic_gbit))
    return pd.DataFrame(lines, columns=list(TITLES))


def _line(
    row: Mapping[str, Any],
    iterations: "pd.DataFrame",
    links: "pd.DataFrame",
    hosts: Sequence[str],
    nic_gbit: float,
) -> dict[str, Any]:
    times = iterations.loc[~iterations["in_place"], "time_s"].tolist()
    stats = iteration_stats(times)
    line: dict[str, Any] = dict.fromkeys(TITLES, math.nan) | {
        "size_bytes": int(row["size_bytes"]), "verdict": row["verdict"], "n": len(times), "jct_mean_s": stats.mean,
        "jct_p50_s": stats.p50, "jct_p95_s": stats.p95, "jct_p99_s": stats.p99, "cv_percent": 100 * stats.cv,
    }  # fmt: skip
    if row["verdict"] == "invalid":
        return line
    return line | _bandwidths(row, times, nic_gbit) | _counted(row, iterations, links, hosts)


def _bandwidths(row: Mapping[str, Any], times: Sequence[float], nic_gbit: float) -> dict[str, float]:
    """algo_factor is the ratio of the row's own bandwidths; a training step has none."""
    sent = float(row["emulated_bytes"]) * float(row["size_scale"])
    factor = float(row["busbw_gbytes_s"]) / float(row["algbw_gbytes_s"])
    each = [busbw_gbit_s(sent, factor, t) for t in times] if not math.isnan(factor) else []
    mean = 8 * float(row["busbw_gbytes_s"])
    return {
        "jct_ratio": float(row["jct_ratio"]),
        "busbw_gbytes_s": float(row["busbw_gbytes_s"]),
        "busbw_gbit_s": mean,
        **{f"busbw_p{p}_gbit_s": percentile(each, p) for p in (50, 95, 99)},
        "busbw_efficiency_percent": busbw_efficiency_percent(mean, nic_gbit),
        "mmr": float(row["mmr"]),
        "jfi": float(row["jfi"]),
        "overlap_fraction": overlap_fraction(*(float(row[k]) for k in ("time_s", "calc_s", "communication_s"))),
    }


def _counted(
    row: Mapping[str, Any], iterations: "pd.DataFrame", links: "pd.DataFrame", hosts: Sequence[str]
) -> dict[str, float]:
    """Counters cover both halves of the table, and so do the seconds here."""
    seconds, scale = float(iterations["emulated_s"].sum()), float(row["size_scale"])
    crossed, queue, packets = (
        s_fabric(links, hosts, len(iterations)),
        deepest(queue_depths(links)),
        packets_sent_by(links, hosts),
    )
    return {
        "s_fabric": crossed.s_fabric * scale,
        "intra_server": crossed.intra_server * scale,
        "packet_drop_ppm": 1e6 * (1 - float(row["delivered"])),
        "fabric_drop_ppm": math.nan if math.isnan(packets) else drop_ppm(int(row["dropped_fabric"]), int(packets)),
        "retransmissions_per_s": rate_per_s(int(row["retransmits"]), seconds),
        "out_of_order_per_s": rate_per_s(int(row["out_of_order"]), seconds)
        if row["transport"] == "rocev2"
        else math.nan,
        "ecn_marking_percent": ecn_marking_percent(int(row["ecn_marked"]), int(row["ecn_seen"])),
        "queue_p95_bytes": queue.p95_bytes,
        "queue_max_bytes": queue.max_bytes,
    }


def _spans(iterations: "pd.DataFrame", sizes: "pd.Series[int]") -> dict[int, tuple[float, float]]:
    """Size -> when its counters were read: the border between two sizes lies in the middle of what is between them, where
    nothing was sampled or nothing moved."""
    began = iterations.groupby("size_bytes")["started_s"].min()
    ended = (iterations["started_s"] + iterations["emulated_s"]).groupby(iterations["size_bytes"]).max()
    order = [int(size) for size in sizes if size in began.index]
    borders = [-math.inf, *((ended[a] + began[b]) / 2 for a, b in pairwise(order)), math.inf]
    return {size: (borders[i], borders[i + 1]) for i, size in enumerate(order)}
