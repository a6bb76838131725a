"""Fabrics side by side: the smallest instance of each for one number of accelerators, as one table.

A fabric that cannot be so large is a row with the reason.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topologies.bill import Bill
from topologies.errors import TopologyError
from topologies.miniature import LEAST_MINIATURE, MOST_MINIATURE, Miniature, miniature
from topologies.prices import DEFAULT_PRICES, Prices
from topologies.sizing import Size, Unreachable, Want, sized


@dataclass(frozen=True)
class Terms:
    """What is compared: rate_gbps: of every link; optics: one of bill.OPTICS; miniature: accelerators of the smaller
    siblings, None: none are asked for."""

    want: Want
    rate_gbps: float = 400.0
    optics: str = "dsp"
    prices: Prices = DEFAULT_PRICES
    miniature: int | None = None

    def __post_init__(self) -> None:
        if self.miniature is not None and not LEAST_MINIATURE <= self.miniature <= MOST_MINIATURE:
            raise TopologyError(
                f"--miniature {self.miniature} is no size to emulate: use {LEAST_MINIATURE} to {MOST_MINIATURE}"
            )


def compare(fabrics: Iterable[str], terms: Terms) -> list[dict[str, Any]]:
    """A row for each fabric, as plain data with units in its keys. A fabric that cannot be so large has `reason` and
    `max_accelerators` instead of figures."""
    return [_row(name, terms) for name in dict.fromkeys(fabrics)]


def _row(name: str, terms: Terms) -> dict[str, Any]:
    try:
        size = sized(name, terms.want)
    except Unreachable as error:
        return {"fabric": name, "reason": str(error), "max_accelerators": error.most}
    row = _figures(size, size.bill(terms.rate_gbps, terms.optics), terms)
    if terms.miniature is not None:
        row["miniature"] = _miniature(miniature(size, terms.miniature))
    return row


def _figures(size: Size, bill: Bill, terms: Terms) -> dict[str, Any]:
    bisection = size.bisection_links
    return {
        "fabric": size.fabric,
        "parameters": dict(size.parameters),
        "topology": size.text if size.buildable else None,
        "hosts": size.hosts,
        "surplus_hosts": size.hosts - terms.want.accelerators,
        "switches": size.switches,
        "ocs": size.ocs,
        "radix": size.radix,
        "cables": bill.by_cable,
        "cable_ends": bill.cable_ends,
        "transceivers": bill.transceivers,
        "cost": round(bill.cost_usd(terms.prices)),
        "power_w": round(bill.power_w(terms.prices)),
        "bisection_gbps": None if bisection is None else bisection * terms.rate_gbps,
        "bisection_share": size.bisection_share,
        "diameter": size.diameter,
        "path_diversity": size.path_diversity,
        "failures_per_year": round(bill.failures_per_year(terms.prices), 2),
        "moved_cables": size.moved,
        "note": size.note,
    }


def _miniature(small: Miniature | None) -> dict[str, Any] | None:
    if small is None:
        return None
    return {"topology": small.size.text, "hosts": small.size.hosts, "not_kept": small.not_kept}


# -- for the terminal -----------------------------------------------------------------------------------------------

# (title, unit, text of a row)
_COLUMNS: tuple[tuple[str, str, Callable[[Mapping[str, Any]], str]], ...] = (
    ("fabric", "", lambda r: r["fabric"]),
    ("switches", "", lambda r: f"{r['switches']}"),
    ("OCS", "", lambda r: f"{r['ocs']}"),
    ("cables", "", lambda r: f"{sum(r['cables'].values())}"),
    ("cable", "ends", lambda r: f"{r['cable_ends']}"),
    ("trans-", "ceivers", lambda r: f"{r['transceivers']}"),
    ("cost", "(M$)", lambda r: f"{r['cost'] / 1e6:.2f}"),
    ("power", "(kW)", lambda r: f"{r['power_w'] / 1e3:.1f}"),
    ("bisection", "(Tbit/s)", lambda r: _number(r["bisection_gbps"], 1e-3)),
    ("of full", "(%)", lambda r: _number(r["bisection_share"], 100)),
    ("diameter", "(links)", lambda r: _number(r["diameter"])),
    ("surplus", "hosts", lambda r: f"{r['surplus_hosts']}"),
    ("failures", "(1/year)", lambda r: f"{r['failures_per_year']:.1f}"),
    ("moved at", "2x (cables)", lambda r: _number(r["moved_cables"])),
)


def compare_text(rows: Sequence[Mapping[str, Any]], terms: Terms) -> str:
    """What `compare` gave, to read: the table, then what each instance is."""
    want, fitting = terms.want, [row for row in rows if "reason" not in row]
    asked = f"{want.accelerators} accelerators, {want.hb_domain} per HB domain; switch radix {want.radix}"
    lines = [f"# Smallest instances for {asked}, {terms.rate_gbps:g} Gbit/s links, {terms.optics} optics"]
    if fitting:
        lines += _table([[text(row) for *_, text in _COLUMNS] for row in fitting])
    lines += [f"{row['fabric']}: not possible: {row['reason']}" for row in rows if "reason" in row]
    lines += ["", *(_instance(row) for row in fitting)]
    if terms.miniature is not None:
        lines += ["", f"To emulate, about {terms.miniature} accelerators:", *(_sibling(row) for row in fitting)]
    lines += [
        "",
        "# cable ends: two of each cable but for those in an OCS, what papers count as transceivers",
        "# transceivers: modules or co-packaged engines at the ends of fibre; DAC and AOC have their ends on",
        "# moved at 2x: cables unplugged when the accelerators double; -: it cannot at this radix",
        f"# prices, powers and failure rates: {terms.prices.source}",
    ]
    return "\n".join(lines)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head = [[title for title, *_ in _COLUMNS], [unit for _, unit, _ in _COLUMNS]]
    lines = [*head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))).rstrip()
        for line in lines
    ]  # fmt: skip


def _instance(row: Mapping[str, Any]) -> str:
    parameters = ", ".join(f"{key}={value}" for key, value in row["parameters"].items())
    return f"{row['fabric']}: {parameters}" + (f" ({row['note']})" if row["note"] else "")


def _sibling(row: Mapping[str, Any]) -> str:
    small = row["miniature"]
    if small is None:
        return f"{row['fabric']}: none of its instances has about that size"
    lost = ", ".join(f"{name} {_short(big)} -> {_short(little)}" for name, (big, little) in small["not_kept"].items())
    return f"--topology {shlex.quote(small['topology'])}  ({small['hosts']} hosts; not kept: {lost or 'nothing'})"


def _short(value: float | None) -> str:
    return "?" if value is None else f"{value:.4g}"


def _number(value: float | None, factor: float = 1.0) -> str:
    return "-" if value is None else f"{value * factor:.4g}" if factor != 1 else f"{value}"
