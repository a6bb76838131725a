"""A row of the table from what its iterations gave: times, rates, shares, in the hardware's units."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lab import kpis
from lab.measuring.observed import Observation
from lab.measuring.verdict import Verdict
from lab.model.fluid import Prediction
from lab.planning.forecast import Forecast
from lab.planning.plan import Size
from lab.planning.scale import Scale
from lab.planning.workload import mean_report, step_columns
from lab.rows import InPlace, RowResult
from traffic.replay import IterationResult
from traffic.workloads.report import StepReport


@dataclass
class Half:
    """The iterations of one half of the table, out of place or in place. wrong: elements; None = data did not come."""

    results: list[IterationResult] = field(default_factory=list)
    wrong: int | None = 0

    @property
    def seconds(self) -> list[float]:
        return [r.duration_ns / 1e9 for r in self.results]


@dataclass
class Timed:
    """What the timed iterations of a row have given so far. in_place: None = not asked for; busy: from when to when they ran;
    outstanding: when of that a send was under way: ranks that compute send nothing."""

    out_of_place: Half = field(default_factory=Half)
    in_place: Half | None = None
    busy: list[tuple[float, float]] = field(default_factory=list)
    outstanding: list[tuple[float, float]] = field(default_factory=list)

    @property
    def halves(self) -> list[Half]:
        return [half for half in (self.out_of_place, self.in_place) if half]

    @property
    def done(self) -> int:
        return sum(len(half.results) for half in self.halves)

    @property
    def busy_s(self) -> float:
        return sum(end - start for start, end in self.busy)

    @property
    def stats(self) -> kpis.IterationStats:
        return kpis.iteration_stats(self.out_of_place.seconds)


class RowFigures:
    """One size's, on one fabric."""

    def __init__(self, expected: Forecast, scale: Scale, size: Size) -> None:
        self._expected, self._plan, self._scale, self.size = expected, expected.plan, scale, size

    def data_bytes(self, timed: Timed) -> int:
        """Payload of all iterations that were done."""
        return int(self._plan.message_bytes(self.size.count).sum()) * timed.done

    def segments(self, timed: Timed) -> float:
        """That the data of all these is, where none is sent again."""
        of_one = np.ceil(self._plan.message_bytes(self.size.count) / self._plan.framing.payload_bytes)
        return float(of_one.sum()) * timed.done

    def sender_shares(self, result: IterationResult) -> kpis.Floats:
        """Of its NIC's rate, what each sender got until its last byte had arrived."""
        sends = ~self._plan.schedule.is_local
        n_bytes, finished_s = self._hardware(result.finished)
        return kpis.sender_shares(
            self._plan.egress[sends], n_bytes[sends], finished_s[sends], self._plan.interfaces.mbps
        )

    def row(
        self, timed: Timed, seen: Observation, prediction: Prediction | None, transport: str, verdict: Verdict
    ) -> RowResult:
        scale, plan, size = self._scale, self._plan, self.size
        e, window, losses, stats = plan.experiment, seen.window, seen.losses, timed.stats
        roofline_s = self._expected.roofline_s(size, scale)
        time_s = scale.hardware_s(stats.mean)
        balance = kpis.balance(
            kpis.parallel_uplinks(seen.fabric), window.bytes_by_intf(), at_least=size.emulated_bytes / 10
        )
        # What did not come took no time, and nobody can say how long it would have taken.
        whole = timed.out_of_place.wrong is not None
        algbw = self._algbw(time_s) if whole else math.nan
        jobs = self._jobs(timed)
        at_hosts = losses.at_hosts(seen.fabric)
        goodput = self._goodput(timed, seen) if whole else None
        return RowResult(
            fabric=seen.fabric.name,
            routing=plan.routing,
            collective=plan.collective,
            algorithm=plan.algorithm,
            transport=transport,
            ranks=plan.ranks,
            placement=e.placement,
            rate_scale=scale.rate_scale,
            size_scale=scale.size_scale,
            time_dilation=scale.time_dilation,
            seed=e.seed,
            size_bytes=size.size_bytes,
            emulated_bytes=size.emulated_bytes,
            iterations=len(timed.out_of_place.results),
            time_s=time_s,
            emulated_s=stats.mean,
            time_p50_s=scale.hardware_s(stats.p50),
            time_p95_s=scale.hardware_s(stats.p95),
            time_p99_s=scale.hardware_s(stats.p99),
            cv=stats.cv,
            algbw_gbytes_s=algbw,
            busbw_gbytes_s=algbw * plan.algo_factor,
            wrong=timed.out_of_place.wrong,
            roofline_s=roofline_s,
            jct_ratio=kpis.jct_ratio(time_s, roofline_s) if whole else math.nan,
            predicted_s=scale.hardware_s(prediction.seconds) if prediction else math.nan,
            bottleneck=prediction.bottleneck if prediction else "",
            mmr=balance.mmr,
            jfi=balance.jfi,
            dropped_fabric=losses.in_all - at_hosts,
            dropped_host=at_hosts,
            retransmits=losses.transport.retransmits,
            verdict=verdict.level,
            reason=verdict.reason,
            out_of_order=losses.transport.out_of_order,
            naks=losses.transport.naks,
            cnps=losses.transport.cnps,
            timeouts=losses.transport.timeouts,
            delivered=1 - losses.transport.lost_bytes / max(1, self.data_bytes(timed)),
            ecn_seen=losses.impaired.seen if e.ecn_threshold_us is not None else 0,
            ecn_marked=losses.impaired.marked,
            in_place=self._in_place(timed.in_place) if timed.in_place else None,
            goodput=goodput,
            sustained=goodput.sustained if goodput else math.nan,
            jobs=jobs,
            **step_columns(jobs, plan.workload),
        )

    def _jobs(self, timed: Timed) -> tuple[StepReport, ...]:
        """A workload's figures by job, in the hardware's time: means over the iterations."""
        if not self._plan.workload:
            return ()
        dilation = self._scale.time_dilation
        by_iteration = [
            self._plan.workload.reports(*(np.rint(t / dilation).astype(np.int64) for t in (r.started, r.finished)))
            for r in timed.out_of_place.results
        ]
        return tuple(mean_report(of_job) for of_job in zip(*by_iteration, strict=True))

    def _algbw(self, time_s: float) -> float:
        """Of the bytes really sent, which rounding to whole elements makes a little fewer than the size divided. A workload
        computes as well: it has none."""
        if self._plan.workload:
            return math.nan
        return kpis.algbw_gbytes_s(self.size.emulated_bytes * self._scale.size_scale, time_s)

    def _in_place(self, half: Half) -> InPlace:
        time_s = self._scale.hardware_s(kpis.iteration_stats(half.seconds).mean)
        algbw = math.nan if half.wrong is None else self._algbw(time_s)
        return InPlace(time_s, algbw, algbw * self._plan.algo_factor, half.wrong)

    def _goodput(self, timed: Timed, seen: Observation) -> kpis.Goodput | None:
        results = timed.out_of_place.results
        if not results or not self._plan.is_pattern:
            return None
        times = self._hardware(np.stack([r.finished for r in results]))
        found = kpis.goodput(self._plan.egress, *times, self._plan.interfaces.mbps)
        return replace(found, sustained=self._sustained(timed, seen))

    def _sustained(self, timed: Timed, seen: Observation) -> float:
        """From the bytes that reached hosts' NICs while every sender had something to send to them; acknowledgements are not
        payload."""
        fabric, over_nics = seen.fabric, self._plan.egress < self._plan.ranks
        src = self._plan.schedule.src[over_nics]
        if not len(src):
            return math.nan
        into_hosts = {fabric.peer(fabric.scale_out_port(host)).intf for host in self._plan.hosts}
        n_bytes, seconds = 0, 0.0
        for (began, _), result in zip(timed.busy, timed.out_of_place.results, strict=False):
            sent = seen.window.sent(into_hosts, began, began + kpis.first_done_s(src, result.finished[over_nics] / 1e9))
            n_bytes, seconds = n_bytes + sent[0], seconds + sent[1]
        if not seconds:
            return math.nan
        framing = self._plan.framing
        payload = n_bytes * framing.payload_bytes / (framing.frame_bytes + framing.ack_bytes / framing.frames_per_ack)
        offered_mbps = self._plan.nic_mbps_by_rank[np.unique(src)].sum() / self._scale.rate_scale
        return float(payload * 8e-6 / seconds / offered_mbps)

    def _hardware(self, finished_ns: NDArray[np.int64]) -> tuple[kpis.Floats, kpis.Floats]:
        """The sends' bytes and the times at which they had arrived (s), as the hardware's."""
        n_bytes = self._plan.message_bytes(self.size.count).astype(np.float64)
        return n_bytes * self._scale.size_scale, finished_ns / 1e9 / self._scale.time_dilation
