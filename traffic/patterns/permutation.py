"""Permutation: every rank sends to one other and receives from one other, at random. Any full-bisection fabric can carry it
at the NICs' rate; what it reaches shows how well routing spreads flows."""

import random

from traffic.pattern import Demand, Flows, each


def permutation(n_ranks: int, demand: Demand) -> Flows:
    """All permutations that leave no rank in its place are equally likely: shuffled until there is none, e times on average."""
    draw = random.Random(f"permutation {demand.seed}")
    destination = list(range(n_ranks))
    while any(src == dst for src, dst in enumerate(destination)):
        draw.shuffle(destination)
    return each(enumerate(destination), demand.flows_per_host)
