"""Does a scheduler do what a scheduler must? The same questions for ours and for a user's own file.

It answers in time, with valid slices that outlast their dark time, the same again for the same demand, and with some way
for some of the demand, if there is any. It may refuse a demand or parameters, but not all.
"""

import inspect
from collections.abc import Iterator

import networkx as nx
import numpy as np

from controller.circuits.scheduler import Scheduler, SchedulerError, parse_scheduler, slices_of
from controller.circuits.slices import DemandMatrix, Parameters, Slice, demand_matrix
from topologies import user_code
from topologies.errors import Refused

_PARAMETERS = {
    "one uplink": Parameters(),
    "four uplinks": Parameters(uplinks=4),
    "two uplinks and a packet network": Parameters(uplinks=2, packet_mbps=10_000.0),
}


def check_file(spec: str) -> dict[str, list[str]]:
    """Findings for each scheduler of './mine.py', or for the one named by './mine.py:NAME'; an empty list is a pass."""
    if user_code.is_file(spec):
        return {spec.rpartition(":")[2]: check_scheduler(parse_scheduler(spec, {}))}
    module = user_code.load_module(spec, "scheduler")
    found = {
        name: value
        for name, value in vars(module).items()
        if is_scheduler(value) and value.__module__ == module.__name__
    }
    return {name: check_scheduler(value) for name, value in found.items()}


def is_scheduler(value: object) -> bool:
    """Whether it looks like one: a function whose parameters are demand and parameters."""
    if not inspect.isfunction(value) or value.__name__.startswith("_"):
        return False
    return list(inspect.signature(value).parameters) == ["demand", "parameters"]


def demands() -> dict[str, DemandMatrix]:
    """What schedulers are asked."""
    everyone = np.full((8, 8), 10**6)
    shifted = np.roll(np.eye(8, dtype=np.int64), 3, axis=1)
    one_pair = np.zeros((6, 6))
    one_pair[4, 1] = 10**9
    return {
        "uniform demand": demand_matrix(everyone),
        "a permutation among uniform demand": demand_matrix(everyone + 10**8 * shifted),
        "seven ends": demand_matrix(np.random.default_rng(0).integers(0, 10**8, (7, 7))),
        "one pair": demand_matrix(one_pair),
        "two ends": demand_matrix([[0, 10**7], [10**3, 0]]),
        "no demand": demand_matrix(np.zeros((5, 5))),
    }


def check_scheduler(scheduler: Scheduler) -> list[str]:
    """All findings; none means that it conforms."""
    answered, findings = 0, []
    refusal = ""
    for name, demand in demands().items():
        for setting, parameters in _PARAMETERS.items():
            try:
                slices = slices_of(scheduler, demand, parameters)
                findings += [f"{text}, for {name}, {setting}" for text in _wrong(scheduler, demand, parameters, slices)]
                answered += 1
            except SchedulerError as error:
                findings.append(f"{error}, for {name}, {setting}")
            except Refused as error:
                refusal = str(error)
    if not answered and not findings:
        findings.append(f"refuses everything: {refusal}")
    return findings


def _wrong(
    scheduler: Scheduler, demand: DemandMatrix, parameters: Parameters, slices: tuple[Slice, ...]
) -> Iterator[str]:
    if slices != slices_of(scheduler, demand, parameters):
        yield "two calls with the same demand gave different slices"
    if demand.any() and not any(_joins_some(one, demand) for one in slices):
        yield "no slice joins any two ends that have demand"


def _joins_some(one: Slice, demand: DemandMatrix) -> bool:
    graph = nx.DiGraph(one.circuits)
    return any(demand[i, list(nx.descendants(graph, i))].any() for i in graph)
