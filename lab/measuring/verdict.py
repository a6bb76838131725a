"""Whether a row may be believed: evidence in, verdict and reasons out.

    invalid    the emulator was in the way, or the result is wrong: no network result
    degraded   the number is right, but the conditions were not the asked ones
    ok         every check holds

Each threshold has a name and its reason. A check that could not be made (None) says nothing.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lab.kpis import CollisionBand, collision_band, flows_per_group, mmr, parallel_uplinks
from lab.measuring.diagnosis import MAX_OTHER_CORES, Diagnosis
from lab.planning.scale import MIN_FRAMES_PER_STEP
from lab.rows import CircuitTotal, Level
from topologies import Fabric, Port
from topologies.delay_line import Report
from topologies.impairments import UNTOUCHED, EgressCounts
from topologies.shaping import LINKS_PER_ROUND_TRIP

# How long frames wait for the switch thread, in times of one frame at the NIC's rate (median). What it uses of its core
# says little: it polls, and looks busy long before it is late. Measured on two cores, 16 ranks, MTU 9000: 0.5 frame times
# at 50 Mbit/s, 2 at 100, 4 to 13 at 200 (JCT ratio 1.12 to 1.23), 33 to 74 at 400 (1.5 to 1.9) and 320 at 800 (3.5).
MAX_SWITCH_QUEUE_FRAMES = 8.0
MAX_SWITCH_QUEUE_FRAMES_INVALID = 16.0
# Measured / predicted: with less, frames waited for nobody, whatever the cores did. Two labs side by side on two cores left 0.2 %
# idle and both measured 1.03.
MAX_RATIO_UNHARMED = 1.05
# Of all cores. Mininet-HiFi reproduced hardware with 35 % idle in every second; below 5 % nothing is left for bursts.
MIN_IDLE_SHARE = 0.05
# Findings that a reason lists.
MAX_NAMED = 3
# Runnable, but not running: time that every frame in the switch waited beyond its link.
MAX_SWITCH_WAIT_SHARE = 0.05
MAX_SWITCH_WAIT_SHARE_INVALID = 0.25
# Sampling ten times a second cannot tell a shorter standstill from a round trip. A TCP retransmission timeout is 0.2 s at least.
MAX_STALL_S = 0.5
MAX_STEAL_SHARE = 0.02
# Of the rate that was asked for, while there was something to send: what a pacer may be off, and what makes it no pacer.
MAX_PACING_ERROR, MAX_PACING_ERROR_INVALID = 0.01, 0.05
# NTP steers a clock by 500 ppm at most.
MAX_CLOCK_DRIFT = 1e-3
# The monitor wakes often: after so long without, nothing else may have run either.
MAX_GAP_S = 1.0
# Against the frame time: a sender this late has left its link idle for frames on end.
MAX_LATENESS_FRAMES = 8.0
# So late, and much slower than predicted: it was the sender that was slow.
MAX_LATENESS_FRAMES_INVALID = 100.0
# Measured / predicted: what the model knows (headers, shared links, latency) is in; a quarter more has another cause.
MAX_UNEXPLAINED_RATIO = 1.25
# Faster than the links allow means that a link was not shaped or that bytes were not sent. Of the predicted time, since messages
# shorter than a bucket's burst may go at once, and of the fullest link's, since flows may share better than max-min fairly.
MIN_PREDICTED_RATIO = 0.90
# Counted against planned bytes of a link: acknowledgements and retransmissions are within it (kpis: within 1 % planned).
MAX_COUNT_ERROR = 0.05
# Of the busiest link: below it a link carries acknowledgements alone, whose number is TCP's to choose.
MIN_COUNTED_SHARE = 0.05
# Full frames beyond the plan that mean nothing: a probe, a retransmission of the warm-up's end.
STRAY_FRAMES = 2
# Segments sent again though no queue dropped them, of all sent. What congested links drop is a result, not a fault.
MAX_RETRANSMIT_SHARE = 0.01
# Of the shortest delay: frames that left the impairment hop later than this (p99) were not delayed as asked.
MAX_HOP_LATE_SHARE = 0.25
# Of the shortest slice: what begins later than this has carried that much less than planned.
MAX_SLICE_LATE_SHARE = 0.1
# Standard deviations of the binomial between losses asked for and counted: by chance one row in 15 000 is further off.
MAX_LOSS_SIGMAS = 4.0


@dataclass(frozen=True)
class Evidence:
    """What is known about one row. Shares are 0..1; None = was not or could not be observed."""

    iterations_done: int
    iterations_asked: int
    # Elements.
    wrong: int = 0
    # What is wrong with the fabric or beside it, and where.
    diagnoses: tuple[Diagnosis, ...] = ()

    # The machine. switch_queue_frames: median wait of frames for the switch thread; sender_lateness_frames: p99 of how late
    # sends left; both in frame times.
    idle_share: float | None = None
    switch_queue_frames: float | None = None
    switch_wait_share: float | None = None
    # That other labs used.
    other_labs_cores: float = 0.0
    steal_share: float | None = None
    sender_lateness_frames: float | None = None
    # The longest time in which no link moved a byte while sends were outstanding.
    stall_s: float | None = None
    # Of the clock that times are taken by; the longest time in which the monitor did not run.
    clock_drift: float = 0.0
    longest_gap_s: float = 0.0
    # Links that sent less than their rate while frames waited.
    idle_queues: tuple[str, ...] = ()
    # With which ours ended; None = it runs or is not ours.
    controller_status: int | None = None
    # The switch process was stopped.
    datapath_stopped_s: float = 0.0

    # The transport. resent_for_losses: segments that all losses can explain, None = one each; timeouts: of retransmission
    # timers; out_of_order: packets that others had overtaken; dropped_at_sockets: frames that a transport in user space was too
    # slow to take; pacing: rate of paced senders over the one asked for, while they had something to send; data_bytes,
    # lost_bytes: payload, and what of it never came; segments: data frames that the plan sends.
    retransmits: int = 0
    resent_for_losses: int | None = None
    timeouts: int = 0
    spread: str = "flow"
    out_of_order: int = 0
    dropped_at_sockets: int = 0
    pacing: float | None = None
    data_bytes: int = 0
    lost_bytes: int = 0
    frame_bytes: float = 0.0
    segments: float | None = None

    # The network. queue_drops: in the links' queues, where a congested fabric loses frames, but none that was asked to be
    # lossless; loss_asked: probability of a frame on each link; impaired: what all links together did to frames on purpose;
    # hop: of the impairment hop, and what it carries on a core of its own; delays_us: emulated, of the links that have one,
    # shortest first.
    queue_drops: int = 0
    lossless_asked: bool = False
    datapath_drops: int = 0
    loss_asked: float = 0.0
    impaired: EgressCounts = UNTOUCHED
    jitter_asked: bool = False
    hop: Report | None = None
    hop_frames_per_s: float | None = None
    delays_us: tuple[float, ...] = ()
    # What they did; None = there are none.
    circuits: CircuitTotal | None = None

    # Beside the plan. Bytes by interface; links: interface -> direction text; more_frames: what gives a message enough.
    frames_per_step: float | None = None
    measured_to_predicted: float | None = None
    measured_to_bound: float | None = None
    planned_bytes: Mapping[str, float] = field(default_factory=dict)
    counted_bytes: Mapping[str, int] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    more_frames: str = ""

    @property
    def is_unharmed(self) -> bool:
        """A busy machine cost nothing: frames did not wait for the switch, nor sends for the replay, and the time is the
        predicted one. Where one of these is not known, it is not so."""
        queue, late, ratio = self.switch_queue_frames, self.sender_lateness_frames, self.measured_to_predicted
        return (
            queue is not None
            and queue <= MAX_SWITCH_QUEUE_FRAMES
            and late is not None
            and late <= MAX_LATENESS_FRAMES
            and ratio is not None
            and ratio <= MAX_RATIO_UNHARMED
        )

    @property
    def circuits_change(self) -> bool:
        return self.circuits is not None and self.circuits.shortest_slice_us > 0


@dataclass(frozen=True)
class Verdict:
    level: Level
    reasons: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """The reasons as the table's one column."""
        return "; ".join(self.reasons)


