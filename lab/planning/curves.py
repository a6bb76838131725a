"""What a collective should take on the hardware itself, over any sizes.

The forecast is that of a run, on a fabric scaled so that the emulator's own latency is nothing beside the hardware's times:
rates are divided and sizes are not. So it knows bytes, headers, store-and-forward, shared links and the links' delays, and
nothing of the latency of anybody's software.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lab.planning.experiment import Experiment
from lab.planning.forecast import Forecast, forecast_of
from lab.planning.plan import Plan, plan
from lab.planning.scale import Scale
from topologies import Refused

# As emulated: far below what links are shaped to at most, so that scale-up links may be faster still.
_NIC_MBPS = 100.0


def curve(experiment: Experiment, sizes: Sequence[int], *, points: int = 8) -> tuple[Plan, NDArray[np.float64]]:
    """The plan, and (sizes,) hardware seconds, nan where too little would be sent. sizes: hardware bytes, ascending;
    points: at how many of them to predict, straight lines between, as times are over whole frames. Refuses what cannot be
    planned, and what nobody can predict."""
    whole = replace(experiment, min_bytes=sizes[-1], max_bytes=sizes[-1], scale=None)
    planned = plan(whole)
    scale = Scale(max(planned.nic_mbps / _NIC_MBPS, 1.0), 1.0)
    expected = forecast_of(planned, scale)
    if expected.unknown:
        raise Refused(f"no prediction: {expected.unknown}")
    chosen = np.unique(np.round(np.linspace(0, len(sizes) - 1, points)).astype(int))
    found = np.array([_seconds(expected, scale, sizes[i]) for i in chosen])
    known = np.array([sizes[i] for i in chosen], dtype=float)[~np.isnan(found)]
    if not len(known):
        return planned, np.full(len(sizes), np.nan)
    asked = np.array(sizes, dtype=float)
    between = np.interp(asked, known, found[~np.isnan(found)])
    return planned, np.where(asked < known[0], np.nan, between)


def _seconds(expected: Forecast, scale: Scale, size_bytes: int) -> float:
    one = replace(expected.plan.experiment, min_bytes=size_bytes, max_bytes=size_bytes)
    try:
        (size,) = replace(expected.plan, experiment=one).sizes(scale)
    except Refused:
        return float("nan")
    found = expected.prediction(size, scale)
    return scale.hardware_s(found.seconds) if found else float("nan")
