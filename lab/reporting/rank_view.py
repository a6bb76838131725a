"""The section on what the ranks did. Pure text building."""

from collections.abc import Sequence

from lab.reporting import pieces
from lab.reporting.charts.ranks import ranks_over_time
from lab.reporting.ranks import RankTimes
from lab.reporting.wording import duration, unit_for
from lab.rows import RankSpans, RunRecord
from topologies.units import format_size

_MOST_RANKS = 12


def rank_names(record: RunRecord, spans: RankSpans | None) -> list[str]:
    n = max(len(record.hosts), int(spans.rank.max(initial=-1)) + 1 if spans else 0)
    return [f"{rank}: {record.hosts[rank] if rank < len(record.hosts) else 'helper'}" for rank in range(n)]


def section(spans: RankSpans | None, times: RankTimes | None, names: Sequence[str]) -> str:
    if spans is None or times is None:
        return ""
    unit = unit_for([times.whole_s])
    by_wait = sorted(range(len(names)), key=lambda r: (times.receive_only_s[r] + times.wait_s[r], r))
    chosen = by_wait if len(names) <= _MOST_RANKS else by_wait[: _MOST_RANKS // 2] + by_wait[-_MOST_RANKS // 2 :]
    columns = {
        "computes": times.compute_s, "sends": times.send_s, "only receives": times.receive_only_s, "waits": times.wait_s,
        "done at": times.end_s,
    }  # fmt: skip
    shown = {what: seconds for what, seconds in columns.items() if seconds.any()}
    rows = [(names[r], *(f"{seconds[r] / unit.seconds:,.2f}" for seconds in shown.values())) for r in chosen]
    caption = (
        f"Iteration {spans.iteration + 1} of {format_size(spans.size_bytes)}, the one of median duration. A message is under way "
        "from its first byte's leaving until it has arrived; send and receive are as long as the network takes. A straggler "
        "never waits while the others do. Gaps below "
        f"{duration(spans.resolution_s)} are left out."
    )
    return pieces.section(
        "Timeline of ranks",
        "ranks",
        pieces.figure(ranks_over_time(spans, times, names), caption, "ranks-over-time"),
        pieces.paragraph(
            "Ranks that wait least first."
            if len(chosen) == len(names)
            else f"The {len(chosen) // 2} ranks that wait least, and the {len(chosen) // 2} that wait most.",
            "soft",
        ),
        pieces.table(("rank", *(f"{what} ({unit.name})" for what in shown)), rows, text_columns=(0,), kind="narrow"),
    )