def judge(e: Evidence) -> Verdict:
    """The worst level that any check found, with all reasons: what has a name before what follows from it, then the grave ones
    before the others; and what is to be known besides."""
    wrong, beside, invalid, degraded = (
        tuple(reason for check in checks for reason in check(e)) for checks in (_WRONG, (_beside,), _INVALID, _DEGRADED)
    )
    level: Level = "invalid" if wrong or invalid else "degraded" if beside or degraded else "ok"
    return Verdict(level, (*wrong, *beside, *invalid, *degraded, *_remarks(e)))


# -- invalid --------------------------------------------------------------------------------------------------------


def _nothing_done(e: Evidence) -> Iterator[str]:
    if e.iterations_done == 0:
        yield f"none of {e.iterations_asked} iterations completed"


def _wrong(e: Evidence) -> Iterator[str]:
    if e.wrong:
        yield f"wrong result: {e.wrong} elements differ from what the collective must give"


def _not_as_asked(e: Evidence) -> Iterator[str]:
    grave = [str(one) for one in e.diagnoses if one.is_grave]
    yield from grave[:MAX_NAMED]
    if len(grave) > MAX_NAMED:
        yield f"and {len(grave) - MAX_NAMED} more links or circuits that were not as asked"


def _cpu_limited(e: Evidence) -> Iterator[str]:
    queue = e.switch_queue_frames
    if queue is not None and queue > MAX_SWITCH_QUEUE_FRAMES_INVALID:
        yield f"CPU-limited: {_waited(queue)}{_beside_labs(e)}"
    if e.is_unharmed:
        return
    late, ratio = e.sender_lateness_frames, e.measured_to_predicted
    if late is not None and late > MAX_LATENESS_FRAMES_INVALID and ratio is not None and ratio > MAX_UNEXPLAINED_RATIO:
        yield f"CPU-limited: senders were late by {late:.0f} frame times (p99), and it took {ratio:.2f} times the predicted time"
    if e.idle_share is not None and e.idle_share < MIN_IDLE_SHARE:
        yield f"CPU-limited: the machine was {e.idle_share:.1%} idle, {MIN_IDLE_SHARE:.0%} is the least{_beside_labs(e)}"
    if e.switch_wait_share is not None and e.switch_wait_share > MAX_SWITCH_WAIT_SHARE_INVALID:
        yield f"CPU-limited: the switch thread waited for a core {e.switch_wait_share:.0%} of the time"


