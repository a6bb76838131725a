"""One row of the table: warm-up, timed iterations, and whether the number may be believed."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from controller.circuits.plan import Plan as CircuitPlan
from lab import kpis
from lab.machine.bringup import Lab
from lab.measuring import timeline
from lab.measuring.diagnosis import as_dicts
from lab.measuring.monitor import Monitor, Window
from lab.measuring.observed import (
    Losses,
    cpu_samples,
    diagnosed,
    direction,
    frame_s,
    link_samples,
    link_totals,
    look,
    observed,
    switch_queue_frames,
)
from lab.measuring.sharing import group_balances
from lab.measuring.spans import rank_spans, representative
from lab.measuring.switching import switching
from lab.measuring.tables import Seen
from lab.measuring.verdict import Verdict, collision_notes, judge
from lab.model.fluid import Prediction
from lab.planning.circuits import plan_data
from lab.planning.forecast import Forecast
from lab.planning.plan import Size
from lab.planning.scale import Scale
from lab.planning.sending import resent_for
from lab.planning.workload import mean_report, step_columns
from lab.progress import Progress
from lab.rows import CircuitTotal, InPlace, IterationRecord, RowResult, RunRecord
from topologies.units import format_size
from traffic import values
from traffic.replay import IterationResult, Replay
from traffic.transport import Transport
from traffic.workloads.report import StepReport

Buffers = Sequence[NDArray[np.float32]]


@dataclass
class _Half:
    """The iterations of one half of the table, out of place or in place."""

    results: list[IterationResult] = field(default_factory=list)
    wrong: int | None = 0

    @property
    def seconds(self) -> list[float]:
        return [r.duration_ns / 1e9 for r in self.results]


class RowMeasurement:
    """Measures one size on a fabric that is up, and adds the row and its iterations to the record."""

    def __init__(
        self,
        expected: Forecast,
        scale: Scale,
        lab: Lab,
        transport: Transport,
        monitor: Monitor,
        record: RunRecord,
        progress: Progress,
    ) -> None:
        self._expected, self._scale, self._lab = expected, scale, lab
        self._transport, self._monitor, self._record, self._progress = transport, monitor, record, progress
        self._plan = expected.plan
        self._e = expected.plan.experiment
        # The iterations, and of those when a send was outstanding: ranks that compute send nothing.
        self._busy: list[tuple[float, float]] = []
        self._outstanding: list[tuple[float, float]] = []
        self._switching = switching(expected.plan, scale)
        self._circuits: CircuitPlan | None = None
        self._halves = {False: _Half()} | ({True: _Half()} if self._e.in_place else {})

    def measure(self, size: Size) -> RowResult:
        """What was measured before an interruption is kept, in a row that says so."""
        dilation = self._scale.time_dilation
        replay = Replay(self._plan.schedule, size.count, self._transport, time_dilation=dilation)
        if changing := self._plan.circuits_for(size.size_bytes):
            self._circuits = changing.dilated(dilation)
        buffers = [np.zeros(size.count, dtype=np.float32) for _ in self._plan.hosts]
        for i in range(self._e.warmup_iterations):
            self._say(size, f"warm-up {i + 1}/{self._e.warmup_iterations}")
            self._iterate(replay, buffers)
        self._lab.net.hop_report()
        losses, seen, start = self._losses(), look(self._lab), self._monitor.mark()
        try:
            for in_place in self._halves:
                for i in range(self._e.iterations):
                    self._say(size, f"iteration {i + 1}/{self._e.iterations}{' in place' if in_place else ''}")
                    self._timed(replay, buffers, size, in_place, i)
        finally:
            window = self._monitor.window(start, self._monitor.mark())
            row = self._judged(size, window, self._losses().since(losses), seen)
            if self._halves[False].results:
                self._record.rows.append(row)
        return row

    # -- iterations -----------------------------------------------------------------------------------------------------

    def _say(self, size: Size, text: str) -> None:
        self._progress.step(f"{self._plan.collective} of {format_size(size.size_bytes)}: {text}")

    def _iterate(self, replay: Replay, buffers: Buffers) -> IterationResult:
        for rank, buffer in enumerate(buffers):
            values.fill(buffer, self._plan.schedule, rank)
        with self._carrying_out_circuits():
            return replay.run(buffers, lifeline=self._lab.daemons.lifeline.fileno())

    def _carrying_out_circuits(self) -> AbstractContextManager[None]:
        if not (self._switching and self._circuits and self._plan.optical):
            return nullcontext()
        return self._switching.carrying_out(plan_data(self._circuits, self._plan.optical.joined))

    def _timed(self, replay: Replay, buffers: Buffers, size: Size, in_place: bool, i: int) -> None:
        lost_before = self._transport.counters().lost_bytes
        result = self._iterate(replay, buffers)
        ended = time.monotonic()
        began = ended - result.duration_ns / 1e9
        wrong = None
        if self._transport.counters().lost_bytes == lost_before:
            wrong = sum(values.wrong(b, self._plan.schedule, rank) for rank, b in enumerate(buffers))
        self._busy.append((began, ended))
        moves = ~self._plan.schedule.is_local
        started_s, finished_s = result.started[moves] / 1e9, result.finished[moves] / 1e9
        self._outstanding += [(began + a, began + b) for a, b in kpis.covered(started_s, finished_s)]
        self._halves[in_place].results.append(result)
        half = self._halves[in_place]
        half.wrong = None if wrong is None or half.wrong is None else half.wrong + wrong
        sends = ~self._plan.schedule.is_local
        n_bytes, finished_s = self._hardware(size, result.finished)
        shares = kpis.sender_shares(
            self._plan.egress[sends], n_bytes[sends], finished_s[sends], self._plan.interfaces.mbps
        )
        self._record.iterations.append(
            IterationRecord(
                collective=self._plan.collective,
                algorithm=self._plan.algorithm,
                size_bytes=size.size_bytes,
                in_place=in_place,
                iteration=i,
                started_s=began - self._monitor.origin_s,
                emulated_s=result.duration_ns / 1e9,
                time_s=self._scale.hardware_s(result.duration_ns / 1e9),
                slowest_rank=int(result.rank_finished.argmax()),
                wrong=wrong,
                sender_share_mean=float(shares.mean()),
                sender_share_worst=float(shares.min()),
            )
        )

    def _hardware(self, size: Size, finished_ns: NDArray[np.int64]) -> tuple[kpis.Floats, kpis.Floats]:
        """The sends' bytes and the times at which they had arrived (s), as the hardware's."""
        n_bytes = self._plan.message_bytes(size.count).astype(np.float64)
        return n_bytes * self._scale.size_scale, finished_ns / 1e9 / self._scale.time_dilation

    def _goodput(self, size: Size, window: Window) -> kpis.Goodput | None:
        results = self._halves[False].results
        if not results or not self._plan.is_pattern:
            return None
        times = self._hardware(size, np.stack([r.finished for r in results]))
        found = kpis.goodput(self._plan.egress, *times, self._plan.interfaces.mbps)
        return replace(found, sustained=self._sustained(window))

    def _sustained(self, window: Window) -> float:
        """From the bytes that reached hosts' NICs while every sender had something to send to them; acknowledgements are not
        payload."""
        fabric, over_nics = self._lab.fabric, self._plan.egress < self._plan.ranks
        src = self._plan.schedule.src[over_nics]
        if not len(src):
            return math.nan
        into_hosts = {fabric.peer(fabric.scale_out_port(host)).intf for host in self._plan.hosts}
        n_bytes, seconds = 0, 0.0
        for (began, _), result in zip(self._busy, self._halves[False].results, strict=False):
            seen = window.sent(into_hosts, began, began + kpis.first_done_s(src, result.finished[over_nics] / 1e9))
            n_bytes, seconds = n_bytes + seen[0], seconds + seen[1]
        if not seconds:
            return math.nan
        framing = self._plan.framing
        payload = n_bytes * framing.payload_bytes / (framing.frame_bytes + framing.ack_bytes / framing.frames_per_ack)
        offered_mbps = self._plan.nic_mbps_by_rank[np.unique(src)].sum() / self._scale.rate_scale
        return float(payload * 8e-6 / seconds / offered_mbps)

    def _data_bytes(self, size: Size) -> int:
        """Payload of all iterations that were done."""
        done = sum(len(half.results) for half in self._halves.values())
        return int(self._plan.message_bytes(size.count).sum()) * done

    def _losses(self) -> Losses:
        return Losses.of(self._lab, self._transport.counters())

    # -- judgement ------------------------------------------------------------------------------------------------------

    def _judged(self, size: Size, window: Window, losses: Losses, seen: Seen) -> RowResult:
        diagnoses = diagnosed(self._lab, self._plan, window, losses, seen, began_s=self._monitor.origin_s)
        self._record.findings += [{"size_bytes": size.size_bytes, **one} for one in as_dicts(diagnoses)]
        self._record.machine = {**self._record.machine, "sampler_core_share": round(window.sampler_share, 4)}
        prediction = self._expected.prediction(size, self._scale)
        stats = kpis.iteration_stats(self._halves[False].seconds)
        done = sum(len(half.results) for half in self._halves.values())
        planned = {intf: n * done for intf, n in prediction.bytes_by_intf.items()} if prediction else {}
        counted = window.bytes_by_intf()
        self._keep_links(size, window, planned, losses)
        known = not self._expected.unknown and self._e.spread == "flow"
        paths = [list(way) for way in self._expected.paths.values()] if known else []
        if known:
            self._record.notes = collision_notes(self._lab.fabric, paths, counted)
        self._record.balance += group_balances(self._lab.fabric, paths, counted, size_bytes=size.size_bytes)
        self._keep_spans(size)
        circuits = self._keep_circuits(size, window)
        evidence = replace(
            observed(self._lab, self._plan, window, losses, diagnoses),
            iterations_done=done,
            iterations_asked=self._e.iterations * len(self._halves),
            wrong=sum(half.wrong or 0 for half in self._halves.values()),
            data_bytes=self._data_bytes(size),
            lost_bytes=losses.transport.lost_bytes,
            switch_queue_frames=switch_queue_frames(self._lab, window, self._busy, self._frame_s),
            sender_lateness_frames=self._lateness_frames(),
            stall_s=window.longest_stall_s(self._outstanding),
            segments=float(np.ceil(self._plan.message_bytes(size.count) / self._plan.framing.payload_bytes).sum())
            * done,
            resent_for_losses=resent_for(
                self._e, losses.impaired.lost + sum(losses.queues.values()), losses.transport.timeouts
            ),
            frames_per_step=self._plan.frames_per_step(size),
            measured_to_predicted=stats.mean / prediction.seconds
            if prediction and self._halves[False].results
            else None,
            planned_bytes=self._certain(planned),
            counted_bytes=counted,
            links={intf: direction(self._lab.fabric, intf) for intf in planned},
            more_frames=self._plan.more_frames(self._scale),
            circuits=circuits,
        )
        return self._row(size, stats, prediction, window, losses, judge(evidence))

    def _certain(self, planned: Mapping[str, float]) -> Mapping[str, float]:
        """What is as planned whatever happens. Between switches sprayed packets take turns, whose begin and end nobody plans."""
        if self._e.spread == "flow":
            return planned
        nodes, link_of = self._lab.fabric.node, self._lab.fabric.link_of
        return {i: n for i, n in planned.items() if any(nodes(port.node).is_host for port in link_of(i).ports)}

    def _row(
        self,
        size: Size,
        stats: kpis.IterationStats,
        prediction: Prediction | None,
        window: Window,
        losses: Losses,
        verdict: Verdict,
    ) -> RowResult:
        scale, e, plan = self._scale, self._e, self._plan
        roofline_s = self._expected.roofline_s(size, scale)
        time_s = scale.hardware_s(stats.mean)
        balance = kpis.balance(
            kpis.parallel_uplinks(self._lab.fabric), window.bytes_by_intf(), at_least=size.emulated_bytes / 10
        )
        # What did not come took no time, and nobody can say how long it would have taken.
        whole = self._halves[False].wrong is not None
        algbw = self._algbw(size, time_s) if whole else math.nan
        in_place = self._halves.get(True)
        jobs = self._jobs()
        at_hosts = losses.at_hosts(self._lab.fabric)
        goodput = self._goodput(size, window) if whole else None
        return RowResult(
            fabric=self._lab.fabric.name,
            routing=plan.routing,
            collective=plan.collective,
            algorithm=plan.algorithm,
            transport=self._transport.name,
            ranks=plan.ranks,
            placement=e.placement,
            rate_scale=scale.rate_scale,
            size_scale=scale.size_scale,
            time_dilation=scale.time_dilation,
            seed=e.seed,
            size_bytes=size.size_bytes,
            emulated_bytes=size.emulated_bytes,
            iterations=len(self._halves[False].results),
            time_s=time_s,
            emulated_s=stats.mean,
            time_p50_s=scale.hardware_s(stats.p50),
            time_p95_s=scale.hardware_s(stats.p95),
            time_p99_s=scale.hardware_s(stats.p99),
            cv=stats.cv,
            algbw_gbytes_s=algbw,
            busbw_gbytes_s=algbw * plan.algo_factor,
            wrong=self._halves[False].wrong,
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
            delivered=1 - losses.transport.lost_bytes / max(1, self._data_bytes(size)),
            ecn_seen=losses.impaired.seen if e.ecn_threshold_us is not None else 0,
            ecn_marked=losses.impaired.marked,
            in_place=self._in_place(size, in_place) if in_place else None,
            goodput=goodput,
            sustained=goodput.sustained if goodput else math.nan,
            jobs=jobs,
            **step_columns(jobs, plan.workload),
        )

    def _jobs(self) -> tuple[StepReport, ...]:
        """A workload's figures by job, in the hardware's time: means over the iterations."""
        if not self._plan.workload:
            return ()
        dilation = self._scale.time_dilation
        by_iteration = [
            self._plan.workload.reports(*(np.rint(t / dilation).astype(np.int64) for t in (r.started, r.finished)))
            for r in self._halves[False].results
        ]
        return tuple(mean_report(of_job) for of_job in zip(*by_iteration, strict=True))

    def _algbw(self, size: Size, time_s: float) -> float:
        """Of the bytes really sent, which rounding to whole elements makes a little fewer than the size divided. A workload
        computes as well: it has none."""
        if self._plan.workload:
            return math.nan
        return kpis.algbw_gbytes_s(size.emulated_bytes * self._scale.size_scale, time_s)

    def _in_place(self, size: Size, half: _Half) -> InPlace:
        time_s = self._scale.hardware_s(kpis.iteration_stats(half.seconds).mean)
        algbw = math.nan if half.wrong is None else self._algbw(size, time_s)
        return InPlace(time_s, algbw, algbw * self._plan.algo_factor, half.wrong)

    def _lateness_frames(self) -> float:
        """p99 over all sends of how long this process let them wait, in times of one frame at the NIC's rate."""
        late = [r.lateness_ns for half in self._halves.values() for r in half.results]
        return float(np.percentile(np.concatenate(late), 99)) / 1e9 / self._frame_s if late else 0.0

    @property
    def _frame_s(self) -> float:
        return frame_s(self._plan, self._scale)

    def _keep_circuits(self, size: Size, window: Window) -> CircuitTotal | None:
        plan, optical, made = self._plan.circuits, self._plan.optical, self._switching
        if not plan or not optical or len(window.at_s) < 2:
            return None
        size_bytes, origin_s = size.size_bytes, self._monitor.origin_s
        seen = link_samples(self._lab.fabric, window, origin_s)
        if made:
            records = timeline.from_history(made.history, optical, seen, size_bytes=size_bytes, origin_s=origin_s)
        else:
            records = timeline.all_along(plan.slices[0].circuits, optical, seen, size_bytes=size_bytes)
        late_us, error = (made.late_us, made.error) if made else (0.0, None)
        complete = made is None or made.complete
        found = timeline.total(
            records,
            optical,
            self._circuits,
            seen,
            size_bytes=size_bytes,
            late_us=late_us,
            error=error,
            complete=complete,
        )
        self._record.circuits += records
        self._record.circuit_totals.append(found)
        return found

    def _keep_spans(self, size: Size) -> None:
        results = self._halves[False].results
        if results:
            i = representative(results)
            self._record.spans.append(
                rank_spans(
                    self._plan.schedule,
                    results[i],
                    size_bytes=size.size_bytes,
                    iteration=i,
                    time_dilation=self._scale.time_dilation,
                )
            )

    def _keep_links(self, size: Size, window: Window, planned: dict[str, float], losses: Losses) -> None:
        self._record.links.append(link_samples(self._lab.fabric, window, self._monitor.origin_s))
        self._record.cpu.append(cpu_samples(window, self._monitor.origin_s))
        busy_s = sum(end - start for start, end in self._busy)
        self._record.link_totals += link_totals(
            self._lab.fabric, window, losses, busy_s, size_bytes=size.size_bytes, planned=planned
        )
