"""Rows and records that several tests of lab start from."""

from dataclasses import replace
from typing import Any

from lab.rows import RowResult, RunRecord
from topologies import topology
from topologies.describe import describe

ROW = RowResult(
    fabric="spine-leaf", routing="ecmp", collective="all_reduce", algorithm="ring", transport="tcp", ranks=16,
    placement="contiguous", rate_scale=8000.0, size_scale=64.0, time_dilation=125.0, seed=1, size_bytes=2**30,
    emulated_bytes=2**24, iterations=3, time_s=0.041, emulated_s=5.125, time_p50_s=0.041, time_p95_s=0.042,
    time_p99_s=0.042, cv=0.01, algbw_gbytes_s=26.19, busbw_gbytes_s=49.1, wrong=0, roofline_s=0.04027, jct_ratio=1.018,
    predicted_s=0.0407, bottleneck="h1->leaf1", mmr=1.0, jfi=1.0, dropped_fabric=0, dropped_host=0, retransmits=0,
    verdict="ok", reason="",
)  # fmt: skip

EXPERIMENT: dict[str, Any] = {
    "topology": "spine-leaf", "routing": "ecmp", "collective": "all_reduce", "algorithm": "ring", "transport": "tcp",
    "placement": "contiguous", "min_bytes": 2**28, "max_bytes": 2**30, "step_factor": 2, "iterations": 3,
    "warmup_iterations": 1, "seed": 1,
}  # fmt: skip

SCALE = {"rate_scale": 8000.0, "size_scale": 64.0, "time_dilation": 125.0, "nic_mbps": 400_000.0}


def row(**changes: Any) -> RowResult:
    return replace(ROW, **changes)


def record(*rows: RowResult, **changes: Any) -> RunRecord:
    fabric = topology("spine-leaf").build()
    fields: dict[str, Any] = {
        "experiment": EXPERIMENT,
        "fabric": describe(fabric),
        "scale": SCALE,
        "machine": {"kernel": "6.1", "open_vswitch": "3.1.0", "datapath": "netdev"},
        "roofline": "1.875 S / 400Gbit at each accelerator's NIC",
        "hosts": tuple(h.name for h in fabric.hosts),
        "rows": list(rows),
    }
    return RunRecord(**(fields | changes))
