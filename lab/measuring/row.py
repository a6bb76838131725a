"""One row of the table: warm-up, timed iterations, and whether the number may be believed."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from controller.circuits.plan import Plan as CircuitPlan
from lab import kpis
from lab.machine.bringup import Lab
from lab.measuring import timeline
from lab.measuring.diagnosis import as_dicts
from lab.measuring.monitor import Monitor
from lab.measuring.observed import Before, Observation, direction, frame_s, switch_queue_frames
from lab.measuring.row_figures import Half, RowFigures, Timed
from lab.measuring.sharing import group_balances
from lab.measuring.spans import rank_spans, representative
from lab.measuring.switching import switching
from lab.measuring.verdict import collision_notes, judge
from lab.planning.circuits import plan_data
from lab.planning.forecast import Forecast
from lab.planning.plan import Size
from lab.planning.scale import Scale
from lab.planning.sending import resent_for
from lab.progress import Progress
from lab.rows import CircuitTotal, IterationRecord, RowResult, RunRecord
from topologies.units import format_size
from traffic import values
from traffic.replay import IterationResult, Replay
from traffic.transport import Transport

Buffers = Sequence[NDArray[np.float32]]


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
        self._timed = Timed(in_place=Half() if self._e.in_place else None)
        self._switching = switching(expected.plan, scale)
        self._circuits: CircuitPlan | None = None

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
        figures = RowFigures(self._expected, self._scale, size)
        before = Before(self._lab, self._plan, self._monitor, self._transport.counters)
        try:
            for half in self._timed.halves:
                of_half = " in place" if half is self._timed.in_place else ""
                for i in range(self._e.iterations):
                    self._say(size, f"iteration {i + 1}/{self._e.iterations}{of_half}")
                    self._time(replay, buffers, half, i, figures)
        finally:
            row = self._judged(figures, before.after())
            if self._timed.out_of_place.results:
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

    def _time(self, replay: Replay, buffers: Buffers, half: Half, i: int, figures: RowFigures) -> None:
        lost_before = self._transport.counters().lost_bytes
        result = self._iterate(replay, buffers)
        ended = time.monotonic()
        began = ended - result.duration_ns / 1e9
        wrong = None
        if self._transport.counters().lost_bytes == lost_before:
            wrong = sum(values.wrong(b, self._plan.schedule, rank) for rank, b in enumerate(buffers))
        self._timed.busy.append((began, ended))
        moves = ~self._plan.schedule.is_local
        started_s, finished_s = result.started[moves] / 1e9, result.finished[moves] / 1e9
        self._timed.outstanding += [(began + a, began + b) for a, b in kpis.covered(started_s, finished_s)]
        half.results.append(result)
        half.wrong = None if wrong is None or half.wrong is None else half.wrong + wrong
        shares = figures.sender_shares(result)
        self._record.iterations.append(
            IterationRecord(
                collective=self._plan.collective,
                algorithm=self._plan.algorithm,
                size_bytes=figures.size.size_bytes,
                in_place=half is self._timed.in_place,
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

    # -- judgement ------------------------------------------------------------------------------------------------------

    def _judged(self, figures: RowFigures, seen: Observation) -> RowResult:
        size, timed, window, losses = figures.size, self._timed, seen.window, seen.losses
        diagnoses = seen.diagnosed()
        self._record.findings += [{"size_bytes": size.size_bytes, **one} for one in as_dicts(diagnoses)]
        self._record.machine = {**self._record.machine, "sampler_core_share": round(window.sampler_share, 4)}
        prediction = self._expected.prediction(size, self._scale)
        planned = {intf: n * timed.done for intf, n in prediction.bytes_by_intf.items()} if prediction else {}
        counted = window.bytes_by_intf()
        seen.keep(self._record, timed.busy_s, size_bytes=size.size_bytes, planned=planned)
        self._keep_balance(size, counted)
        self._keep_spans(size)
        circuits = self._keep_circuits(size, seen)
        evidence = replace(
            seen.evidence(diagnoses),
            iterations_done=timed.done,
            iterations_asked=self._e.iterations * len(timed.halves),
            wrong=sum(half.wrong or 0 for half in timed.halves),
            data_bytes=figures.data_bytes(timed),
            lost_bytes=losses.transport.lost_bytes,
            switch_queue_frames=switch_queue_frames(self._lab, window, timed.busy, self._frame_s),
            sender_lateness_frames=self._lateness_frames(),
            stall_s=window.longest_stall_s(timed.outstanding),
            segments=figures.segments(timed),
            resent_for_losses=resent_for(
                self._e, losses.impaired.lost + sum(losses.queues.values()), losses.transport.timeouts
            ),
            frames_per_step=self._plan.frames_per_step(size),
            measured_to_predicted=timed.stats.mean / prediction.seconds
            if prediction and timed.out_of_place.results
            else None,
            measured_to_bound=timed.stats.mean / prediction.busiest_s
            if prediction and prediction.busiest_s and timed.out_of_place.results
            else None,
            planned_bytes=self._certain(planned),
            counted_bytes=counted,
            links={intf: direction(self._lab.fabric, intf) for intf in planned},
            more_frames=self._plan.more_frames(self._scale),
            circuits=circuits,
        )
        return figures.row(timed, seen, prediction, self._transport.name, judge(evidence))

    def _certain(self, planned: Mapping[str, float]) -> Mapping[str, float]:
        """What is as planned whatever happens. Between switches sprayed packets take turns, whose begin and end nobody plans."""
        if self._e.spread == "flow":
            return planned
        nodes, link_of = self._lab.fabric.node, self._lab.fabric.link_of
        return {i: n for i, n in planned.items() if any(nodes(port.node).is_host for port in link_of(i).ports)}

    def _lateness_frames(self) -> float:
        """p99 over all sends of how long this process let them wait, in times of one frame at the NIC's rate."""
        late = [r.lateness_ns for half in self._timed.halves for r in half.results]
        return float(np.percentile(np.concatenate(late), 99)) / 1e9 / self._frame_s if late else 0.0

    @property
    def _frame_s(self) -> float:
        return frame_s(self._plan, self._scale)

    def _keep_balance(self, size: Size, counted: Mapping[str, int]) -> None:
        known = not self._expected.unknown and self._e.spread == "flow"
        paths = [list(way) for way in self._expected.paths.values()] if known else []
        if known:
            self._record.notes = collision_notes(self._lab.fabric, paths, counted)
        self._record.balance += group_balances(self._lab.fabric, paths, counted, size_bytes=size.size_bytes)

    def _keep_circuits(self, size: Size, observed: Observation) -> CircuitTotal | None:
        plan, optical, made = self._plan.circuits, self._plan.optical, self._switching
        if not plan or not optical or len(observed.window.at_s) < 2:
            return None
        size_bytes, origin_s, seen = size.size_bytes, observed.origin_s, observed.links
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
        results = self._timed.out_of_place.results
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
