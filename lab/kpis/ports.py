"""Figures from port counters, as a run writes them (links.parquet): one line per sample and egress interface.

Columns: at_s, link ('h1->leaf1'), kind, bytes_sent (cumulative); packets_sent, queue_bytes where they were sampled, null where
they were not seen.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

import pandas as pd

from lab.kpis.times import percentile

SCALE_UP = "scale-up"


@dataclass(frozen=True)
class FabricBytes:
    """Mean over participants of the bytes that they sent: across the NIC's Ethernet boundary, and apart from it inside their
    server. Headers and repetitions are in it."""

    s_fabric: float
    intra_server: float


def sent_by_link(links: "pd.DataFrame", counter: str = "bytes_sent") -> "pd.Series[float]":
    """Link -> how far its counter moved over the samples. Empty where it was not sampled."""
    if counter not in links or links[counter].isna().all():
        return pd.Series(dtype=float)
    of_link = links.dropna(subset=[counter]).groupby("link", sort=False)[counter]
    moved: pd.Series[float] = (of_link.max() - of_link.min()).astype(float)
    return moved


def s_fabric(links: "pd.DataFrame", hosts: Collection[str], iterations: int) -> FabricBytes:
    """Per participant and iteration. hosts: the participants; iterations: that the samples cover."""
    outside, inside = (sent_by_link(links[(links["kind"] == SCALE_UP) == is_inside]) for is_inside in (False, True))
    each = len(hosts) * iterations
    return FabricBytes(*(_by_hosts(sent, hosts) / each if each else math.nan for sent in (outside, inside)))


def _by_hosts(sent: "pd.Series[float]", hosts: Collection[str]) -> float:
    ends = sent.index.to_series().str.partition("->")[0] if len(sent) else pd.Series(dtype=str)
    return float(sent[ends.isin(list(hosts)).to_numpy()].sum()) if len(sent) else 0.0


def packets_sent_by(links: "pd.DataFrame", hosts: Collection[str]) -> float:
    """By the hosts' own interfaces; NaN where packets were not sampled."""
    sent = sent_by_link(links, "packets_sent")
    return _by_hosts(sent, hosts) if len(sent) else math.nan


@dataclass(frozen=True)
class QueueDepth:
    """Of the port whose queue was the deepest, bytes."""

    link: str
    p95_bytes: float
    max_bytes: float


def queue_depths(links: "pd.DataFrame") -> "pd.DataFrame":
    """Columns link, p95_bytes, max_bytes: egress occupancy of each port over its samples; no lines where none were taken.
    What a queue held between two samples is not in it."""
    if "queue_bytes" not in links:
        return pd.DataFrame(columns=["link", "p95_bytes", "max_bytes"])
    seen = links.dropna(subset=["queue_bytes"])
    rows = [
        (link, percentile(depths.tolist(), 95), float(depths.max()))
        for link, depths in seen.groupby("link", sort=False)["queue_bytes"]
    ]
    return pd.DataFrame(rows, columns=["link", "p95_bytes", "max_bytes"])


def deepest(depths: "pd.DataFrame") -> QueueDepth:
    """NaN and '' where no queue was sampled."""
    if depths.empty:
        return QueueDepth("", math.nan, math.nan)
    worst = depths.loc[depths["max_bytes"].idxmax()]
    return QueueDepth(str(worst["link"]), float(worst["p95_bytes"]), float(worst["max_bytes"]))