def _beside_labs(e: Evidence) -> str:
    """Labs know of each other and divide the machine: that is no disturbance, but it may be too much for it."""
    return f", other labs used {e.other_labs_cores:.1f} cores" if e.other_labs_cores > MAX_OTHER_CORES else ""


def _stood_still(e: Evidence) -> Iterator[str]:
    if e.datapath_stopped_s > 0:
        yield f"the switch process was stopped for {e.datapath_stopped_s:.1f} s"
    under_way_s = LINKS_PER_ROUND_TRIP * max(e.delays_us, default=0.0) / 1e6
    # With losses asked for, TCP may wait for its timers, each twice as long as the one before; RoCEv2 tells of its own. So it
    # may in the dark, and while a pair has no circuit; and UDP waits for what does not come.
    expected = e.loss_asked or e.timeouts or e.circuits_change or e.lost_bytes
    if e.stall_s is not None and e.stall_s > MAX_STALL_S + under_way_s and not expected:
        yield f"the fabric stood still for {e.stall_s:.1f} s while sends were outstanding"


def _lost_outside(e: Evidence) -> Iterator[str]:
    if e.dropped_at_sockets:
        yield f"{e.dropped_at_sockets} frames lost at full sockets of the hosts: the transport could not keep up"
    if e.datapath_drops:
        yield f"{e.datapath_drops} frames lost inside Open vSwitch"
    if e.hop and e.hop.lost:
        yield f"{e.hop.lost} frames lost inside the impairment hop{_hop_load(e.hop, e.hop_frames_per_s)}"


def _not_paced(e: Evidence) -> Iterator[str]:
    if e.pacing is not None and abs(e.pacing - 1) > MAX_PACING_ERROR_INVALID:
        yield _pace(e.pacing)


