"""Rings that stay on rails between HB domains, as NCCL's channels do: one for every rail, each for its part of the buffer.

A ring of ranks in order leaves every domain of g ranks by one NIC and enters the next by another rail's, through the spines.
Here ring c goes through domain after domain as a snake: it leaves a domain by the rail by which it enters the next one. It
uses rails c - 1 and c (and c + 1 once, where the domains are odd in number), so that over all g rings every NIC carries as much
as every other, 2(m g - 1)/(m g) S/g of an all-reduce over m domains. (NCCL_CROSS_NIC=0 keeps a ring to one NIC of a server;
an accelerator that has a NIC of its own leaves by that, so here a ring has two.)

Without HB domains, or with one, this is the ring.
"""

import numpy as np

from traffic.collectives.domains import equal_domains
from traffic.columns import ColumnBuilder, Numbers
from traffic.layout import Layout
from traffic.rings import pass_around
from traffic.schedule import Schedule

NAME = "rail-ring"


def rail_ring_all_reduce(layout: Layout) -> Schedule:
    """Raises TrafficError, as all of these do, for domains of different sizes."""
    n = layout.n_ranks
    return _rings("all_reduce", layout, steps=2 * (n - 1), reducing=n - 1)


def rail_ring_reduce_scatter(layout: Layout) -> Schedule:
    n = layout.n_ranks
    return _rings("reduce_scatter", layout, steps=n - 1, reducing=n - 1, first_block=-1)


def rail_ring_all_gather(layout: Layout) -> Schedule:
    return _rings("all_gather", layout, steps=layout.n_ranks - 1, reducing=0)


def _rings(collective: str, layout: Layout, *, steps: int, reducing: int, first_block: int = 0) -> Schedule:
    """Of rank r's part of the buffer, g chunks, ring c carries the c-th."""
    domains = equal_domains(layout, NAME)
    orders = rail_rings(domains)
    g = len(orders)
    columns = ColumnBuilder(collective, NAME, layout.n_ranks, layout.n_ranks * g)
    for c, order in enumerate(orders):
        blocks = order[None] * g + c
        pass_around(
            columns, order[None], steps=steps, reducing=reducing, first_block=first_block, blocks=blocks, channel=c
        )
    return columns.build()


def rail_rings(domains: Numbers) -> Numbers:
    """(g, m g) ranks in each ring's order. domains: (m, g) ranks, those of one column a rail."""
    m, g = domains.shape
    if m == 1:
        return domains
    # Ring 0's rails by domain: in and out. One leaves by the rail by which the next is entered.
    doors = [(0, g - 1), (g - 1, 0)] * (m // 2)
    if m % 2:
        # A snake does not close over an odd number of domains unless a third rail turns it round once; with two rails the last
        # of them is crossed.
        doors[-1:] = [(g - 1, g // 2), (g // 2, 0)] if g > 2 else [(g - 1, 0), (0, g - 1)]
    places = np.array([_through(g, *door) for door in doors])
    turned = (places + np.arange(g)[:, None, None]) % g
    ranks: Numbers = domains[np.arange(m)[:, None], turned]
    return ranks.reshape(g, m * g)


def _through(g: int, first: int, last: int) -> list[int]:
    """All places of a domain, in order from its first to its last."""
    if g == 1:
        return [0]
    between = ((first + i) % g for i in range(1, g))
    return [first, *(place for place in between if place != last), last]
