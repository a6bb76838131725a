"""What the replay engine costs: many small messages over loopback, where no switch and no rate is in the way."""

import resource
import statistics
import time

import numpy as np

from benchmarks.figure import Figure, Target, figure
from traffic import schedule
from traffic.check import verify
from traffic.replay import Replay
from traffic.transport import Endpoint
from traffic.transports.tcp import TcpTransport
from traffic.values import fill, wrong

_RANKS, _MESSAGE_BYTES = 64, 1000
_MOST = Target("ours", high=50)
_SCHEDULE = Target("ours", high=5)


def engine(*, quick: bool) -> list[Figure]:
    """A ring all-reduce of 64 ranks in one process: microseconds for each message, TCP's own work in the kernel included."""
    ring = schedule("all_reduce", "ring", _RANKS)
    buffers = [np.zeros(_RANKS * _MESSAGE_BYTES // 4, dtype=np.float32) for _ in range(_RANKS)]
    times_s = []
    with TcpTransport([Endpoint(r, f"h{r}", "127.0.0.1") for r in range(_RANKS)], ring.connections) as transport:
        replay = Replay(ring, len(buffers[0]), transport)
        for _ in range(3 if quick else 10):
            for rank, buffer in enumerate(buffers):
                fill(buffer, ring, rank)
            times_s.append(replay.run(buffers).duration_ns / 1e9)
    bad = sum(wrong(buffer, ring, rank) for rank, buffer in enumerate(buffers))
    note = f"{len(times_s)} iterations of {len(ring)} messages of {_MESSAGE_BYTES} bytes, {bad} elements wrong"
    median_us = statistics.median(times_s) / len(ring) * 1e6
    return [figure("engine, a message", median_us if not bad else float("nan"), "us", _MOST, note=note), *_large()]


def _large() -> list[Figure]:
    begun = time.process_time()
    verify(schedule("all_reduce", "ring", 1024))
    took_s = time.process_time() - begun
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return [
        figure("ring of 1024, built, checked", took_s, "s", _SCHEDULE, note="2,095,104 sends; CPU time"),
        figure("ring of 1024, peak memory", peak_gib, "GiB", Target("ours", high=1)),
    ]
