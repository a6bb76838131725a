"""The section on balance over parallel links. Pure text building."""

import math
from collections import defaultdict
from html import escape

from lab.kpis import parallel_uplinks
from lab.reporting import pieces
from lab.reporting.answer import sharing, unusual
from lab.reporting.charts.balance import MOST_SWITCHES, balance, shown
from lab.reporting.wording import MISSING, count, plural, ratio
from lab.rows import RowResult, RunRecord
from topologies.fabric import Fabric

_HEAD = (
    "stage", "switches", "links each", "flows", "least even", "MMR", "random: mean", "95 % of it", "JFI", "random: mean",
    "95 % of it",
)  # fmt: skip


def section(record: RunRecord, fabric: Fabric, row: RowResult | None) -> str:
    found = [b for b in record.balance if row and b.size_bytes == row.size_bytes]
    drawn = balance(found)
    if not drawn:
        why = (
            "No switch of this fabric has parallel links to a next tier."
            if not parallel_uplinks(fabric)
            else "Nothing was sent over parallel links."
        )
        return pieces.section("Balance over parallel links", "balance", pieces.paragraph(why, "soft"))
    stages = defaultdict(list)
    for one in (b for b in found if b.bytes_sent):
        stages[one.stage].append(one)
    rows = []
    for stage, group in sorted(stages.items()):
        worst = max(group, key=lambda b: b.mmr)
        each = sorted({b.links for b in group})
        rows.append((
            str(stage), str(len(group)), f"{each[0]}" if len(each) == 1 else f"{each[0]} to {each[-1]}",
            count(worst.flows or math.nan), worst.switch, ratio(worst.mmr), ratio(worst.mmr_expected),
            _range(worst.mmr_low, worst.mmr_high), ratio(worst.jfi), ratio(worst.jfi_expected),
            _range(worst.jfi_low, worst.jfi_high),
        ))  # fmt: skip
    left = sum(bool(b.bytes_sent) for b in found) - len(shown(found))
    chance = (
        "Green: what as many equal flows give when each is hashed by itself (multinomial): a mark inside it is as good as ideal "
        "ECMP gets; only a mark outside it says something about the hash."
        if any(b.flows for b in found)
        else "The flows' paths are not known, so what chance alone would give is not drawn."
    )
    more = f" The {MOST_SWITCHES} least even switches; {left} more are more even." if left else ""
    caption = f"Bytes counted on each switch's links to the next stage. {chance}{more}"
    return pieces.section(
        "Balance over parallel links",
        "balance",
        pieces.figure(drawn, caption, "balance-by-switch"),
        pieces.table(_HEAD, rows, text_columns=(4,)),
        pieces.bullets(
            escape(f"{b.switch}: {plural(b.flows, 'flow')} on {b.links} links: {sharing(b)}")
            for b in shown(found)
            if unusual(b)
        ),
    )


def _range(low: float, high: float) -> str:
    return MISSING if math.isnan(low) else f"{low:.2f} to {high:.2f}"
