"""What a run found, in words: what ran, how long it took, how far that is from what was computed, which link held it back.

Pure. Sentences are put together from the same numbers that the tables show.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lab.kpis import CollisionBand
from lab.reporting.ranks import RankTimes, stands_out
from lab.reporting.wording import arrow, duration, number, plural, share, times
from lab.rows import NO_PREDICTION, GroupBalance, Level, LinkTotal, RowResult, RunRecord
from topologies.units import format_rate, format_size

_LEVELS: tuple[Level, ...] = ("ok", "degraded", "invalid")
_TRANSPORTS = {"tcp": "TCP", "udp": "UDP", "rocev2": "RoCEv2"}
# The BMWG draft's reference values of the JCT ratio.
_EXCELLENT, _OVERHEAD = 1.05, 1.15
_EXPLAINED = 0.05


@dataclass(frozen=True)
class Answer:
    """level: the worst row's, '' without rows; headline: the verdict; sentences: the rest; reason: of the verdict of the row that
    they are about."""

    level: Level | str
    headline: str
    sentences: tuple[str, ...]
    reason: str = ""


def answer(record: RunRecord, row: RowResult | None, totals: Sequence[LinkTotal], ranks: RankTimes | None) -> Answer:
    """row: that the sentences are about; totals, ranks: of its size."""
    if row is None:
        return Answer("", "No row was measured.", (_what_ran(record),))
    level = max((r.verdict for r in record.rows), key=_LEVELS.index)
    sentences = (
        _what_ran(record),
        _warning(row),
        _how_long(row),
        _how_far(row),
        *_bottleneck(record, row, totals),
        *_straggler(record, ranks),
    )
    reason = f"{format_size(row.size_bytes)} is {row.verdict}: {row.reason}." if row.reason else ""
    return Answer(level, _headline(record, row, level), sentences, reason)


def main_row(rows: Sequence[RowResult]) -> RowResult | None:
    """The largest size whose number may be believed; without one, the largest."""
    return max(rows, key=lambda r: (r.verdict != "invalid", not math.isnan(r.time_s), r.size_bytes), default=None)


def _headline(record: RunRecord, row: RowResult, level: Level) -> str:
    """With the first thing that was found wrong, and where: of this row if it has one."""
    n = sum(r.verdict == level for r in record.rows)
    some = f" ({n} of {len(record.rows)} rows)" if len(record.rows) > 1 else ""
    if level == "ok":
        return "Verdict ok: every check of the emulator held, the numbers are the network's."
    found = sorted(record.findings, key=lambda f: f["size_bytes"] != row.size_bytes)
    first = f" First found wrong: {found[0]['kind']} {arrow(found[0]['element'])}." if found else ""
    if level == "degraded":
        return (
            f"Verdict degraded{some}: the numbers are right, but not under the conditions that were asked for.{first}"
        )
    return f"Verdict invalid{some}: {'' if found else 'the emulator was in the way; '}this is no result of the network.{first}"


def _what_ran(record: RunRecord) -> str:
    e, f = record.experiment, record.fabric
    transport = _TRANSPORTS.get(str(e["transport"]), str(e["transport"]))
    algorithm = f" ({e['algorithm']})" if e.get("algorithm") else ""
    return (
        f"{plural(len(record.hosts), 'rank')} ran {e['collective']}{algorithm} over {transport} on {f['fabric']}: "
        f"{plural(f['hosts'], 'host')}, {f['switches']} switch{'es' * (f['switches'] != 1)}, "
        f"NICs of {format_rate(record.scale['nic_mbps'])}, routing {e['routing']}, placement {e['placement']}."
    )


def _warning(row: RowResult) -> str:
    return (
        "What follows was measured all the same, and says more of this machine than of the network."
        if row.verdict == "invalid"
        else ""
    )


def _how_long(row: RowResult) -> str:
    if math.isnan(row.time_s):
        return f"At {format_size(row.size_bytes)} no iteration was completed."
    spread = f", CV {share(row.cv)}" if row.iterations > 1 else ""
    rate = "" if math.isnan(row.busbw_gbytes_s) else f"; busbw is {number(row.busbw_gbytes_s)} GB/s"
    mean = f"mean of {row.iterations}" if row.iterations > 1 else "one iteration"
    return f"At {format_size(row.size_bytes)} an iteration took {duration(row.time_s)} ({mean}{spread}){rate}."


def _how_far(row: RowResult) -> str:
    if math.isnan(row.time_s):
        return ""
    parts = []
    if not math.isnan(row.jct_ratio):
        parts.append(f"{times(row.jct_ratio)} the roofline of {duration(row.roofline_s)} ({_judged(row.jct_ratio)})")
    if row.predicted_s > 0:
        factor = row.time_s / row.predicted_s
        explained = "which explains it" if abs(factor - 1) <= _EXPLAINED else "which does not explain it"
        parts.append(f"{times(factor)} the prediction of {duration(row.predicted_s)}, {explained}")
    else:
        parts.append("there is no prediction to compare with")
    return f"That is {' and '.join(parts)}."


def _judged(jct_ratio: float) -> str:
    if jct_ratio <= _EXCELLENT:
        return "excellent: at most 1.05"
    return "significant overhead: above 1.15" if jct_ratio > _OVERHEAD else "between 1.05 and 1.15"


def _bottleneck(record: RunRecord, row: RowResult, totals: Sequence[LinkTotal]) -> Iterator[str]:
    sent = [t for t in totals if t.bytes_sent]
    hottest = max(sent, key=lambda t: t.utilisation, default=None)
    if not row.bottleneck:
        why = next((n.removeprefix(NO_PREDICTION) for n in record.notes if n.startswith(NO_PREDICTION)), "")
        if why:
            yield f"No prediction is made because {why}."
        if hottest:
            yield f"The hottest link was {arrow(hottest.link)}, at {share(hottest.utilisation)} of its rate by the counters."
        return
    own = next((t for t in totals if t.link == row.bottleneck), None)
    seen = f", and the counters saw it at {share(own.utilisation)} of its rate" if own else ""
    yield f"The bottleneck is {arrow(row.bottleneck)}: of all links it has most to send for its rate{seen}."
    yield _why(record, row, own, totals)
    if own and hottest and hottest.utilisation > own.utilisation * (1 + _EXPLAINED):
        yield (
            f"But the hottest link by the counters was {arrow(hottest.link)}, at {share(hottest.utilisation)}: what the "
            "plan expected is not what was sent."
        )


def _why(record: RunRecord, row: RowResult, own: LinkTotal | None, totals: Sequence[LinkTotal]) -> str:
    source, _, target = row.bottleneck.partition("->")
    rank = next((r for r, host in enumerate(record.hosts) if host in (source, target)), None)
    if rank is not None:
        return (
            f"It is the link of rank {rank} itself: the switches behind it are not the limit, the collective's own bytes "
            f"are (roofline: {record.roofline})."
        )
    group = next((b for b in record.balance if b.switch == source and b.size_bytes == row.size_bytes), None)
    if group is None or not group.flows:
        nics = max((t.planned_bytes for t in totals if t.link.partition("->")[0] in record.hosts), default=0.0)
        if own is None or not nics:
            return "It lies between switches, where the messages of several ranks share it."
        factor = own.planned_bytes / nics
        return f"It lies between switches; by the plan it carries {factor:.2f} times what the busiest rank sends."
    return f"It is one of {group.links} parallel links of {source}, which {plural(group.flows, 'flow')} share: {sharing(group)}."


def sharing(group: GroupBalance) -> str:
    """'the busiest carries 2.00 times the mean, as chance gives (95 % of random hashings: 1.00 to 2.00)'."""
    text = f"the busiest carries {group.mmr:.2f} times the mean"
    if math.isnan(group.mmr_low):
        return text
    verb = "outside what chance gives" if unusual(group) else "as chance gives"
    return f"{text}, {verb} (95 % of random hashings: {group.mmr_low:.2f} to {group.mmr_high:.2f})"


def unusual(group: GroupBalance) -> bool:
    """Whether chance alone does not explain the max-mean ratio. Counters hold acknowledgements too: a little more or less than
    the band's edges, which few flows reach exactly, is no other hashing."""
    if math.isnan(group.mmr_low):
        return False
    return not CollisionBand(group.mmr_expected, group.mmr_low - 0.02, group.mmr_high + 0.02).explains(group.mmr)


def _straggler(record: RunRecord, ranks: RankTimes | None) -> Iterator[str]:
    found = stands_out(ranks) if ranks else None
    if found:
        host = f" ({record.hosts[found.rank]})" if found.rank < len(record.hosts) else ""
        yield (
            f"Rank {found.rank}{host} {found.what} for {duration(found.seconds)} of an iteration, the median rank for "
            f"{duration(found.median_s)}."
        )
