"""Rotors that turn one after the other, so that the circuits of the others always join all ends (Opera; Mellette et al.,
"Expanding across time to deliver bandwidth efficiency and low latency", NSDI 2020).

A long message waits for its direct circuit, which comes once in a turn of n - 1 slices; a short one takes several hops over
what is up. In slice t one rotor turns to matching t, so that those up are the latest ones; two that follow each other always
join all ends: of a tournament's rounds they make one cycle, and of shifts by s and s + 1 a step by 1 is the difference. So
from three rotors on there is always a way. (The paper draws which rotor has which matchings until that holds.)
"""

from math import lcm

import networkx as nx

from controller.circuits.rotation import rotations
from controller.circuits.slices import DemandMatrix, Matching, Parameters, Slice
from topologies.errors import Refused


def opera(demand: DemandMatrix, parameters: Parameters) -> tuple[Slice, ...]:
    """A cycle, after which each rotor is back where it was. Raises Refused where the others would not join all ends."""
    n, uplinks = len(demand), parameters.uplinks
    every = rotations(n)
    states = [
        tuple(every[(turn - (turn - rotor) % uplinks) % len(every)] for rotor in range(uplinks))
        for turn in range(lcm(uplinks, len(every)))
    ]
    if not all(_joins_all(state, turn % uplinks) for turn, state in enumerate(states)):
        raise Refused(
            f"opera: {uplinks} uplinks do not join {n} ends at all times while one of them turns: use at least 3 uplinks"
        )
    return tuple(Slice(state, parameters.slice_us) for state in states)


def waits_for_circuit(n_bytes: int, parameters: Parameters) -> bool:
    """Whether a message of this size is sent over direct circuits only."""
    return n_bytes >= parameters.cutoff_bytes


def _joins_all(state: tuple[Matching, ...], turning: int) -> bool:
    """Whether every end reaches every other over the rotors that do not turn."""
    up = [matching for rotor, matching in enumerate(state) if rotor != turning]
    graph = nx.DiGraph([(i, j) for matching in up for i, j in enumerate(matching)])
    return len(graph) == len(state[0]) and nx.is_strongly_connected(graph)