def _pace(pacing: float) -> str:
    return f"senders kept {pacing:.3f} of the rate that was asked for"


def _miscounted(e: Evidence) -> Iterator[str]:
    # What is lost and not sent again is on no link behind.
    if e.iterations_done < e.iterations_asked or e.lost_bytes:
        return
    least = MIN_COUNTED_SHARE * max(e.planned_bytes.values(), default=0.0)
    off = {
        name: e.counted_bytes.get(name, 0) / planned - 1 for name, planned in e.planned_bytes.items() if planned > least
    }
    worst = max(off, key=lambda name: abs(off[name]), default=None)
    sent_again = (e.retransmits + STRAY_FRAMES) * e.frame_bytes
    if worst is not None and abs(off[worst]) > MAX_COUNT_ERROR + sent_again / e.planned_bytes[worst]:
        yield (
            f"{e.links.get(worst, worst)} ({worst}) carried {e.counted_bytes.get(worst, 0):,} bytes where the schedule "
            f"sends {e.planned_bytes[worst]:,.0f} ({off[worst]:+.1%})"
        )


def _plan_given_up(e: Evidence) -> Iterator[str]:
    if e.circuits and e.circuits.error:
        yield f"the plan of circuits was given up: {e.circuits.error}"


def _too_fast(e: Evidence) -> Iterator[str]:
    ratio, bound = e.measured_to_predicted, e.measured_to_bound
    if ratio is not None and bound is not None and max(ratio, bound) < MIN_PREDICTED_RATIO and not e.lost_bytes:
        yield f"faster than its links allow: {bound:.2f} of what the fullest one needs for its bytes"


# -- degraded -------------------------------------------------------------------------------------------------------


def _beside(e: Evidence) -> Iterator[str]:
    yield from [str(one) for one in e.diagnoses if not one.is_grave][:MAX_NAMED]


def _interrupted(e: Evidence) -> Iterator[str]:
    if 0 < e.iterations_done < e.iterations_asked:
        yield f"interrupted: {e.iterations_done} of {e.iterations_asked} iterations"


def _uncontrolled(e: Evidence) -> Iterator[str]:
    if e.controller_status is not None:
        yield f"the controller ended with status {e.controller_status}: the switches had the rules that it left them"


def _quantised(e: Evidence) -> Iterator[str]:
    if e.frames_per_step is not None and round(e.frames_per_step) < MIN_FRAMES_PER_STEP:
        remedy = f": {e.more_frames}" if e.more_frames else ""
        yield f"quantised: {e.frames_per_step:.3g} full frames in a step's message, {MIN_FRAMES_PER_STEP} are needed{remedy}"


def _disturbed(e: Evidence) -> Iterator[str]:
    if e.steal_share is not None and e.steal_share > MAX_STEAL_SHARE:
        yield f"the hypervisor took {e.steal_share:.0%} of the CPU"
    wait = e.switch_wait_share
    if wait is not None and not e.is_unharmed and MAX_SWITCH_WAIT_SHARE < wait <= MAX_SWITCH_WAIT_SHARE_INVALID:
        yield f"the switch thread waited for a core {wait:.0%} of the time"


def _busy_switch(e: Evidence) -> Iterator[str]:
    queue = e.switch_queue_frames
    if queue is not None and MAX_SWITCH_QUEUE_FRAMES < queue <= MAX_SWITCH_QUEUE_FRAMES_INVALID:
        yield _waited(queue)


def _waited(frames: float) -> str:
    return f"frames waited {frames:.0f} frame times for the switch thread, {MAX_SWITCH_QUEUE_FRAMES:.0f} are tolerated"


def _late(e: Evidence) -> Iterator[str]:
    late = e.sender_lateness_frames
    if late is not None and late > MAX_LATENESS_FRAMES:
        yield f"senders were late by {late:.0f} frame times (p99), {MAX_LATENESS_FRAMES:.0f} are tolerated"


