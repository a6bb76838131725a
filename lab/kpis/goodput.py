"""Payload rates of hosts and flows."""

import math
from dataclasses import dataclass

import numpy as np

from lab.kpis.arrays import Floats, Ints


@dataclass(frozen=True)
class Goodput:
    """Payload rates, hardware units. sender_mean, sender_worst: shares of their rate that sending interfaces reached, each
    until its last byte had arrived; flow_*: of single flows; all_mbps: of all together, until the last one was done;
    sustained: mean share of the senders' NICs that arrived while all of them were sending, the accepted load of the network
    literature; nan where that was too short to be seen."""

    sender_mean: float
    sender_worst: float
    flow_mean_mbps: float
    flow_min_mbps: float
    flow_max_mbps: float
    all_mbps: float
    sustained: float = math.nan


def sender_shares(egress: Ints, n_bytes: Floats, finished_s: Floats, mbps: Floats) -> Floats:
    """(senders,) of each interface that sends: a host's NIC, or its scale-up interface. egress: (sends,) interfaces; n_bytes,
    finished_s: (sends,); mbps: (interfaces,)."""
    n = len(mbps)
    sent, ended_s = np.bincount(egress, n_bytes, n), np.zeros(n)
    np.maximum.at(ended_s, egress, finished_s)
    sends = sent > 0
    shares: Floats = sent[sends] * 8 / ended_s[sends] / (mbps[sends] * 1e6)
    return shares


def goodput(egress: Ints, n_bytes: Floats, finished_s: Floats, mbps: Floats) -> Goodput:
    """Over iterations of flows that begin together: finished_s (iterations, flows); the others as in `sender_shares`."""
    shares = np.concatenate([sender_shares(egress, n_bytes, ended_s, mbps) for ended_s in finished_s])
    flow_mbps = n_bytes * 8e-6 / finished_s
    return Goodput(
        sender_mean=float(shares.mean()),
        sender_worst=float(shares.min()),
        flow_mean_mbps=float(flow_mbps.mean()),
        flow_min_mbps=float(flow_mbps.min()),
        flow_max_mbps=float(flow_mbps.max()),
        all_mbps=float(n_bytes.sum() * 8e-6 / finished_s.max(axis=1).mean()),
    )


def first_done_s(src: Ints, finished_s: Floats) -> float:
    """When the first of the senders had all its bytes delivered. src, finished_s: (sends,)."""
    ended_s = np.zeros(int(src.max()) + 1)
    np.maximum.at(ended_s, src, finished_s)
    return float(ended_s[np.unique(src)].min())
