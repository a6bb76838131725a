"""A run as it goes, on a terminal: what it does, how fast the hosts send, the hottest links, and the verdict so far.

Drawn by rich on standard error, and taken away before anything else is written. Elsewhere than on a terminal a run tells its
progress in plain lines (`lab.progress`).
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lab.machine.bringup import Lab
from lab.measuring.monitor import Monitor
from lab.measuring.observed import direction, switch_queue_frames
from lab.measuring.verdict import Evidence, Verdict, judge
from lab.progress import Progress
from lab.rows import RunRecord
from topologies.units import format_rate, format_size

_REFRESHES_PER_S = 2.0
_HOTTEST = 4
_BAR_WIDTH = 20
_STYLES = {"ok": "green", "degraded": "yellow", "invalid": "red"}


@dataclass(frozen=True)
class Snapshot:
    """sent_mbps: by the hosts, whose links allow links_mbps; hottest: (link, Mbit/s, share of its rate); done, of_all: iterations
    of the whole run; rows: the verdicts so far. Rates are emulated."""

    sent_mbps: float
    links_mbps: float
    hottest: Sequence[tuple[str, float, float]]
    done: int
    of_all: int
    rows: Sequence[str]
    verdict: Verdict


class LiveProgress(Progress):
    """Shows `view()` below what `step` says, twice a second, until `done`."""

    def __init__(self, before: Progress, view: Callable[[], Snapshot]) -> None:
        super().__init__(quiet=before.quiet)
        self.started = before.started
        self._view = view
        self._console = _Console(file=sys.stderr)
        self._live: Live | None = None

    def step(self, text: str) -> None:
        self._shown = text
        if self._live is None:
            self._live = Live(
                get_renderable=self._render,
                console=self._console,
                refresh_per_second=_REFRESHES_PER_S,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._live.start()

    def done(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()
        self._shown = ""

    def _render(self) -> RenderableType:
        return drawn(self.line(self._shown), self._view())


class _Console(Console):
    """Leaves the cursor as it is: a run that is killed could not bring it back."""

    def show_cursor(self, show: bool = True) -> bool:
        return False


def drawn(line: str, seen: Snapshot) -> RenderableType:
    """As wide as the terminal is; what does not fit is cut, nothing wraps."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(no_wrap=True, justify="right")
    for link, mbps, share in seen.hottest:
        table.add_row(link, _rate(mbps), f"{share:.0%}")
    # In a table of its own: a bar by itself ends no line.
    bar = Table.grid()
    bar.add_row(ProgressBar(total=max(seen.of_all, 1), completed=seen.done, width=_BAR_WIDTH))
    so_far = Text.assemble("verdict so far: ", (seen.verdict.level, _STYLES[seen.verdict.level]))
    if seen.verdict.reasons:
        so_far.append(f": {seen.verdict.reasons[0]}")
    parts: list[RenderableType] = [
        Text(line),
        bar,
        Text(f"hosts send {_rate(seen.sent_mbps)} of {_rate(seen.links_mbps)}; hottest links:"),
        table,
        so_far,
    ]
    if seen.rows:
        parts.append(Text(f"rows: {' '.join(seen.rows)}"))
    for part in parts:
        if isinstance(part, Text):
            part.no_wrap, part.overflow = True, "ellipsis"
    return Group(*parts)


def _rate(mbps: float) -> str:
    return format_rate(float(f"{mbps:.3g}"))


class View:
    """What there is to see of a run, whenever asked. of_all: iterations of all rows; frame_s: emulated time of a full frame."""

    def __init__(self, lab: Lab, monitor: Monitor, record: RunRecord, of_all: int, frame_s: float) -> None:
        self._lab, self._monitor, self._record = lab, monitor, record
        self._of_all, self._frame_s = of_all, frame_s
        self._rate = {intf: lab.fabric.link_of(intf).rate_mbps for intf in monitor.intfs}
        self._nics = {lab.fabric.scale_out_port(host.name).intf for host in lab.fabric.hosts}

    def __call__(self) -> Snapshot:
        bytes_s, _ = self._monitor.latest()
        mbps = {intf: speed * 8e-6 for intf, speed in zip(self._monitor.intfs, bytes_s.tolist(), strict=True)}
        share = {intf: speed / self._rate[intf] for intf, speed in mbps.items()}
        hottest = sorted(mbps, key=lambda intf: -share[intf])[:_HOTTEST]
        return Snapshot(
            sent_mbps=sum(mbps[intf] for intf in self._nics),
            links_mbps=sum(self._rate[intf] for intf in self._nics),
            hottest=[(direction(self._lab.fabric, intf), mbps[intf], share[intf]) for intf in hottest],
            done=len(self._record.iterations),
            of_all=self._of_all,
            rows=[f"{format_size(row.size_bytes)} {row.verdict}" for row in self._record.rows],
            verdict=self._verdict(),
        )

    def _verdict(self) -> Verdict:
        """Of what can be seen while it runs: since the row began."""
        start = self._monitor.last_mark
        if start is None:
            return Verdict("ok")
        window = self._monitor.since(start)
        busy = [(start.at_s, float(window.at_s[-1]))] if len(window.at_s) else []
        return judge(
            Evidence(
                iterations_done=1,
                iterations_asked=1,
                switch_queue_frames=switch_queue_frames(self._lab, window, busy, self._frame_s),
                datapath_stopped_s=window.stopped_s,
                longest_gap_s=window.longest_gap_s,
            )
        )


@contextmanager
def live(progress: Progress, view: Callable[[], Snapshot]) -> Iterator[Progress]:
    """The progress to use meanwhile: a picture on a terminal that can show one, else the one given."""
    if progress.quiet or not sys.stderr.isatty() or os.environ.get("TERM", "dumb") in ("dumb", ""):
        yield progress
        return
    progress.done()
    shown = LiveProgress(progress, view)
    try:
        yield shown
    finally:
        shown.done()
