"""From the controller's history and the links' counters to what circuits did during a row. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from controller.circuits.plan import Plan
from controller.circuits.routing import Circuits
from lab.planning.circuits import Optical
from lab.rows import CircuitRecord, CircuitTotal, LinkSamples


def from_history(
    history: Sequence[Mapping[str, Any]], optical: Optical, seen: LinkSamples, *, size_bytes: int, origin_s: float
) -> list[CircuitRecord]:
    """Those that were up while the counters were read, by when they came up. history: as GET /circuits/history has it; origin_s:
    the run's start on its clock."""
    start_s, end_s = float(seen.at_s[0]), float(seen.at_s[-1])
    found = []
    for light in history:
        up_s = light["up_s"] - origin_s
        down_s = end_s if light["down_s"] is None else light["down_s"] - origin_s
        if up_s < end_s and down_s > start_s:
            times = (max(up_s, start_s), min(down_s, end_s))
            found.append(
                _record(
                    optical,
                    seen,
                    (light["ocs"], light["source"], light["target"]),
                    times,
                    size_bytes=size_bytes,
                    dark_us=(light["requested_us"], light["achieved_us"]),
                    met=light["met"],
                )
            )
    return sorted(found, key=lambda one: (one.up_s, one.ocs, one.source))


def all_along(circuits: Circuits, optical: Optical, seen: LinkSamples, *, size_bytes: int) -> list[CircuitRecord]:
    """Of circuits that stay: up for as long as counters were read."""
    times = (float(seen.at_s[0]), float(seen.at_s[-1]))
    return [
        _record(
            optical,
            seen,
            (ocs, source, target),
            times,
            size_bytes=size_bytes,
            dark_us=(math.nan, math.nan),
            met=True,
        )
        for ocs, its in sorted(circuits.items())
        for source, target in sorted(its.items())
    ]


def _record(
    optical: Optical,
    seen: LinkSamples,
    cross_connect: tuple[str, int, int],
    times: tuple[float, float],
    *,
    size_bytes: int,
    dark_us: tuple[float, float],
    met: bool,
) -> CircuitRecord:
    ocs, source, target = cross_connect
    return CircuitRecord(
        size_bytes=size_bytes,
        ocs=ocs,
        source=optical.cable_at(ocs, source),
        target=optical.cable_at(ocs, target),
        up_s=times[0],
        down_s=times[1],
        requested_dark_us=dark_us[0],
        achieved_dark_us=dark_us[1],
        met=met,
        bytes_sent=_sent(seen, optical.egress(ocs, target), times),
    )


def _sent(seen: LinkSamples, intf: str, times: tuple[float, float]) -> int:
    if intf not in seen.intfs:
        return 0
    counted = seen.bytes_sent[:, seen.intfs.index(intf)]
    before, after = np.interp(times, seen.at_s, counted)
    return round(float(after - before))


def total(
    records: Sequence[CircuitRecord],
    optical: Optical,
    plan: Plan | None,
    seen: LinkSamples,
    *,
    size_bytes: int,
    late_us: float,
    error: str | None,
    complete: bool = True,
) -> CircuitTotal:
    """plan: emulated; None where nothing changes."""
    changed = [one for one in records if not math.isnan(one.achieved_dark_us)]
    counted = dict(zip(seen.intfs, (seen.bytes_sent[-1] - seen.bytes_sent[0]).tolist(), strict=True))
    into, out = (sum(counted.get(intf, 0) for intf in intfs) for intfs in optical.circuit_intfs)
    return CircuitTotal(
        size_bytes=size_bytes,
        set_up=len(changed),
        unmet=sum(not one.met for one in changed),
        requested_dark_us=max((one.requested_dark_us for one in changed), default=0.0),
        worst_dark_us=max((one.achieved_dark_us for one in changed), default=0.0),
        planned_duty_cycle=1.0 if plan is None else plan.duty_cycle(_asked_us(changed)),
        duty_cycle=_duty_cycle(records),
        shortest_slice_us=0.0 if plan is None else min(one.length_us for one in plan.slices),
        late_us=late_us,
        bytes_by_circuits=out,
        bytes_by_packets=sum(counted.get(intf, 0) for intf in optical.packet_intfs),
        bytes_lost=max(into - out, 0),
        error=error,
        complete=complete,
    )


def _asked_us(changed: Sequence[CircuitRecord]) -> float:
    """What was asked for, on average."""
    return float(np.mean([one.requested_dark_us for one in changed])) if changed else 0.0


def _duty_cycle(records: Sequence[CircuitRecord]) -> float:
    """Light over light and the dark before it."""
    light_s = sum(one.down_s - one.up_s for one in records)
    dark_s = sum(one.achieved_dark_us / 1e6 for one in records if not math.isnan(one.achieved_dark_us))
    return light_s / (light_s + dark_s) if light_s + dark_s else math.nan
