"""What a run records, as plain data: one row per collective, algorithm and size; one per iteration; counters over time.

The field names are the column names, everywhere: in results.csv, in the report, in `--json`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lab.kpis import Goodput
from topologies.fabric import LinkKind
from traffic.workloads.report import StepReport

# What a record's machine has as its datapath, in words.
DATAPATHS = {
    "system": "kernel datapath",
    "netdev": "userspace datapath (this kernel has no openvswitch module)",
}
# How the note begins that says why there is none.
NO_PREDICTION = "no prediction: "
# What a run shows on standard output.
Output = Literal["table", "json", "nothing"]
Level = Literal["ok", "degraded", "invalid"]


@dataclass(frozen=True)
class InPlace:
    """The in-place half of nccl-tests' row, hardware units. wrong: None = not compared."""

    time_s: float
    algbw_gbytes_s: float
    busbw_gbytes_s: float
    wrong: int | None


@dataclass(frozen=True)
class RowResult:
    """One line of the result table. Times, sizes and bandwidths in hardware units (GB = 1e9), but where it says emulated.

    A value that does not exist is NaN: `mmr` and `jfi` where no links are parallel, times where nothing completed.
    goodput: of a traffic pattern. calc_s to mfu: of a training step, means over its jobs, of which `jobs` has each one's.
    out_of_order: as the transport's receivers count it; naks, cnps, timeouts: as RoCEv2 does (traffic/transport.py). delivered:
    share of the data that came; where some did not, `wrong` is None: values were not compared. ecn_seen, ecn_marked: frames that
    came to links that mark, and those marked, over all such links. sustained: of a traffic pattern, as Goodput has it.
    """

    fabric: str
    routing: str
    collective: str
    algorithm: str
    transport: str
    ranks: int
    placement: str
    rate_scale: float
    size_scale: float
    time_dilation: float
    seed: int
    size_bytes: int
    emulated_bytes: int
    iterations: int
    time_s: float
    emulated_s: float
    time_p50_s: float
    time_p95_s: float
    time_p99_s: float
    cv: float
    algbw_gbytes_s: float
    busbw_gbytes_s: float
    wrong: int | None
    roofline_s: float
    jct_ratio: float
    predicted_s: float
    bottleneck: str
    mmr: float
    jfi: float
    dropped_fabric: int
    dropped_host: int
    retransmits: int
    verdict: Level
    reason: str
    calc_s: float = math.nan
    communication_s: float = math.nan
    exposed_s: float = math.nan
    bubble: float = math.nan
    parallel_efficiency: float = math.nan
    mfu: float = math.nan
    out_of_order: int = 0
    naks: int = 0
    cnps: int = 0
    timeouts: int = 0
    delivered: float = 1.0
    ecn_seen: int = 0
    ecn_marked: int = 0
    sustained: float = math.nan
    in_place: InPlace | None = field(default=None, metadata={"column": False})
    goodput: Goodput | None = field(default=None, metadata={"column": False})
    jobs: tuple[StepReport, ...] = field(default=(), metadata={"column": False})

    def columns(self) -> dict[str, Any]:
        """Column name -> value, in the table's order."""
        return {name: getattr(self, name) for name in ROW_COLUMNS}


def json_value(value: object) -> object:
    """JSON has no NaN: a value that does not exist is null."""
    return None if isinstance(value, float) and math.isnan(value) else value


ROW_COLUMNS = tuple(f.name for f in fields(RowResult) if f.metadata.get("column", True))


@dataclass(frozen=True)
class IterationRecord:
    """One timed iteration. started_s: emulated seconds since the run's start; emulated_s and time_s: its duration;
    slowest_rank: the rank that completed last; wrong: None = not compared; sender_share_mean, sender_share_worst: of the
    sending hosts' goodputs over their NICs' rates."""

    collective: str
    algorithm: str
    size_bytes: int
    in_place: bool
    iteration: int
    started_s: float
    emulated_s: float
    time_s: float
    slowest_rank: int
    wrong: int | None
    sender_share_mean: float
    sender_share_worst: float


ITERATION_COLUMNS = tuple(f.name for f in fields(IterationRecord))


@dataclass(frozen=True)
class LinkSamples:
    """Counters of every egress interface over time.

    at_s: (samples,) emulated seconds since the run's start; intfs: (interfaces,); links: their directions, as
    'leaf1->spine2'; kinds: of the links, as 'scale-out' or 'scale-up'; bytes_sent, packets_sent: (samples, interfaces),
    cumulative. queue_at_s: (readings,), fewer; queue_bytes, queue_drops: (readings, interfaces) that wait, and frames dropped so
    far; -1 where a queue is not seen, as a host's own. What was not counted is empty.
    """

    at_s: NDArray[np.float64]
    intfs: tuple[str, ...]
    links: tuple[str, ...]
    kinds: tuple[str, ...]
    bytes_sent: NDArray[np.int64]
    packets_sent: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    queue_at_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    queue_bytes: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    queue_drops: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), np.int64))


LINK_COLUMNS = ("at_s", "intf", "link", "kind", "bytes_sent", "packets_sent", "queue_bytes", "queue_drops")


@dataclass(frozen=True)
class CpuSamples:
    """CPU seconds of the lab's components. at_s: (readings,) emulated seconds since the run's start; components: their names;
    cpu_s: (readings, components), cumulative."""

    at_s: NDArray[np.float64]
    components: tuple[str, ...]
    cpu_s: NDArray[np.float64]


