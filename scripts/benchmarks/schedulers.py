"""How long circuit schedulers compute on a demand matrix of 128 x 128."""

import time

import numpy as np

from benchmarks.figure import Figure, Target, figure
from controller.circuits.schedulers import SCHEDULERS, slices_of
from controller.circuits.slices import Parameters, demand_matrix

_N = 128
_TARGETS_S = {"hungarian": 0.05, "solstice": 2.0, "birkhoff-von-neumann": 5.0}


def schedulers(*, quick: bool) -> list[Figure]:
    """CPU seconds, so that what else the machine does counts little. The hardest demand: no entry is 0, no two are related,
    and no packet network takes what is left."""
    n = 32 if quick else _N
    demand = demand_matrix(np.random.default_rng(0).integers(1, 10**9, (n, n)))
    figures = []
    for name, target_s in _TARGETS_S.items():
        begun = time.process_time()
        slices = slices_of(SCHEDULERS[name], demand, Parameters(uplinks=4))
        took_s = time.process_time() - begun
        figures.append(figure(name, took_s, "s", Target("ours", high=target_s), note=f"{n} ends, {len(slices)} slices"))
    return figures