def _unexplained(e: Evidence) -> Iterator[str]:
    ratio = e.measured_to_predicted
    if ratio is not None and ratio > MAX_UNEXPLAINED_RATIO and not (e.loss_asked or e.jitter_asked):
        dropped_many = e.segments is not None and e.queue_drops > MAX_RETRANSMIT_SHARE * e.segments
        reordered = ": packets were reordered" if _is_reordered(e) else ""
        why = _congestion(e) if dropped_many else _idle_queues(e) or reordered or ", unexplained"
        yield f"{ratio:.2f} times the predicted time{why}"


def _idle_queues(e: Evidence) -> str:
    return f": {', '.join(e.idle_queues[:MAX_NAMED])}" if e.idle_queues else ""


def _clock(e: Evidence) -> Iterator[str]:
    if e.clock_drift > MAX_CLOCK_DRIFT:
        yield f"the clock was steered by {e.clock_drift:.2%} while it measured"
    if e.longest_gap_s > MAX_GAP_S:
        yield f"nothing was seen for {e.longest_gap_s:.1f} s: the machine was paused, or too busy to look"


def _congestion(e: Evidence) -> str:
    return f": full queues dropped {e.queue_drops:,} frames, {e.retransmits:,} segments were sent again"


def _is_reordered(e: Evidence) -> bool:
    """Packets took different paths, as was asked: what their receiver and their sender make of that is a result."""
    return e.spread != "flow" and e.out_of_order > 0


def _resent(e: Evidence) -> Iterator[str]:
    lost = e.impaired.lost + e.queue_drops
    unexplained = e.retransmits - (lost if e.resent_for_losses is None else e.resent_for_losses)
    # What was sent into the dark is sent again, and what TCP takes for lost meanwhile with it.
    if e.segments and unexplained > MAX_RETRANSMIT_SHARE * e.segments and not (e.circuits_change or _is_reordered(e)):
        yield f"{unexplained} segments ({unexplained / e.segments:.1%}) sent again that no link had lost"


def _badly_paced(e: Evidence) -> Iterator[str]:
    if e.pacing is not None and MAX_PACING_ERROR < abs(e.pacing - 1) <= MAX_PACING_ERROR_INVALID:
        yield _pace(e.pacing)


def _undelivered(e: Evidence) -> Iterator[str]:
    if e.lost_bytes:
        yield (
            f"{1 - e.lost_bytes / max(1, e.data_bytes):.1%} of the data arrived, {e.lost_bytes:,} of {e.data_bytes:,} bytes were "
            "lost and nobody sends them again: values were not compared, and the time has the wait for them in it"
        )


def _not_lossless(e: Evidence) -> Iterator[str]:
    if e.lossless_asked and e.queue_drops:
        yield f"queues dropped {e.queue_drops:,} frames, though credits were to keep that from happening"


def _timed_out(e: Evidence) -> Iterator[str]:
    if e.timeouts:
        longest = "" if e.stall_s is None else f", nothing moved for {e.stall_s:.1f} s at the longest"
        yield f"{e.timeouts} retransmission timeouts{longest}"


def _late_hop(e: Evidence) -> Iterator[str]:
    if e.hop is None:
        return
    shortest_us = e.delays_us[0]
    if e.hop.late_p99_us > MAX_HOP_LATE_SHARE * shortest_us:
        yield (
            f"the impairment hop was late by {e.hop.late_p99_us / 1e3:.1f} ms (p99) on a delay of {shortest_us / 1e3:g} ms"
            f"{_hop_load(e.hop, e.hop_frames_per_s)}"
        )
    elif e.hop_frames_per_s is not None and e.hop.frames_per_s > e.hop_frames_per_s:
        yield f"more than the impairment hop carries{_hop_load(e.hop, e.hop_frames_per_s)}"


def _hop_load(hop: Report, carries: float | None) -> str:
    known = f", it carries {carries:,.0f} with a core of its own" if carries is not None else ""
    return f": it had {hop.frames_per_s:,.0f} frames/s{known}"


def _other_loss(e: Evidence) -> Iterator[str]:
    p, (seen, lost, _) = e.loss_asked, e.impaired
    if abs(lost - p * seen) > MAX_LOSS_SIGMAS * math.sqrt(p * (1 - p) * seen) + 1:
        yield f"links lost {lost} of {seen} frames on purpose, {p:.2%} were asked for"


