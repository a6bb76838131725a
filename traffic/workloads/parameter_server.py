"""Asynchronous training with a parameter server: stale synchronous parallel (Ho et al. 2013, NeurIPS 26).

A worker may be at most `staleness` iterations ahead of the slowest: it gets the parameters for iteration c + 1 once every
worker's update of iteration c - staleness has reached all servers. 0 is synchronous; a staleness of the number of
iterations or more never waits. The servers are ranks 0 to servers - 1 and share the parameters equally.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traffic.errors import TrafficError
from traffic.workloads.plan import CALC, Phase, Plan, PlanBuilder
from traffic.workloads.timing import Times

PUSH, PULL = "push", "pull"


@dataclass(frozen=True)
class ServerJob:
    """parameters are pushed as gradients and pulled as parameters, element_bytes each; flops: of one worker's iteration."""

    workers: int
    parameters: int
    flops: float
    servers: int = 1
    iterations: int = 1
    staleness: int = 0
    element_bytes: int = 4

    def __post_init__(self) -> None:
        for name in ("workers", "parameters", "servers", "iterations", "element_bytes"):
            if getattr(self, name) < 1:
                raise TrafficError(f"{name}={getattr(self, name)} is too small: a parameter server needs 1 or more")
        if self.staleness < 0:
            raise TrafficError(f"staleness={self.staleness}: use 0 (synchronous) or more")

    @property
    def n_ranks(self) -> int:
        return self.servers + self.workers


def server_plan(job: ServerJob) -> Plan:
    """Every worker's iterations; which worker's update comes first is decided by the times, not by the plan."""
    builder = PlanBuilder(job.n_ranks)
    share = -(-job.parameters // job.servers) * job.element_bytes
    servers = np.arange(job.servers, dtype=np.int32)
    pushed: list[list[int]] = []
    pulled: list[tuple[int, ...]] = [()] * job.workers
    for clock in range(job.iterations):
        calcs = [_calc(builder, job, worker, clock, pulled[worker]) for worker in range(job.workers)]
        pushed.append(
            [_transfer(builder, PUSH, servers, job.servers + w, clock, share, (calcs[w],)) for w in range(job.workers)]
        )
        slowest = tuple(pushed[clock - job.staleness]) if clock >= job.staleness else ()
        for worker in range(job.workers):
            after = (pushed[clock][worker], *slowest)
            pulled[worker] = (_transfer(builder, PULL, servers, job.servers + worker, clock, share, after),)
    return builder.build()


def observed_staleness(job: ServerJob, plan: Plan, times: Times) -> int:
    """How many updates of another worker a worker lacked at most, against its own, when it got its parameters: never more
    than the bound."""
    transfers: Sequence[list[float]] = ([], [])
    for number, phase in enumerate(plan.phases):
        if phase.axis in (PUSH, PULL):
            rows = times.phase == number
            pushed = phase.axis == PUSH
            transfers[not pushed].append(float(times.end_s[rows].max() if pushed else times.start_s[rows].min()))
    arrived, asked = (np.array(x).reshape(job.iterations, job.workers) for x in transfers)
    lacking = 0
    for clock in range(job.iterations):
        for worker in range(job.workers):
            there = (arrived <= asked[clock, worker]).sum(axis=0)
            lacking = max(lacking, clock + 1 - int(there.min()))
    return lacking


def _calc(builder: PlanBuilder, job: ServerJob, worker: int, clock: int, after: tuple[int, ...]) -> int:
    ranks = np.array([[job.servers + worker]], dtype=np.int32)
    return builder.add(Phase(f"worker {worker} iteration {clock}", CALC, "", ranks, flops=job.flops, after=after))


def _transfer(
    builder: PlanBuilder,
    direction: str,
    servers: NDArray[np.int32],
    worker_rank: int,
    clock: int,
    n_bytes: int,
    after: tuple[int, ...],
) -> int:
    workers = np.full_like(servers, worker_rank)
    pairs = np.stack([workers, servers] if direction == PUSH else [servers, workers], axis=1)
    name = f"{direction} of iteration {clock}"
    return builder.add(Phase(name, "sendrecv", direction, pairs, n_bytes=n_bytes, after=after))
