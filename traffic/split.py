"""A schedule's messages made smaller, so that more of them are under way at once: over channels, or in slices. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topologies import unknown
from traffic.chunks import Longs, cut
from traffic.contracts import CONTRACTS, terms
from traffic.errors import TrafficError
from traffic.ranges import ranges
from traffic.schedule import Schedule


@dataclass(frozen=True)
class _Pieces:
    """n_new: (m,) operations that each becomes; owner: (sum of n_new,) the old one of each; columns: what changes."""

    n_new: Longs
    owner: Longs
    columns: Mapping[str, NDArray[np.integer]]


@dataclass(frozen=True)
class _Waits:
    """New operation user[i] waits for the pieces low[i] .. high[i] - 1 of the old operation dep[i]."""

    user: Longs
    dep: Longs
    low: Longs
    high: Longs


def with_channels(schedule: Schedule, k: int) -> Schedule:
    """The buffer in k pieces, each over channels of its own, as NCCL's channels do: channel c becomes k c .. k c + k - 1.

    Where a buffer consists of the ranks' parts, each of those is divided, and a run of chunks in several parts becomes a send
    for each. What computes is not divided. Raises TrafficError for k below 1 and for traffic patterns, whose flows are apart.
    """
    _require(schedule, k, "channels")
    # Units of chunks stay together: each is cut into k pieces, which have as many chunks as it had.
    m, unit = len(schedule), _unit(schedule)
    first, n_chunks = schedule.first_chunk.astype(np.int64), schedule.n_chunks_sent.astype(np.int64)
    n_units = np.maximum(1, (first + n_chunks - 1) // unit - first // unit + 1)
    n_channels = np.where(n_chunks > 0, k, 1)
    n_new = n_units * n_channels
    owner, place = np.repeat(np.arange(m), n_new), ranges(np.zeros(m, dtype=np.int64), n_new)
    channel, of_run = np.divmod(place, n_units[owner])
    start = np.where(of_run == 0, first[owner], (first[owner] // unit + of_run) * unit)
    end = np.where(of_run == n_units[owner] - 1, (first + n_chunks)[owner], (first[owner] // unit + of_run + 1) * unit)
    lands = start + schedule.dst_chunk[owner] - first[owner]
    columns = {
        "channel": np.where(schedule.is_local[owner], 0, schedule.channel[owner] * k + channel),
        "first_chunk": start // unit * unit * k + channel * unit + start % unit,
        "dst_chunk": lands // unit * unit * k + channel * unit + lands % unit,
        "n_chunks_sent": end - start,
    }
    user, dep = _waits(schedule, owner)
    # What has chunks waits for its own channel's pieces; of sends for the last one, which comes last.
    apart = (n_chunks[owner[user]] > 0) & (n_chunks[dep] > 0)
    low: Longs = np.where(apart, channel[user] * n_units[dep], 0)
    high: Longs = np.where(apart, low + n_units[dep], n_new[dep])
    low = np.where(apart & ~schedule.is_local[dep], high - 1, low)
    sizes = _channel_sizes(schedule, unit, k)
    return _replaced(schedule, k, sizes, _Pieces(n_new, owner, columns), _Waits(user, dep, low, high))


def with_slices(schedule: Schedule, k: int) -> Schedule:
    """Every chunk in k, every message in k slices that wait for those slices only that they touch: a step begins before the
    whole chunk has come. What computes is not divided. Raises TrafficError for k below 1 and for traffic patterns."""
    _require(schedule, k, "slices")
    m = len(schedule)
    first, lands, n_chunks = (
        c.astype(np.int64) for c in (schedule.first_chunk, schedule.dst_chunk, schedule.n_chunks_sent)
    )
    n_new = np.where(n_chunks > 0, k, 1)
    owner, place = np.repeat(np.arange(m), n_new), ranges(np.zeros(m, dtype=np.int64), n_new)
    columns = {
        "first_chunk": first[owner] * k + place * n_chunks[owner],
        "dst_chunk": lands[owner] * k + place * n_chunks[owner],
        "n_chunks_sent": n_chunks[owner],
    }
    user, dep = _waits(schedule, owner)
    low: Longs = np.full(len(user), k)
    high: Longs = np.zeros(len(user), dtype=np.int64)
    # The slices of dep that land where the user reads, or, within a rank, writes.
    length = np.maximum(1, n_chunks[dep])
    for touched, counts in (("first_chunk", True), ("dst_chunk", schedule.is_local[owner[user]])):
        at = columns[touched][user] - lands[dep] * k
        meets = counts & (at < k * n_chunks[dep]) & (at + n_chunks[owner[user]] > 0) & (n_chunks[owner[user]] > 0)
        low = np.where(meets, np.minimum(low, np.maximum(0, at // length)), low)
        high = np.where(meets, np.maximum(high, np.minimum(k, -((-at - n_chunks[owner[user]]) // length))), high)
    none = high <= low
    low, high = np.where(none, 0, low), np.where(none, n_new[dep], high)
    low = np.where(schedule.is_local[dep], low, high - 1)
    return _replaced(
        schedule, k, _slice_sizes(schedule, k), _Pieces(n_new, owner, columns), _Waits(user, dep, low, high)
    )


def _require(schedule: Schedule, k: int, what: str) -> None:
    if k < 1:
        raise TrafficError(f"{k} {what}: use 1 or more")
    for part in schedule.parts:
        if part.collective not in CONTRACTS:
            raise TrafficError(unknown("collective", part.collective, CONTRACTS))


def _unit(schedule: Schedule) -> int:
    """Chunks that no boundary divides: of blocks, of collectives and their parts, of what moves within buffers."""
    sizes = [schedule.n_chunks, *np.unique(np.abs(schedule.first_chunk - schedule.dst_chunk)).tolist()]
    if schedule.chunk_elements is None:
        sizes.append(schedule.n_chunks // schedule.n_blocks)
    for t in terms(schedule):
        parts = t.shape.n if t.contract.in_parts else 1
        sizes += [t.part.first_chunk, t.shape.region // parts]
    return max(1, math.gcd(*sizes))


def _channel_sizes(schedule: Schedule, unit: int, k: int) -> Mapping[str, Any]:
    if schedule.chunk_elements is not None:
        sizes = np.asarray(schedule.chunk_elements)
        pieces = cut(sizes, k).reshape(*sizes.shape[:-1], -1, unit, k)
        return {"chunk_elements": pieces.swapaxes(-1, -2).reshape(*sizes.shape[:-1], -1)}
    block = schedule.n_chunks // schedule.n_blocks
    cuts = schedule.cuts or (block,)
    for i in range(len(cuts) + 1):
        if math.prod(cuts[:i]) * unit == block:
            return {"cuts": (*cuts[:i], k, *cuts[i:])}
    return {"cuts": (block // unit, k, unit)}


def _slice_sizes(schedule: Schedule, k: int) -> Mapping[str, Any]:
    if schedule.chunk_elements is not None:
        return {"chunk_elements": cut(np.asarray(schedule.chunk_elements), k)}
    return {"cuts": (*(schedule.cuts or (schedule.n_chunks // schedule.n_blocks,)), k)}


def _waits(schedule: Schedule, owner: Longs) -> tuple[Longs, Longs]:
    """For each new operation and each that its owner waits for: the first's number, and the second's old one."""
    n_deps = np.diff(schedule.dep_start)[owner]
    deps = schedule.deps[ranges(schedule.dep_start[:-1][owner], n_deps)].astype(np.int64)
    return np.repeat(np.arange(len(owner)), n_deps), deps


def _replaced(schedule: Schedule, k: int, sizes: Mapping[str, Any], pieces: _Pieces, waits: _Waits) -> Schedule:
    first_of = np.cumsum(pieces.n_new) - pieces.n_new
    n_deps = np.bincount(waits.user, waits.high - waits.low, len(pieces.owner)).astype(np.int64)
    columns = {name: getattr(schedule, name)[pieces.owner] for name in ("src", "dst", "channel")} | dict(pieces.columns)
    changed: dict[str, Any] = {name: column.astype(np.int32) for name, column in columns.items()}
    return replace(
        schedule,
        **changed,
        **sizes,
        n_chunks=schedule.n_chunks * k,
        n_data_chunks=schedule.n_data_chunks * k,
        reduce=schedule.reduce[pieces.owner],
        calc_ns=schedule.calc_ns[pieces.owner],
        dep_start=np.concatenate(([0], np.cumsum(n_deps))),
        deps=ranges(first_of[waits.dep] + waits.low, waits.high - waits.low).astype(np.int32),
        composed_of=tuple(
            replace(part, first_chunk=part.first_chunk * k, n_chunks=part.n_chunks * k) for part in schedule.composed_of
        ),
    )
