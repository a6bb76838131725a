"""The drafts' report of benchmarks of AI fabrics: identification, topology, configuration, hosts, results, anomalies,
repeatability, and what differs from the drafts. Pure: data in, a document out.

draft-calabria-bmwg-ai-fabric-training-bench, an individual Internet-Draft, work in progress.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from lab.kpis import interference_factor
from lab.kpis.summary import TITLES
from lab.reporting.documents import Block, Heading, Picture, Points, Table, Text, pairs
from topologies.shaping import QUEUE_FRAMES
from topologies.units import format_rate, format_size

DRAFT = "draft-calabria-bmwg-ai-fabric-training-bench (individual Internet-Draft, work in progress)"
# What no emulator meets, whatever is run.
EMULATOR = (
    (
        "Timestamps: the drafts ask for 100 ns; here they come from one clock of the kernel and a scheduler that is tens of "
        "microseconds late, which the scale makes small beside what is measured."
    ),
    (
        "Rates, sizes and times are scaled: a frame of the hardware is not one here. Shares, ratios and bus bandwidths carry "
        "over, packets per second and bytes in queues do not."
    ),
    (
        "The accelerators, their NICs and the switches' buffers are the kernel's: what is measured is the fabric's shape, its "
        "routing and the transports."
    ),
)
# Comparable only with the same.
_IDENTITY = (
    "topology", "link_rate_mbps", "mtu", "queue_frames", "ecn_threshold_us", "routing", "addressing", "collective", "algorithm",
    "transport", "congestion_control", "window_frames", "qps", "path_mtu", "reliability", "spread", "channels", "placement",
    "ranks", "workload", "split", "training", "jobs", "seed", "iterations", "warmup_iterations",
)  # fmt: skip
# Of them, what says nothing with another transport, or without a workload.
_OF_ROCEV2 = ("qps", "path_mtu", "reliability", "spread")
_OF_STEPS = ("split", "training", "jobs")
_CV_PERCENT = 5.0


@dataclass(frozen=True)
class CellResult:
    """label: of what varies, '' where nothing does; outcome: why there are no results, '' where there are; manifest, kpis: of
    its folder, the latter as lab.kpis.summary gives it; reasons: of its rows, by size."""

    label: str
    chosen: Mapping[str, object]
    outcome: str = ""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    kpis: "pd.DataFrame" = field(default_factory=pd.DataFrame)
    reasons: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ProcedureResult:
    """As the procedure's file has it, with its cells' results; drawings: file -> SVG of the fabric; graph: SVG of the results, ''
    where there is none."""

    name: str
    title: str
    category: str
    about: str
    deviations: Sequence[str]
    cells: Sequence[CellResult]
    drawings: Mapping[str, str] = field(default_factory=dict)
    graph: str = ""

    @property
    def graph_file(self) -> str:
        return f"{self.name}-results.svg"

    @property
    def done(self) -> list[CellResult]:
        return [one for one in self.cells if one.manifest]


def report(results: Sequence[ProcedureResult], not_run: Mapping[str, str], *, made: str, version: str) -> list[Block]:
    """made: when; version: of this program; not_run: procedures of the drafts -> why they are not run."""
    blocks: list[Block] = [
        Heading("AI fabric benchmark, emulated", 1),
        Text(f"After {DRAFT}. Made {made} by ai-fabric-testbed {version}."),
    ]
    for number, (title, section) in enumerate(_SECTIONS, 1):
        blocks += [Heading(f"{number}. {title}"), *section(results)]
    blocks += [Heading(f"{len(_SECTIONS) + 1}. Deviations from the drafts"), Points(EMULATOR)]
    blocks.append(Table(("procedure", "differs"), [(r.title, text) for r in results for text in r.deviations]))
    blocks += [Text("Procedures of the drafts that are not run:"), Table(("procedure", "why"), list(not_run.items()))]
    return blocks


# -- sections ---------------------------------------------------------------------------------------------------------


def _identification(results: Sequence[ProcedureResult]) -> Iterator[Block]:
    rows = [
        (r.title, f"{fabric['fabric']} ({', '.join(f'{k}={v}' for k, v in fabric['parameters'].items())})", fabric["hosts"],
         fabric["switches"], fabric.get("hb_domain_size") or 1, format_rate(manifest["scale"]["nic_mbps"]),
         fabric["oversubscription"], fabric["bisection_gbps"])
        for r in results for manifest in _different(r, "fabric") for fabric in (manifest["fabric"],)
    ]  # fmt: skip
    columns = (
        "procedure", "fabric", "accelerators", "switches", "per server", "NIC", "oversubscription", "bisection (Gbit/s)"
    )  # fmt: skip
    yield Table(columns, rows)


def _topology(results: Sequence[ProcedureResult]) -> Iterator[Block]:
    drawn: set[str] = set()
    for r in results:
        for file, svg in r.drawings.items():
            if svg not in drawn:
                drawn.add(svg)
                yield Picture(f"{r.title}: {r.done[0].manifest['fabric']['fabric'] if r.done else file}", file, svg)


def _configuration(results: Sequence[ProcedureResult]) -> Iterator[Block]:
    for r in results:
        if not r.done:
            continue
        yield Heading(r.title, 3)
        experiment = r.done[0].manifest["experiment"]
        varied = {key for one in r.cells for key in one.chosen}
        values = {key: experiment[key] for key in _IDENTITY if experiment.get(key) not in (None, "")}
        for key in (
            *(_OF_ROCEV2 if experiment["transport"] != "rocev2" else ()),
            *(("window_frames",) if experiment["transport"] != "tcp" else ()),
            *(() if "workload" in values else _OF_STEPS),
        ):
            values.pop(key, None)
        shown: dict[str, object] = {
            key: "varied" if key in varied or _field(key) in varied else v for key, v in values.items()
        }
        shown["queue_frames"] = shown.get("queue_frames", f"{QUEUE_FRAMES}, or two bandwidth-delay products")
        scale = r.done[0].manifest["scale"]
        shown["scale"] = (
            f"rates / {scale['rate_scale']:g}, sizes / {scale['size_scale']:g}, times x {scale['time_dilation']:g}"
        )
        shown["algorithm (verified)"] = ", ".join(
            dict.fromkeys(str(one.manifest["experiment"]["algorithm"]) for one in r.done)
        )
        shown["roofline"] = r.done[0].manifest["roofline"]
        yield pairs(shown)


def _hosts(results: Sequence[ProcedureResult]) -> Iterator[Block]:
    machines = {tuple(_machine(one.manifest).items()) for r in results for one in r.done}
    for machine in sorted(machines):
        yield pairs(dict(machine))


def _machine(manifest: Mapping[str, Any]) -> dict[str, str]:
    of_all = ("cpu", "cpus", "kernel", "python", "open_vswitch", "datapath", "delays")
    return {key: str(manifest["machine"][key]) for key in of_all if key in manifest["machine"]}


def _results(results: Sequence[ProcedureResult]) -> Iterator[Block]:
    for r in results:
        yield Heading(f"{r.category}: {r.title}", 3)
        yield Text(r.about)
        if r.done:
            yield kpi_table(r)
        if r.graph:
            yield Picture(r.title, r.graph_file, r.graph)
        if isolated := _isolated(r):
            yield _interference(r, isolated)


def kpi_table(r: ProcedureResult) -> Table:
    """A line per cell and size; figures that no line has are left out."""
    varied = list(dict.fromkeys(key for one in r.done for key in one.chosen))
    used = [name for name in TITLES if any(not _missing(v) for one in r.done for v in one.kpis[name])]
    rows = [
        (*(one.chosen.get(key, "") for key in varied), *(_shown(name, line[name]) for name in used))
        for one in r.done
        for line in one.kpis.to_dict("records")
    ]
    return Table((*varied, *(TITLES[name] for name in used)), rows)


def _isolated(r: ProcedureResult) -> CellResult | None:
    """The cell with one job, where jobs are what varies."""
    return next((one for one in r.done if one.chosen.get("jobs") == 1), None)


def _interference(r: ProcedureResult, isolated: CellResult) -> Table:
    def jct_s(one: CellResult) -> float:
        line = one.kpis.iloc[0]
        return math.nan if line["verdict"] == "invalid" else float(line["jct_mean_s"])

    alone = jct_s(isolated)
    rows = [(one.chosen["jobs"], jct_s(one), interference_factor(jct_s(one), alone)) for one in r.done]
    return Table(("jobs", "JCT mean (s)", "JCT Interference Factor"), rows)


def _anomalies(results: Sequence[ProcedureResult]) -> Iterator[Block]:
    rows: list[tuple[str, str, str, str]] = []
    for r in results:
        for one in r.cells:
            if one.outcome:
                rows.append((r.title, one.label, "", one.outcome))
            verdicts = dict(zip(one.kpis.get("size_bytes", ()), one.kpis.get("verdict", ()), strict=True))
            rows += [
                (r.title, one.label, format_size(size), f"{verdicts[size]}: {reason}")
                for size, reason in one.reasons.items()
                if reason and verdicts.get(size) != "ok"
            ]
    yield Table(("procedure", "case", "size", "what"), rows) if rows else Text("None: every row is ok.")


def _repeatability(results: Sequence[ProcedureResult]) -> Iterator[Block]:
    rows = []
    for r in results:
        valid = [line for one in r.done for line in one.kpis.to_dict("records") if line["verdict"] != "invalid"]
        cvs = [line["cv_percent"] for line in valid if not _missing(line["cv_percent"]) and line["n"] > 1]
        seeds = ", ".join(sorted({str(one.manifest["experiment"]["seed"]) for one in r.done}))
        above = sum(cv >= _CV_PERCENT for cv in cvs)
        rows.append(
            (r.title, sum(int(line["n"]) for line in valid), len(cvs), max(cvs, default=math.nan), above, seeds,
             f"run_topo.py bmwg {r.name}")
        )  # fmt: skip
    yield Table(
        ("procedure", "iterations", "rows", "largest CV (%)", f"rows at {_CV_PERCENT:g} % or more", "seed", "again"),
        rows,
    )
    yield Text(
        "CV: population standard deviation over mean of the iterations' times; rows with two iterations or more."
    )


_SECTIONS = (
    ("Fabric identification", _identification), ("Topology", _topology), ("Configuration", _configuration),
    ("Host configuration", _hosts), ("Results", _results), ("Anomalies", _anomalies), ("Repeatability", _repeatability),
)  # fmt: skip


def _different(r: ProcedureResult, key: str) -> Iterator[Mapping[str, Any]]:
    """Manifests whose fabric was not seen in this procedure before."""
    seen: list[object] = []
    for one in r.done:
        told = {k: v for k, v in one.manifest[key].items() if k != "graph"}
        if told not in seen:
            seen.append(told)
            yield one.manifest


def _field(key: str) -> str:
    """A setting's key of its field: 'ecn_threshold_us' -> 'ecn_threshold'."""
    return key.rsplit("_", 1)[0]


def _missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _shown(name: str, value: object) -> object:
    return format_size(int(str(value))) if name == "size_bytes" else value
