"""Incast: every other rank sends to rank 0, whose link carries what all of them send."""

from traffic.pattern import Demand, Flows, each

RECEIVER = 0


def incast(n_ranks: int, demand: Demand) -> Flows:
    return each(((src, RECEIVER) for src in range(n_ranks) if src != RECEIVER), demand.flows_per_host)