def _dark_for_longer(e: Evidence) -> Iterator[str]:
    c = e.circuits
    if c and c.unmet:
        yield (
            f"{c.unmet} of {c.set_up} circuits were dark for longer than asked, up to {c.worst_dark_us / 1e3:.1f} ms where "
            f"{c.requested_dark_us / 1e3:.3g} ms are emulated: with a larger time dilation (--scale) the software would keep up"
        )


def _forgotten(e: Evidence) -> Iterator[str]:
    if e.circuits and not e.circuits.complete:
        yield "more circuits were set in one iteration than the controller remembers: the first are not in the results"


def _late_slices(e: Evidence) -> Iterator[str]:
    c = e.circuits
    if c and c.late_us > MAX_SLICE_LATE_SHARE * c.shortest_slice_us > 0:
        yield f"slices of circuits began up to {c.late_us / 1e3:.1f} ms late, the shortest has {c.shortest_slice_us / 1e3:.3g} ms"


_Check = Callable[[Evidence], Iterator[str]]
_WRONG: tuple[_Check, ...] = (_not_as_asked, _nothing_done, _wrong)
_INVALID: tuple[_Check, ...] = (
    _cpu_limited, _stood_still, _lost_outside, _miscounted, _too_fast,
    _plan_given_up, _not_paced,
)  # fmt: skip
_DEGRADED: tuple[_Check, ...] = (
    _interrupted, _uncontrolled, _quantised, _disturbed, _busy_switch, _late, _unexplained, _resent, _badly_paced,
    _undelivered, _not_lossless, _timed_out, _clock, _late_hop, _other_loss,
    _dark_for_longer, _late_slices, _forgotten,
)  # fmt: skip


# -- neither ----------------------------------------------------------------------------------------------------------


def _remarks(e: Evidence) -> Iterator[str]:
    if e.pacing is not None and abs(e.pacing - 1) <= MAX_PACING_ERROR:
        yield _pace(e.pacing)
    if e.loss_asked:
        yield (
            f"links lost {e.impaired.lost} of {e.impaired.seen} frames as asked ({e.loss_asked * e.impaired.seen:.0f} expected), "
            "which the prediction does not know"
        )
    if (c := e.circuits) and e.circuits_change:
        duty = (
            "" if math.isnan(c.duty_cycle) else f"duty cycle {c.duty_cycle:.1%}, planned {c.planned_duty_cycle:.1%}, "
        )
        yield (
            f"{c.set_up or 'no'} circuits set while it ran, {duty}"
            f"{c.bytes_lost:,} bytes lost in the dark, {e.retransmits} segments sent again"
        )
    if _is_reordered(e):
        yield (
            f"spread by {e.spread}, packets overtook each other: {e.out_of_order:,} came out of order, "
            f"{e.retransmits:,} segments were sent again"
        )
    if e.jitter_asked:
        yield "the prediction knows the delay, not its jitter"


def collision_notes(fabric: Fabric, paths: Iterable[Sequence[Port]], sent_by_intf: Mapping[str, float]) -> list[str]:
    """One sentence per switch with parallel uplinks that flows cross. paths: of the data flows, egress port by port."""
    groups = parallel_uplinks(fabric)
    notes = []
    for switch, flows in flows_per_group(paths, groups).items():
        n = len(groups[switch])
        ratio = mmr([sent_by_intf.get(port.intf, 0.0) for port in groups[switch]])
        notes.append(collision_note(switch, ratio, collision_band(flows, n), flows, n))
    return notes


def collision_note(switch: str, ratio: float, band: CollisionBand, flows: int, paths: int) -> str:
    """What to print beside a balance: never a failure by itself, since few flows are always uneven."""
    verb = "as chance gives" if band.explains(ratio) else "outside what chance gives"
    return (
        f"{switch}: {flows} flow{'s' * (flows > 1)} on {paths} links, MMR {ratio:.2f}, {verb} "
        f"(expected {band.expected:.2f}, 95 % in {band.low:.2f} to {band.high:.2f})"
    )
