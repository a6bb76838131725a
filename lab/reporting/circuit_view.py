"""The section on circuits: a slider over the fabric and the timeline, and what came of the dark times. Pure text building."""

from collections import defaultdict

from lab.reporting import pieces
from lab.reporting.charts import circuits as chart
from lab.reporting.wording import MISSING, count, duration, share, unit_for
from lab.rows import CircuitRecord, CircuitTotal, RunRecord
from topologies import drawing
from topologies.fabric import Fabric
from topologies.units import format_size

_HEAD = (
    "size", "circuits set", "dark too long", "dark asked", "longest dark", "duty cycle planned", "measured",
    "slices late by", "bytes by circuits", "by packets", "lost in the dark",
)  # fmt: skip


def pictures(record: RunRecord, fabric: Fabric) -> str:
    """The fabric with the circuits of a moment, the slider, the timeline. '' where no circuit was up."""
    largest = max((total.size_bytes for total in record.circuit_totals), default=0)
    dilation = record.scale["time_dilation"]
    chosen = chart.shown([one for one in record.circuits if one.size_bytes == largest])
    if not chosen:
        return ""
    line = chart.timeline(chosen, dilation)
    unit = unit_for([line.end_s])
    more = len([one for one in record.circuits if one.size_bytes == largest]) - len(chosen)
    caption = (
        f"Circuits during {format_size(largest)}, in the colour of where they lead, as in the timeline below; dotted lines are "
        "dark. The slider moves the moment that is drawn." + (f" {more} more stand in circuits.csv." if more else "")
    )
    slider = (
        f'<label class="slider">moment <input type="range" id="circuit-time" min="0" max="{line.end_s:.9g}" step="any" '
        f'value="{_first_light(chosen, dilation):.9g}" data-left="{line.left:.5f}" data-right="{line.right:.5f}" '
        f'data-unit="{unit.seconds:g}" data-name="{unit.name}"><output id="circuit-count"></output></label>\n'
    )
    return (
        pieces.figure(drawing.svg(fabric, lights=_lights(chosen, dilation)), caption, "circuits-in-the-fabric")
        + slider
        + f'<div class="over">{pieces.figure(line.picture, "", "circuits-over-time")}'
        + f'<div class="cursor" id="circuit-cursor" style="top:{line.above:.2%};bottom:{line.below:.2%}"></div></div>\n'
    )


def _first_light(circuits: list[CircuitRecord], dilation: float) -> float:
    """A moment in the middle of the first circuit's light."""
    first = circuits[0]
    return ((first.up_s + first.down_s) / 2 - chart.begin_of(circuits)) / dilation


def _lights(circuits: list[CircuitRecord], dilation: float) -> list[drawing.Light]:
    origin_s, moment_s = chart.begin_of(circuits), _first_light(circuits, dilation)
    of_ends: dict[tuple[str, str, str], list[CircuitRecord]] = defaultdict(list)
    for one in circuits:
        of_ends[one.source, one.ocs, one.target].append(one)
    found, looks = [], chart.looks(circuits)
    for (source, ocs, target), ups in of_ends.items():
        lit = [((one.up_s - origin_s) / dilation, (one.down_s - origin_s) / dilation) for one in ups]
        dark = [
            ((one.up_s - chart.dark_s(one) - origin_s) / dilation, begin)
            for one, (begin, _) in zip(ups, lit, strict=True)
        ]
        up, before = _flat(lit), _flat(dark)
        now = " lit" if any(a <= moment_s < b for a, b in lit) else ""
        found.append(
            drawing.Light(
                chart.switch(source), ocs, chart.switch(target),
                f'class="circuit{now}" stroke="{looks[chart.switch(target)][0]}" data-up="{up}" data-dark="{before}"',
            )
        )  # fmt: skip
    return found


def _flat(spans: list[tuple[float, float]]) -> str:
    return " ".join(f"{t:.7g}" for span in spans for t in span)


def totals(record: RunRecord) -> str:
    """What circuits and dark times did, size by size; '' where the run had none."""
    if not record.circuit_totals:
        return ""
    e = record.experiment
    about = f"{e['circuits']} on {e['dark']}; in the dark: {e['in_the_dark']}. A circuit that is set is one way."
    rows = [_cells(total, record.scale["time_dilation"]) for total in record.circuit_totals]
    return pieces.section("Circuits and dark times", "dark", pieces.paragraph(about, "soft"), pieces.table(_HEAD, rows))


def _cells(t: CircuitTotal, dilation: float) -> tuple[str, ...]:
    changed = t.shortest_slice_us > 0

    def time(emulated_us: float) -> str:
        return duration(emulated_us / 1e6 / dilation) if changed else MISSING

    return (
        format_size(t.size_bytes), str(t.set_up), str(t.unmet), time(t.requested_dark_us), time(t.worst_dark_us),
        share(t.planned_duty_cycle), share(t.duty_cycle), time(t.late_us), count(t.bytes_by_circuits),
        count(t.bytes_by_packets), count(t.bytes_lost),
    )  # fmt: skip
