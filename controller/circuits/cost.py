"""Whether other circuits are worth the time in which they are dark."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from controller.circuits.slices import DemandMatrix, Matching, Parameters

_Counts = npt.NDArray[np.int64]


def worth_changing(
    demand: DemandMatrix, present: Sequence[Matching], wanted: Sequence[Matching], parameters: Parameters
) -> bool:
    """Whether the demand would be through earlier with the wanted circuits, their dark time counted; or, where some of it
    has no way with either, whether more of it would be through by the end of a slice."""
    before = drain_us(demand, present, present, parameters)
    after = drain_us(demand, present, wanted, parameters)
    if math.isinf(before) and math.isinf(after):
        carried = [carried_bytes(demand, present, circuits, parameters) for circuits in (present, wanted)]
        return carried[1] > carried[0]
    return after < before


def break_even_bytes(dark_us: float, share_mbps: float, circuit_mbps: float) -> float:
    """The size of a flow that takes as long with its present share of a link as on a circuit of its own that has to be set
    first: dark / (8 / share - 8 / circuit); with half of the rate as its share, dark x rate / 8."""
    return dark_us / (8 / share_mbps - 8 / circuit_mbps) if share_mbps < circuit_mbps else math.inf


def drain_us(
    demand: DemandMatrix, present: Sequence[Matching], wanted: Sequence[Matching], parameters: Parameters
) -> float:
    """Until all is through, when the present circuits are changed to the wanted ones now. A pair that has a circuit waits for
    it; all others share the packet network; infinity where there is none."""
    kept, new = _counts(present, wanted, len(demand), parameters)
    on_circuits = kept + new > 0
    by_kept = kept * parameters.rate_mbps * parameters.dark_us / 8
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = demand * 8 / (kept * parameters.rate_mbps)
        together = demand * 8 / ((kept + new) * parameters.rate_mbps) + parameters.dark_us * new / (kept + new)
    times = np.where(demand <= by_kept, alone, together)
    circuits_us = float(times[on_circuits & (demand > 0)].max(initial=0.0))
    rest = np.where(on_circuits, 0, demand)
    most = int(max(rest.sum(axis=0).max(), rest.sum(axis=1).max()))
    if most and not parameters.packet_mbps:
        return math.inf
    return max(circuits_us, most * 8 / parameters.packet_mbps if most else 0.0)


def carried_bytes(
    demand: DemandMatrix, present: Sequence[Matching], wanted: Sequence[Matching], parameters: Parameters
) -> int:
    """What circuits carry in the slice that begins with the change."""
    kept, new = _counts(present, wanted, len(demand), parameters)
    light_us = kept * parameters.slice_us + new * parameters.day_us
    return int(np.minimum(demand, light_us * parameters.rate_mbps / 8).sum())


def _counts(
    present: Sequence[Matching], wanted: Sequence[Matching], n: int, parameters: Parameters
) -> tuple[_Counts, _Counts]:
    """[source, target]: how many of the wanted circuits are there already, and how many have to be set."""
    kept, new = np.zeros((n, n), np.int64), np.zeros((n, n), np.int64)
    for uplink in range(parameters.uplinks):
        before, after = present[uplink % len(present)], wanted[uplink % len(wanted)]
        for i, (old, peer) in enumerate(zip(before, after, strict=True)):
            if peer is not None:
                (kept if peer == old else new)[i, peer] += 1
    return kept, new
