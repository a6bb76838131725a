"""Uniform random: each flow goes to any other rank with the same probability. Receivers are loaded unevenly by chance."""

import random

from traffic.pattern import Demand, Flows


def uniform_random(n_ranks: int, demand: Demand) -> Flows:
    draw = random.Random(f"uniform_random {demand.seed}")
    # Not to oneself: one of the n - 1 steps that lead to another.
    return [
        (src, (src + draw.randrange(1, n_ranks)) % n_ranks)
        for src in range(n_ranks)
        for _ in range(demand.flows_per_host)
    ]