CPU_COLUMNS = ("at_s", "component", "cpu_s")


@dataclass(frozen=True)
class LinkTotal:
    """What one direction of a link carried during one row's timed iterations, beside what the plan said.

    utilisation: of its shaped rate, over the time of the iterations.
    """

    size_bytes: int
    intf: str
    link: str
    kind: LinkKind
    bytes_sent: int
    planned_bytes: float
    dropped: int
    utilisation: float


LINK_TOTAL_COLUMNS = tuple(f.name for f in fields(LinkTotal))


@dataclass(frozen=True)
class GroupBalance:
    """How evenly one switch's parallel uplinks were used during one row's timed iterations.

    stage: of the network, counted from the accelerators: 1 = their switches; flows: the plan's, that leave through these links
    (0 where no path is known); mmr, jfi: of the bytes counted; the others: what `flows` equal flows give when each is hashed
    by itself onto `links` equal links, mean and central 95 % (nan without flows).
    """

    size_bytes: int
    stage: int
    switch: str
    links: int
    flows: int
    bytes_sent: int
    mmr: float
    jfi: float
    mmr_expected: float
    mmr_low: float
    mmr_high: float
    jfi_expected: float
    jfi_low: float
    jfi_high: float


BALANCE_COLUMNS = tuple(f.name for f in fields(GroupBalance))

# What a rank does: `send` and `receive` while a message of its own, or to it, is under way; `wait` = none of the others.
SPAN_KINDS = ("compute", "send", "receive", "wait")


@dataclass(frozen=True)
class RankSpans:
    """One iteration of one row, rank by rank; hardware times since its start.

    rank, kind: (spans,) int, places in SPAN_KINDS; begin_s, end_s: (spans,). resolution_s: shorter gaps within one kind are
    left out, so that a long schedule's spans stay few. `wait` ends with the rank's last operation.
    """

    size_bytes: int
    iteration: int
    resolution_s: float
    rank: NDArray[np.int64]
    kind: NDArray[np.int64]
    begin_s: NDArray[np.float64]
    end_s: NDArray[np.float64]


SPAN_COLUMNS = ("size_bytes", "iteration", "resolution_s", "rank", "kind", "begin_s", "end_s")


@dataclass(frozen=True)
class CircuitRecord:
    """One way of a circuit while it was up, as far as that was within a row's timed iterations; all emulated.

    source, target: the ends of its cables, as 'leaf1:5'; up_s, down_s: since the run's start; requested_dark_us,
    achieved_dark_us: of the dark before it, nan where it was set before the first packet; met: whether the achieved one is near
    the requested; bytes_sent: by the optical switch to its target, between readings of its counters.
    """

    size_bytes: int
    ocs: str
    source: str
    target: str
    up_s: float
    down_s: float
    requested_dark_us: float
    achieved_dark_us: float
    met: bool
    bytes_sent: int


CIRCUIT_COLUMNS = tuple(f.name for f in fields(CircuitRecord))


@dataclass(frozen=True)
class CircuitTotal:
    """What circuits did during one row's timed iterations. Emulated times.

    set_up: one-way circuits that changes set; unmet: of them, dark for longer than asked; planned_duty_cycle: 1 without changes;
    duty_cycle: the share of the time, between the changes that were seen, in which ports of circuits had light;
    shortest_slice_us: 0 without changes; late_us: the latest begin of a slice, after its time; bytes_by_circuits,
    bytes_by_packets: that left ends over optical switches, and over links to other switches; bytes_lost: that went into an
    optical switch and did not come out; error: why the plan was given up; complete: whether all that were set are known.
    """

    size_bytes: int
    set_up: int
    unmet: int
    requested_dark_us: float
    worst_dark_us: float
    planned_duty_cycle: float
    duty_cycle: float
    shortest_slice_us: float
    late_us: float
    bytes_by_circuits: int
    bytes_by_packets: int
    bytes_lost: int
    error: str | None = None
    complete: bool = True


@dataclass
class RunRecord:
    """Everything that goes into a results folder; rows are added as they come, so that an interrupted run keeps them.

    experiment, fabric (what `describe` gives, with 'graph'), scale, machine: plain data for the manifest.
    hosts: rank -> host name; helpers: the algorithm's, and roofline: what it is made of, in words; prediction_sha256: of
    prediction.json, as it was written before the first packet; notes: sentences for the
    reader, e.g. on collisions; findings: what was wrong with the fabric or beside it, by row: size_bytes, kind, element, detail.
    """

    experiment: Mapping[str, Any]
    fabric: Mapping[str, Any]
    scale: Mapping[str, Any]
    machine: Mapping[str, Any]
    hosts: tuple[str, ...]
    helpers: str = ""
    command: tuple[str, ...] = ()
    roofline: str = ""
    prediction_sha256: str = ""
    started: str = ""
    ended: str = ""
    complete: bool = False
    rows: list[RowResult] = field(default_factory=list)
    iterations: list[IterationRecord] = field(default_factory=list)
    links: list[LinkSamples] = field(default_factory=list)
    link_totals: list[LinkTotal] = field(default_factory=list)
    balance: list[GroupBalance] = field(default_factory=list)
    spans: list[RankSpans] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    circuits: list[CircuitRecord] = field(default_factory=list)
    circuit_totals: list[CircuitTotal] = field(default_factory=list)
    cpu: list[CpuSamples] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
