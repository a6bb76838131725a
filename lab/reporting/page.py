"""What surrounds the report's sections: the style sheet, also for print, and the one script, which moves the circuits' slider."""

from html import escape

_STYLE = """
:root { --ink: #1f2933; --soft: #52606d; --line: #d9e0e7; --ok: #1b6e43; --degraded: #8a4b00; --invalid: #b42318; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; color: var(--ink); background: #eef1f4;
  margin: 0; }
main { max-width: 1240px; margin: 0 auto; padding: 30px 34px 60px; background: #fff; min-height: 100vh; }
h1 { font-size: 25px; line-height: 1.25; margin: 0 0 4px; font-weight: 650; }
h2 { font-size: 18px; margin: 40px 0 8px; padding-bottom: 5px; border-bottom: 1px solid var(--line); font-weight: 650; }
h3 { font-size: 14px; margin: 14px 0 4px; font-weight: 650; }
p, li { max-width: 100ch; } p { margin: 6px 0; } ul { margin: 6px 0; padding-left: 20px; }
.soft, figcaption { color: var(--soft); font-size: 13.5px; }
.answer { border: 1px solid var(--line); border-left: 8px solid var(--line); border-radius: 6px; padding: 10px 18px;
  margin: 16px 0; }
.answer p { font-size: 16px; } .answer .verdict { font-size: 18px; font-weight: 650; }
.answer.ok { border-left-color: var(--ok); } .answer.degraded { border-left-color: #c77d0a; }
.answer.invalid { border-left-color: var(--invalid); }
.banner { padding: 9px 14px; border-radius: 6px; margin: 14px 0; background: #fdeceb; color: var(--invalid); }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 14px 0 4px; }
.card { flex: 1 1 170px; border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; }
.card b { display: block; font-size: 22px; font-weight: 650; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; width: 100%; margin: 6px 0; }
table.narrow { width: auto; min-width: 50%; }
th { text-align: right; font-weight: 600; color: var(--soft); padding: 5px 6px; border-bottom: 2px solid var(--line);
  vertical-align: bottom; }
td { text-align: right; padding: 5px 6px; border-bottom: 1px solid var(--line); white-space: nowrap; vertical-align: top; }
th.text, td.text { text-align: left; white-space: normal; }
td.wide { white-space: normal; overflow-wrap: anywhere; min-width: 170px; text-align: left; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(330px, 1fr)); gap: 4px 36px; }
.mark { font-weight: 650; }
.mark.ok { color: var(--ok); } .mark.degraded { color: var(--degraded); } .mark.invalid { color: var(--invalid); }
figure { margin: 12px 0; } figure svg { display: block; width: 100%; height: auto; }
details summary { cursor: pointer; font-weight: 650; margin: 8px 0; }
pre { font-size: 12px; white-space: pre-wrap; overflow-wrap: anywhere; color: var(--soft); }
.slider { display: flex; gap: 14px; align-items: center; margin: 8px 0; }
.slider input { flex: 1; }
.slider output { min-width: 22ch; font-variant-numeric: tabular-nums; }
.over { position: relative; } .over figure { margin: 0; }
.cursor { position: absolute; width: 0; border-left: 2px solid var(--invalid); pointer-events: none; }
path.circuit { display: none; stroke-width: 3.5; }
path.circuit.lit { display: inline; }
path.circuit.dark { display: inline; stroke-dasharray: 2 7; stroke: #1f2933; stroke-width: 2; }
@page { size: A4 landscape; margin: 12mm; }
@media print {
  body { background: #fff; font-size: 11pt; } main { padding: 0; max-width: none; }
  h2 { break-after: avoid; } figure, .answer, .card, tr { break-inside: avoid; }
  .slider input { display: none; } .scroll { overflow: visible; }
  td, th { padding: 3px 5px; font-size: 9pt; } td { white-space: normal; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
}
"""

# data-up of a circuit: begin, end, begin, end ... of its light; data-dark: of the dark before it. Hardware seconds.
_SCRIPT = """
const slider = document.getElementById("circuit-time");
if (slider) {
  const within = (text, t) => text.split(" ").map(Number).some((from, i, all) => i % 2 == 0 && from <= t && t < all[i + 1]);
  const show = () => {
    const t = Number(slider.value), d = slider.dataset;
    let lit = 0, dark = 0;
    for (const path of document.querySelectorAll("path.circuit")) {
      const up = within(path.dataset.up, t), waits = !up && within(path.dataset.dark, t);
      path.classList.toggle("lit", up);
      path.classList.toggle("dark", waits);
      lit += up;
      dark += waits;
    }
    const share = (t - slider.min) / (slider.max - slider.min);
    document.getElementById("circuit-cursor").style.left = 100 * (+d.left + share * (d.right - d.left)) + "%";
    document.getElementById("circuit-count").textContent =
      `${(t / d.unit).toFixed(2)} ${d.name}: ${lit} lit, ${dark} dark`;
  };
  slider.addEventListener("input", show);
  show();
}
"""


def page(title: str, body: str, *, scripted: bool) -> str:
    """The whole document. title: plain text; scripted: whether the body has the slider."""
    script = f"<script>{_SCRIPT}</script>" if scripted else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><main>\n{body}</main>{script}</body></html>\n"
    )
