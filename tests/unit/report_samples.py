"""Records as whole runs would leave them, made up: for the report's tests, of any fabric and size."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.measuring.sharing import group_balances
from lab.rows import (
    CircuitRecord,
    CircuitTotal,
    IterationRecord,
    LinkSamples,
    LinkTotal,
    RankSpans,
    RowResult,
    RunRecord,
)
from tests.unit import lab_samples
from topologies import Fabric, topology
from topologies.describe import describe

DILATION = lab_samples.SCALE["time_dilation"]
_ITERATION_S, _PAUSE_S, _SAMPLE_S = 5.0, 0.5, 0.1


def whole_run(spec: str = "spine-leaf", sizes: tuple[int, ...] = (2**28, 2**30), **changes: Any) -> RunRecord:
    """Three iterations of each size, every counter and every rank's spans; a rank in the middle is slow."""
    fabric = topology(spec).build()
    hosts = [host.name for host in fabric.accelerators]
    ports = [port for link in fabric.links for port in link.ports]
    rng = np.random.default_rng(1)
    share = {port.intf: float(x) for port, x in zip(ports, rng.uniform(0, 1, len(ports)), strict=True)}
    rows, iterations, windows, totals, balances, spans = [], [], [], [], [], []
    for k, size in enumerate(sizes):
        begin_s = k * 3 * (_ITERATION_S + _PAUSE_S)
        rows.append(_row(fabric, size, len(hosts), k))
        iterations += [_iteration(size, i, begin_s) for i in range(3)]
        windows.append(_samples(fabric, share, begin_s))
        sent = dict(zip(windows[-1].intfs, windows[-1].bytes_sent[-1].tolist(), strict=True))
        totals += [_total(fabric, size, port, sent[port.intf], share[port.intf]) for port in ports]
        paths = [[port] for port in ports for _ in range(3)]
        balances += group_balances(fabric, paths, sent, size_bytes=size)
        spans.append(_spans(size, len(hosts)))
    fields: dict[str, Any] = {
        "fabric": describe(fabric), "hosts": tuple(hosts), "iterations": iterations, "links": windows, "link_totals": totals,
        "balance": balances, "spans": spans, "complete": True, "started": "2026-01-05T10:11:12+00:00",
        "ended": "2026-01-05T10:12:13+00:00", "command": ("run_topo.py",),
    }  # fmt: skip
    return lab_samples.record(*rows, **(fields | changes))


def rotor_run() -> RunRecord:
    """Four leaves that an optical switch joins in two ways, one after the other; the second time one circuit is late."""
    size = 2**28
    ups = []
    for slice_, pairs in enumerate(({1: 2, 2: 1, 3: 4, 4: 3}, {1: 3, 3: 1, 2: 4, 4: 2}) * 3):
        for a, b in pairs.items():
            up_s = slice_ * 2.5 + 0.1
            met = not (slice_ == 1 and a == 1)
            up_s += 0.0 if met else 0.3
            asked, took = 100_000.0, (100_000.0 if met else 400_000.0)
            ups.append(
                CircuitRecord(size, "ocs1", f"leaf{a}:3", f"leaf{b}:3", up_s, slice_ * 2.5 + 2.5, asked, took, met, 9)
            )
    total = CircuitTotal(size, 24, 1, 1e5, 4e5, 0.96, 0.95, 2.5e6, 2e4, 10**6, 50, 5000)
    experiment = {**lab_samples.EXPERIMENT, "circuits": "round-robin", "dark": "rotor", "in_the_dark": "drop"}
    return whole_run(
        "ocs-leaf:leaves=4,hosts_per_leaf=1,uplinks=1,ocs=1,spines=1",
        (size,),
        experiment=experiment,
        circuits=ups,
        circuit_totals=[total],
    )


def _row(fabric: Fabric, size: int, ranks: int, k: int) -> RowResult:
    time_s = 0.041 * size / 2**30 * (1 + 0.1 * k) + 0.002
    roofline_s = 0.04027 * size / 2**30
    busbw = size / time_s / 1e9 * 1.875
    bottleneck = fabric.direction(fabric.links[-1].a)
    return lab_samples.row(
        fabric=fabric.name, ranks=ranks, size_bytes=size, time_s=time_s, time_p50_s=time_s, time_p95_s=time_s * 1.02,
        time_p99_s=time_s * 1.02, algbw_gbytes_s=busbw / 1.875, busbw_gbytes_s=busbw, roofline_s=roofline_s,
        jct_ratio=time_s / roofline_s, predicted_s=roofline_s * 1.01, bottleneck=bottleneck, verdict="ok" if k else "degraded",
        reason="" if k else "senders were late by 9 frame times (p99), 8 are tolerated", retransmits=3 - 3 * k,
    )  # fmt: skip


def _iteration(size: int, i: int, begin_s: float) -> IterationRecord:
    start_s = begin_s + i * (_ITERATION_S + _PAUSE_S)
    time_s = _ITERATION_S / DILATION
    return IterationRecord("all_reduce", "ring", size, False, i, start_s, _ITERATION_S, time_s, 3, 0, 0.9, 0.8)


def _samples(fabric: Fabric, share: dict[str, float], begin_s: float) -> LinkSamples:
    ports = [(link, port) for link in fabric.links for port in link.ports]
    at_s: NDArray[Any] = begin_s + np.arange(0, 3 * (_ITERATION_S + _PAUSE_S), _SAMPLE_S)
    busy = (at_s - begin_s) % (_ITERATION_S + _PAUSE_S) < _ITERATION_S
    rate = np.array([link.rate_mbps / lab_samples.SCALE["rate_scale"] * 1e6 / 8 * share[p.intf] for link, p in ports])
    sent = np.cumsum(busy, axis=0)[:, None] * _SAMPLE_S * rate
    return LinkSamples(
        at_s,
        tuple(port.intf for _, port in ports),
        tuple(fabric.direction(port) for _, port in ports),
        tuple(link.kind for link, _ in ports),
        sent.astype(np.int64),
    )


def _total(fabric: Fabric, size: int, port: Any, sent: int, share: float) -> LinkTotal:
    kind = fabric.link_of(port.intf).kind
    return LinkTotal(size, port.intf, fabric.direction(port), kind, sent, sent * 0.99, 0, share)


def _spans(size: int, n: int) -> RankSpans:
    """Each rank computes, sends in ten steps and waits between them; one computes twice as long and never waits."""
    whole_s, slow = _ITERATION_S / DILATION, n // 2
    lines: list[tuple[int, int, float, float]] = []
    for rank in range(n):
        computes = 0.4 if rank == slow else 0.2
        lines.append((rank, 0, 0.0, computes))
        width = (1 - computes) / 10
        for i in range(10):
            begin = computes + i * width
            sends = width * (1.0 if rank == slow else 0.6)
            lines += [(rank, 1, begin, begin + sends), (rank, 2, begin, begin + width * 0.8)]
            if rank != slow:
                lines.append((rank, 3, begin + width * 0.8, begin + width))
    columns = [np.array(column) for column in zip(*sorted(lines), strict=True)]
    return RankSpans(size, 1, whole_s / 2000, columns[0], columns[1], columns[2] * whole_s, columns[3] * whole_s)
