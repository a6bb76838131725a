"""Hierarchical all-to-all (NCCL's PXN) for HB domains of g ranks each, m of them: nothing leaves a domain but along a rail.

A block for rank j of another domain first goes to rank j of its sender's own, which sends what all g ranks have for that
rank in one message: m-1 messages of g S/n in place of n-g of S/n, the same (n-g)/n S in all. Each rank sends (g-1)/g S inside
its domain, of which (g-1)/g (n-g)/n S are on the way elsewhere. Along a rail as in pairwise all-to-all: the next message
when those of the step before have come and gone.
"""

from itertools import pairwise

import numpy as np

from traffic.collectives.domains import equal_domains
from traffic.columns import NONE, ColumnBuilder, Numbers
from traffic.layout import Layout
from traffic.schedule import Schedule


def pxn_all_to_all(layout: Layout) -> Schedule:
    """Without HB domains every rank is one by itself. Raises TrafficError for domains of different sizes.

    Chunk d is for rank d and chunk n + s from rank s; chunk 2n + e g + i is what rank i of a domain has for domain e, at
    the rank that sends it there. Domains whose ranks do not follow each other receive more messages, one for each run.
    """
    domains = equal_domains(layout, "hierarchical")
    (m, g), n = domains.shape, layout.n_ranks
    columns = ColumnBuilder("all_to_all", "hierarchical", n, 3 * n, n_data_chunks=2 * n, n_blocks=3 * n)
    before = np.full((m, g, 2), NONE)
    handed = _hand_over(columns, domains)
    for step in range(1, m):
        to = (np.arange(m) + step) % m
        # A rank's message waits for its domain's blocks for that rank, and for the messages of the step before.
        after = np.concatenate((handed[np.arange(m), to], before), axis=-1)
        for first, end in _runs(domains):
            sent = columns.sends(
                domains,
                domains[to],
                2 * n + (to * g)[:, None] + first,
                dst_chunk=n + domains[:, first, None],
                n_chunks=end - first,
                reduce=False,
                after=after,
            )
        before[to, :, 0] = before[..., 1] = sent
    return columns.build()


def _hand_over(columns: ColumnBuilder, domains: Numbers) -> Numbers:
    """Inside the domains: rank i of domain d gives rank j its blocks for rank j of every domain, j itself included.

    Returns (d, e, j, i) the operations by which rank j of domain d has what its domain's ranks i have for domain e.
    """
    (m, g), n = domains.shape, domains.size
    d, i, j, e = np.ix_(np.arange(m), np.arange(g), np.arange(g), np.arange(m))
    lands = np.where(e == d, n + domains[d, i], 2 * n + e * g + i)
    handed = columns.sends(domains[d, i], domains[d, j], domains[e, j], dst_chunk=lands, reduce=False)
    return handed.transpose(0, 3, 2, 1)


def _runs(domains: Numbers) -> list[tuple[int, int]]:
    """The places first .. end - 1 of every domain whose ranks follow each other, in all domains."""
    starts = np.flatnonzero((np.diff(domains, axis=1, prepend=-2) != 1).any(axis=0))
    return list(pairwise([*starts.tolist(), domains.shape[1]]))
